"""How good a model is."""

from ecoc.metrics.captions import meteor, score_captions
from ecoc.metrics.exposure import free_running
from ecoc.metrics.language import Scorer, Scores, evaluate

__all__ = ["Scorer", "Scores", "evaluate", "free_running", "meteor", "score_captions"]
