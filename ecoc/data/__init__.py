"""Text as token ids."""

from ecoc.data.builtin import builtin_sentences

__all__ = ["builtin_sentences"]
