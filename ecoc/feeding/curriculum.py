r"""Curriculum-based latent variable mixture sampling, the paper's CLVMS."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ecoc.feeding.policy import InputEmbedding, Policy, best_token, changed_codes
from ecoc.feeding.schedules import Schedule, bit_thresholds
from ecoc.heads import ECOC, BinaryTreeSoftmax, Head, HierarchicalSoftmax


class CurriculumMixture(Policy):
    r"""The policy from *Error-Correcting Neural Sequence Prediction*, section Latent Variable Mixture Sampling.

    Each bit (or choice along a tree's path) of the input's code is the predicted one with its own probability, else
    that of the target:

    .. math:: \tilde C_c = \mathbb B(\hat C_c, C_c), \qquad p_c = \delta_c \, p(\epsilon)

    The mixed code enters through the code embedding of an ECOC head's own code; else it is decoded to a token.

    What is the predicted code? For ``bits`` and the span objectives, the bits with positive log odds. For
    ``likelihood``, the code of the predicted token: there single bit logits have no meaning of their own, only their
    sum along a codeword has. For trees, the best choice at each node that the mixed path comes to; at a node that is
    not on the target's path the target has no choice, so from there on all are predicted.

    Args:
        head, embedding, schedule: As in :class:`Policy`; the head must have latent variables.
        temperature: Of the policies built on this one; it has none itself.
        thresholds: delta_c, ``equal``, ``rising`` or ``falling`` with c, or numbers in [0, 1].
        by_token: Decode the mixed code to a token even where it could enter as a code.
    """

    name = "curriculum"

    def __init__(
        self,
        head: Head,
        embedding: InputEmbedding,
        schedule: Schedule,
        temperature: str | float = "annealed",
        *,
        thresholds: str | Tensor | Sequence[float] = "equal",
        by_token: bool = False,
    ) -> None:
        super().__init__(head, embedding, schedule, temperature)
        self.by_code = self.by_code and not by_token
        components = head.code_of(torch.zeros(1, dtype=torch.long)).shape[-1]  # type: ignore[operator]
        try:
            factors = (
                bit_thresholds(thresholds, components)
                if isinstance(thresholds, str)
                else torch.as_tensor(thresholds, dtype=torch.float32)
            )
        except ValueError as error:
            raise ValueError(f"{self.where}: {error}") from None
        if factors.shape != (components,) or not ((factors >= 0) & (factors <= 1)).all():
            raise ValueError(f"{self.where}: thresholds must be {components} numbers in [0, 1]")
        self.register_buffer("factors", factors, persistent=False)
        self.factors: Tensor

    def check(self, head: Head, embedding: InputEmbedding) -> None:
        if not hasattr(head, "code_of"):
            raise ValueError(
                f"feeding {self.name!r} needs a head with latent variables (ecoc, hierarchical), "
                f"{type(head).__name__} has none: use 'scheduled' or 'soft'"
            )

    def chosen(self, truth: Tensor, generator: torch.Generator) -> Tensor:
        """Which components of each code are the prediction's, bool ``(N, components)``."""
        uniform = torch.rand(len(truth), len(self.factors), generator=generator, device=truth.device)
        return uniform < self.probability * self.factors

    def mixed(
        self, head: Head, embedding: InputEmbedding, hidden: Tensor, truth: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        target = head.code_of(truth)  # type: ignore[operator]
        code = mixed_code(head, hidden, target, self.chosen(truth, generator))
        if self.by_code:
            assert isinstance(head, ECOC)
            return embedding.of_code(code), changed_codes(head, code, target, truth)  # type: ignore[attr-defined]
        tokens = head.token_of(code)  # type: ignore[operator]
        return embedding(tokens), tokens != truth


@torch.no_grad()
def mixed_code(head: Head, hidden: Tensor, target: Tensor, own: Tensor) -> Tensor:
    """The target's code ``(N, components)`` with what the head predicts where `own`."""
    if isinstance(head, HierarchicalSoftmax | BinaryTreeSoftmax):
        return head.follow(hidden, target, own)
    assert isinstance(head, ECOC)
    by_token = head.objective == "likelihood"
    predicted = head.code_of(best_token(head, hidden)) if by_token else head.latent_logits(hidden) > 0
    return torch.where(own, predicted, target)
