"""How good a model is."""

from ecoc.metrics.captions import meteor, score_captions
from ecoc.metrics.exposure import free_running
from ecoc.metrics.flips import bit_flips
from ecoc.metrics.language import Scorer, Scores, caption_words, evaluate, evaluate_captions

__all__ = [
    "Scorer",
    "Scores",
    "bit_flips",
    "caption_words",
    "evaluate",
    "evaluate_captions",
    "free_running",
    "meteor",
    "score_captions",
]
