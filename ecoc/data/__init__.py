"""Text as token ids, and images with captions: vocabularies, corpora, batches."""

from ecoc.data.batches import Batches
from ecoc.data.builtin import builtin_sentences, builtin_splits
from ecoc.data.caption_batches import CaptionBatch, CaptionBatches
from ecoc.data.captions import CaptionData, CaptionedImage, open_captions
from ecoc.data.corpus import Corpus, encode_file, open_corpus
from ecoc.data.scenes import builtin_scenes
from ecoc.data.vocabulary import EOS, UNK, Vocabulary, tokenise

__all__ = [
    "EOS",
    "UNK",
    "Batches",
    "CaptionBatch",
    "CaptionBatches",
    "CaptionData",
    "CaptionedImage",
    "Corpus",
    "Vocabulary",
    "builtin_scenes",
    "builtin_sentences",
    "builtin_splits",
    "encode_file",
    "open_captions",
    "open_corpus",
    "tokenise",
]
