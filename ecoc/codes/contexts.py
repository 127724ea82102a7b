r"""Word vectors from the training text alone: which words stand beside a word.

For each offset o (-1: the word just before) and each context c, one of the most frequent words, the positive
pointwise mutual information

.. math:: M_{w, (o, c)} = \max\Bigl(0, \log \frac{n_o(w, c)\, N_o}{n_o(w)\, n_o(c)}\Bigr)

where :math:`n_o(w, c)` counts the places i with :math:`x_i = w` and :math:`x_{i + o} = c`, and :math:`N_o`
all places that have a neighbour at o. The blocks of the offsets stand side by side in one sparse matrix. With
its truncated singular value decomposition :math:`U S V^T`, the vectors are the rows of :math:`U \sqrt S`,
scaled to length 1 (Levy, Goldberg & Dagan 2015). It needs nothing from outside: the default source.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import Progress
from torch import Tensor

from ecoc.codes.vectors import WordVectors, progress_bar

_CHUNK = 1 << 22  # tokens counted at a time, so that work space does not grow with the text
_DEPTH = 20  # blocks of the basis of the decomposition


def context_vectors(
    ids: Tensor | np.ndarray,
    vocab_size: int,
    *,
    dim: int = 200,
    offsets: Sequence[int] = (-2, -1, 1),
    contexts: int = 3000,
    seed: int = 0,
    progress: bool = False,
) -> WordVectors:
    """Vectors of length 1 from the neighbours of each word in a token stream.

    Words that never occur, or never beside a context in a way that tells anything, are not found.

    Args:
        ids: The training tokens, ``(N,)`` integers; may be a memory map.
        vocab_size: Number of tokens V.
        dim: Size of the vectors; smaller in the result if the matrix has fewer independent columns.
        offsets: Neighbours to look at: -1 is the token before, 1 the token after.
        contexts: How many of the most frequent tokens serve as contexts, at each offset.
        seed: Seed of the starting directions of the decomposition, which the result hardly depends on.
        progress: Show a bar.
    """
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    if contexts < 1:
        raise ValueError(f"contexts must be at least 1, got {contexts}")
    if not offsets or 0 in offsets:
        raise ValueError(f"offsets must hold neighbours other than 0 (the word itself), got {tuple(offsets)}")
    stream, counts = count_tokens(ids, vocab_size)
    with progress_bar(progress) as bar:
        matrix = ppmi(stream, counts, offsets, min(contexts, int((counts > 0).sum())), bar)
        left, singular = truncated_svd(matrix, dim, seed, bar)
    found = torch.zeros(vocab_size, dtype=torch.bool)
    found[matrix.indices()[0]] = True
    vectors = F.normalize(left * singular.sqrt()).float()
    signed = ", ".join(f"{offset:+d}" for offset in offsets)
    return WordVectors(vectors, found, f"contexts ({signed}) of {len(stream)} tokens")


def count_tokens(ids: Tensor | np.ndarray, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The stream as an array (not copied) and how often each token occurs, ``(V,)``, after checking it."""
    stream = ids.detach().cpu().numpy() if isinstance(ids, Tensor) else np.asarray(ids)
    if stream.ndim != 1 or len(stream) == 0:
        raise ValueError(f"ids must be a stream (N,) of at least one token, got shape {stream.shape}")
    if not np.issubdtype(stream.dtype, np.integer):
        raise ValueError(f"ids must be integers, got {stream.dtype}: convert them with ids.long()")
    counts = np.zeros(vocab_size, dtype=np.int64)
    for start in range(0, len(stream), _CHUNK):
        chunk = stream[start : start + _CHUNK]
        if chunk.min() < 0 or chunk.max() >= vocab_size:
            raise ValueError(
                f"ids must be within [0, {vocab_size}), got {chunk.min()} to {chunk.max()}: "
                f"pass the vocab_size that the ids were made with"
            )
        counts += np.bincount(chunk.astype(np.int64), minlength=vocab_size)
    return stream, counts


