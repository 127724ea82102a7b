"""Beam search over a batch, for every head and decoder."""

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
    takes no more part. Where better beginnings push the greedy sentence out of the beam, it goes on beside it.

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
    vocab, batch, device = decoder.head.vocab_size, len(hidden), hidden.device
    # one more than the width, and the banned: if those and the end are among them there are still enough to go on with
    looked_at = min(width + 1 + (0 if banned is None else len(banned)), vocab)
    items = torch.arange(batch, device=device)  # which searches still go on
    total = hidden.new_zeros(batch, 2)  # [items, beams + 1] the last: the greedy sentence where no beam holds it
    total[:, -1] = -torch.inf  # takes no part
    greedy = torch.zeros_like(items)  # which of them holds the greedy sentence
    sequences = torch.empty(batch, 0, dtype=torch.long, device=device)  # of all that take part, as `hidden` and `state`
    finished: list[list[Beam]] = [[] for _ in range(batch)]
    for length in range(1, steps + 1):
        going = total > -torch.inf
        row_of = going.flatten().cumsum(0).view_as(total) - 1
        found, words = decoder.head.topk(hidden, looked_at)
        log_probs = found.new_full((*total.shape, looked_at), -torch.inf)
        ids = words.new_zeros(log_probs.shape)
        log_probs[going], ids[going] = found, words
        if banned is not None:
            log_probs.masked_fill_(torch.isin(ids, banned.to(device)), -torch.inf)
        candidates = total.unsqueeze(-1) + log_probs
        best, order = candidates[:, :-1].flatten(1).topk(min(2 * width, candidates[0, :-1].numel()))  # enough go on
        own, word = candidates[torch.arange(len(items), device=device), greedy].max(-1)
        greedy_place = (greedy * looked_at + word).unsqueeze(1)
        is_greedy = order == greedy_place
        best, order = torch.cat([best, own.unsqueeze(1)], 1), torch.cat([order, greedy_place], 1)
        origin, token = row_of.gather(1, order // looked_at), ids.flatten(1).gather(1, order)
        ends = torch.full_like(token, length == steps, dtype=torch.bool)
        if end is not None:
            ends |= token == end
        ending = ends & best.isfinite()
        ending[:, width:-1] = False
        ending[:, -1] &= ~is_greedy[:, :width].any(1)
        for row, place in ending.nonzero().tolist():
            sentence = [*sequences[origin[row, place]].tolist(), int(token[row, place])]
            log_prob = float(best[row, place])
            finished[int(items[row])].append(Beam(sentence, log_prob, log_prob / length**length_power))
        best = best.masked_fill(ends, -torch.inf)
        total, place = best[:, :-1].topk(min(width, best.shape[1] - 1))
        follows = is_greedy.gather(1, place) & (total > -torch.inf)
        greedy = torch.where(follows.any(1), follows.long().argmax(1), total.shape[1])
        alone = best[:, -1:].masked_fill(follows.any(1, keepdim=True), -torch.inf)
        total = torch.cat([total, alone], 1)
        place = torch.cat([place, torch.full_like(place[:, :1], best.shape[1] - 1)], 1)
        # a log probability only falls, and is divided by at most this
        hopeless = total / steps**length_power <= _worst(finished, items, width).to(total).unsqueeze(1)
        total = total.masked_fill(hopeless, -torch.inf)
        on = total > -torch.inf
        if not on.any():
            break
        rows, tokens, kept = origin.gather(1, place)[on], token.gather(1, place)[on], on.any(1)
        sequences = torch.cat([sequences[rows], tokens.unsqueeze(1)], 1)
        items, total, greedy = items[kept], total[kept], greedy[kept]
        hidden, state = decoder.advance(tokens, decoder.select(state, rows))
    return [sorted(beams, key=lambda beam: -beam.score)[:width] for beams in finished]


def _worst(finished: list[list[Beam]], items: Tensor, width: int) -> Tensor:
    """Score that a beam must beat to be among the `width` best of its item, ``(items,)``; -inf while there is room."""
    scores = []
    for item in items.tolist():
        ends = finished[item] = sorted(finished[item], key=lambda beam: -beam.score)[:width]
        scores.append(ends[-1].score if len(ends) == width else -torch.inf)
    return torch.tensor(scores, dtype=torch.float64)
