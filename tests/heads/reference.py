"""Slow, plain implementations of every head's distribution, written from the equations alone."""

import itertools
import math

import torch
from torch import Tensor

from ecoc import heads


def probabilities(head: heads.Head, hidden: Tensor) -> Tensor:
    """p(w | h) for one hidden state ``(H,)`` as a float64 vector, by loops over tokens."""
    method = _METHODS[type(head)]
    return torch.tensor([method(head, hidden, token) for token in range(head.vocab_size)], dtype=torch.float64)


def _score(weight: Tensor, bias: Tensor | None, row: int, hidden: Tensor) -> float:
    return float(weight[row] @ hidden) + (0.0 if bias is None else float(bias[row]))


def _softmax_of(scores: list[float], index: int) -> float:
    top = max(scores)
    return math.exp(scores[index] - top) / sum(math.exp(score - top) for score in scores)


def _softmax(head, hidden: Tensor, token: int) -> float:
    return _softmax_of([_score(head.weight, head.bias, row, hidden) for row in range(head.vocab_size)], token)


def _differentiated(head, hidden: Tensor, token: int) -> float:
    scores, start, row = [], 0, 0
    for width, weight in zip(head.slices, head.weights, strict=True):
        for r in range(len(weight)):
            scores.append(float(weight[r] @ hidden[start : start + width]) + float(head.bias[row]))
            row += 1
        start += width
    return _softmax_of(scores, int(head.place[token]))


def _adaptive(head, hidden: Tensor, token: int) -> float:
    place = int(head.place[token])
    first = [_score(head.head.weight, head.head.bias, row, hidden) for row in range(len(head.head.weight))]
    if place < head.cutoffs[0]:
        return _softmax_of(first, place)
    for number, tail in enumerate(head.tails):
        if place < head.cutoffs[number + 1]:
            small = tail[0].weight @ hidden
            scores = [_score(tail[1].weight, tail[1].bias, row, small) for row in range(len(tail[1].weight))]
            cluster = _softmax_of(first, head.cutoffs[0] + number)
            return cluster * _softmax_of(scores, place - head.cutoffs[number])
    raise AssertionError("no cluster holds the token")


def _two_level(head, hidden: Tensor, token: int) -> float:
    place = int(head.place[token])
    group, within = divmod(place, head.size)
    members = min(head.size, head.vocab_size - group * head.size)
    class_scores = [_score(head.class_weight, head.class_bias, row, hidden) for row in range(head.classes)]
    scores = [_score(head.word_weight[group], head.word_bias[group], row, hidden) for row in range(members)]
    return _softmax_of(class_scores, group) * _softmax_of(scores, within)


def _binary_tree(head, hidden: Tensor, token: int) -> float:
    probability, node = 1.0, int(head.leaf[token])
    while node > 1:
        parent = node // 2
        right = 1 / (1 + math.exp(-_score(head.weight_of_node, head.bias, parent - 1, hidden)))
        probability *= right if node % 2 else 1 - right
        node = parent
    return probability


def _outputs(head, hidden: Tensor) -> Tensor:
    if head.hidden_layer is not None:
        inner = head.hidden_layer.weight @ hidden + head.hidden_layer.bias
        hidden = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    return head.output.weight @ hidden + head.output.bias


def _ecoc(head, hidden: Tensor, token: int) -> float:
    return _spans(head, hidden, token) if head.objective.startswith("span-") else _codewords(head, hidden, token)


def _spans(head, hidden: Tensor, token: int) -> float:
    """Add up the probability of every one of the 2^n words that decode to the token."""
    output = _outputs(head, hidden)
    parts = head.model.mixture
    weights = torch.softmax(output[parts * head.bits :], 0) if parts > 1 else torch.ones(1, dtype=output.dtype)
    total = 0.0
    for word in itertools.product([0, 1], repeat=head.bits):
        if _owner(head, word) != token:
            continue
        for part in range(parts):
            ones = torch.sigmoid(output[part * head.bits : (part + 1) * head.bits])
            chances = (float(p) if bit else 1 - float(p) for bit, p in zip(word, ones, strict=True))
            total += float(weights[part]) * math.prod(chances)
    return total


def _owner(head, word: tuple[int, ...]) -> int:
    value = int("".join(map(str, word)), 2)
    spans = head.codebook.spans
    starts = [int.from_bytes(bytes(row.tolist()), "big") >> (-head.bits % 8) for row in spans.first]
    return int(spans.owner[max(place for place, start in enumerate(starts) if start <= value)])


def _codewords(head, hidden: Tensor, token: int) -> float:
    output = _outputs(head, hidden)
    alpha, beta = 1 / math.sqrt(head.bits), 1.0
    if head.objective == "bits":
        alpha, beta = (float(x) for x in head.model.calibration)
    codewords = head.codebook.encode(torch.arange(head.vocab_size))
    scores = []
    for other in range(head.vocab_size):
        signs = [1.0 if bit else -1.0 for bit in codewords[other]]
        agreement = sum(sign * float(z) for sign, z in zip(signs, output, strict=True))
        scores.append(beta * float(head.model.log_prior[other]) + alpha * agreement)
    return _softmax_of(scores, token)


def _hybrid(head, hidden: Tensor, token: int) -> float:
    place = int(head.place[token])
    scores = [_score(head.softmax.weight, head.softmax.bias, row, hidden) for row in range(head.frequent + 1)]
    if place < head.frequent:
        return _softmax_of(scores, place)
    return _softmax_of(scores, head.frequent) * _ecoc(head.rest, hidden, place - head.frequent)


_METHODS = {
    heads.Softmax: _softmax,
    heads.SampledSoftmax: _softmax,
    heads.NCE: _softmax,
    heads.DifferentiatedSoftmax: _differentiated,
    heads.AdaptiveSoftmax: _adaptive,
    heads.HierarchicalSoftmax: _two_level,
    heads.BinaryTreeSoftmax: _binary_tree,
    heads.ECOC: _ecoc,
    heads.Hybrid: _hybrid,
}
