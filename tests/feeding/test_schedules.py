"""Schedules: their equations, their range, their direction."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecoc.feeding import Schedule, annealed_temperature, bit_thresholds
from ecoc.feeding.schedules import NAMES


def test_values_are_those_of_the_equations() -> None:
    epochs = 11
    paper = Schedule("sigmoid", epochs, 0.4, delta=1.5)
    for e in range(1, epochs):
        eps = -epochs / 2 + e * epochs / (epochs - 1)
        assert paper(e) == pytest.approx(0.4 / (1 + math.exp(-eps / 1.5)), abs=1e-15)
    assert [Schedule("linear", 5, 0.8)(e) for e in range(5)] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert Schedule("exponential", 5, 0.5, k=0.9)(3) == pytest.approx(0.5 * (1 - 0.9**3))
    assert Schedule("inverse-sigmoid", 9, 1.0, k=2.0)(4) == pytest.approx(1 - 2 / (2 + math.exp(2)))
    assert Schedule("constant", 5, 0.3)(0) == 0.3
    assert Schedule("exponential", 5, 0.5)(3) == pytest.approx(0.5 * (1 - 0.8**3))  # the defaults of k and delta
    assert Schedule("inverse-sigmoid", 12, 1.0)(6) == pytest.approx(1 - 3 / (3 + math.exp(2)))
    assert Schedule("sigmoid", 21, 1.0)(15) == pytest.approx(1 / (1 + math.exp(-5.25 / 2.1)))


@given(st.sampled_from(NAMES), st.integers(1, 60), st.floats(0, 1))
def test_every_schedule_rises_within_its_range(name: str, epochs: int, highest: float) -> None:
    values = [Schedule(name, epochs, highest)(e) for e in range(epochs + 3)]
    assert all(0 <= a <= b <= highest for a, b in pairwise(values))
    if name in ("linear", "exponential", "sigmoid"):
        assert values[0] == 0


def test_the_papers_schedule_and_temperature_end_where_it_says() -> None:
    assert Schedule("sigmoid", 40, 1.0)(39) > 0.99
    temperatures = [annealed_temperature(e, 40) for e in range(40)]
    assert temperatures[0] == pytest.approx(0.01) and temperatures[-1] == pytest.approx(2.5)
    assert temperatures == sorted(temperatures)
    rise = [1 / (1 + math.exp(-(-20 + e * 40 / 39) / 4)) for e in range(40)]
    shares = [(value - rise[0]) / (rise[-1] - rise[0]) for value in rise]
    assert temperatures == pytest.approx([0.01 + 2.49 * share for share in shares], abs=1e-12)
    assert annealed_temperature(0, 1) == annealed_temperature(-3, 10) == pytest.approx(0.01)


def test_steep_slopes_and_long_trainings_do_not_overflow() -> None:
    steep = Schedule("sigmoid", 10, 0.5, delta=1e-9)
    assert [steep(e) for e in (0, 4, 5, 9)] == pytest.approx([0, 0, 0.5, 0.5])
    assert Schedule("inverse-sigmoid", 5000, 0.5, k=1.0)(4999) == pytest.approx(0.5)
    assert annealed_temperature(9, 10, 1e-9) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"highest": 1.2}, "leaves"),
        ({"highest": -0.1}, "leaves"),
        ({"highest": math.nan}, "leaves"),
        ({"name": "exponential", "k": 1.5}, "leaves"),
        ({"name": "inverse-sigmoid", "k": -3.0}, "leaves"),
        ({"delta": -1.0}, "would fall"),
        ({"name": "cosine"}, "unknown: choose one of constant, linear"),
        ({"epochs": 0}, "epochs must be at least 1"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(**options)


def test_thresholds() -> None:
    assert bit_thresholds("equal", 3).tolist() == [1, 1, 1]
    assert torch.equal(bit_thresholds("rising", 4), torch.tensor([0.25, 0.5, 0.75, 1.0]))
    assert torch.equal(bit_thresholds("falling", 4), torch.tensor([1.0, 0.75, 0.5, 0.25]))
    with pytest.raises(ValueError, match="'wavy' is unknown: choose one of equal"):
        bit_thresholds("wavy", 4)