def truncated_svd(matrix: Tensor, dim: int, seed: int, bar: Progress) -> tuple[Tensor, Tensor]:
    """The ``dim`` leading left singular vectors ``(V, dim)`` and values ``(dim,)`` of a sparse matrix.

    Block Lanczos (Golub & Underwood 1977) on the Gram matrix of the columns: a basis of the Krylov space of
    random directions, then an exact decomposition inside it. PPMI spectra are so flat
    that a few subspace iterations, as in ``torch.svd_lowrank``, miss many of the leading directions. Fewer if the
    rank is lower.
    """
    transposed = matrix.t().coalesce()
    columns, block = matrix.shape[1], 16 + dim // 4
    size = min(columns, _DEPTH * block)
    basis = torch.empty(columns, size, dtype=torch.float64)
    image = torch.empty_like(basis)  # matrix^T matrix basis
    generator = torch.Generator().manual_seed(seed)
    new = torch.zeros(columns, block, dtype=torch.float64)
    for start in bar.track(range(0, size, block), description="decompose"):
        done, new = basis[:, :start], new[:, : size - start]
        # Noise makes the first block, and fills others where the rank is exhausted: rounding errors, all that
        # the projection leaves there, may lie inside the basis again.
        noise = torch.randn(new.shape, generator=generator, dtype=torch.float64)
        new = new / new.norm().clamp(min=1e-300) + 1e-10 * noise
        for _ in range(2):  # once leaves a trace of the basis in columns that are nearly inside it
            new = torch.linalg.qr(new - done @ (done.T @ new)).Q
        basis[:, start : start + block] = new
        new = transposed @ (matrix @ new)
        image[:, start : start + block] = new
    inside = basis.T @ image
    directions = torch.linalg.eigh((inside + inside.T) / 2).eigenvectors.flip(1)[:, :dim]
    scaled = matrix @ (basis @ directions)  # U S
    singular = scaled.norm(dim=0)
    rank = max(1, int((singular > 1e-6 * singular.max()).sum()))
    return scaled[:, :rank] / singular[:rank].clamp(min=1e-300), singular[:rank]


def ppmi(stream: np.ndarray, counts: np.ndarray, offsets: Sequence[int], width: int, bar: Progress) -> Tensor:
    """The sparse matrix ``(V, len(offsets) * width)`` in float64, ``width`` the number of contexts."""
    frequent = np.argsort(-counts, kind="stable")[:width]
    column = np.full(len(counts), -1)
    column[frequent] = np.arange(width)
    words, columns, values = [], [], []
    for block, offset in enumerate(offsets):
        pairs, together = _count_pairs(stream, column, width, offset, bar)
        word, context = np.divmod(pairs, width)
        # Words at the edge of the stream have no neighbour, and the words at the other edge are nobody's.
        near, far = stream[: abs(offset)].astype(np.int64), stream[-abs(offset) :].astype(np.int64)
        without, nobodys = (near, far) if offset < 0 else (far, near)
        alone = counts - np.bincount(without, minlength=len(counts))
        beside = counts - np.bincount(nobodys, minlength=len(counts))
        total = max(0, len(stream) - abs(offset))
        value = np.log(together * float(total) / alone[word] / beside[frequent[context]])
        keep = value > 1e-9  # 0 but for rounding is no information either
        words.append(word[keep])
        columns.append(context[keep] + block * width)
        values.append(value[keep])
    indices = torch.from_numpy(np.stack([np.concatenate(words), np.concatenate(columns)]))
    shape = (len(counts), len(offsets) * width)
    information = torch.from_numpy(np.concatenate(values))
    return torch.sparse_coo_tensor(indices, information, shape, check_invariants=False).coalesce()


def _count_pairs(
    stream: np.ndarray, column: np.ndarray, width: int, offset: int, bar: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted keys ``word * width + column of its neighbour`` and how often each occurs."""
    pairs, together = np.empty(0, np.int64), np.empty(0, np.int64)
    first, last = max(0, -offset), min(len(stream), len(stream) - offset)
    for start in bar.track(range(first, last, _CHUNK), description=f"count {offset:+d}"):
        stop = min(last, start + _CHUNK)
        context = column[stream[start + offset : stop + offset]]
        key = stream[start:stop].astype(np.int64) * width + context
        key, times = np.unique(key[context >= 0], return_counts=True)
        pairs, together = np.concatenate([pairs, key]), np.concatenate([together, times])
        order = np.argsort(pairs, kind="stable")  # merges two sorted runs: linear time
        pairs, together = pairs[order], together[order]
        heads = np.flatnonzero(np.diff(pairs, prepend=-1))
        pairs, together = pairs[heads], np.add.reduceat(together, heads) if len(heads) else together
    return pairs, together
