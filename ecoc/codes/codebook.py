"""The codebook: which n-bit word, or span of words, belongs to which token."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ecoc.codes.bits import pack, packed_width, search_rows, unpack, unpack_signs, words
from ecoc.codes.convolutional import Trellis
from ecoc.codes.search import ROWS, codeword_scores, nearest

EXACT_DISTANCE_TOKENS = 16_384  # up to here `minimum_distance` compares all pairs
SAMPLED_DISTANCE_TOKENS = 512  # beyond, it compares this many tokens with all others

FORMAT = "ecoc.codebook.1"


class Distance(int):
    """A minimum distance: an int that knows whether it is exact or an upper bound from sampled tokens."""

    exact: bool

    def __new__(cls, value: int, exact: bool) -> "Distance":
        distance = super().__new__(cls, value)
        distance.exact = exact
        return distance

    def __str__(self) -> str:
        return f"{int(self)}" if self.exact else f"at most {int(self)} (sampled)"

    __repr__ = __str__

    def __getnewargs__(self) -> tuple[int, bool]:  # type: ignore[override]
        return int(self), self.exact


@dataclass(frozen=True)
class Spans:
    """Consecutive spans that share out all 2^n words: span r is `first[r]` to `last[r]` and belongs to `owner[r]`."""

    first: Tensor  # [V, ceil(n / 8)] uint8, increasing; the first is 0
    last: Tensor  # [V, ceil(n / 8)] uint8, included; the word before the next span's first
    owner: Tensor  # [V] int32, a permutation of the token ids

    @cached_property
    def place(self) -> Tensor:
        """The span of each token, ``(V,)`` int64: the inverse of `owner`."""
        return torch.argsort(self.owner)

    @cached_property
    def first_words(self) -> Tensor:
        return words(self.first)


@dataclass(frozen=True, repr=False, eq=False)
class Codebook:
    """A binary code over a vocabulary: tokens in, bits out, and back again from damaged bits.

    Build one with :func:`ecoc.codes.build`. All tensors are plain and live on one device (``to``).

    Args:
        kind: Name of the construction, for people to read.
        bits: Length n of a codeword.
        packed: ``(V, ceil(n / 8))`` uint8, one codeword a token, all different; for spans, one from the middle.
        rank: ``(V,)`` int32, 0 for the most frequent token; equally near codewords decode to the lowest rank.
        spans: For span codes, who owns which words.
        trellis: For convolutional codes, the encoder's states, so that decoding can be Viterbi's.

    Example:
        >>> codebook = ecoc.codes.build("bch", vocab_size=10_000, bits=63)
        >>> word = codebook.encode(torch.tensor([42]))
        >>> word[:, :codebook.corrects()] ^= True
        >>> codebook.decode(word)
        tensor([42])
    """

    kind: str
    bits: int
    packed: Tensor
    rank: Tensor
    spans: Spans | None = None
    trellis: Trellis | None = None

    def __post_init__(self) -> None:
        expected = (len(self.rank), packed_width(self.bits))
        if self.packed.dtype != torch.uint8 or tuple(self.packed.shape) != expected:
            raise ValueError(
                f"packed must be uint8 of shape {expected} for {self.bits} bits, got {self.packed.dtype} of shape "
                f"{tuple(self.packed.shape)}: use ecoc.codes.pack on the bits"
            )
        if self.bits % 8 and (self.packed[:, -1] & (0xFF >> (self.bits % 8))).any():
            raise ValueError(
                f"packed has bits set beyond the {self.bits} of a codeword: use ecoc.codes.pack on the bits"
            )
        if not torch.equal(self.rank.cpu().long().sort().values, torch.arange(len(self.rank))):
            raise ValueError(f"rank must hold each of 0 to {len(self.rank) - 1} once: use ecoc.codes.frequency_rank")
        twice = duplicate_rows(self.packed)
        if twice.any():
            tokens = twice.nonzero().flatten()[:5].tolist()
            raise ValueError(
                f"packed has {int(twice.sum())} duplicate codewords (tokens {tokens} among them): give each token its "
                f"own, or use more bits"
            )

    @property
    def vocab_size(self) -> int:
        return len(self.packed)

    @property
    def num_bytes(self) -> int:
        """What the code takes, packed: V n / 8 (spans: their first words, from which the rest follows)."""
        return self.packed.numel()

    def encode(self, ids: Tensor) -> Tensor:
        """Codewords of token ids ``(...)`` as bool ``(..., n)``."""
        if len(ids.flatten()) and not (int(ids.min()) >= 0 and int(ids.max()) < self.vocab_size):
            raise ValueError(f"ids must be in [0, {self.vocab_size}), got {int(ids.min())} to {int(ids.max())}")
        return unpack(self.packed[ids.long()], self.bits)

    def decode(self, bits: Tensor) -> Tensor:
        """Token ids ``(...)`` of hard words ``(..., n)``, bool or 0/1.

        Spans: the owner of the word, by binary search. Otherwise the nearest codeword in Hamming distance, the most
        frequent token where several are equally near (convolutional codes: any of them, as Viterbi comes by it).
        """
        self._check_width(bits)
        if bits.is_floating_point():
            raise ValueError("bits must be bool or 0/1 integers; for log odds use decode_soft")
        if bits.dtype != torch.bool and ((bits < 0) | (bits > 1)).any():
            raise ValueError("bits must be 0 or 1: turn signs into bits with signs > 0")
        if self.spans is not None:
            rows = search_rows(self.spans.first_words, words(pack(bits)))
            return self.spans.owner[rows].long()
        return self.decode_soft(bits.to(torch.float32) * 2 - 1)

    def decode_soft(self, logits: Tensor) -> Tensor:
        """Token ids ``(...)`` most likely under independent bits with log odds `logits` ``(..., n)``.

        Infinite ones outweigh all finite ones together.
        """
        self._check_width(logits)
        if not logits.is_floating_point() or logits.isnan().any():
            raise ValueError("logits must be floating-point log odds without NaN; for hard bits use decode")
        if self.spans is not None:
            return self.decode(logits > 0)
        flat = logits.reshape(-1, self.bits).to(torch.promote_types(logits.dtype, torch.float32))
        certain, limit = flat.isinf(), torch.finfo(flat.dtype).max / (8 * self.bits**2)  # so that sums are finite
        rest = flat.masked_fill(certain, 0.0).clamp(-limit, limit)
        # finite ones still decide between codewords that agree in the certain bits
        flat = torch.where(certain, flat.sign() * (2 * rest.abs().sum(-1, keepdim=True) + 1), rest)
        if self.trellis is None:
            return nearest(self.packed, flat, self.rank).view(logits.shape[:-1])
        message = self.trellis.viterbi(flat)
        # the trellis knows 2^k messages, the vocabulary only V of them: the others go to the nearest codeword in use
        outside = message >= self.vocab_size
        token = torch.argsort(self.rank)[message.clamp(max=self.vocab_size - 1)]
        token[outside] = nearest(self.packed, flat[outside], self.rank)
        return token.view(logits.shape[:-1])

    def neighbours(self, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Distances and ids ``(N, k)`` of the other tokens whose codewords differ in the fewest bits, nearest first.

        Tokens at the same distance come in order of frequency.
        """
        if not 1 <= k < self.vocab_size:
            raise ValueError(f"k must be between 1 and {self.vocab_size - 1}, the other tokens, got {k}")
        order, signs = torch.argsort(self.rank), self.encode(ids).float() * 2 - 1
        keys = []
        for part, own in zip(signs.split(ROWS), ids.split(ROWS), strict=True):
            scores = torch.cat([scores for _, scores in codeword_scores(self.packed, part)])  # n - 2 distance
            distance = ((self.bits - scores) / 2).round().long()
            distance[own, torch.arange(len(own), device=own.device)] = self.bits + 1  # itself comes last
            key = distance * self.vocab_size + self.rank.unsqueeze(1)
            keys.append(key.topk(k, dim=0, largest=False).values.T)
        key = torch.cat(keys)
        return key // self.vocab_size, order[key % self.vocab_size]

    def minimum_distance(self) -> Distance:
        """Smallest Hamming distance between words of two tokens.

        Exact up to 16 384 tokens; beyond, an upper bound from 512 tokens compared with all others, which says so in
        its name (``.exact`` is False). Spans share out every word, so two of them touch: exactly 1.
        """
        if self.spans is not None or self.vocab_size == 1:
            return Distance(1 if self.vocab_size > 1 else self.bits, exact=True)
        exact = self.vocab_size <= EXACT_DISTANCE_TOKENS
        packed = self.packed
        if not exact:  # the sampled tokens first, then everyone
            shuffled = torch.randperm(self.vocab_size, generator=torch.Generator().manual_seed(0))
            packed = packed[shuffled.to(packed.device)]
        count = self.vocab_size if exact else SAMPLED_DISTANCE_TOKENS
        return Distance(_closest_pair(packed, count, self.bits), exact)

    def corrects(self) -> int:
        """How many wrong bits are always corrected: (d - 1) // 2; from a sampled bound, at most so many."""
        return (self.minimum_distance() - 1) // 2

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that decides what a bit means; equal for equal codes."""
        digest = hashlib.sha256(f"{self.bits}".encode())
        parts = [self.packed, self.rank.int()]
        if self.spans is not None:
            parts += [self.spans.first, self.spans.last, self.spans.owner]
        for part in parts:
            digest.update(part.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def to(self, device: torch.device | str) -> "Codebook":
        """The same codebook on another device."""
        spans = self.spans and Spans(*(x.to(device) for x in (self.spans.first, self.spans.last, self.spans.owner)))
        return Codebook(self.kind, self.bits, self.packed.to(device), self.rank.to(device), spans, self.trellis)

    def save(self, path: str | os.PathLike[str], words: str = "") -> None:
        """Write a safetensors file; a reader never sees half of it. `words` says which vocabulary it is for."""
        tensors = {"packed": self.packed, "rank": self.rank}
        if self.spans is not None:
            tensors |= {"first": self.spans.first, "last": self.spans.last, "owner": self.spans.owner}
        metadata = {"format": FORMAT, "kind": self.kind, "bits": str(self.bits), "fingerprint": self.fingerprint}
        metadata["words"] = words
        if self.trellis is not None:
            metadata["constraint"] = str(self.trellis.constraint)
        temporary = Path(f"{os.fspath(path)}.tmp{os.getpid()}")
        try:
            # by bytes, as save_file lets nobody but the owner read
            temporary.write_bytes(save({name: t.cpu().contiguous() for name, t in tensors.items()}, metadata))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str], words: str = "") -> "Codebook":
        """Read what :meth:`save` wrote; a damaged or foreign file, or one for other words, raises a ValueError."""
        path = os.fspath(path)
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except SafetensorError as error:
            raise ValueError(f"{path} is damaged or no codebook ({error}): build it again") from error
        if metadata.get("format") != FORMAT:
            raise ValueError(f"{path} is no codebook of this version (format {metadata.get('format')!r})")
        if words and metadata.get("words") != words:
            raise ValueError(f"{path} is a code for another vocabulary: build it again for these words")
        try:
            spans = Spans(tensors["first"], tensors["last"], tensors["owner"]) if "owner" in tensors else None
            trellis = Trellis(int(metadata["constraint"])) if "constraint" in metadata else None
            bits, kind, fingerprint = int(metadata["bits"]), metadata["kind"], metadata["fingerprint"]
            book = cls(kind, bits, tensors["packed"], tensors["rank"], spans, trellis)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path} is damaged ({error}): build it again") from error
        if book.fingerprint != fingerprint:
            raise ValueError(f"{path} is damaged (its content does not match its fingerprint): build it again")
        return book

    def __repr__(self) -> str:
        return (
            f"Codebook({self.kind}, {self.vocab_size} tokens x {self.bits} bits, {self.num_bytes / 1000:.1f} kB, "
            f"fingerprint {self.fingerprint[:8]})"
        )

    def _check_width(self, bits: Tensor) -> None:
        if bits.shape[-1:] != (self.bits,):
            raise ValueError(f"bits must have {self.bits} in its last dimension, got shape {tuple(bits.shape)}")


def duplicate_rows(packed: Tensor) -> Tensor:
    """Bool ``(V,)``: rows that stand earlier in `packed` already."""
    rows = np.ascontiguousarray(packed.cpu().numpy())
    as_one = rows.view(np.dtype((np.void, rows.shape[1]))).ravel()
    first = np.unique(as_one, return_index=True)[1]
    twice = torch.ones(len(rows), dtype=torch.bool)
    twice[torch.from_numpy(first)] = False
    return twice


def frequency_rank(vocab_size: int, counts: Tensor | None) -> Tensor:
    """Rank of each token by falling count, ``(V,)`` int32, ties in order of ids; without counts ids are ranks."""
    if counts is None:
        return torch.arange(vocab_size, dtype=torch.int32)
    order = torch.argsort(counts.cpu(), descending=True, stable=True)
    return torch.argsort(order).int()


def _closest_pair(packed: Tensor, count: int, bits: int) -> int:
    """Smallest distance between one of the first `count` rows and any row after it: (n - s . s') / 2 by blocks."""
    closest = bits
    for start in range(0, count, 1024):
        signs = unpack_signs(packed[start : min(start + 1024, count)], bits)
        for others in packed[start:].split(8192):
            similarity = signs @ unpack_signs(others, bits).T
            if others.data_ptr() == packed[start:].data_ptr():
                similarity.fill_diagonal_(-bits)  # not with itself
            closest = min(closest, (bits - int(similarity.max())) // 2)
    return closest
