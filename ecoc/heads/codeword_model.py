r"""Distributions over tokens from n bit logits and one codeword a token: objectives `bits` and `likelihood`.

With :math:`s_w \in \{-1, +1\}^n` the codeword of w, :math:`u` the unigram distribution and z the bit logits,

.. math:: \log p(w \mid z) = \beta \log u(w) + \alpha \, s_w \cdot z - \log Z

normalised over V. `likelihood` fixes :math:`\alpha = 1 / \sqrt n, \beta = 1` and trains -log p with Z estimated from N
sampled tokens; `bits` trains binary cross entropy on the codeword, and fits :math:`\alpha, \beta` on held-out text.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ecoc.codes import Codebook, unpack, unpack_signs
from ecoc.codes.search import ROWS, codeword_scores
from ecoc.heads.head import log_unigram
from ecoc.heads.proposal import Proposal


class CodewordModel(nn.Module):
    """Scores of tokens by their codewords.

    Args:
        codebook: The code.
        objective: ``likelihood`` or ``bits``.
        counts: Token counts ``(V,)`` for the unigram distribution; uniform without.
        samples: Sampled tokens N behind the likelihood's normaliser; None for all of V, exactly.
    """

    packed: Tensor  # [V, ceil(n / 8)]
    log_prior: Tensor  # [V] log u
    calibration: Tensor  # alpha, beta
    mean_sign: Tensor  # [n] the average codeword, for label smoothing

    def __init__(self, codebook: Codebook, objective: str, counts: Tensor | None, samples: int | None) -> None:
        super().__init__()
        self.bits = codebook.bits
        self.objective = objective
        log_prior = log_unigram(counts, codebook.vocab_size)
        self.register_buffer("packed", codebook.packed)
        self.register_buffer("log_prior", log_prior.float())
        self.register_buffer("mean_sign", _mean_sign(codebook), persistent=False)
        if objective == "likelihood":
            self.proposal = Proposal(log_prior, codebook.vocab_size if samples is None else samples)
        else:
            # BCE's own posterior over the codebook: c . z = s . z / 2 + const, and no prior
            self.register_buffer("calibration", torch.tensor([0.5, 0.0]))

    def loss(self, logits: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        """Training loss of each row."""
        if self.objective == "bits":
            return self._bits_loss(logits, target, label_smoothing)
        return self._likelihood_loss(logits, target, label_smoothing)

    def _bits_loss(self, logits: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        codeword = unpack(self.packed[target], self.bits).to(logits.dtype)
        if label_smoothing:  # cross entropy is linear in the code, so the smoothed target is the smoothed code
            codeword = torch.lerp(codeword, ((self.mean_sign + 1) / 2).to(logits.dtype), label_smoothing)
        return F.binary_cross_entropy_with_logits(logits, codeword, reduction="none").sum(-1)

    def _likelihood_loss(self, logits: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        """-log p with Z estimated by u(y) exp(s_y . z) + sum over draws w != y of weight_w exp(s_w . z)."""
        scaled = logits / math.sqrt(self.bits)
        draws = self.proposal()
        signs = unpack_signs(self.packed[draws], self.bits, logits.dtype)
        mine = self._score(scaled, target, 1.0)
        log_weight = self.proposal.log_weight.to(logits.dtype)
        log_sum = _LogSum.apply(scaled, mine, signs, log_weight, draws == target.unsqueeze(1))
        if label_smoothing:
            average = (scaled * self.mean_sign.to(logits.dtype)).sum(-1) + self.log_prior.mean()
            mine = torch.lerp(mine, average, label_smoothing)
        return log_sum - mine

    def log_prob(self, logits: Tensor) -> Tensor:
        """Log probability of every token, ``(N, V)``."""
        scaled, beta = self._scaled(logits)
        rows = [torch.cat([scores for _, scores in self._blocks(part, beta)]).T for part in scaled.split(ROWS)]
        return torch.cat(rows).log_softmax(-1)

    def nll(self, logits: Tensor, target: Tensor) -> Tensor:
        """-log p(target), normalised over V a block at a time."""
        scaled, beta = self._scaled(logits)
        return self._log_normaliser(scaled, beta) - self._score(scaled, target, beta)

    def topk(self, logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best tokens, holding one block of V at a time."""
        scaled, beta = self._scaled(logits)
        parts = [self._best_of_blocks(part, beta, k) for part in scaled.split(ROWS)]
        values = torch.cat([values for values, _ in parts])
        return values, torch.cat([ids for _, ids in parts])

    def predict(self, logits: Tensor) -> Tensor:
        """The best token; unlike :meth:`topk` it needs no normaliser."""
        scaled, beta = self._scaled(logits)
        winners = []
        for part in scaled.split(ROWS):
            best = [(scores.max(0), start) for start, scores in self._blocks(part, beta)]
            block = torch.stack([top.values for top, _ in best]).argmax(0, keepdim=True)
            winners.append(torch.stack([top.indices + start for top, start in best]).gather(0, block).squeeze(0))
        return torch.cat(winners)

    def calibrate(self, logits: Tensor, target: Tensor) -> None:
        """Fit alpha and beta of `bits` to minimise nll on held-out rows; a convex problem in two numbers."""
        with torch.inference_mode(False), torch.enable_grad():
            logits = logits.detach().clone()
            factors = self.calibration.to(logits.dtype).clone().requires_grad_()
            optimiser = torch.optim.LBFGS([factors], max_iter=50, line_search_fn="strong_wolfe")

            def closure() -> Tensor:
                optimiser.zero_grad()
                scaled, beta = logits * factors[0], factors[1]
                loss = (self._log_normaliser(scaled, beta) - self._score(scaled, target, beta)).mean()
                loss.backward()
                return loss

            optimiser.step(closure)
        self.calibration.copy_(factors.detach())

    def _scaled(self, logits: Tensor) -> tuple[Tensor, Tensor | float]:
        if self.objective == "likelihood":
            return logits / math.sqrt(self.bits), 1.0
        alpha, beta = self.calibration.to(logits.dtype)
        return logits * alpha, beta

    def _score(self, scaled: Tensor, target: Tensor, beta: Tensor | float) -> Tensor:
        signs = unpack_signs(self.packed[target], self.bits, scaled.dtype)
        return (signs * scaled).sum(-1) + beta * self.log_prior[target].to(scaled.dtype)

    def candidates(self, logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """The k best tokens ``(N, k)``, their log probabilities among themselves, which are differentiable, and the
        signs ``(N, k, n)`` of their codewords."""
        scaled, beta = self._scaled(logits)
        with torch.no_grad():
            ids = torch.cat([self._best_of_blocks(part, beta, k, normalised=False)[1] for part in scaled.split(ROWS)])
        signs = unpack_signs(self.packed[ids], self.bits, scaled.dtype)
        with torch.autocast(logits.device.type, enabled=False):  # scores differ by more than bf16 tells apart
            scores = (signs @ scaled.unsqueeze(-1)).squeeze(-1) + beta * self.log_prior[ids].to(scaled.dtype)
        return ids, scores.log_softmax(-1), signs

    def expected_signs(self, logits: Tensor) -> Tensor:
        """Mean signs ``(N, n)`` under the likelihood's distribution over each row's best token and the drawn ones."""
        scaled = logits / math.sqrt(self.bits)
        with torch.no_grad():
            draws, best = self.proposal(), self.predict(logits)
        signs, own = (unpack_signs(self.packed[ids], self.bits, logits.dtype) for ids in (draws, best))
        with torch.autocast(logits.device.type, enabled=False):
            terms = torch.addmm(self.proposal.log_weight.to(logits.dtype), scaled, signs.T)
            terms = terms.masked_fill(draws == best.unsqueeze(1), -torch.inf)
            weights = torch.cat([self._score(scaled, best, 1.0).unsqueeze(1), terms], 1).softmax(-1)
            return weights[:, :1] * own + weights[:, 1:] @ signs

    def _blocks(self, scaled: Tensor, beta: Tensor | float) -> Iterator[tuple[int, Tensor]]:
        """Unnormalised log probabilities ``(tokens, rows)`` of a block of tokens after the other."""
        prior = beta * self.log_prior.to(scaled.dtype).unsqueeze(1)
        for start, scores in codeword_scores(self.packed, scaled):
            yield start, scores + prior[start : start + len(scores)]

    def _log_normaliser(self, scaled: Tensor, beta: Tensor | float) -> Tensor:
        parts = [
            torch.stack([scores.logsumexp(0) for _, scores in self._blocks(part, beta)]).logsumexp(0)
            for part in scaled.split(ROWS)
        ]
        return torch.cat(parts)

    def _best_of_blocks(
        self, scaled: Tensor, beta: Tensor | float, k: int, normalised: bool = True
    ) -> tuple[Tensor, Tensor]:
        values, ids, log_sums = [], [], []
        for start, scores in self._blocks(scaled, beta):
            best, place = scores.topk(min(k, len(scores)), dim=0)
            values.append(best)
            ids.append(place + start)
            if normalised:
                log_sums.append(scores.logsumexp(0))
        best, place = torch.cat(values).topk(k, dim=0)
        best = best - torch.stack(log_sums).logsumexp(0) if normalised else best
        return best.T, torch.cat(ids).gather(0, place).T


class _LogSum(torch.autograd.Function):
    """log(exp(mine) + sum over draws of weight exp(s . z)), the target left out of the draws.

    One rows x N matrix, written in place and kept for the gradient, where autograd's own steps would hold several.
    """

    @staticmethod
    def forward(ctx: Any, scaled: Tensor, mine: Tensor, signs: Tensor, log_weight: Tensor, same: Tensor) -> Tensor:
        with torch.autocast(scaled.device.type, enabled=False):  # scores differ by more than bf16 tells apart
            terms = torch.addmm(log_weight, scaled, signs.T)  # [rows, N]
        terms.masked_fill_(same, -torch.inf)
        top = torch.maximum(terms.amax(1), mine)
        terms.sub_(top.unsqueeze(1)).exp_()
        own = (mine - top).exp()
        total = terms.sum(1) + own
        ctx.save_for_backward(terms, own / total, total, signs)
        return total.log() + top

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        terms, own, total, signs = ctx.saved_tensors
        with torch.autocast(terms.device.type, enabled=False):
            by_scaled = terms @ signs
        return by_scaled * (gradient / total).unsqueeze(1), gradient * own, None, None, None


def _mean_sign(codebook: Codebook) -> Tensor:
    total = torch.zeros(codebook.bits)
    for packed in codebook.packed.split(8192):
        total += unpack_signs(packed, codebook.bits).sum(0)
    return total / codebook.vocab_size
