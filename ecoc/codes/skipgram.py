"""Word vectors by skip-gram on the training text (Mikolov et al. 2013), through gensim."""

from collections.abc import Iterator

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor

from ecoc.codes.contexts import count_tokens
from ecoc.codes.vectors import WordVectors, progress_bar

_SENTENCE = 1000  # tokens: gensim cuts longer sentences off at 10 000


def skipgram_vectors(
    ids: Tensor | np.ndarray,
    vocab_size: int,
    *,
    dim: int = 100,
    window: int = 5,
    epochs: int = 5,
    min_count: int = 1,
    seed: int = 0,
    workers: int = 1,
    progress: bool = False,
) -> WordVectors:
    """Skip-gram vectors with negative sampling; needs ``pip install "ecoc[vectors]"``.

    Args:
        ids: The training tokens, ``(N,)`` integers; may be a memory map.
        vocab_size: Number of tokens V.
        dim: Size of the vectors.
        window: Greatest distance of a neighbour.
        epochs: Passes over the stream.
        min_count: Tokens that occur less often are not found.
        seed: Seed of gensim.
        workers: Threads. With more than one the result differs from run to run.
        progress: Show a bar.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise ImportError('skip-gram vectors need gensim: pip install "ecoc[vectors]"') from error
    for name, value in (("dim", dim), ("window", window), ("epochs", epochs), ("workers", workers)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    stream, counts = count_tokens(ids, vocab_size)
    if counts.max() < min_count:
        raise ValueError(f"min_count={min_count} leaves no token: lower it to {counts.max()} or less")
    with progress_bar(progress) as bar:
        model = Word2Vec(
            _Sentences(stream, vocab_size, bar, passes=1 + epochs),
            vector_size=dim,
            window=window,
            epochs=epochs,
            min_count=min_count,
            seed=seed,
            workers=workers,
            sg=1,
        )
    tokens = torch.tensor([int(name) for name in model.wv.index_to_key])
    matrix = torch.zeros(vocab_size, dim)
    matrix[tokens] = torch.from_numpy(model.wv.vectors)
    found = torch.zeros(vocab_size, dtype=torch.bool)
    found[tokens] = True
    return WordVectors(matrix, found, f"skip-gram (window {window}) of {len(stream)} tokens")


class _Sentences:
    """The stream in pieces, as gensim wants it: to be iterated once for the vocabulary and once an epoch."""

    def __init__(self, stream: np.ndarray, vocab_size: int, bar: Progress, passes: int) -> None:
        self.stream = stream
        self.names = [str(token) for token in range(vocab_size)]  # shared: one string a token of V, not of N
        self.bar = bar
        self.task = bar.add_task("skip-gram", total=passes * len(stream))

    def __iter__(self) -> Iterator[list[str]]:
        for start in range(0, len(self.stream), _SENTENCE):
            piece = self.stream[start : start + _SENTENCE].tolist()
            yield [self.names[token] for token in piece]
            self.bar.advance(self.task, len(piece))
