"""Scores of every codeword of a codebook for a batch of bit logits, a block of tokens at a time.

The score of a token is the sum of its codeword's signs times the logits, s_w . z. Eight bits have only 256 values, so
for each byte of the code the 256 partial sums are tabulated once a batch; a token's score is then the sum of n / 8
table rows, which `embedding_bag` does straight from the packed bytes.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from ecoc.codes.bits import byte_signs

BLOCK = 32_768  # tokens a block: 32 rows of it in float32 are 4 MB, within reach of the cache
ROWS = 32  # batch rows a pass: torch reduces over tokens fastest with 32 columns, and the table stays in the cache


def table_places(packed: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield ``(start, places)``: where the bytes of a block of tokens are in the table, int32 ``(tokens, groups)``."""
    offsets = torch.arange(0, packed.shape[-1] * 256, 256, dtype=torch.int32, device=packed.device)
    for start in range(0, len(packed), BLOCK):
        yield start, packed[start : start + BLOCK].int() + offsets


def codeword_scores(
    packed: Tensor, logits: Tensor, places: list[tuple[int, Tensor]] | None = None
) -> Iterator[tuple[int, Tensor]]:
    """Yield ``(start, scores)`` with scores ``(tokens, rows)`` of the tokens from `start` on; differentiable.

    Args:
        packed: Codewords ``(V, ceil(n / 8))`` uint8.
        logits: Bit logits ``(rows, n)``.
        places: What `table_places` gives for `packed`; making it takes as long as a few rows' scores.
    """
    groups = packed.shape[-1]
    if not len(logits):  # embedding_bag takes no table without columns
        yield 0, logits.new_empty(len(packed), 0)
        return
    by_byte = pad(logits, (0, groups * 8 - logits.shape[-1])).T.reshape(groups, 8, -1)
    with torch.autocast(logits.device.type, enabled=False):  # in bf16 a token's score would differ from its own here
        table = (byte_signs(logits.dtype, logits.device) @ by_byte).flatten(0, 1)  # [groups * 256, rows]
    for start, block in table_places(packed) if places is None else places:
        yield start, embedding_bag(block, table, mode="sum")


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each column, as ``scores.topk(k, dim=0)`` gives them (but for the order of equal ones), faster.

    They are in the k groups of tokens with the largest maxima, and a maximum is fast to find.
    """
    size = 16 if k > 1 else 64
    groups = len(scores) // size
    if groups <= k:
        return scores.topk(k, dim=0)
    grouped = scores[: groups * size].view(size, groups, -1)  # a group is every `groups`-th token
    steps = torch.arange(0, groups * size, groups, device=scores.device)
    members = grouped.amax(0).topk(k, dim=0).indices + steps.view(-1, 1, 1)  # [size, k, rows]
    rest = torch.arange(groups * size, len(scores), device=scores.device)
    places = torch.cat([members.flatten(0, 1), rest.unsqueeze(1).expand(-1, scores.shape[1])])
    values, chosen = scores.gather(0, places).topk(k, dim=0)
    return values, places.gather(0, chosen)


def nearest(packed: Tensor, logits: Tensor, rank: Tensor) -> Tensor:
    """Token with the best score for each row of `logits` ``(rows, n)``; equal scores go to the lowest `rank`."""
    winners = []
    for part in logits.split(ROWS):
        best = torch.full((len(part),), -torch.inf, dtype=part.dtype, device=part.device)
        best_rank = torch.full((len(part),), len(packed), dtype=rank.dtype, device=part.device)
        for start, scores in codeword_scores(packed, part):
            top = scores.amax(0)
            tied = rank[start : start + len(scores)].unsqueeze(1).where(scores == top, len(packed)).amin(0)
            better = (top > best) | ((top == best) & (tied < best_rank))
            best, best_rank = torch.where(better, top, best), torch.where(better, tied, best_rank)
        winners.append(best_rank)
    return torch.argsort(rank)[torch.cat(winners).long()]
