"""What a model is built from beside its options (words, codebook, order, vectors): made from text, kept in files."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from ecoc import codes, heads
from ecoc.codes import Codebook, WordVectors
from ecoc.codes.vectors import progress_bar
from ecoc.data import Vocabulary
from ecoc.data.extract import Projection
from ecoc.options import ModelOptions
from ecoc.training.checkpoint import load_tensor, written_whole

VOCABULARY, CODEBOOK, ORDER = "vocabulary.json", "codebook.safetensors", "order.safetensors"
VECTORS, IMAGES, PROJECTION = "vectors.safetensors", "images.json", "projection.npz"


@dataclass
class Parts:
    """What a model is built from, beside its options."""

    vocabulary: Vocabulary
    codebook: Codebook | None = None
    order: Tensor | None = None
    vectors: Tensor | None = None  # to start an embedding table from
    features: tuple[int, ...] | None = None  # shape of an image's
    projection: Projection | None = None  # that features of images went through

    def save(self, folder: Path) -> None:
        """Write all of it into a run's folder."""
        self.vocabulary.save(folder / VOCABULARY)
        if self.codebook is not None:
            self.codebook.save(folder / CODEBOOK, self.vocabulary.fingerprint)
        for name, tensor in ((ORDER, self.order), (VECTORS, self.vectors)):
            if tensor is not None:
                with written_whole(folder / name) as temporary:
                    save_file({"tensor": tensor}, temporary)
        if self.features is not None:
            with written_whole(folder / IMAGES) as temporary:
                temporary.write_text(json.dumps({"shape": self.features}) + "\n")
        if self.projection is not None:
            self.projection.save(folder / PROJECTION)

    @classmethod
    def load(cls, folder: Path) -> "Parts":
        """Read what :meth:`save` wrote."""
        vocabulary = Vocabulary.load(folder / VOCABULARY)
        codebook = None
        if (folder / CODEBOOK).exists():
            codebook = Codebook.load(folder / CODEBOOK, vocabulary.fingerprint)
        order, vectors = load_tensor(folder / ORDER), load_tensor(folder / VECTORS)
        projection = Projection.load(folder / PROJECTION) if (folder / PROJECTION).exists() else None
        return cls(vocabulary, codebook, order, vectors, _shape_of_features(folder / IMAGES), projection)


def _shape_of_features(path: Path) -> tuple[int, ...] | None:
    if not path.exists():
        return None
    try:
        shape = tuple(int(number) for number in json.loads(path.read_text())["shape"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): train again, or use another run") from error
    return shape


def load_code(folder: Path) -> tuple[Vocabulary, Codebook]:
    """Words and codebook of a run, or of ``ecoc codebook build``."""
    if not (folder / VOCABULARY).is_file():
        raise ValueError(f"{folder} has no {VOCABULARY}: give the folder of a run, or of `ecoc codebook build`")
    if not (folder / CODEBOOK).is_file():
        raise ValueError(f"{folder} has no {CODEBOOK}: its head uses no code")
    parts = Parts.load(folder)
    assert parts.codebook is not None
    if parts.codebook.vocab_size != len(parts.vocabulary):
        raise ValueError(f"{folder} has codes for its rare words alone (--head hybrid): give another run")
    return parts.vocabulary, parts.codebook


def word_vectors(source: str, vocabulary: Vocabulary, ids: np.ndarray, seed: int, progress: bool) -> WordVectors:
    """Vectors from ``contexts``, ``skipgram`` and files, joined by +."""
    found = []
    for name in source.split("+"):
        if name == "contexts":
            found.append(codes.context_vectors(ids, len(vocabulary), seed=seed, progress=progress))
        elif name == "skipgram":
            found.append(codes.skipgram_vectors(ids, len(vocabulary), seed=seed, progress=progress))
        else:
            found.append(codes.read_vectors(name, vocabulary.words, progress=progress))
    return found[0] if len(found) == 1 else codes.concatenate(found)


def prepare(options: ModelOptions, vocabulary: Vocabulary, ids: np.ndarray, progress: bool) -> Parts:
    """Build what the options ask for from the training text: vectors, codebook, order of words."""
    counts = vocabulary.counts_tensor()
    objective = options.objective or "likelihood"
    kind = options.codebook or ("span-unigram" if objective.startswith("span-") else "semantic")
    ready = None if kind in codes.KINDS else _ready_code(kind, options, vocabulary)
    parts = Parts(vocabulary, ready)
    needs_vectors = (
        (options.uses_code and kind in ("semantic", "span-embedding"))
        or options.order == "embedding"
        or options.start_from_vectors
    )
    if options.vectors is not None and not needs_vectors:
        raise ValueError(
            "--vectors has no use here: it needs a semantic code, --order embedding or --start-from-vectors"
        )
    everyone = torch.arange(len(vocabulary))
    covered = _rest_of_hybrid(options, counts) if options.head == "hybrid" else everyone
    bits = options.bits or (40 if kind.startswith("span-") else 512)
    if options.uses_code and bits < (needed := max(1, (len(covered) - 1).bit_length())):  # known before vectors are
        raise ValueError(f"--bits {bits} cannot tell {len(covered)} words apart: use at least {needed}")
    vectors = None
    if needs_vectors:
        vectors = word_vectors(options.vectors or "contexts", vocabulary, ids, options.seed, progress)
    if options.start_from_vectors and vectors is not None:
        parts.vectors = codes.fill_missing(vectors, options.seed)
    if options.uses_code and ready is None:
        with progress_bar(progress) as bar:
            bar.add_task(f"build a {kind} code", total=None)
            matrix = None if vectors is None else codes.fill_missing(vectors, options.seed)[covered]
            parts.codebook = codes.build(kind, len(covered), bits, counts[covered], matrix, options.seed)
    if options.order == "embedding":
        tree = heads.build("hierarchical", 1, len(vocabulary), counts, order="embedding", vectors=vectors)
        parts.order = tree.get_buffer("owner")
    return parts


def _ready_code(folder: str, options: ModelOptions, vocabulary: Vocabulary) -> Codebook:
    """The code that ``--codebook FOLDER`` names, if it fits."""
    if not Path(folder).is_dir():
        raise ValueError(
            f"--codebook {folder} is no folder and no kind of code: choose one of {', '.join(codes.KINDS)}"
        )
    words, codebook = load_code(Path(folder))
    if options.head == "hybrid":
        raise ValueError("--codebook FOLDER has codes for all words, --head hybrid wants some: give a kind of code")
    if words.words != vocabulary.words:
        raise ValueError(
            f"--codebook {folder} is for another vocabulary ({len(words)} words, the data has {len(vocabulary)}): "
            "build it from the same text, with the same options"
        )
    if options.bits not in (None, codebook.bits):
        raise ValueError(f"--codebook {folder} has {codebook.bits} bits, not {options.bits}: leave out --bits")
    return codebook


def _rest_of_hybrid(options: ModelOptions, counts: Tensor) -> Tensor:
    """Ids of the words that hybrid gives a code, most frequent first."""
    if options.by_code:
        raise ValueError("--input code needs a code for every word, which --head hybrid has not: use --input token")
    frequent = options.frequent or max(1, min(2000, len(counts) // 20))
    if frequent >= len(counts):
        raise ValueError(f"--frequent must be below the {len(counts)} words of the vocabulary, got {frequent}")
    return torch.argsort(codes.frequency_rank(len(counts), counts))[frequent:]
