"""Where a tree or a class keeps each token."""

import torch
from torch import Tensor

from ecoc.codes import WordVectors, fill_missing, frequency_rank
from ecoc.codes.spans import similarity_to_most_frequent, token_order


def laid_out(
    order: str | Tensor, vocab_size: int, counts: Tensor | None, vectors: Tensor | WordVectors | None, seed: int
) -> tuple[Tensor, Tensor]:
    """Token ids in `order`, and each token's place in it, both ``(V,)`` int64."""
    if isinstance(order, Tensor):
        owner = order.detach().cpu().long()
        if owner.shape != (vocab_size,) or not torch.equal(owner.sort().values, torch.arange(vocab_size)):
            raise ValueError(f"order must hold each of the {vocab_size} token ids once, got shape {tuple(order.shape)}")
        return owner, torch.argsort(owner)
    if isinstance(vectors, WordVectors):
        vectors = fill_missing(vectors, seed)
    if vectors is not None and (vectors.ndim != 2 or len(vectors) != vocab_size):
        raise ValueError(f"vectors must have shape ({vocab_size}, d), one row a token, got {tuple(vectors.shape)}")
    rank = frequency_rank(vocab_size, counts)
    similarity = None if vectors is None else similarity_to_most_frequent(vectors.cpu(), rank)
    owner = token_order(order, rank, similarity, seed)
    return owner, torch.argsort(owner)
