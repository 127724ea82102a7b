"""What enters the decoder: a vector a token, from a table or from the token's code."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ecoc.codes import Codebook, unpack_signs


class TokenEmbedding(nn.Embedding):
    """A table of V vectors, started at random or from word vectors.

    Where it starts matters: vectors of rare words hardly move, and what is left of a large start is noise to the LSTM.

    Args:
        vocab_size: Number of tokens V.
        size: Size of a vector.
        vectors: Word vectors ``(V, d)`` to start from: projected to `size` numbers if d differs.
        deviation: Standard deviation of the numbers at the start; by default 1 / sqrt(size), vectors of length 1.
    """

    def __init__(
        self, vocab_size: int, size: int, vectors: Tensor | None = None, deviation: float | None = None
    ) -> None:
        super().__init__(vocab_size, size)
        with torch.no_grad():
            self.weight.mul_(size**-0.5 if deviation is None else deviation)
            if vectors is not None:
                projection = torch.randn(vectors.shape[1], size) if vectors.shape[1] != size else torch.eye(size)
                start = vectors.float() @ projection
                self.weight.copy_(start * (self.weight.std() / start.std()))


class CodeEmbedding(nn.Module):
    r"""Vectors from codewords: :math:`x_w = s_w E / \sqrt n`, with s_w the signs of the codeword of w.

    In place of a V x H table there is one n x H matrix; with the same codebook in the output head, the whole model is
    free of any parameter that grows with the vocabulary. Mixed and relaxed codes have vectors too.

    Args:
        codebook: The code.
        size: Size H of a vector.
    """

    packed: Tensor

    def __init__(self, codebook: Codebook, size: int) -> None:
        super().__init__()
        self.bits = codebook.bits
        self.register_buffer("packed", codebook.packed)
        self.weight = nn.Parameter(torch.randn(codebook.bits, size))

    def forward(self, ids: Tensor) -> Tensor:
        """Vectors ``(..., H)`` of tokens ``(...)``."""
        signs = unpack_signs(self.packed[ids], self.bits, self.weight.dtype)
        return F.linear(signs, self.weight.T) / math.sqrt(self.bits)

    def of_code(self, code: Tensor) -> Tensor:
        """Vectors of codes ``(..., n)``: bool, or numbers from 0 to 1."""
        return F.linear(code.to(self.weight.dtype) * 2 - 1, self.weight.T) / math.sqrt(self.bits)
