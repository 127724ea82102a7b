r"""Soft scheduled sampling (Goyal et al. 2017)."""

import torch
from torch import Tensor

from ecoc.feeding.policy import InputEmbedding, Policy
from ecoc.feeding.schedules import Schedule
from ecoc.heads import ECOC, Head


class SoftScheduledSampling(Policy):
    r"""The policy from *Differentiable Scheduled Sampling for Credit Assignment*.

    With the schedule's probability the input is the expected embedding under the model's own distribution,

    .. math:: x_t = \sum_w e_w \; \operatorname{softmax}(\log p / \tau)_w

    instead of the target's. Gradients flow through the weights. For an ECOC head the sum is over its k best tokens
    (likelihood and bits), or is the code of expected bits (span codes); both enter through the code embedding where
    there is one.

    Args:
        head, embedding, schedule, temperature: As in :class:`Policy`.
        candidates: How many best tokens stand for an ECOC head's distribution.
    """

    name = "soft"
    differentiable = True
    uses_temperature = True

    def __init__(
        self,
        head: Head,
        embedding: InputEmbedding,
        schedule: Schedule,
        temperature: str | float = "annealed",
        *,
        candidates: int = 16,
    ) -> None:
        super().__init__(head, embedding, schedule, temperature)
        self.candidates = candidates

    def check(self, head: Head, embedding: InputEmbedding) -> None:
        if isinstance(head, ECOC) and head.objective.startswith("span-") and not self.by_code:
            raise ValueError(
                "feeding 'soft' on ECOC with a span objective feeds expected bits: embed inputs by code (--input code)"
            )

    def mixed(self, head: Head, embedding: InputEmbedding, hidden: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        choose = torch.rand(len(truth), device=truth.device) < self.probability
        own = hidden[choose]
        if self.by_code:
            assert isinstance(head, ECOC)
            code = head.expected_code(own, self.temperature, self.candidates)
            predicted = embedding.of_code(code)  # type: ignore[attr-defined]
        elif isinstance(head, ECOC):
            log_probs, ids = head.candidates(own, self.candidates)
            weights = (log_probs / self.temperature).softmax(-1)
            predicted = (weights.unsqueeze(1) @ embedding(ids)).squeeze(1)
        else:
            everyone = embedding(torch.arange(head.vocab_size, device=truth.device))
            predicted = (head.log_prob(own) / self.temperature).softmax(-1).to(everyone.dtype) @ everyone
        vectors = embedding(truth)
        return vectors.masked_scatter(choose.unsqueeze(1), predicted.to(vectors.dtype)), choose
