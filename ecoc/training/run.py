"""A run's folder, and the model in it.

config.json            the options it was trained with
vocabulary.json        words, counts, tokeniser
codebook.safetensors   the code, if there is one
order.safetensors      the order of words of a tree by embedding, if there is one
vectors.safetensors    word vectors that the embedding table started from, if it did
images.json            shape of an image's features, of a captioner
projection.npz         what these features went through, if they did
best.safetensors       weights at the best validation perplexity
last.ckpt              all that --resume needs
log.jsonl              a line an epoch, and one a few hundred steps
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ecoc import feeding, heads
from ecoc.feeding import Policy
from ecoc.models import (
    Captioner,
    CodeEmbedding,
    FeatureEncoder,
    LanguageModel,
    SmallCNN,
    TokenEmbedding,
    VariationalLSTM,
)
from ecoc.options import CODED, CaptionTrainOptions, ModelOptions, RunOptions, TrainOptions, typed
from ecoc.training.checkpoint import load_weights, written_whole
from ecoc.training.parts import CODEBOOK, IMAGES, ORDER, PROJECTION, VECTORS, VOCABULARY, Parts

CONFIG, DATA, TENSORBOARD = "config.json", "data", "tensorboard"
BEST, LAST, LOG = "best.safetensors", "last.ckpt", "log.jsonl"


@contextmanager
def new_folder(folder: Path, overwrite: bool, mark: str) -> Iterator[Path]:
    """A folder to fill, which becomes `folder` when the block ends well and leaves nothing behind otherwise.

    An old one is replaced only then, only if asked to, and only if it is one of ours: if it has the file `mark`.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose another --out")
    if folder.exists() and any(folder.iterdir()):
        if not overwrite:
            resume = "--resume goes on with it, " if mark == CONFIG else ""
            raise ValueError(f"{folder} exists: {resume}--overwrite replaces it; or choose another --out")
        others = [path.name for path in folder.iterdir() if not _is_ours(path, mark)]
        if others or not (folder / mark).is_file():
            what = f"has {others[0]}" if others else f"has no {mark}"
            raise ValueError(f"{folder} {what}, so --overwrite leaves it alone: choose another --out")
    new = unfinished(folder)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _is_ours(path: Path, mark: str) -> bool:
    """Whether a file or folder in a run's folder (mark: its config) or a codebook's is one that we wrote."""
    code = (VOCABULARY, CODEBOOK)
    names = (
        code if mark == CODEBOOK else (*code, CONFIG, ORDER, VECTORS, BEST, LAST, LOG, TENSORBOARD, IMAGES, PROJECTION)
    )
    if mark == CONFIG and path.name == DATA:
        return all(re.search(r"-[0-9a-f]{16}$|\.unfinished$", below.name) for below in path.iterdir())
    return re.sub(r"\.tmp\d+$", "", path.name) in names


def unfinished(folder: Path) -> Path:
    """Where a folder is before it is whole."""
    return folder.with_name(f".{folder.name}.new")


def build_model(options: TrainOptions, parts: Parts) -> LanguageModel:
    """A language model, with weights as they start."""
    embedding, lstm, head, policy = _decoder(options, parts)
    return LanguageModel(embedding, lstm, head, options.tie, policy, options.sequential)


def build_captioner(options: CaptionTrainOptions, parts: Parts) -> Captioner:
    """A captioner, with weights as they start."""
    assert parts.features is not None
    shape, attention = parts.features, options.image == "attention"
    encoder: SmallCNN | FeatureEncoder
    if options.captions is None:
        encoder = SmallCNN(options.hidden, (shape[0], shape[1]), attention)
    elif len(shape) != (2 if attention else 1):
        wanted = "a grid, which `ecoc features --grid` makes" if attention else "one vector"
        raise ValueError(f"--image {options.image} needs {wanted} for each image, the features have shape {shape}")
    else:
        encoder = FeatureEncoder(shape[-1], options.hidden, options.dropout)
    # as large as the image beside them: from a small start words and image take long to be told apart
    embedding, lstm, head, policy = _decoder(options, parts, deviation=1.0)
    return Captioner(encoder, embedding, lstm, head, options.image, policy, options.sequential)


