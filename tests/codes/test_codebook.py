"""Codebooks: encoding, decoding damaged words, distances, files, errors."""

import copy
from itertools import combinations
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecoc import codes
from ecoc.codes import codebook as codebook_module
from tests.heads.cases import word_vectors, zipf_counts

V = 50
LENGTHS = {
    "span-random": 9,
    "span-unigram": 40,
    "span-embedding": 200,
    "random": 31,
    "semantic": 45,
    "bch": 31,
    "hadamard": 32,
    "convolutional": 20,
    "onehot": V,
}


def build(kind: str, vocab_size: int = V, bits: int | None = None, **options) -> codes.Codebook:
    given_ = {"counts": zipf_counts(vocab_size), "vectors": word_vectors(vocab_size)}
    return codes.build(kind, vocab_size, bits or LENGTHS[kind], **{**given_, **options})


def test_there_is_a_case_for_every_kind() -> None:
    assert set(LENGTHS) == set(codes.KINDS)


@pytest.mark.parametrize("kind", codes.KINDS)
def test_encoding_goes_round(kind: str) -> None:
    book = build(kind)
    ids = torch.arange(V).view(5, 10)
    words = book.encode(ids)
    assert words.shape == (5, 10, book.bits) and words.dtype == torch.bool
    assert torch.equal(book.decode(words), ids)
    assert torch.equal(book.decode(words.long()), ids)
    assert torch.equal(book.decode_soft(words.double() - 0.5), ids)
    assert len(words.view(V, -1).unique(dim=0)) == V


@pytest.mark.parametrize("kind", ["random", "semantic", "bch", "hadamard", "convolutional", "onehot"])
def test_minimum_distance_is_that_of_the_closest_pair(kind: str) -> None:
    book = build(kind)
    words = book.encode(torch.arange(V))
    closest = min(int((words[a] ^ words[b]).sum()) for a, b in combinations(range(V), 2))
    assert book.minimum_distance() == closest and book.minimum_distance().exact
    assert book.corrects() == (closest - 1) // 2


def test_spans_of_two_tokens_always_touch() -> None:
    book = build("span-unigram", bits=8)
    owners = book.decode(torch.tensor([[int(bit) for bit in f"{word:08b}"] for word in range(256)]))
    touching = any(owners[word] != owners[word ^ (1 << bit)] for word in range(256) for bit in range(8))
    assert touching and book.minimum_distance() == 1 and book.corrects() == 0


def test_a_sampled_minimum_distance_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    book = build("random", 300, bits=24)
    exact = book.minimum_distance()
    monkeypatch.setattr(codebook_module, "EXACT_DISTANCE_TOKENS", 100)
    monkeypatch.setattr(codebook_module, "SAMPLED_DISTANCE_TOKENS", 20)
    sampled = book.minimum_distance()
    assert not sampled.exact and sampled >= exact
    assert str(sampled) == f"at most {int(sampled)} (sampled)" and str(exact) == str(int(exact))


@given(st.sampled_from(["bch", "random", "hadamard"]), st.integers(0, V - 1), st.randoms(use_true_random=False))
def test_half_the_distance_in_flipped_bits_is_corrected(kind: str, token: int, random) -> None:
    book = build(kind)
    word = book.encode(torch.tensor(token))
    flips = random.sample(range(book.bits), book.corrects())
    word[flips] ^= True
    assert book.decode(word) == token


@pytest.mark.parametrize("vocab_size", [2, 15, 16, 300])
def test_bch_codewords_survive_any_pattern_of_correctable_errors(vocab_size: int) -> None:
    book = build("bch", vocab_size, bits=15)
    correctable = book.corrects()
    ids = torch.arange(vocab_size)
    for flips in combinations(range(15), correctable):
        words = book.encode(ids)
        words[:, list(flips)] ^= True
        assert torch.equal(book.decode(words), ids)


def test_ties_go_to_the_most_frequent_token() -> None:
    counts = torch.tensor([1.0, 5.0, 9.0, 7.0])
    book = codes.build("onehot", 4, 4, counts)
    assert book.decode(torch.zeros(4, dtype=torch.bool)) == 2  # equally far from all
    assert book.decode(torch.tensor([True, True, False, False])) == 1  # equally far from 0 and 1 only


