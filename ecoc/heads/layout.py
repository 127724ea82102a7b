"""Heads that keep tokens in an order of their own, and such orders."""

from abc import abstractmethod

import torch
from torch import Tensor

from ecoc.codes import WordVectors, frequency_rank
from ecoc.codes.spans import similarity_to_most_frequent, token_order
from ecoc.codes.vectors import checked_matrix
from ecoc.heads.head import Head


class OrderedHead(Head):
    """A head that keeps tokens in an order of its own, and writes :meth:`_ordered_log_prob` for `_log_prob`.

    To bring all V log probabilities into the order of ids takes longer than to find the best of them.
    """

    place: Tensor  # [V] of each token
    owner: Tensor  # [V] the token at each place

    @abstractmethod
    def _ordered_log_prob(self, hidden: Tensor) -> Tensor:
        """Log probabilities by place, ``(N, V)``, or more with -inf at the end."""

    def _log_prob(self, hidden: Tensor) -> Tensor:
        return self._ordered_log_prob(hidden)[:, self.place]

    def _candidates(self, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, places = self._ordered_log_prob(hidden).topk(k)
        return values, self.owner[places.clamp(max=self.vocab_size - 1)]  # what is no number may be found anywhere


def laid_out(
    order: str | Tensor, vocab_size: int, counts: Tensor | None, vectors: Tensor | WordVectors | None, seed: int
) -> tuple[Tensor, Tensor]:
    """Token ids in `order`, and each token's place in it, both ``(V,)`` int64."""
    if not isinstance(order, str):
        owner = torch.as_tensor(order).detach().cpu().long()
        if owner.shape != (vocab_size,) or not torch.equal(owner.sort().values, torch.arange(vocab_size)):
            raise ValueError(f"order must hold each of the {vocab_size} token ids once, got shape {tuple(owner.shape)}")
        return owner, torch.argsort(owner)
    matrix = checked_matrix(vectors, vocab_size, seed)
    rank = frequency_rank(vocab_size, counts)
    similarity = None if matrix is None else similarity_to_most_frequent(matrix, rank)
    owner = token_order(order, rank, similarity, seed)
    return owner, torch.argsort(owner)
