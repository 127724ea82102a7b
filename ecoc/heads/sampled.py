r"""Sampled softmax (Bengio and Senécal 2003, 2008)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ecoc.heads.head import at_least_float32, checked_counts, log_unigram
from ecoc.heads.proposal import Proposal
from ecoc.heads.softmax import Softmax

PROPOSALS = ("unigram", "random")


class SampledSoftmax(Softmax):
    r"""The sampled softmax from *Adaptive Importance Sampling to Accelerate Training of a Neural Probabilistic Language
    Model*.

    The loss replaces the sum over V by the target and N tokens drawn from a proposal q:

    .. math:: \ell = -s_y + \log\Big(e^{s_y} + \sum_{w \in \text{draws},\, w \ne y} \frac{e^{s_w}}{E[\#w]}\Big),
        \qquad s = W h + b

    ``nll`` and everything else are the exact softmax.

    Args:
        hidden_size, vocab_size, counts, bias: As in :class:`Softmax`.
        proposal: ``unigram`` (needs counts) or ``random`` (uniform).
        samples: Number N of tokens drawn, shared by the batch.
        sparse: Sparse gradient of the weight, for optimisers that take it; the step then does not touch all of V (label
            smoothing would).
    """

    log_q: Tensor  # [V] log of the proposal

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        counts: Tensor | None = None,
        *,
        proposal: str = "unigram",
        samples: int = 1000,
        sparse: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size, counts, bias=bias)
        if proposal not in PROPOSALS:
            raise ValueError(f"proposal={proposal!r} is unknown: choose one of {', '.join(PROPOSALS)}")
        if proposal == "unigram" and counts is None:
            raise ValueError("counts is needed for proposal='unigram': pass each token's count, or proposal='random'")
        log_q = log_unigram(checked_counts(counts, vocab_size) if proposal == "unigram" else None, vocab_size)
        self.sparse = sparse
        self.proposal = Proposal(log_q, samples)
        self.register_buffer("log_q", log_q.float(), persistent=False)

    def _scores_of(self, hidden: Tensor, target: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of each row's target ``(N,)`` and of the shared draws ``(N, S)``."""
        weight = F.embedding(torch.cat([target, draws]), self.weight, sparse=self.sparse)
        mine, shared = weight.split([len(target), len(draws)])
        score, scores = (hidden * mine).sum(-1), hidden @ shared.T
        if self.bias is not None:
            score, scores = score + self.bias[target], scores + self.bias[draws]
        return at_least_float32(score), at_least_float32(scores)

    def _draws(self, label_smoothing: float) -> Tensor:
        if self.sparse and label_smoothing:
            raise ValueError("label_smoothing needs the gradient of all words: leave it out, or take sparse=False")
        return self.proposal()

    def _token_loss(self, hidden: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        draws = self._draws(label_smoothing)
        score, scores = self._scores_of(hidden, target, draws)
        scores = scores + (self.proposal.log_weight - self.log_q[draws])  # 1 / expected number of draws
        scores = scores.masked_fill(draws == target.unsqueeze(1), -torch.inf)
        log_sum = torch.cat([score.unsqueeze(1), scores], 1).logsumexp(1)
        if label_smoothing:
            average = F.linear(hidden, self.weight.mean(0, keepdim=True)).squeeze(1)
            if self.bias is not None:
                average = average + self.bias.mean()
            score = torch.lerp(score, at_least_float32(average), label_smoothing)
        return log_sum - score
