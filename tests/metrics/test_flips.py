"""Bits flipped at random: what error correction corrects."""

import pytest
import torch

from ecoc import codes, heads
from ecoc.data import Batches
from ecoc.metrics import bit_flips
from ecoc.models import LanguageModel, TokenEmbedding, VariationalLSTM

V, H = 32, 16


def model(kind: str, bits: int, **options: object) -> LanguageModel:
    torch.manual_seed(0)
    counts = torch.ones(V)
    head = heads.build("ecoc", H, V, counts, codebook=codes.build(kind, V, bits, counts), **options)
    return LanguageModel(TokenEmbedding(V, H), VariationalLSTM(H, H, 1), head).eval()


def text(tokens: int = 2001) -> Batches:
    return Batches(torch.randint(V, (tokens,), generator=torch.Generator().manual_seed(1)), 10, 20)


@pytest.mark.parametrize(
    ("kind", "bits", "options"),
    [("bch", 31, {}), ("random", 31, {"objective": "bits"}), ("span-random", 8, {"objective": "span-mass"})],
)
def test_without_flips_it_is_the_prediction(kind: str, bits: int, options: dict) -> None:
    lm = model(kind, bits, **options)
    found = bit_flips(lm, text(), rates=(0.0, 0.5))
    right, state = 0, None
    with torch.no_grad():
        for inputs, targets in text():
            hidden, state = lm.hidden(inputs, state)
            predicted = (
                lm.head.token_of(lm.head.latent_logits(hidden) > 0) if "span" in kind else lm.head.predict(hidden)
            )
            right += int((predicted == targets).sum())
    assert found["accuracy"][0] == pytest.approx(right / found["tokens"]) and found["tokens"] == 2000
    assert found["recovered"][0] == 1 and found["recovered"][1] < 0.2
    assert found["minimum_distance"] == lm.head.codebook.minimum_distance()


def test_a_code_with_distance_survives_where_spans_do_not() -> None:
    rates = (0.1,)
    bch = bit_flips(model("bch", 31), text(), rates)["recovered"][0]
    span = bit_flips(model("span-random", 31, objective="span-mass"), text(), rates)["recovered"][0]
    expected = 0.9**31 + 31 * 0.1 * 0.9**30 + 465 * 0.01 * 0.9**29  # at least: two wrong bits are always corrected
    assert bch > expected and span < bch


def test_rates_are_those_of_the_flips() -> None:
    """A code in which every word is a codeword survives with (1 - rate)^n."""
    found = bit_flips(model("span-random", 5, objective="span-mass"), text(8001), rates=(0.1, 0.2), tokens=8000)
    assert found["recovered"] == pytest.approx([0.9**5, 0.8**5], abs=0.02)


def test_heads_without_bits_are_told() -> None:
    lm = LanguageModel(TokenEmbedding(V, H), VariationalLSTM(H, H, 1), heads.build("softmax", H, V))
    with pytest.raises(ValueError, match="use --head ecoc, not Softmax"):
        bit_flips(lm, text())


def test_the_look_is_as_long_as_asked_for() -> None:
    assert bit_flips(model("random", 31), text(), tokens=300)["tokens"] == 400
