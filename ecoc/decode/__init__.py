"""Sequences out of a model."""

from ecoc.decode.generate import Beam, Sampling, beam_search, generate

__all__ = ["Beam", "Sampling", "beam_search", "generate"]
