"""The codes of words in use: ``ecoc codebook build | show | nearest``."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ecoc.codes import Codebook
from ecoc.data import Vocabulary, open_corpus
from ecoc.options import CodebookBuildOptions, TrainOptions
from ecoc.training import run as runs
from ecoc.training.parts import CODEBOOK, load_code, prepare


class WordCode:
    """A vocabulary and its codebook, from the folder of a run or of ``ecoc codebook build``.

    Args:
        folder: That folder.

    Example:
        >>> WordCode("runs/lm").nearest("list", 3)
        [('tuple', 124), ('dictionary', 182), ('string', 192)]
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.vocabulary: Vocabulary
        self.codebook: Codebook
        self.vocabulary, self.codebook = load_code(self.folder)

    def nearest(self, word: str, k: int = 10) -> list[tuple[str, int]]:
        """The k words whose codewords differ from that of `word` in the fewest bits, with the number of bits."""
        if word not in self.vocabulary:
            raise ValueError(f"{word!r} is not in the vocabulary of {self.folder}: try another spelling")
        token = torch.tensor(self.vocabulary.encode_words([word]))
        distances, ids = self.codebook.neighbours(token, min(k, len(self.vocabulary) - 1))
        return list(zip(self.vocabulary.words_of(ids[0].tolist()), distances[0].tolist(), strict=True))

    def facts(self) -> dict[str, object]:
        """What there is to know about the code."""
        distance = self.codebook.minimum_distance()
        frequent = torch.argsort(self.codebook.rank)[:1000]
        codewords = self.codebook.encode(frequent)
        nearest, _ = self.codebook.neighbours(frequent, 1)
        ones = codewords.float().mean(0)
        return {
            "kind": self.codebook.kind,
            "words": self.codebook.vocab_size,
            "bits": self.codebook.bits,
            "bytes": self.codebook.num_bytes,
            "minimum_distance": int(distance),
            "minimum_distance_is_exact": distance.exact,
            "corrects": self.codebook.corrects(),
            "mean_distance": round(_mean_distance(codewords), 2),
            "mean_distance_to_nearest": round(float(nearest.float().mean()), 2),
            "ones_in_a_bit": [round(float(ones.min()), 3), round(float(ones.max()), 3)],
            "fingerprint": self.codebook.fingerprint,
        }


def build(options: CodebookBuildOptions, progress: bool = True) -> WordCode:
    """Build a code over the words of a corpus, and save both."""
    names = ("corpus", "data_dir", "codebook", "bits", "vectors", "tokeniser", "min_count", "max_size", "seed")
    like_training = TrainOptions(head="ecoc", **{name: getattr(options, name) for name in names})
    with runs.new_folder(Path(options.out), options.overwrite, CODEBOOK) as folder:
        with TemporaryDirectory() as cache:
            corpus = open_corpus(
                options.corpus,
                data_dir=options.data_dir,
                cache=cache,
                tokeniser=options.tokeniser,
                min_count=options.min_count,
                max_size=options.max_size,
                progress=progress,
            )
            parts = prepare(like_training, corpus.vocabulary, corpus.train, progress)
        parts.save(folder)
    return WordCode(options.out)


def _mean_distance(codewords: torch.Tensor) -> float:
    """Mean Hamming distance between two different rows."""
    ones, rows = codewords.double().sum(0), len(codewords)
    return float((ones * (rows - ones)).sum() * 2 / (rows * (rows - 1)))
