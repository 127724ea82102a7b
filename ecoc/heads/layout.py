"""Where a tree or a class keeps each token."""

import torch
from torch import Tensor

from ecoc.codes import WordVectors, frequency_rank
from ecoc.codes.spans import similarity_to_most_frequent, token_order
from ecoc.codes.vectors import checked_matrix


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
