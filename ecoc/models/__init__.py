"""Networks around the heads."""

from ecoc.models.embeddings import CodeEmbedding, TokenEmbedding
from ecoc.models.language_model import LanguageModel
from ecoc.models.lstm import VariationalLSTM

__all__ = ["CodeEmbedding", "LanguageModel", "TokenEmbedding", "VariationalLSTM"]
