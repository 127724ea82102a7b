"""The table of all commands.

Nothing here imports torch before it is needed, so that ``--help`` answers at once.
"""

from collections.abc import Callable

from ecoc.commands.experiments import report_command, reproduce_command
from ecoc.commands.pictures import caption_eval_command, describe_command, features_command
from ecoc.commands.text import (
    codebook_build_command,
    codebook_nearest_command,
    codebook_show_command,
    eval_command,
    generate_command,
    info_command,
    suggest_command,
    train_command,
)
from ecoc.options import (
    CaptionEvalOptions,
    CaptionTrainOptions,
    CodebookBuildOptions,
    CodebookNearestOptions,
    CodebookShowOptions,
    DescribeOptions,
    EvalOptions,
    FeaturesOptions,
    GenerateOptions,
    InfoOptions,
    ReportOptions,
    ReproduceOptions,
    RunOptions,
    SuggestOptions,
    TrainOptions,
)

Options = (
    RunOptions
    | EvalOptions
    | GenerateOptions
    | SuggestOptions
    | InfoOptions
    | CodebookBuildOptions
    | CodebookShowOptions
    | CodebookNearestOptions
    | CaptionEvalOptions
    | DescribeOptions
    | FeaturesOptions
    | ReproduceOptions
    | ReportOptions
)


COMMANDS: dict[str, tuple[type[Options], Callable[..., int], str]] = {
    "train": (TrainOptions, train_command, "train a language model with any head, or go on training it"),
    "eval": (EvalOptions, eval_command, "perplexity, accuracy and sizes of a run"),
    "generate": (GenerateOptions, generate_command, "write text"),
    "suggest": (SuggestOptions, suggest_command, "the most probable next words"),
    "info": (InfoOptions, info_command, "sizes, codebook and parameters of a run"),
    "codebook build": (CodebookBuildOptions, codebook_build_command, "build a code over the words of a corpus"),
    "codebook show": (CodebookShowOptions, codebook_show_command, "distances, size and balance of a code"),
    "codebook nearest": (CodebookNearestOptions, codebook_nearest_command, "words with the most similar codewords"),
    "caption train": (CaptionTrainOptions, train_command, "train a captioner with any head, or go on training it"),
    "caption eval": (CaptionEvalOptions, caption_eval_command, "BLEU, ROUGE-L, CIDEr, METEOR and sizes of a run"),
    "caption describe": (DescribeOptions, describe_command, "say what is on pictures"),
    "features": (FeaturesOptions, features_command, "features of pictures, for training a captioner"),
    "reproduce": (ReproduceOptions, reproduce_command, "run the paper's tables and figure again"),
    "report": (ReportOptions, report_command, "a page of the results, and tables as Markdown"),
}
GROUPS = {
    "codebook": "build a code, look at it, find the neighbours of a word",
    "caption": "train a captioner, evaluate it, describe pictures with it",
}
