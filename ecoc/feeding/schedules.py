r"""How often predictions are fed, and how soft they are: functions of the epoch."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

NAMES = ("constant", "linear", "exponential", "inverse-sigmoid", "sigmoid")
THRESHOLDS = ("equal", "rising", "falling")
COLDEST, HOTTEST = 0.01, 2.5  # where the paper's temperature begins and ends


@dataclass(frozen=True)
class Schedule:
    r"""Probability that a prediction is fed in epoch e = 0, ..., N - 1, with p the highest.

    ===================  ===============================================================================
    ``constant``         p
    ``linear``           p e / (N - 1)
    ``exponential``      p (1 - k^e)                                        (Bengio et al. 2015)
    ``inverse-sigmoid``  p (1 - k / (k + exp(e / k)))                       (Bengio et al. 2015)
    ``sigmoid``          p / (1 + exp(-eps / delta)), 0 in the first epoch  (the paper)
    ===================  ===============================================================================

    In the paper's, eps goes from -N/2 to N/2. Bengio's inverse sigmoid begins at 1 / (k + 1), not at 0.

    Args:
        name: One of the above.
        epochs: Number N of epochs.
        highest: The highest probability p.
        k: Of the two by Bengio; by default 0.8, and for the inverse sigmoid N / 4 (at least 1).
        delta: Width of the paper's slope, in epochs; by default N / 10.
    """

    name: str = "sigmoid"
    epochs: int = 10
    highest: float = 0.5
    k: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"schedule {self.name!r} is unknown: choose one of {', '.join(NAMES)}")
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}")
        if not 0.0 <= self.highest <= 1.0:
            raise ValueError(f"schedule leaves [0, 1]: its highest probability is {self.highest}")
        if self.name == "exponential" and self.k is not None and not 0.0 < self.k < 1.0:
            raise ValueError(f"schedule leaves [0, 1]: exponential needs k between 0 and 1, got {self.k}")
        if self.name == "inverse-sigmoid" and self.k is not None and not 1.0 <= self.k < math.inf:
            raise ValueError(f"schedule leaves [0, 1]: inverse-sigmoid needs k of at least 1, got {self.k}")
        if self.delta is not None and not 0.0 < self.delta < math.inf:
            raise ValueError(f"schedule would fall: sigmoid needs delta above 0, got {self.delta}")

    def __call__(self, epoch: int) -> float:
        """Probability in this epoch."""
        e = min(max(0, epoch), self.epochs - 1)
        if self.name == "constant":
            return self.highest
        if self.name == "linear":
            return self.highest * (e / max(1, self.epochs - 1))
        if self.name == "exponential":
            return self.highest * (1.0 - (0.8 if self.k is None else self.k) ** e)
        if self.name == "inverse-sigmoid":
            k = max(1.0, self.epochs / 4) if self.k is None else self.k
            return self.highest * (1.0 - k / (k + math.exp(min(e / k, 700.0))))
        return 0.0 if e == 0 else self.highest * _rise(e, self.epochs, self.delta)


def _rise(epoch: int, epochs: int, delta: float | None) -> float:
    """1 / (1 + exp(-eps / delta)) with eps from -N/2 in the first epoch to N/2 in the last."""
    eps = epochs * (epoch / max(1, epochs - 1) - 0.5)
    slope = epochs / 10 if delta is None else delta
    return 1.0 / (1.0 + math.exp(min(-eps / slope, 700.0)))  # beyond, exp overflows


def annealed_temperature(epoch: int, epochs: int, delta: float | None = None) -> float:
    """The paper's temperature: from 0.01 in the first epoch to 2.5 in the last, along the same slope."""
    first, last = _rise(0, epochs, delta), _rise(max(1, epochs - 1), epochs, delta)
    share = (_rise(min(max(0, epoch), epochs - 1), epochs, delta) - first) / max(1e-12, last - first)
    return COLDEST + (HOTTEST - COLDEST) * share


def bit_thresholds(kind: str, bits: int) -> Tensor:
    """Factor ``(bits,)`` on each bit's probability: 1 for ``equal``; ``rising`` spares the first bits, which are the
    most significant of a span code, ``falling`` the last."""
    if kind not in THRESHOLDS:
        raise ValueError(f"thresholds {kind!r} is unknown: choose one of {', '.join(THRESHOLDS)}")
    rising = torch.arange(1, bits + 1) / bits
    return {"equal": torch.ones(bits), "rising": rising, "falling": rising.flip(0)}[kind]
