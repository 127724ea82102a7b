"""A whole page, made once."""

import time

import pytest

from tests.experiments.made import (
    page_of,
    plausible,
)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The page and the Markdown of all studies, and the CPU seconds they took."""
    tmp_path = tmp_path_factory.mktemp("whole")
    start = time.process_time()
    page = page_of(tmp_path, *plausible())
    return page, tmp_path, time.process_time() - start
