"""What all tests share."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("default")

workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
if workers and "OMP_NUM_THREADS" not in os.environ:  # each takes its share of the cores
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))

SHARED = Path(os.environ.get("ECOC_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(autouse=True)
def _same_random_numbers_in_every_test() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real corpora and vectors; a user's machine does not have it."""
    data = SHARED / "data"
    if not data.is_dir():
        pytest.skip(f"needs real data in {data} (or ECOC_SHARED)")
    return data
