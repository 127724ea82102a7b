"""Every head and every ECOC objective, small enough for brute force: the cases of the contract test."""

from collections.abc import Callable

import torch
from torch import Tensor

from ecoc import heads

V, H = 23, 6


def zipf_counts(vocab_size: int = V, seed: int = 1) -> Tensor:
    """Counts like a language's, in an order of ids that is not the order of frequency."""
    shuffled = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(seed))
    return (1000.0 / (1 + shuffled)).ceil()


def word_vectors(vocab_size: int = V) -> Tensor:
    return torch.randn(vocab_size, 5, generator=torch.Generator().manual_seed(2))


OPTIONS: dict[str, dict] = {
    "softmax": {},
    "softmax without bias": {"bias": False},
    "sampled unigram": {"samples": 7},
    "sampled random": {"samples": 7, "proposal": "random"},
    "sampled, no draws left out": {"samples": V},
    "nce": {"samples": 7},
    "nce random": {"samples": 7, "proposal": "random", "noise": 3},
    "hierarchical unigram": {},
    "hierarchical random": {"order": "random"},
    "hierarchical embedding": {"order": "embedding", "vectors": word_vectors(), "classes": 4},
    "hierarchical binary unigram": {"tree": "binary"},
    "hierarchical binary random": {"tree": "binary", "order": "random"},
    "hierarchical binary embedding": {"tree": "binary", "order": "embedding", "vectors": word_vectors()},
    "adaptive": {"cutoffs": [3, 9]},
    "adaptive, default cutoffs": {},
    "differentiated": {"cutoffs": [3, 9]},
    "ecoc likelihood": {"samples": 7, "bits": 12},
    "ecoc likelihood exact": {"samples": None, "bits": 12},
    "ecoc likelihood semantic, two layers": {"samples": 9, "bits": 11, "vectors": word_vectors(), "layers": 2},
    "ecoc likelihood on a span code": {"samples": 9, "bits": 9, "codebook": "span-unigram"},
    "ecoc bits": {"objective": "bits", "bits": 9},
    "ecoc bits, convolutional": {"objective": "bits", "bits": 14, "codebook": "convolutional"},
    "ecoc span-mass": {"objective": "span-mass", "bits": 8},
    "ecoc span-mass random, mixture": {"objective": "span-mass", "bits": 7, "codebook": "span-random", "mixture": 3},
    "ecoc span-max": {"objective": "span-max", "bits": 8},
    "ecoc span-max embedding, mixture": {
        "objective": "span-max",
        "bits": 7,
        "codebook": "span-embedding",
        "vectors": word_vectors(),
        "mixture": 2,
    },
    "hybrid likelihood": {"frequent": 4, "samples": 5, "bits": 10},
    "hybrid span-mass": {"frequent": 4, "objective": "span-mass", "bits": 7},
}

Build = Callable[..., heads.Head]


def build(case: str, dtype: torch.dtype = torch.float64, counts: Tensor | None = None, **more: object) -> heads.Head:
    """The head of a case with parameters that are not at their starting values."""
    torch.manual_seed(0)
    name = case.replace(",", " ").split()[0]
    head = heads.build(name, H, V, counts=zipf_counts() if counts is None else counts, **{**OPTIONS[case], **more})
    head = head.to(dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.7)
    return head


def batch(dtype: torch.dtype = torch.float64, rows: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(rows, H, generator=generator, dtype=torch.float64).to(dtype)
    return hidden, torch.randint(0, V, (rows,), generator=generator)
