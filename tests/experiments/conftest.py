"""A whole page, made once; a study that is run for real."""

import time
from pathlib import Path

import pytest

from ecoc.experiments.job import Job
from ecoc.options import ReproduceOptions
from tests.experiments.made import page_of, plausible
from tests.experiments.tiny import ROOT, Here, write_study


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The page and the Markdown of all studies, and the CPU seconds they took."""
    tmp_path = tmp_path_factory.mktemp("whole")
    start = time.process_time()
    page = page_of(tmp_path, *plausible())
    return page, tmp_path, time.process_time() - start


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReproduceOptions:
    monkeypatch.chdir(tmp_path)  # where the folder's name is the corpus
    monkeypatch.setattr("ecoc.experiments.rows.configs", lambda: tmp_path / "configs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return write_study(tmp_path)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "_start", lambda job, arguments: Here(job, arguments))
