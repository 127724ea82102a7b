r"""Samples of discrete variables that gradients pass through (Maddison et al. 2017, Jang et al. 2017)."""

import math

import torch
from torch import Tensor


def binary_concrete(
    logits: Tensor,
    temperature: Tensor | float,
    straight_through: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Relaxed Bernoulli variables.

    .. math:: Z = \sigma\big((\log \alpha + L) / \tau\big), \qquad L = \log U - \log(1 - U)

    As the temperature goes to 0 they become Bernoulli variables with log odds log alpha. The noise does not depend on
    the logits, so gradients flow into them.

    Args:
        logits: Log odds log alpha, of any shape.
        temperature: tau, above 0.
        straight_through: Return 0 or 1, with the gradient of Z.
        generator: Source of randomness; torch's global one by default.
    """
    with torch.autocast(logits.device.type, enabled=False):
        logits = logits.float() if logits.dtype != torch.float64 else logits
        relaxed = torch.sigmoid((logits + logistic_noise(logits, generator)) / _checked(temperature))
    return _hard(relaxed, (relaxed > 0.5).to(relaxed.dtype)) if straight_through else relaxed


def gumbel_softmax(
    logits: Tensor,
    temperature: Tensor | float,
    straight_through: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Relaxed one-hot variables along the last dimension.

    .. math:: Z_k = \frac{\exp((\log \alpha_k + G_k) / \tau)}{\sum_i \exp((\log \alpha_i + G_i) / \tau)}, \qquad
        G = -\log(-\log U)

    Args:
        logits: log alpha up to a constant; -inf for what cannot be.
        temperature: tau, above 0.
        straight_through: Return a one-hot vector, with the gradient of Z.
        generator: Source of randomness; torch's global one by default.
    """
    with torch.autocast(logits.device.type, enabled=False):
        logits = logits.float() if logits.dtype != torch.float64 else logits
        impossible = logits == -torch.inf  # divided by a learned temperature, their gradient would be no number
        noisy = logits.masked_fill(impossible, 0.0) + gumbel_noise(logits, generator)
        relaxed = torch.softmax((noisy / _checked(temperature)).masked_fill(impossible, -torch.inf), -1)
    one_hot = torch.zeros_like(relaxed).scatter_(-1, relaxed.argmax(-1, keepdim=True), 1.0)
    return _hard(relaxed, one_hot) if straight_through else relaxed


def logistic_noise(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """log U - log(1 - U)."""
    return torch.logit(_uniform(like, generator))


def gumbel_noise(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """-log(-log U)."""
    return -torch.log(-torch.log(_uniform(like, generator)))


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Uniform numbers, never 0 or 1."""
    smallest = torch.finfo(like.dtype).eps
    uniform = torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
    return uniform.clamp_(smallest, 1.0 - smallest)


def _hard(relaxed: Tensor, value: Tensor) -> Tensor:
    return value + (relaxed - relaxed.detach())  # exactly 0 or 1


def _checked(temperature: Tensor | float) -> Tensor | float:
    if isinstance(temperature, Tensor) and temperature.device.type != "cpu":
        return temperature  # a look at it would make a GPU wait
    if not 0.0 < temperature < math.inf:
        raise ValueError(f"temperature must be above 0 and finite, got {temperature}")
    return temperature
