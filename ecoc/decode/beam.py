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

    Rows whose search is over take no more part; a beam that ends makes room for the next best one that goes on. Where
    better beginnings have pushed the greedy sentence out of the beam, it is searched for by itself.

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
    vocab, batch = decoder.head.vocab_size, len(hidden)
    # one more than the width, and the banned: if those and the end are among them there are still enough to go on with
    looked_at = min(width + 1 + (0 if banned is None else len(banned)), vocab)
    items = torch.arange(batch, device=hidden.device)  # which searches still go on
    total = hidden.new_zeros(batch, 1)
    sequences = torch.empty(batch, 1, 0, dtype=torch.long, device=hidden.device)
    finished: list[list[Beam]] = [[] for _ in range(batch)]
    greedy = torch.zeros_like(items)  # which beam holds the greedy sentence so far; -1 for none
    lost: list[int] = []
    first = hidden, state
    for length in range(1, steps + 1):
        log_probs, ids = decoder.head.topk(hidden, looked_at)
        if banned is not None:
            log_probs = log_probs.masked_fill(torch.isin(ids, banned.to(ids.device)), -torch.inf)
        candidates = (total.flatten().unsqueeze(1) + log_probs).view(len(items), -1)
        best, order = candidates.topk(min(2 * width, candidates.shape[1]))  # each beam ends once: enough go on
        origin, token = order // looked_at, ids.view(len(items), -1).gather(1, order)
        ends = torch.full_like(token, length == steps, dtype=torch.bool)
        if end is not None:
            ends |= token == end
        for row, place in (ends & best.isfinite())[:, :width].nonzero().tolist():
            words = [*sequences[row, origin[row, place]].tolist(), int(token[row, place])]
            log_prob = float(best[row, place])
            finished[int(items[row])].append(Beam(words, log_prob, log_prob / length**length_power))
        follows = order == _greedy_places(log_probs.view(len(items), -1, looked_at), greedy).unsqueeze(1)
        ended = (follows & ends)[:, :width].any(1)
        total, place = best.masked_fill(ends, -torch.inf).topk(min(width, best.shape[1]))
        origin, token, follows = origin.gather(1, place), token.gather(1, place), (follows & ~ends).gather(1, place)
        lost += items[(greedy >= 0) & ~ended & ~follows.any(1)].tolist()
        greedy = torch.where(follows.any(1), follows.long().argmax(1), -1)
        going = _going(finished, items.tolist(), total[:, 0].tolist(), width, steps**length_power)
        if not going:
            break
        kept = torch.tensor(going, device=hidden.device)
        rows = (kept.unsqueeze(1) * sequences.shape[1] + origin[kept]).flatten()
        sequences = sequences.flatten(0, 1)[rows].view(len(kept), origin.shape[1], length - 1)
        sequences = torch.cat([sequences, token[kept].unsqueeze(-1)], -1)
        items, total, greedy = items[kept], total[kept], greedy[kept]
        hidden, state = decoder.advance(token[kept].flatten(), decoder.select(state, rows))
    if lost and width > 1:
        hidden, state = first[0][lost], decoder.select(first[1], torch.tensor(lost, device=first[0].device))
        alone = search(decoder, hidden, state, steps, 1, end, length_power, banned)
        for item, beams in zip(lost, alone, strict=True):
            known = [beam.tokens for beam in finished[item]]
            finished[item] += [beam for beam in beams if beam.tokens not in known]
    return [sorted(beams, key=lambda beam: -beam.score)[:width] for beams in finished]


def _greedy_places(log_probs: Tensor, greedy: Tensor) -> Tensor:
    """Place of the greedy sentence's next word among all candidates ``(items, beams, tokens)`` of a row, or -1."""
    beam = greedy.clamp(min=0)
    best = log_probs[torch.arange(len(beam), device=beam.device), beam].argmax(-1)
    return torch.where(greedy >= 0, beam * log_probs.shape[-1] + best, -1)


def _going(finished: list[list[Beam]], items: list[int], best: list[float], width: int, longest: float) -> list[int]:
    """Rows whose search goes on: the best unfinished beam could still overtake one of the `width` finished ones.

    A log probability only falls, and is divided by at most `longest`.
    """
    rows = []
    for row, (item, log_prob) in enumerate(zip(items, best, strict=True)):
        ends = finished[item] = sorted(finished[item], key=lambda beam: -beam.score)[:width]
        if log_prob > -torch.inf and (len(ends) < width or ends[-1].score < log_prob / longest):
            rows.append(row)
    return rows
