"""Sequences out of a model."""

from ecoc.decode.beam import Beam, search
from ecoc.decode.generate import Sampling, beam_search, generate

__all__ = ["Beam", "Sampling", "beam_search", "generate", "search"]
