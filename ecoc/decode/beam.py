"""Beam search over a batch, for every head and decoder."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ecoc.heads import Head


class Decoder(Protocol):
    """What a search moves along: a language model or a captioner."""

    @property
    def head(self) -> Head: ...

    def advance(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Hidden states ``(rows, H)`` and state after feeding a token ``(rows,)`` to each row."""

    def select(self, state: Any, rows: Tensor) -> Any:
        """The state of some rows, in that order."""


@dataclass(frozen=True)
class Beam:
    """A finished sentence: its tokens and the log probability of them all."""

    tokens: list[int]
    log_prob: float
    score: float  # log_prob, normalised by length as asked for


@torch.no_grad()
def search(
    decoder: Decoder,
    hidden: Tensor,
    state: Any,
    steps: int,
    width: int = 5,
    end: int | None = None,
    length_power: float = 0.0,
    banned: Tensor | None = None,
) -> list[list[Beam]]:
    """The `width` best sentences for each row, best first; the first is never worse than that of a greedy search.

    A beam that ends makes room for the next best one that goes on; one that cannot be among the `width` best any more
    takes no more part. Where better beginnings push the greedy sentence out of the beam, it goes on beside it. A row
    has no sentence if all tokens are banned.

    Args:
        decoder: The model, in evaluation mode.
        hidden: Hidden states ``(batch, H)`` that predict the first token.
        state: The decoder's state behind them.
        steps: Longest sentence.
        width: Beams kept.
        end: Token that finishes a sentence (it is kept in it).
        length_power: A beam's score is its log probability over its length to this power: 0 for the plain one.
        banned: Ids never to choose, such as that of ``<unk>``.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    if not 0 <= length_power < math.inf:
        raise ValueError(f"length_power must be 0 or more, got {length_power}")
    one = _Search(decoder, hidden, state, steps, width, end, length_power, banned)
    for length in range(1, steps + 1):
        one.step(length)
        if not len(one.items):
            break
    return [sorted(beams, key=lambda beam: -beam.score)[:width] for beams in one.finished]


class _Search:
    """A search on its way; arguments as in :func:`search`."""

    def __init__(
        self,
        decoder: Decoder,
        hidden: Tensor,
        state: Any,
        steps: int,
        width: int,
        end: int | None,
        length_power: float,
        banned: Tensor | None,
    ) -> None:
        self.decoder, self.hidden, self.state = decoder, hidden, state
        self.steps, self.width, self.end, self.length_power = steps, width, end, length_power
        batch, device = len(hidden), hidden.device
        self.banned = None if banned is None else banned.to(device)
        # one more than the width, and the banned: if those and the end are among them enough are left to go on with
        self.looked_at = min(width + 1 + (0 if banned is None else len(banned)), decoder.head.vocab_size)
        self.items = torch.arange(batch, device=device)  # rows of the batch that are still searched for
        self.total = torch.full((batch, 2), -torch.inf, device=device)  # [items, beams + 1], -inf takes no part; the
        self.total[:, 0] = 0.0  # last is the greedy sentence where no beam holds it
        self.greedy = torch.zeros_like(self.items)  # which of them holds the greedy sentence
        # of all that take part, one after the other, as `hidden` and `state`
        self.sequences = torch.empty(batch, 0, dtype=torch.long, device=device)
        self.finished: list[list[Beam]] = [[] for _ in range(batch)]

    def step(self, length: int) -> None:
        """Let all sentences grow to `length` tokens."""
        candidates, ids = self._candidates()
        number = (candidates.shape[1] - 1) * self.looked_at
        best, order = candidates[:, :-1].flatten(1).topk(min(2 * self.width, number))  # each beam ends at most once
        own, word = candidates[torch.arange(len(ids), device=ids.device), self.greedy].max(-1)
        own_place = (self.greedy * self.looked_at + word).unsqueeze(1)
        is_greedy = order == own_place
        best, order = torch.cat([best, own.unsqueeze(1)], 1), torch.cat([order, own_place], 1)
        origin, token = self._row_of().gather(1, order // self.looked_at), ids.flatten(1).gather(1, order)
        ends = torch.full_like(token, length == self.steps, dtype=torch.bool)
        if self.end is not None:
            ends |= token == self.end
        self._finish(best.masked_fill(~ends, -torch.inf), origin, token, is_greedy, length)
        self._go_on(best.masked_fill(ends, -torch.inf), origin, token, is_greedy)

    def _row_of(self) -> Tensor:
        """Row of `hidden` that belongs to each beam that takes part, ``(items, beams + 1)``."""
        return (self.total > -torch.inf).flatten().cumsum(0).view_as(self.total) - 1

    def _candidates(self) -> tuple[Tensor, Tensor]:
        """Log probabilities ``(items, beams + 1, tokens)`` of all beams with one more token, and these tokens."""
        log_probs, ids = self.decoder.head.topk(self.hidden, self.looked_at)
        if self.banned is not None:
            log_probs = log_probs.masked_fill(torch.isin(ids, self.banned), -torch.inf)
        going, shape = self.total > -torch.inf, (*self.total.shape, self.looked_at)
        candidates, tokens = log_probs.new_full(shape, -torch.inf), ids.new_zeros(shape)
        candidates[going], tokens[going] = self.total[going].unsqueeze(1) + log_probs, ids
        return candidates, tokens

    def _finish(self, best: Tensor, origin: Tensor, token: Tensor, is_greedy: Tensor, length: int) -> None:
        """Keep what ends among the `width` best, and the greedy sentence, which is the last."""
        ending = best.isfinite()
        ending[:, self.width : -1] = False
        ending[:, -1] &= ~is_greedy[:, : self.width].any(1)
        for row, place in ending.nonzero().tolist():
            words = [*self.sequences[origin[row, place]].tolist(), int(token[row, place])]
            log_prob = float(best[row, place])
            self.finished[int(self.items[row])].append(Beam(words, log_prob, log_prob / length**self.length_power))

    def _go_on(self, best: Tensor, origin: Tensor, token: Tensor, is_greedy: Tensor) -> None:
        """Feed their tokens to the `width` best that can still win, and to the greedy sentence if it is not of them."""
        total, place = best[:, :-1].topk(min(self.width, best.shape[1] - 1))
        follows = is_greedy.gather(1, place) & (total > -torch.inf)
        self.greedy = torch.where(follows.any(1), follows.long().argmax(1), total.shape[1])
        alone = best[:, -1:].masked_fill(follows.any(1, keepdim=True), -torch.inf)
        total = torch.cat([total, alone], 1)
        place = torch.cat([place, torch.full_like(place[:, :1], best.shape[1] - 1)], 1)
        # a log probability only falls, and is divided by at most this
        hopeless = total / self.steps**self.length_power <= self._worst().to(total).unsqueeze(1)
        total = total.masked_fill(hopeless, -torch.inf)
        on = total > -torch.inf
        kept, rows, tokens = on.any(1), origin.gather(1, place)[on], token.gather(1, place)[on]
        self.items, self.total, self.greedy = self.items[kept], total[kept], self.greedy[kept]
        if len(rows):
            self.sequences = torch.cat([self.sequences[rows], tokens.unsqueeze(1)], 1)
            self.hidden, self.state = self.decoder.advance(tokens, self.decoder.select(self.state, rows))

    def _worst(self) -> Tensor:
        """Score that a beam must beat to be among the `width` best of its item; -inf while there is room."""
        scores = []
        for item in self.items.tolist():
            ends = self.finished[item] = sorted(self.finished[item], key=lambda beam: -beam.score)[: self.width]
            scores.append(ends[-1].score if len(ends) == self.width else -torch.inf)
        return torch.tensor(scores, dtype=torch.float64)
