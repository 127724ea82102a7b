"""What the tests of text share."""

import pytest

from ecoc.data import builtin


@pytest.fixture(scope="session")
def paragraphs():
    """The built-in corpus, read once for all tests: it takes 3 s."""
    return builtin._paragraphs()


@pytest.fixture
def _quick_builtin(paragraphs, monkeypatch):
    monkeypatch.setattr(builtin, "_paragraphs", lambda: paragraphs)
