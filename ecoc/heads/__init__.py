"""Output heads: hidden state to distribution over tokens; one method a file, one contract for all.

>>> head = ecoc.heads.build("ecoc", hidden_size, vocab_size, counts=counts, bits=512, vectors=vectors)
>>> loss = head(hidden, target)
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

from torch import Tensor

from ecoc.heads.adaptive import AdaptiveSoftmax
from ecoc.heads.binary_tree import BinaryTreeSoftmax
from ecoc.heads.differentiated import DifferentiatedSoftmax
from ecoc.heads.ecoc import ECOC, OBJECTIVES
from ecoc.heads.head import Head
from ecoc.heads.hierarchical import HierarchicalSoftmax
from ecoc.heads.hybrid import Hybrid
from ecoc.heads.nce import NCE
from ecoc.heads.sampled import SampledSoftmax
from ecoc.heads.softmax import Softmax

NAMES: dict[str, Callable[..., Head]] = {
    "softmax": Softmax,
    "sampled": SampledSoftmax,
    "nce": NCE,
    "hierarchical": HierarchicalSoftmax,
    "adaptive": AdaptiveSoftmax,
    "differentiated": DifferentiatedSoftmax,
    "ecoc": ECOC,
    "hybrid": Hybrid,
}
TREES: dict[str, Callable[..., Head]] = {"two-level": HierarchicalSoftmax, "binary": BinaryTreeSoftmax}

__all__ = [
    "ECOC",
    "NAMES",
    "NCE",
    "OBJECTIVES",
    "TREES",
    "AdaptiveSoftmax",
    "BinaryTreeSoftmax",
    "DifferentiatedSoftmax",
    "Head",
    "HierarchicalSoftmax",
    "Hybrid",
    "SampledSoftmax",
    "Softmax",
    "build",
]


def build(name: str, hidden_size: int, vocab_size: int, counts: Tensor | None = None, **options: Any) -> Head:
    """Build a head by name.

    Args:
        name: ``softmax``, ``sampled``, ``nce``, ``hierarchical``, ``adaptive``, ``differentiated``, ``ecoc`` or
            ``hybrid``.
        hidden_size: Size H of a hidden state.
        vocab_size: Number of tokens V.
        counts: How often each token occurs, ``(V,)``.
        **options: Of the head's class; ``hierarchical`` also takes ``tree``, ``two-level`` or ``binary``.
    """
    if name not in NAMES:
        raise ValueError(f"name={name!r} is no head: choose one of {', '.join(NAMES)}")
    head = NAMES[name]
    if name == "hierarchical":
        tree = options.pop("tree", "two-level")
        if tree not in TREES:
            raise ValueError(f"tree={tree!r} is unknown: choose one of {', '.join(TREES)}")
        head = TREES[tree]
    known = {one.name for one in signature(head).parameters.values() if one.kind is one.KEYWORD_ONLY}
    if head is Hybrid:
        known |= {one.name for one in signature(ECOC).parameters.values() if one.kind is one.KEYWORD_ONLY}
    if unknown := [one for one in options if one not in known]:
        raise ValueError(f"{', '.join(unknown)}: no option of head {name!r}, which takes {', '.join(sorted(known))}")
    return head(hidden_size, vocab_size, counts=counts, **options)
