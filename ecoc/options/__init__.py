"""Options of the command line and of YAML files; plain Python, so that ``--help`` need not wait for torch."""

from typing import TypeAlias

from ecoc.options.captions import CaptionEvalOptions, CaptionTrainOptions, DescribeOptions, FeaturesOptions
from ecoc.options.checks import flag, typed
from ecoc.options.codebook import CodebookBuildOptions, CodebookNearestOptions, CodebookShowOptions
from ecoc.options.experiments import ReportOptions, ReproduceOptions
from ecoc.options.model import CODED, ModelOptions
from ecoc.options.train import TrainOptions
from ecoc.options.use import EvalOptions, GenerateOptions, InfoOptions, SuggestOptions

RunOptions: TypeAlias = TrainOptions | CaptionTrainOptions  # what a run is trained with

__all__ = [
    "CODED",
    "CaptionEvalOptions",
    "CaptionTrainOptions",
    "CodebookBuildOptions",
    "CodebookNearestOptions",
    "CodebookShowOptions",
    "DescribeOptions",
    "EvalOptions",
    "FeaturesOptions",
    "GenerateOptions",
    "InfoOptions",
    "ModelOptions",
    "ReportOptions",
    "ReproduceOptions",
    "RunOptions",
    "SuggestOptions",
    "TrainOptions",
    "flag",
    "typed",
]
