"""Options of the command line and of YAML files; plain Python, so that ``--help`` need not wait for torch."""

from ecoc.options.checks import flag, typed
from ecoc.options.codebook import CodebookBuildOptions, CodebookNearestOptions, CodebookShowOptions
from ecoc.options.train import CODED, TrainOptions
from ecoc.options.use import EvalOptions, GenerateOptions, InfoOptions, SuggestOptions

__all__ = [
    "CODED",
    "CodebookBuildOptions",
    "CodebookNearestOptions",
    "CodebookShowOptions",
    "EvalOptions",
    "GenerateOptions",
    "InfoOptions",
    "SuggestOptions",
    "TrainOptions",
    "flag",
    "typed",
]
