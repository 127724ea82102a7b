r"""Draws that stand for a whole distribution: the sampled tokens behind `sampled`, `nce` and `ecoc`.

To estimate :math:`\sum_w q(w) f(w)` from N tokens without bias, tokens that N draws would be expected to hit at least
once are taken for certain with weight q(w); what is left of N is drawn from the others, one draw from each of equal
slices of their cumulative distribution (stratified). Against N independent draws this wastes none on repeating the
most frequent words and has a much smaller variance; with N >= V it is exact. One set of draws serves a whole batch.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Proposal(nn.Module):
    """Draws of `samples` tokens with weights, from the distribution with log probabilities `log_q` ``(V,)``."""

    log_weight: Tensor  # [N] sum over draws of exp(log_weight) f(token) estimates sum over V of q f
    certain: Tensor  # [M] tokens that are always among the draws
    others: Tensor  # [V - M]
    cumulative: Tensor  # [V - M] float64; on the CPU if the device has no such numbers

    def __init__(self, log_q: Tensor, samples: int) -> None:
        super().__init__()
        if samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples}")
        samples = min(samples, len(log_q))
        q, order = log_q.double().exp().sort(descending=True, stable=True)
        mass_from = q.flip(0).cumsum(0).flip(0)  # what is left when the tokens before are taken for certain
        expected = q * (samples - torch.arange(len(q))) / mass_from
        is_certain = (expected >= 1 - 1e-9).int().cumprod(0).bool()
        number = int(is_certain.sum())
        drawn = samples - number
        others_mass = float(q[number:].sum())
        share = torch.full((drawn,), others_mass / max(1, drawn), dtype=torch.float64)
        log_weight = torch.cat([log_q.double()[order[:number]], share.log()])
        # derived from counts, so not saved: a head built anew has them
        self.register_buffer("log_weight", log_weight.float(), persistent=False)
        self.register_buffer("certain", order[:number], persistent=False)
        self.register_buffer("others", order[number:], persistent=False)
        cumulative = q[number:].cumsum(0) / others_mass if drawn else q[number:]
        self.register_buffer("cumulative", cumulative, persistent=False)
        self.drawn = drawn

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> "Proposal":
        """Move with the head, but stay in float64: in half precision most of the slices would be empty."""
        exact = self.cumulative
        del self.cumulative  # some devices refuse it
        try:
            super()._apply(function, recurse)
            moved = function(exact.float())
            if moved.device.type == "mps":
                exact = exact.cpu()
            elif moved.device != exact.device:
                exact = exact.to(moved.device)
            elif moved.is_shared():
                exact.share_memory_()
        finally:
            self.register_buffer("cumulative", exact, persistent=False)
        return self

    def forward(self) -> Tensor:
        """Token ids of one set of draws, ``(N,)``; their weights are `log_weight`."""
        if not self.drawn:
            return self.certain
        slices = torch.arange(self.drawn, dtype=torch.float64, device=self.cumulative.device)
        points = (slices + torch.rand_like(slices)) / self.drawn
        places = torch.searchsorted(self.cumulative, points).clamp(max=len(self.others) - 1)
        return torch.cat([self.certain, self.others[places.to(self.others.device)]])
