r"""Latent soft mixture sampling: codewords around the predicted one, weighted."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ecoc.feeding.curriculum import CurriculumMixture
from ecoc.feeding.policy import InputEmbedding, changed_codes
from ecoc.feeding.schedules import Schedule
from ecoc.heads import ECOC, Head


class SoftCurriculumMixture(CurriculumMixture):
    r"""The policy from *Error-Correcting Neural Sequence Prediction*, paragraph Latent Soft-Mixture Sampling.

    The k bits that the model is least certain of are flipped one at a time; the predicted codeword and these k
    neighbours at Hamming distance 1 are weighed by their probabilities, and each bit is that of the weighted code with
    the schedule's probability, else the target's:

    .. math:: x_t = \mathbb B_K\Big(C, \sum_k \operatorname{softmax}(\log p(\hat C_k) / \tau)_k \, \hat C_k\Big)

    A neighbour is exp(-abs(log odds)) times as probable as the predicted codeword. No gradient passes.

    Args:
        head, embedding, schedule, temperature, thresholds: As in :class:`CurriculumMixture`; an ECOC head whose code is
            also the input's.
        flips: Number k of bits; 8 by default, or all if there are fewer.
    """

    name = "soft-curriculum"
    uses_temperature = True

    def __init__(
        self,
        head: Head,
        embedding: InputEmbedding,
        schedule: Schedule,
        temperature: str | float = "annealed",
        *,
        thresholds: str | Tensor | Sequence[float] = "equal",
        flips: int | None = None,
    ) -> None:
        super().__init__(head, embedding, schedule, temperature, thresholds=thresholds)
        self.flips = min(8, len(self.factors)) if flips is None else flips
        if not 1 <= self.flips <= len(self.factors):
            raise ValueError(f"{self.where}: flips must be from 1 to {len(self.factors)} bits, got {flips}")

    def check(self, head: Head, embedding: InputEmbedding) -> None:
        super().check(head, embedding)
        if not self.by_code:
            raise ValueError(
                f"feeding {self.name!r} feeds weighted codes, which {type(head).__name__} cannot here: use --head ecoc "
                "with --input code"
            )

    def mixed(
        self, head: Head, embedding: InputEmbedding, hidden: Tensor, truth: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(head, ECOC)
        target = head.code_of(truth)
        with torch.no_grad():
            log_odds = head.bit_log_odds(hidden)
            code = soft_codes(log_odds, self.flips, self.temperature)
        choose = self.chosen(truth, generator)
        code = torch.where(choose, code, target.to(code.dtype))
        hard = torch.where(choose, log_odds > 0, target)
        return embedding.of_code(code), changed_codes(head, hard, target, truth)  # type: ignore[attr-defined]


def soft_codes(log_odds: Tensor, flips: int, temperature: Tensor | float) -> Tensor:
    """Predicted codes ``(N, n)`` averaged with those that differ in one of the `flips` least certain bits."""
    code = (log_odds > 0).to(log_odds.dtype)
    certainty, places = log_odds.abs().topk(flips, largest=False)
    itself = certainty.new_zeros(len(code), 1)
    weights = torch.softmax(torch.cat([itself, -certainty], 1) / temperature, -1)[:, 1:]
    bits = code.gather(1, places)
    return code.scatter(1, places, bits + (1 - 2 * bits) * weights)
