r"""Noise-contrastive estimation (Gutmann and Hyvärinen 2010; Mnih and Teh 2012)."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ecoc.heads.sampled import SampledSoftmax


class NCE(SampledSoftmax):
    r"""Noise-contrastive estimation from *A Fast and Simple Algorithm for Training Neural Probabilistic Language
    Models*.

    A classifier tells the target from k noise tokens drawn from q; the scores learn to be log probabilities by
    themselves:

    .. math:: \ell = -\log \sigma(s_y - \log k q_y) - k \, E_{w \sim q} \log \sigma(-(s_w - \log k q_w))

    The expectation is estimated from `samples` shared tokens. ``nll`` and everything else are the exact softmax over
    the same scores. With label smoothing, its uniform part is that of the exact softmax.

    Args:
        hidden_size, vocab_size, counts, proposal, samples, sparse, bias: As in :class:`SampledSoftmax`.
        noise: Noise tokens k for each target; by default `samples`.
    """

    loss_is_nll = False

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        counts: Tensor | None = None,
        *,
        proposal: str = "unigram",
        samples: int = 1000,
        noise: float | None = None,
        sparse: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size, counts, proposal=proposal, samples=samples, sparse=sparse, bias=bias)
        if noise is not None and not noise > 0:
            raise ValueError(f"noise must be above 0, got {noise}")
        self.noise = float(noise or samples)
        if counts is None:  # scores must start near log probabilities, or all of V competes with the noise
            self._initial_bias = torch.full((vocab_size,), -math.log(vocab_size))
            self.reset_parameters()

    def _token_loss(self, hidden: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        draws = self._draws(label_smoothing)
        score, scores = self._scores_of(hidden, target, draws)
        log_noise = self.log_q + math.log(self.noise)
        from_data = F.logsigmoid(score - log_noise[target])
        from_noise = F.logsigmoid(log_noise[draws] - scores) @ self.proposal.log_weight.exp().to(scores.dtype)
        return self._smoothed(-from_data - self.noise * from_noise, hidden, label_smoothing)
