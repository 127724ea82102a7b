"""Networks around the heads."""

from ecoc.models.captioner import Captioner
from ecoc.models.embeddings import CodeEmbedding, TokenEmbedding
from ecoc.models.encoders import FeatureEncoder, SmallCNN
from ecoc.models.language_model import LanguageModel
from ecoc.models.lstm import VariationalLSTM

__all__ = [
    "Captioner",
    "CodeEmbedding",
    "FeatureEncoder",
    "LanguageModel",
    "SmallCNN",
    "TokenEmbedding",
    "VariationalLSTM",
]
