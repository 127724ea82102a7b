"""ecoc: output heads that predict error-correcting codewords, and their peers, for large vocabularies."""

from ecoc import codes, heads

__version__ = "0.1.0"
__all__ = ["codes", "heads"]
