"""Text as token ids: vocabularies, corpora, batches."""

from ecoc.data.batches import Batches
from ecoc.data.builtin import builtin_sentences, builtin_splits
from ecoc.data.corpus import Corpus, encode_file, open_corpus
from ecoc.data.vocabulary import EOS, UNK, Vocabulary, tokenise

__all__ = [
    "EOS",
    "UNK",
    "Batches",
    "Corpus",
    "Vocabulary",
    "builtin_sentences",
    "builtin_splits",
    "encode_file",
    "open_corpus",
    "tokenise",
]
