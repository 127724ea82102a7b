r"""Hierarchical softmax over a binary tree (Morin and Bengio 2005)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ecoc.heads.head import Head, at_least_float32, checked_counts, log_unigram
from ecoc.heads.layout import laid_out


class BinaryTreeSoftmax(Head):
    r"""The binary tree from *Hierarchical Probabilistic Neural Network Language Model*.

    Tokens are the leaves of a complete binary tree, from left to right in an order; a token's probability is that of
    its turns:

    .. math:: p(w \mid h) = \prod_{i \in \text{path}(w)} \sigma\big(\pm (W_i h + b_i)\big)

    Nodes are numbered as in a heap: 1 is the root, i has the children 2i and 2i + 1, leaves are V to 2V - 1. A step
    costs H log2(V) a token.

    Args:
        hidden_size: Size H of a hidden state.
        vocab_size: Number of tokens V.
        counts: How often each token occurs, ``(V,)``; biases then start at the unigram distribution.
        order: ``random``, ``unigram`` or ``embedding`` (by similarity to the most frequent token; needs vectors), or
            the token ids themselves in the order wanted, ``(V,)``.
        vectors: Word vectors ``(V, d)`` for the embedding order.
        seed: Seed of the random order.
        bias: Whether there is a bias.

    Latent variables: the turns from the root, ``code`` of shape ``(..., depth)``, bool; after a leaf, False.
    """

    latent = "binary"
    owner: Tensor
    leaf: Tensor

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        counts: Tensor | None = None,
        *,
        order: str | Tensor = "unigram",
        vectors: Tensor | None = None,
        seed: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__(hidden_size, vocab_size)
        counts = checked_counts(counts, vocab_size)
        owner, place = laid_out(order, vocab_size, counts, vectors, seed)
        self.depth = (2 * vocab_size - 1).bit_length() - 1
        # leaves from left to right: those of the deepest level first, then the ones a level above
        deepest = 2**self.depth
        deep_leaves = 2 * vocab_size - deepest
        leaf = torch.where(place < deep_leaves, deepest + place, vocab_size + place - deep_leaves)
        self.register_buffer("owner", owner)
        self.register_buffer("leaf", leaf)
        self.weight_of_node = nn.Parameter(torch.empty(vocab_size - 1, hidden_size))  # node i is row i - 1
        self.bias = nn.Parameter(torch.empty(vocab_size - 1)) if bias else None
        self._initial_bias = torch.zeros(vocab_size - 1)
        if counts is not None:
            self._initial_bias = self._log_odds(log_unigram(counts, vocab_size).exp()).float()
        self._seal(self.leaf)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size)
        nn.init.uniform_(self.weight_of_node, -bound, bound)
        if self.bias is not None:
            with torch.no_grad():
                self.bias.copy_(self._initial_bias)

    def _log_odds(self, share: Tensor) -> Tensor:
        """Log odds of turning right at each node under token probabilities `share`."""
        mass = torch.zeros(2 * self.vocab_size, dtype=share.dtype)
        mass[self.leaf] = share
        for level in reversed(range(self.depth)):
            nodes = torch.arange(2**level, min(2 ** (level + 1), self.vocab_size))
            mass[nodes] = mass[2 * nodes] + mass[2 * nodes + 1]
        nodes = torch.arange(1, self.vocab_size)
        return (mass[2 * nodes + 1] / mass[2 * nodes]).log()

    def _node_scores(self, hidden: Tensor, nodes: Tensor) -> Tensor:
        """Scores ``(N, D)`` of the nodes ``(N, D)`` on each row's path; past a path's root, of some node."""
        rows = (nodes - 1).clamp(min=0)
        scores = (F.embedding(rows, self.weight_of_node) @ hidden.unsqueeze(-1)).squeeze(-1)
        return at_least_float32(scores if self.bias is None else scores + self.bias[rows])

    def _nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        if self.vocab_size == 1:  # certain; still a function of the hidden state, for backward()
            return at_least_float32(hidden.sum(-1) * 0)
        up = torch.arange(self.depth + 1, device=target.device)
        ancestors = self.leaf[target].unsqueeze(1) >> up  # [N, D + 1] from the leaf to the root, then 0
        turned_right = (ancestors[:, :-1] & 1).bool()
        scores = self._node_scores(hidden, ancestors[:, 1:])
        against = torch.where(turned_right, -scores, scores)
        return F.softplus(against).where(ancestors[:, 1:] > 0, 0.0).sum(-1)

    def _log_prob(self, hidden: Tensor) -> Tensor:
        scores = at_least_float32(F.linear(hidden, self.weight_of_node, self.bias))  # [N, V - 1]
        level = scores.new_zeros(len(hidden), 1)  # log probability of reaching each node of a level
        leaves = []
        for depth in range(self.depth):
            start, end = 2**depth, min(2 ** (depth + 1), self.vocab_size)
            here, turn = level[:, : end - start], scores[:, start - 1 : end - 1]
            leaves.append(level[:, end - start :])
            level = torch.stack([here - F.softplus(turn), here - F.softplus(-turn)], -1).flatten(1)
        return torch.cat([*leaves, level], 1)[:, self.leaf - self.vocab_size]

    def code_of(self, target: Tensor) -> Tensor:
        """Turns from the root to the token, bool ``(..., depth)``."""
        self._ids_in_range(target)
        leaf = self.leaf[target].unsqueeze(-1)
        at_bottom = leaf >= 2**self.depth
        down = torch.arange(self.depth - 1, -1, -1, device=leaf.device)
        turns = torch.where(at_bottom, leaf >> down, leaf >> (down - 1).clamp(min=0)) & 1
        return turns.bool() & (at_bottom | (down > 0))

    def token_of(self, code: Tensor) -> Tensor:
        """Token at the end of the turns ``(..., depth)``; turns after a leaf say nothing."""
        if code.shape[-1:] != (self.depth,):
            raise ValueError(f"code must have shape (..., {self.depth}), got {tuple(code.shape)}")
        node = torch.ones(code.shape[:-1], dtype=torch.long, device=code.device)
        for turn in code.long().unbind(-1):
            node = torch.where(node < self.vocab_size, 2 * node + turn, node)
        place = torch.where(node >= 2**self.depth, node - 2**self.depth, node + self.vocab_size - 2**self.depth)
        return self.owner[place]

    def latent_logits(self, hidden: Tensor, code: Tensor | None = None) -> Tensor:
        """Log odds of turning right at each node on the path of `code`, by default the greedy path, ``(..., depth)``;
        after a leaf, those of some node that decides nothing."""
        shape = (*hidden.shape[:-1], self.depth)
        wanted = torch.zeros(shape, dtype=torch.bool, device=hidden.device) if code is None else code.bool()
        logits, _ = self._walk(hidden, wanted, torch.full_like(wanted, code is None))
        return logits.view(shape)

    def follow(self, hidden: Tensor, code: Tensor, own: Tensor) -> Tensor:
        """The path of `code` ``(..., depth)``, but the best turn where `own`, bool ``(..., depth)``; once off the path
        of `code`, always the best turn."""
        _, turns = self._walk(hidden, code, own)
        return turns.view(code.shape)

    def _walk(self, hidden: Tensor, code: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Log odds and turns ``(N, depth)`` of paths that follow `code`, or the odds where `own` and off its path."""
        rows, code, own = self._rows(hidden), code.reshape(-1, self.depth), own.reshape(-1, self.depth)
        node = torch.ones(len(rows), dtype=torch.long, device=rows.device)
        strayed = torch.zeros_like(node, dtype=torch.bool)
        logits, turns = [], []
        for wanted, by_itself in zip(code.unbind(-1), own.unbind(-1), strict=True):
            logits.append(self._node_scores(rows, node.clamp(max=self.vocab_size - 1).unsqueeze(1)).squeeze(1))
            turns.append(torch.where(by_itself | strayed, logits[-1] > 0, wanted))
            strayed = strayed | (turns[-1] != wanted)
            node = torch.where(node < self.vocab_size, 2 * node + turns[-1], node)
        return torch.stack(logits, -1), torch.stack(turns, -1)
