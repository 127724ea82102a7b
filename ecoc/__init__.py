"""ecoc: output heads that predict error-correcting codewords, and their peers, for large vocabularies."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
_ROOMS = ("codes", "data", "decode", "feeding", "heads", "metrics", "models", "training")
_HOMES = {
    "TrainedCaptioner": "ecoc.captioning",
    "TrainedModel": "ecoc.language",
    "WordCode": "ecoc.wordcode",
    "load": "ecoc.trained",
}
__all__ = [
    "TrainedCaptioner",
    "TrainedModel",
    "WordCode",
    "codes",
    "data",
    "decode",
    "feeding",
    "heads",
    "load",
    "metrics",
    "models",
    "training",
]

if TYPE_CHECKING:
    from ecoc import codes, data, decode, feeding, heads, metrics, models, training
    from ecoc.captioning import TrainedCaptioner
    from ecoc.language import TrainedModel
    from ecoc.trained import load
    from ecoc.wordcode import WordCode


def __getattr__(name: str) -> Any:
    """Rooms are loaded when first used: torch takes seconds, which ``ecoc --help`` need not wait for."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return import_module(f"ecoc.{name}")
    raise AttributeError(f"module 'ecoc' has no attribute {name!r}")
