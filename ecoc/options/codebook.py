"""Options of ``ecoc codebook``."""

from dataclasses import dataclass


@dataclass
class CodebookBuildOptions:
    """Build a codebook over the words of a corpus; ecoc train takes it as --codebook FOLDER.

    Args:
        corpus: builtin, ptb, wikitext-2, wikitext-103, or a folder (or file) with your own text.
        out: Folder for codebook and vocabulary.
        data_dir: Where the files of ptb, wikitext-2 and wikitext-103 are.
        codebook: Kind of code: semantic, random, bch, hadamard, convolutional, onehot, span-random, span-unigram or
            span-embedding.
        bits: Length of a codeword; 512 by default, 40 for the span codes.
        vectors: Where word vectors come from: contexts, skipgram or a word2vec or GloVe file; several joined by +.
        tokeniser: whitespace or simple (lower case, punctuation apart).
        min_count: Words seen less often become <unk>.
        max_size: Most words in the vocabulary.
        seed: Seed of everything random.
        overwrite: Replace a codebook that exists.
    """

    corpus: str = "builtin"
    out: str = "runs/code"
    data_dir: str | None = None
    codebook: str = "semantic"
    bits: int | None = None
    vectors: str | None = None
    tokeniser: str | None = None
    min_count: int | None = None
    max_size: int | None = None
    seed: int = 1
    overwrite: bool = False


@dataclass
class CodebookShowOptions:
    """Show what a codebook is like: its distances, its size, how even its bits are.

    Args:
        folder: Folder of a run, or of ecoc codebook build.
        json: Print one JSON object.
    """

    folder: str
    json: bool = False


@dataclass
class CodebookNearestOptions:
    """List the words whose codewords differ from that of a word in the fewest bits.

    Args:
        folder: Folder of a run, or of ecoc codebook build.
        word: The word.
        k: How many words.
        json: Print JSON.
    """

    folder: str
    word: str
    k: int = 10
    json: bool = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"--k must be at least 1, got {self.k}")
