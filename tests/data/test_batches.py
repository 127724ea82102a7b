import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecoc.data import Batches


def follow(batches, rows):
    """What a model that keeps its state sees: for each row, all (input, target) pairs in order."""
    seen = [[] for _ in range(rows)]
    for inputs, targets in batches:
        assert inputs.shape == targets.shape and inputs.dtype == targets.dtype == torch.int64
        for row, pairs in enumerate(zip(inputs.tolist(), targets.tolist(), strict=True)):
            seen[row] += zip(*pairs, strict=True)
    return seen


streams = st.integers(2, 200)
sizes = st.integers(1, 12)


def fitting(tokens, batch_size):
    return min(tokens - 1, batch_size)


def test_rows_are_contiguous_columns_of_the_stream():
    inputs, targets = zip(*Batches(np.arange(12, dtype=np.int32), 2, 3), strict=True)
    assert [part.tolist() for part in inputs] == [[[0, 1, 2], [5, 6, 7]], [[3, 4], [8, 9]]]
    assert [part.tolist() for part in targets] == [[[1, 2, 3], [6, 7, 8]], [[4, 5], [9, 10]]]


def test_evaluation_ends_with_the_rows_that_are_longer():
    inputs, targets = zip(*Batches(np.arange(12), 3, 2, drop_last=False), strict=True)
    assert [part.tolist() for part in inputs] == [[[0, 1], [4, 5], [8, 9]], [[2], [6], [10]], [[3], [7]]]
    assert [part.tolist() for part in targets] == [[[1, 2], [5, 6], [9, 10]], [[3], [7], [11]], [[4], [8]]]


@given(streams, sizes, sizes)
def test_training_targets_follow_their_inputs_and_only_a_remainder_is_dropped(tokens, batch_size, steps):
    batch_size = fitting(tokens, batch_size)
    batches = Batches(np.arange(tokens), batch_size, steps)
    length = (tokens - 1) // batch_size
    expected = [[(i, i + 1) for i in range(row * length, (row + 1) * length)] for row in range(batch_size)]
    assert follow(batches, batch_size) == expected
    assert len(list(batches)) == len(batches)
    assert all(inputs.shape == (batch_size, steps) for inputs, _ in list(batches)[:-1])


@given(streams, sizes, sizes)
def test_evaluation_scores_every_token_but_the_first_once_and_in_order(tokens, batch_size, steps):
    batch_size = fitting(tokens, batch_size)
    batches = Batches(np.arange(tokens), batch_size, steps, drop_last=False)
    rows = follow(batches, batch_size)
    assert [pair for row in rows for pair in row] == [(i, i + 1) for i in range(tokens - 1)]
    assert len(list(batches)) == len(batches)


@given(streams, sizes, sizes, st.booleans(), st.data())
def test_going_on_in_the_middle_gives_the_batches_that_were_left(tokens, batch_size, steps, drop_last, data):
    batches = Batches(np.arange(tokens), fitting(tokens, batch_size), steps, drop_last=drop_last)
    step = data.draw(st.integers(0, len(batches)))
    left, expected = list(batches.starting_at(step)), list(batches)[step:]
    assert len(left) == len(expected)
    for batch, same in zip(left, expected, strict=True):
        assert torch.equal(batch[0], same[0]) and torch.equal(batch[1], same[1])


@given(streams, sizes, sizes, st.booleans(), st.integers(1, 4))
def test_the_shards_together_are_the_rows_of_one_process(tokens, rows, steps, drop_last, world):
    rows = min(rows, (tokens - 1) // world)
    if not rows:
        return
    ids = np.arange(tokens)
    shards = [Batches(ids, rows * world, steps, shard=(rank, world), drop_last=drop_last) for rank in range(world)]
    together = [row for shard in shards for row in follow(shard, rows)]
    assert together == follow(Batches(ids, rows * world, steps, drop_last=drop_last), rows * world)
    assert all(len(list(shard)) == len(shard) for shard in shards)
    assert not drop_last or len({len(shard) for shard in shards}) == 1  # training processes wait for each other


def test_every_epoch_is_the_same_and_may_be_iterated_twice():
    batches = Batches(torch.arange(50), 4, 5)
    assert follow(batches, 4) == follow(batches, 4)


def test_a_memory_map_is_read_lazily_and_never_changed(tmp_path):
    stored = np.arange(1000, dtype=np.int32)
    stored.tofile(tmp_path / "ids.bin")
    ids = np.memmap(tmp_path / "ids.bin", np.int32, mode="r")
    batches = Batches(ids, 10, 7, drop_last=False)
    assert batches.ids is ids
    inputs, _ = next(iter(batches))
    inputs.zero_()
    np.testing.assert_array_equal(ids, stored)


def test_batches_go_to_the_device():
    inputs, targets = next(iter(Batches(np.arange(9), 2, 2, device="meta")))
    assert inputs.device.type == targets.device.type == "meta"


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.arange(10), 10, 5), {}, "batch_size must be 1 to 9 for a stream of 10 tokens, got 10"),
        ((np.arange(10), 0, 5), {}, "batch_size must be 1 to 9"),
        ((np.arange(10), 2, 0), {}, "steps must be at least 1, got 0"),
        ((np.arange(1), 1, 5), {}, "a stream of 1 tokens has nothing to predict: give at least 2"),
        ((np.arange(0), 1, 5), {}, "a stream of 0 tokens has nothing to predict"),
        ((np.arange(10), 3, 5), {"shard": (0, 2)}, "batch_size must be divisible by the 2 processes, got 3"),
        ((np.arange(10), 4, 5), {"shard": (2, 2)}, r"shard must be \(rank, world\) with rank from 0 to world - 1"),
        ((np.ones((2, 5), int), 1, 5), {}, r"ids must be a stream \(N,\) of integers, got \(2, 5\)"),
        ((np.ones(5), 1, 5), {}, "ids must be a stream .* float64"),
    ],
)
def test_wrong_sizes_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        Batches(*arguments, **options)


def test_a_step_outside_the_epoch_is_refused():
    batches = Batches(np.arange(20), 2, 3)
    for step in (-1, 4):
        with pytest.raises(ValueError, match=f"step must be 0 to 3, the number of batches, got {step}"):
            batches.starting_at(step)


def test_repr_names_the_sizes():
    assert repr(Batches(np.arange(20), 4, 3, shard=(1, 2))) == "Batches(2 of 2 x 3, batch_size=4, 20 tokens)"