def _decoder(
    options: ModelOptions, parts: Parts, deviation: float | None = None
) -> tuple[TokenEmbedding | CodeEmbedding, VariationalLSTM, heads.Head, Policy | None]:
    if options.uses_code and parts.codebook is None:
        raise ValueError(f"{CODEBOOK} is missing, which --head {options.head} needs: train again, or use another run")
    size, vocabulary = options.hidden, parts.vocabulary
    wanted = {
        "samples": options.samples,
        "proposal": options.proposal,
        "tree": options.tree,
        "order": parts.order if parts.order is not None else options.order,
        "frequent": options.frequent,
        "objective": options.objective,
        "mixture": options.mixture,
        "layers": options.predictor_layers,
        "codebook": parts.codebook if options.head in CODED else None,
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    head = heads.build(options.head, size, len(vocabulary), vocabulary.counts_tensor(), **given)
    embedding: TokenEmbedding | CodeEmbedding
    if options.by_code:
        assert parts.codebook is not None
        embedding = CodeEmbedding(parts.codebook, size)
    else:
        embedding = TokenEmbedding(len(vocabulary), size, parts.vectors, deviation)
    lstm = VariationalLSTM(size, size, options.layers, options.dropout, options.recurrent_dropout)
    return embedding, lstm, head, build_feeding(options, head, embedding)


def build_feeding(options: ModelOptions, head: heads.Head, embedding: TokenEmbedding | CodeEmbedding) -> Policy | None:
    """The feeding policy that the options ask for; None for teacher forcing."""
    names = ("sampled", "thresholds", "temperature", "straight_through", "by_token")
    given = {name: getattr(options, name) for name in names if getattr(options, name) not in (None, False)}
    if options.feeding == "teacher":
        return None
    mixing = 0.5 if options.mixing is None else options.mixing
    schedule = feeding.Schedule(options.schedule or "sigmoid", options.epochs, mixing)
    return feeding.build(options.feeding, head, embedding, schedule, **given)


def save_config(options: RunOptions, folder: Path) -> None:
    """Write the options of a run."""
    with written_whole(folder / CONFIG) as temporary:
        temporary.write_text(json.dumps(options.as_dict(), indent=1) + "\n", encoding="utf-8")


def load_config(folder: Path) -> RunOptions:
    """Options of a run."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is no folder of a run: train one with `ecoc train` or `ecoc caption train`, --out {folder}"
        )
    if not path.is_file():
        raise ValueError(f"{folder} has no {CONFIG}: it is no run")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        kind = {kind.command: kind for kind in (TrainOptions, CaptionTrainOptions)}[stored.pop("command")]
        options: RunOptions = kind(**typed(kind, stored, str(path)))
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): train again, or use another run") from error
    return options


def load_model(folder: Path) -> tuple[LanguageModel, Parts, TrainOptions]:
    """A trained language model in evaluation mode, its parts and options."""
    options = load_config(folder)
    if not isinstance(options, TrainOptions):
        raise ValueError(f"{folder} is a captioner: use `ecoc caption eval` and `ecoc caption describe`")
    parts = Parts.load(folder)
    model = build_model(options, parts)
    _load_best(model, folder, parts)
    return model, parts, options


def load_captioner(folder: Path) -> tuple[Captioner, Parts, CaptionTrainOptions]:
    """A trained captioner in evaluation mode, its parts and options."""
    options = load_config(folder)
    if not isinstance(options, CaptionTrainOptions):
        raise ValueError(f"{folder} is a language model, not a captioner: use `ecoc eval`, `generate` and `suggest`")
    parts = Parts.load(folder)
    if parts.features is None:
        raise ValueError(f"{folder} has no {IMAGES}: train again, or use another run")
    model = build_captioner(options, parts)
    _load_best(model, folder, parts)
    return model, parts, options


def _load_best(model: torch.nn.Module, folder: Path, parts: Parts) -> None:
    if not (folder / BEST).is_file():
        raise ValueError(f"{folder} has no {BEST}: its training has not finished an epoch, or the file was lost")
    load_weights(model, folder / BEST, parts.vocabulary.fingerprint)
    model.eval()
