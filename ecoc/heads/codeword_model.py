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
from ecoc.codes.search import BLOCK, ROWS, codeword_scores, largest, table_places
from ecoc.heads.head import log_unigram
from ecoc.heads.proposal import Proposal

MEAN_SAMPLES = 256  # tokens behind a mean codeword at most: what they miss is small beside the spread of a bit itself


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
            samples = codebook.vocab_size if samples is None else samples
            self.proposal = Proposal(log_prior, samples)
            self.small_proposal = Proposal(log_prior, min(samples, MEAN_SAMPLES))
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
        rows = [torch.cat([scores for _, scores in blocks]).T for blocks in self._parts(scaled, beta)]
        return torch.cat(rows).log_softmax(-1)

    def nll(self, logits: Tensor, target: Tensor) -> Tensor:
        """-log p(target), normalised over V a block at a time."""
        scaled, beta = self._scaled(logits)
        return self._log_normaliser(scaled, beta) - self._score(scaled, target, beta)

    def topk(self, logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best tokens, holding one block of V at a time."""
        return self._best(*self._scaled(logits), k)

    def predict(self, logits: Tensor) -> Tensor:
        """The best token; unlike :meth:`topk` it needs no normaliser."""
        return self._best(*self._scaled(logits), 1, normalised=False)[1].squeeze(1)

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
            _, ids = self._best(scaled, beta, k, normalised=False)
        signs = unpack_signs(self.packed[ids], self.bits, scaled.dtype)
        with torch.autocast(logits.device.type, enabled=False):  # scores differ by more than bf16 tells apart
            scores = (signs @ scaled.unsqueeze(-1)).squeeze(-1) + beta * self.log_prior[ids].to(scaled.dtype)
        return ids, scores.log_softmax(-1), signs

    def expected_signs(self, logits: Tensor) -> Tensor:
        """Mean signs ``(N, n)`` under the likelihood's distribution over each row's best token and some drawn ones."""
        scaled = logits / math.sqrt(self.bits)
        with torch.no_grad():
            draws, best = self.small_proposal(), self.predict(logits)
        signs, own = (unpack_signs(self.packed[ids], self.bits, logits.dtype) for ids in (draws, best))
        log_weight, prior = (x.to(logits.dtype) for x in (self.small_proposal.log_weight, self.log_prior[best]))
        mean: Tensor = _MeanSigns.apply(scaled, own, prior, signs, log_weight, draws == best.unsqueeze(1))
        return mean

    def _parts(self, scaled: Tensor, beta: Tensor | float) -> Iterator[Iterator[tuple[int, Tensor]]]:
        """For a few rows after the other: unnormalised log probabilities ``(tokens, rows)`` of a block of tokens after
        the other."""
        prior = beta * self.log_prior.to(scaled.dtype).unsqueeze(1)
        one_block = len(self.packed) <= BLOCK  # of more, the places would take 4 times the codebook's memory
        places = [*table_places(self.packed)] if one_block and len(scaled) > ROWS else None
        for part in scaled.split(ROWS):
            blocks = codeword_scores(self.packed, part, places)
            yield ((start, scores.add_(prior[start : start + len(scores)])) for start, scores in blocks)

    def _log_normaliser(self, scaled: Tensor, beta: Tensor | float) -> Tensor:
        parts = [
            torch.stack([scores.logsumexp(0) for _, scores in blocks]).logsumexp(0)
            for blocks in self._parts(scaled, beta)
        ]
        return torch.cat(parts)

    def _best(self, scaled: Tensor, beta: Tensor | float, k: int, normalised: bool = True) -> tuple[Tensor, Tensor]:
        """Scores ``(N, k)`` of the best tokens of each row, if normalised their log probabilities, and the tokens."""
        parts = [_best_of_blocks(blocks, k, normalised) for blocks in self._parts(scaled, beta)]
        return torch.cat([values for values, _ in parts]), torch.cat([ids for _, ids in parts])


class _MeanSigns(torch.autograd.Function):
    """Mean signs ``(rows, n)`` under softmax scores of each row's own codeword and of the drawn ones it is not.

    As :class:`_LogSum` it holds one rows x N matrix, and its gradient is the covariance of the signs.
    """

    @staticmethod
    def forward(
        ctx: Any, scaled: Tensor, own: Tensor, prior: Tensor, signs: Tensor, log_weight: Tensor, same: Tensor
    ) -> Tensor:
        with torch.autocast(scaled.device.type, enabled=False):
            shares = torch.addmm(log_weight, scaled, signs.T).masked_fill_(same, -torch.inf)  # [rows, N]
            mine = torch.einsum("rn,rn->r", own, scaled) + prior
            top = torch.maximum(shares.amax(1), mine)
            shares.sub_(top.unsqueeze(1)).exp_()
            mine = (mine - top).exp_()
            total = shares.sum(1).add_(mine)
            shares.div_(total.unsqueeze(1))
            mine.div_(total)
            mean = torch.addmm(own * mine.unsqueeze(1), shares, signs)
        ctx.save_for_backward(shares, mine, own, signs, mean)
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        shares, mine, own, signs, mean = ctx.saved_tensors
        with torch.autocast(shares.device.type, enabled=False):
            centre = torch.einsum("rn,rn->r", gradient, mean)
            by_mine = mine * (torch.einsum("rn,rn->r", gradient, own) - centre)
            by_drawn = torch.addmm(-centre.unsqueeze(1), gradient, signs.T).mul_(shares)
            by_scaled = torch.addmm(own * by_mine.unsqueeze(1), by_drawn, signs)
        return by_scaled, None, None, None, None, None


def _best_of_blocks(blocks: Iterator[tuple[int, Tensor]], k: int, normalised: bool) -> tuple[Tensor, Tensor]:
    values, ids, log_sums = [], [], []
    for start, scores in blocks:
        best, place = largest(scores, min(k, len(scores)))
        values.append(best)
        ids.append(place + start)
        if normalised:
            log_sums.append(scores.sub_(best[0]).exp_().sum(0).log_().add_(best[0]))
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