def test_decoding_equals_a_plain_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecoc.codes.search.BLOCK", 16)  # several blocks
    book = build("random", bits=7)  # so short that ties abound
    words = torch.rand(400, 7) < 0.5
    codewords = book.encode(torch.arange(V))
    distance = (words.unsqueeze(1) ^ codewords).sum(-1)
    expected = (distance * V + book.rank).argmin(-1)
    assert torch.equal(book.decode(words), expected)
    logits = torch.randn(400, 7)
    expected = ((codewords.float() * 2 - 1) @ logits.T).argmax(0)
    assert torch.equal(book.decode_soft(logits), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", codes.KINDS)
def test_bits_may_be_certain_and_odds_in_half_precision(kind: str, dtype: torch.dtype) -> None:
    book = build(kind)
    ids = torch.arange(V)
    signs = book.encode(ids).to(dtype) * 2 - 1
    for odds in (torch.inf, torch.finfo(dtype).max):
        assert torch.equal(book.decode_soft(signs * odds), ids)
    for certain in range(book.bits if book.spans is None else 0):
        odds = signs * 2
        odds[:, certain] *= torch.inf
        assert torch.equal(book.decode_soft(odds), ids)
    logits = torch.randn(300, book.bits).to(dtype)
    assert torch.equal(book.decode_soft(logits), book.decode_soft(logits.double()))


@pytest.mark.parametrize("kind", codes.KINDS)
def test_files_go_round(kind: str, tmp_path: Path) -> None:
    book = build(kind)
    book.save(tmp_path / "book.safetensors")
    loaded = codes.Codebook.load(tmp_path / "book.safetensors")
    assert repr(loaded) == repr(book) and loaded.fingerprint == book.fingerprint
    words = torch.rand(60, book.bits) < 0.5
    assert torch.equal(loaded.decode(words), book.decode(words))
    assert [path.name for path in tmp_path.iterdir()] == ["book.safetensors"]


def test_fingerprints_tell_codes_apart_and_nothing_else() -> None:
    assert build("random").fingerprint == build("random").fingerprint
    prints = {build(kind).fingerprint for kind in codes.KINDS} | {build("random", seed=1).fingerprint}
    assert len(prints) == len(codes.KINDS) + 1
    uniform = build("span-unigram", widths="uniform")
    assert uniform.fingerprint != build("span-unigram").fingerprint


def test_repr_says_what_it_is() -> None:
    book = build("random")
    assert repr(book) == f"Codebook(random, 50 tokens x 31 bits, 0.2 kB, fingerprint {book.fingerprint[:8]})"


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "book.safetensors"
    build("random").save(path)
    content = bytearray(path.read_bytes())
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"book.safetensors is damaged or no codebook .*: build it again"):
        codes.Codebook.load(path)
    content[-8] ^= 0xFF  # one byte of a codeword
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        codes.Codebook.load(path)
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="is no codebook of this version"):
        codes.Codebook.load(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        codes.Codebook.load(tmp_path / "nowhere")


BAD_BUILDS = {
    "unknown kind": (lambda: build("golay", bits=23), "kind='golay' is unknown: choose one of span-random"),
    "too few bits": (lambda: build("random", bits=5), "bits=5 cannot tell 50 tokens apart: use at least 6"),
    "no tokens": (lambda: codes.build("random", 0, 5), "vocab_size must be at least 1"),
    "counts of another size": (lambda: build("random", counts=torch.ones(3)), "counts must be 50 numbers"),
    "negative counts": (lambda: build("random", counts=-torch.ones(V)), "counts must be 50 numbers of at least 0"),
    "vectors of another size": (
        lambda: build("semantic", vectors=torch.ones(9, 3)),
        r"vectors must have shape \(50, d\)",
    ),
    "NaN in vectors": (lambda: build("semantic", vectors=torch.full((V, 3), torch.nan)), "vectors must be finite"),
    "no vectors": (lambda: build("semantic", vectors=None), "vectors is needed for a semantic code"),
    "no vectors for spans": (lambda: build("span-embedding", vectors=None), "vectors is needed for embedding order"),
    "no counts": (lambda: build("span-unigram", counts=None), "counts is needed for unigram order"),
    "unknown widths": (lambda: build("span-unigram", widths="wide"), "widths='wide' is unknown: choose one of"),
    "option of another kind": (
        lambda: build("random", widths="uniform"),
        "widths='uniform' is for span codes, not kind='random'",
    ),
    "BCH length": (lambda: build("bch", bits=40), r"bits=40 is no BCH length: choose one of \[7, 15, 31, 63"),
    "Hadamard length": (lambda: build("hadamard", bits=33), "a power of two from 32"),
    "Hadamard too short": (lambda: build("hadamard", bits=16), "a power of two from 32"),
    "convolutional length": (lambda: build("convolutional", bits=15), r"choose one of \[16, 18, 20"),
    "one-hot length": (lambda: build("onehot", bits=60), "must equal the vocabulary size 50"),
    "duplicates": (
        lambda: codes.Codebook("mine", 8, torch.zeros(3, 1, dtype=torch.uint8), torch.arange(3)),
        r"packed has 2 duplicate codewords \(tokens \[1, 2\] among them\): give each token its own",
    ),
    "packed of another shape": (
        lambda: codes.Codebook("mine", 9, torch.zeros(3, 1, dtype=torch.uint8), torch.arange(3)),
        r"packed must be uint8 of shape \(3, 2\) for 9 bits.*use ecoc.codes.pack",
    ),
    "bits beyond the codeword": (
        lambda: codes.Codebook("mine", 7, torch.tensor([[1], [2]], dtype=torch.uint8), torch.arange(2)),
        "packed has bits set beyond the 7",
    ),
    "rank that is none": (
        lambda: codes.Codebook("mine", 8, torch.tensor([[1], [2]], dtype=torch.uint8), torch.zeros(2)),
        "rank must hold each of 0 to 1 once",
    ),
    "signs where bits belong": (lambda: build("random").decode(-torch.ones(31).long()), "bits must be 0 or 1"),
    "NaN log odds": (lambda: build("random").decode_soft(torch.full((31,), torch.nan)), "log odds without NaN"),
    "hard bits as log odds": (lambda: build("random").decode_soft(torch.ones(31).bool()), "for hard bits use decode"),
    "vectors without numbers": (lambda: build("semantic", vectors=torch.ones(V, 0)), "vectors must have shape"),
    "BCH too short": (lambda: codes.build("bch", 16, 4), "bits=4 is no BCH length: choose one of"),
    "id outside": (lambda: build("random").encode(torch.tensor([V])), r"ids must be in \[0, 50\)"),
    "word of another length": (lambda: build("random").decode(torch.zeros(3, 30).bool()), "bits must have 31"),
    "logits where bits belong": (lambda: build("random").decode(torch.zeros(3, 31)), "use decode_soft"),
}


@pytest.mark.parametrize("bad", BAD_BUILDS)
def test_bad_input_names_the_argument_and_the_fix(bad: str) -> None:
    call, message = BAD_BUILDS[bad]
    with pytest.raises(ValueError, match=message):
        call()


def test_encoding_takes_ids_of_any_integer_type() -> None:
    book = build("random")
    for dtype in (torch.uint8, torch.int16, torch.int32):
        assert torch.equal(book.encode(torch.tensor([0, 1, 2], dtype=dtype)), book.encode(torch.arange(3)))


def test_the_codeword_of_a_span_is_its_middle() -> None:
    book = codes.build("span-unigram", 2, 8, torch.tensor([1.0, 3.0]), widths="uniform")
    values = [int("".join(str(int(bit)) for bit in word), 2) for word in book.encode(torch.arange(2))]
    assert values == [192, 64]  # token 1, the more frequent, has 0 to 127


def test_a_byte_changed_anywhere_in_a_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "book.safetensors"
    build("span-unigram").save(path)
    content = path.read_bytes()
    start = len(content) - 3 * V * 5 - 2 * 4 * V  # three tables of V words of 5 bytes, two of V integers
    for place in range(start, len(content), 37):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match="is damaged"):
            codes.Codebook.load(path)


def test_a_distance_can_be_copied() -> None:
    distance = copy.deepcopy(build("bch").minimum_distance())
    assert distance == build("bch").minimum_distance() and distance.exact


def test_a_token_never_seen_has_the_span_of_the_rarest() -> None:
    book = codes.build("span-unigram", 4, 40, torch.tensor([8.0, 4.0, 0.0, 4.0]))
    words = torch.rand(4000, 40) < 0.5
    share = book.decode(words).bincount(minlength=4) / 4000
    torch.testing.assert_close(share, torch.tensor([0.4, 0.2, 0.2, 0.2]), rtol=0, atol=0.04)
