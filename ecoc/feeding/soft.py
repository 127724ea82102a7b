r"""Soft scheduled sampling (Goyal et al. 2017)."""

import torch
from torch import Tensor

from ecoc.feeding.policy import InputEmbedding, Policy, changed_codes
from ecoc.feeding.schedules import Schedule
from ecoc.heads import ECOC, Head


class SoftScheduledSampling(Policy):
    r"""The policy from *Differentiable Scheduled Sampling for Credit Assignment*.

    With the schedule's probability the input is the expected embedding under the model's own distribution,

    .. math:: x_t = \sum_w e_w \; \operatorname{softmax}(\log p / \tau)_w

    instead of the target's. Gradients flow through the weights. The sum is over the model's k best tokens. Where inputs
    are embedded by code, the expected code enters: for ``likelihood`` that of the k best tokens, for objectives that
    model each bit by itself the probabilities of the bits.

    Args:
        head, embedding, schedule, temperature: As in :class:`Policy`.
        candidates: How many best tokens stand for the distribution.
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
        if candidates < 1:
            raise ValueError(f"{self.where}: candidates must be at least 1, got {candidates}")
        self.candidates = candidates

    def check(self, head: Head, embedding: InputEmbedding) -> None:
        if isinstance(head, ECOC) and head.objective.startswith("span-") and not self.by_code:
            raise ValueError(
                "feeding 'soft' on ECOC with a span objective feeds expected bits: embed inputs by code (--input code)"
            )

    def mixed(
        self, head: Head, embedding: InputEmbedding, hidden: Tensor, truth: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        choose = torch.rand(len(truth), generator=generator, device=truth.device) < self.probability
        own = hidden[choose]
        if self.by_code:
            assert isinstance(head, ECOC)
            code = head.expected_code(own, self.temperature, self.candidates)
            predicted = embedding.of_code(code)  # type: ignore[attr-defined]
            differs = changed_codes(head, code, head.code_of(truth[choose]), truth[choose])
        else:
            log_probs, ids = head.candidates(own, self.candidates)
            weights = (log_probs / self.temperature).softmax(-1)
            candidates = embedding(ids)
            predicted = (weights.to(candidates.dtype).unsqueeze(1) @ candidates).squeeze(1)
            differs = ids[:, 0] != truth[choose]
        vectors = embedding(truth)
        changed = choose.masked_scatter(choose, differs)
        return vectors.masked_scatter(choose.unsqueeze(1), predicted.to(vectors.dtype)), changed
