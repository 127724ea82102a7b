"""Words and their numbers: what turns text into ids and ids into text.

>>> vocabulary = Vocabulary.build({"the": 3, "cat": 1, "<eos>": 2})
>>> vocabulary.words
('the', '<eos>', 'cat', '<unk>')
>>> vocabulary.encode("the dog\\n")
[0, 3, 1]
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

PathLike: TypeAlias = str | os.PathLike[str]

UNK = "<unk>"
EOS = "<eos>"

_FORMAT = "ecoc vocabulary 1"
# Letters of any script, with ' or _ inside; numbers; every other character on its own.
_SIMPLE = re.compile(rf"{UNK}|{EOS}|[^\W\d_]+(?:['_][^\W\d_]+)*|\d+|[^\w\s]|_")


def _simple(text: str) -> list[str]:
    return _SIMPLE.findall(text.lower())


TOKENISERS: dict[str, Callable[[str], list[str]]] = {"whitespace": str.split, "simple": _simple}


def tokenise(text: str, tokeniser: str) -> list[str]:
    """The words of a text, with ``<eos>`` for each line end.

    Args:
        text: Any text; ``<unk>`` and ``<eos>`` typed in it stay as they are.
        tokeniser: ``whitespace`` splits at blanks and changes nothing; ``simple`` makes all lower case and sets words,
            numbers and punctuation apart.
    """
    if tokeniser not in TOKENISERS:
        raise ValueError(f"tokeniser must be one of {', '.join(TOKENISERS)}, got {tokeniser!r}")
    return TOKENISERS[tokeniser](text.replace("\n", f" {EOS} "))


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """The words that a model knows, in id order.

    Attributes:
        words: The word of each id; ``<unk>`` and ``<eos>`` are among them.
        counts: How often each occurs in the training text, those left out counted as ``<unk>``.
        tokeniser: What splits text into words, ``whitespace`` or ``simple``.
    """

    words: tuple[str, ...]
    counts: tuple[int, ...]
    tokeniser: str = "whitespace"

    def __post_init__(self) -> None:
        tokenise("", self.tokeniser)  # complains about one that does not exist
        if len(self.counts) != len(self.words):
            raise ValueError(f"counts must be one a word, got {len(self.counts)} for {len(self.words)} words")
        if len(self._ids) != len(self.words):
            raise ValueError(f"words must differ from each other, got {len(self.words) - len(self._ids)} repeated")
        if UNK not in self._ids or EOS not in self._ids:
            raise ValueError(f"words must have {UNK} and {EOS} among them: use Vocabulary.build, which adds them")

    @classmethod
    def build(
        cls,
        counter: Mapping[str, int],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        tokeniser: str = "whitespace",
    ) -> "Vocabulary":
        """Give ids in order of falling frequency, ties in alphabetical order.

        Args:
            counter: How often each word occurs.
            min_count: Words that occur less often become ``<unk>``.
            max_size: Most words to keep, ``<unk>`` and ``<eos>`` among them; rarer ones become ``<unk>``.
            tokeniser: What splits text into these words.
        """
        if min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {min_count}")
        if max_size is not None and max_size < 3:
            raise ValueError(f"max_size must be at least 3 ({UNK}, {EOS} and a word), got {max_size}")
        frequent = [word for word, count in counter.items() if count >= min_count and word not in (UNK, EOS)]
        if max_size is not None and len(frequent) > max_size - 2:
            frequent = sorted(frequent, key=lambda word: (-counter[word], word))[: max_size - 2]
        counts = {word: counter[word] for word in frequent}
        counts[EOS] = counter.get(EOS, 0)
        counts[UNK] = sum(counter.values()) - sum(counts.values())
        words = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(tuple(words), tuple(counts[word] for word in words), tokeniser)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @property
    def unk(self) -> int:
        """Id of ``<unk>``, which stands for every unknown word."""
        return self._ids[UNK]

    @property
    def eos(self) -> int:
        """Id of ``<eos>``, the end of a line."""
        return self._ids[EOS]

    def counts_tensor(self) -> Tensor:
        """The counts as float64 ``(V,)``."""
        return torch.tensor(self.counts, dtype=torch.float64)

    def encode_words(self, words: Iterable[str]) -> list[int]:
        """Ids of words; unknown ones get that of ``<unk>``."""
        return list(map(self._ids.get, words, repeat(self.unk)))

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with ``<eos>`` for each line end and none after a last line without one."""
        return self.encode_words(tokenise(text, self.tokeniser))

    def unknown(self, text: str) -> list[str]:
        """Words of a text that the model does not know, each once."""
        return [word for word in dict.fromkeys(tokenise(text, self.tokeniser)) if word not in self]

    def words_of(self, ids: Iterable[int]) -> list[str]:
        """Words of ids."""
        return [self.words[number] for number in ids]

    def text_of(self, ids: Iterable[int]) -> str:
        """Text for people to read: a line end for each ``<eos>``, no blank where punctuation has none.

        Encoding it gives the ids again.
        """
        lines: list[list[str]] = [[]]
        for word in self.words_of(ids):
            if word == EOS:
                lines.append([])
            else:
                lines[-1].append(word)
        text = "\n".join(map(" ".join, lines))
        if self.tokeniser == "simple":  # whitespace must keep its blanks: they alone say where a word ends
            text = re.sub(r" (?=[,.;:!?)])|(?<=\() ", "", text)
        return text

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of words and tokeniser: models with the same one understand the same ids."""
        return hashlib.sha256(json.dumps([self.tokeniser, self.words]).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words, {self.tokeniser}: {', '.join(self.words[:3])}, ...)"

    def save(self, path: PathLike) -> None:
        """Write as JSON. The file appears under its name only when it is complete."""
        path = Path(path)
        content = {"format": _FORMAT, "tokeniser": self.tokeniser, "words": self.words, "counts": self.counts}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            partial.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: PathLike) -> "Vocabulary":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is damaged, or something else.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file; give a vocabulary written by Vocabulary.save")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(content, dict) or content.get("format") != _FORMAT:
                raise ValueError(f"its format is not {_FORMAT!r}")
            words, counts = content.get("words"), content.get("counts")
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError("words must be a list of strings")
            if not isinstance(counts, list) or not all(type(count) is int and count >= 0 for count in counts):
                raise ValueError("counts must be a list of whole numbers, none negative")
            return cls(tuple(words), tuple(counts), str(content.get("tokeniser")))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path}: not a vocabulary, or damaged ({error}); restore the file, or build it again from the text"
            ) from error
