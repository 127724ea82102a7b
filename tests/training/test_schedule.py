"""Learning rate schedules."""

import pytest

from ecoc.training.schedule import one_cycle, plateau


def test_one_cycle_rises_to_one_and_falls() -> None:
    values = [one_cycle(step / 100) for step in range(101)]
    assert values[0] == pytest.approx(0.04) and values[10] == pytest.approx(1.0) and values[-1] == pytest.approx(1e-3)
    assert values[:11] == sorted(values[:11]) and values[10:] == sorted(values[10:], reverse=True)
    assert one_cycle(7.0) == one_cycle(1.0)


def test_plateau_falls_for_every_epoch_without_a_new_best() -> None:
    assert plateau([]) == plateau([5.0]) == plateau([5.0, 4.0]) == 1.0
    assert plateau([5.0, 6.0]) == 0.25
    assert plateau([5.0, 6.0, 5.5, 4.0, 4.0]) == 0.25**3
