"""Codebooks and heads over the vocabulary of the built-in corpus, side by side.

    make demo
    python -m examples.compare_heads

Reads the documentation inside the installed Python, builds codebooks over its words, shows which words a semantic code
puts next to each other, and measures every head at this vocabulary size.
"""

from collections import Counter

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from benchmarks.heads import run
from benchmarks.heads import table as head_table
from ecoc import codes
from ecoc.data import builtin_sentences

BITS = 128
SHOWN_WORDS = ("list", "string", "returns", "first", "if", "file", "two", "error")


def read_corpus() -> tuple[list[str], Tensor, Tensor]:
    """Words in order of frequency, their counts, and the corpus as ids."""
    paragraphs = [words for module in builtin_sentences().values() for words in module]
    frequency = Counter(word for words in paragraphs for word in words)
    vocabulary = ["<unk>", "<eos>", *(word for word, count in frequency.most_common() if count > 1)]
    number = {word: i for i, word in enumerate(vocabulary)}
    ids = torch.tensor([number.get(word, 0) for words in paragraphs for word in [*words, "<eos>"]])
    return vocabulary, ids.bincount(minlength=len(vocabulary)), ids


def codebooks(counts: Tensor, vectors: codes.WordVectors, progress: Progress) -> dict[str, codes.Codebook]:
    """One codebook of each kind that makes sense at this size."""
    vocab = len(counts)
    message_bits = (vocab - 1).bit_length()
    lengths = dict.fromkeys(codes.KINDS, BITS) | {
        "bch": 127,
        "hadamard": 1 << ((vocab + 1) // 2 - 1).bit_length(),
        "convolutional": 2 * (message_bits + 6),
        "onehot": vocab,
    }
    built = {}
    for kind, bits in progress.track(lengths.items(), description="building codebooks"):
        built[kind] = codes.build(kind, vocab, bits, counts, vectors)
    return built


def codebook_table(built: dict[str, codes.Codebook]) -> Table:
    """Size and reach of each codebook."""
    result = Table(title="Codebooks", title_justify="left")
    for column in ("kind", "bits", "minimum distance", "wrong bits corrected", "kB packed"):
        result.add_column(column, justify="left" if column == "kind" else "right")
    for kind, book in built.items():
        distance = book.minimum_distance()
        result.add_row(kind, str(book.bits), str(distance), str((distance - 1) // 2), f"{book.num_bytes / 1000:,.1f}")
    return result


def neighbours(book: codes.Codebook, vocabulary: list[str]) -> Table:
    """The words nearest to some words by the Hamming distance of their codewords."""
    result = Table(
        title=f"Nearest words in the semantic code ({BITS} bits; distance in brackets)", title_justify="left"
    )
    result.add_column("word")
    result.add_column("nearest")
    frequent = torch.arange(min(3000, len(vocabulary)))
    codewords = book.encode(frequent)
    for word in SHOWN_WORDS:
        if word in vocabulary[: len(frequent)]:
            distance = (codewords ^ codewords[vocabulary.index(word)]).sum(-1)
            near = distance.topk(7, largest=False).indices.tolist()[1:]
            result.add_row(word, ", ".join(f"{vocabulary[i]} ({int(distance[i])})" for i in near))
    return result


def main() -> None:
    """Command line."""
    console = Console(width=None if Console().is_terminal else 150)
    with console.status("reading the documentation inside Python"):
        vocabulary, counts, ids = read_corpus()
    console.print(f"built-in corpus: {len(ids):,} tokens, {len(vocabulary):,} words that occur twice or more\n")
    vectors = codes.context_vectors(ids, len(vocabulary), progress=console.is_terminal)
    with Progress(console=console, transient=True) as progress:
        built = codebooks(counts, vectors, progress)
        console.print(codebook_table(built), "")
        console.print(neighbours(built["semantic"], vocabulary), "")
        rows = run(len(vocabulary), 400, 700, 5, None, progress, counts.double())
    console.print(head_table(rows))


if __name__ == "__main__":
    main()
