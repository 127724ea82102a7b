import gc
from collections import Counter
from pathlib import Path

import pytest

from ecoc.data import builtin, builtin_sentences, builtin_splits


@pytest.fixture
def sentences(_quick_builtin):
    return builtin_sentences()


@pytest.fixture
def splits(_quick_builtin):
    return {split: list(lines) for split, lines in builtin_splits().items()}


def test_it_is_enough_english_to_learn_from(sentences):
    counts = Counter(word for module in sentences.values() for words in module for word in words)
    assert counts.total() > 300_000
    assert {"the", "of", "returns"} <= {word for word, _ in counts.most_common(100)}
    assert all(len(words) > 2 for module in sentences.values() for words in module)
    assert list(sentences) == sorted(sentences) and "pydoc_data.topics" in sentences


def test_splits_hold_every_paragraph_once(sentences, splits):
    simple = builtin.TOKENISERS["simple"]
    found = Counter(tuple(simple(line)) for lines in splits.values() for line in lines)
    assert found == Counter(tuple(words) for module in sentences.values() for words in module)
    assert not any("\n" in line for lines in splits.values() for line in lines)


def test_splits_are_about_90_5_and_5_percent_of_the_words(splits):
    simple = builtin.TOKENISERS["simple"]
    words = {split: sum(len(simple(line)) for line in lines) for split, lines in splits.items()}
    total = sum(words.values())
    assert list(words) == ["train", "valid", "test"]
    assert words["train"] / total == pytest.approx(0.9, abs=0.01)
    assert words["valid"] / total == pytest.approx(0.05, abs=0.005)
    assert words["test"] / total == pytest.approx(0.05, abs=0.005)


def test_no_package_is_divided_and_none_makes_up_most_of_a_split(splits, paragraphs):
    home = {line: split for split, lines in splits.items() for line in lines}
    packages = {}
    for name, pairs in paragraphs.items():
        packages.setdefault(name.partition(".")[0], []).extend(pairs)
    times = Counter(line for pairs in packages.values() for line, _ in pairs)
    sizes = {"train": [], "valid": [], "test": []}
    for pairs in packages.values():
        # what several packages say word for word does not tell where each of them is
        homes = {home[line] for line, _ in pairs if times[line] == 1}
        assert len(homes) <= 1
        for split in homes:
            sizes[split].append(sum(len(words) for _, words in pairs))
    for split in ("valid", "test"):
        assert max(sizes[split]) < 0.3 * sum(sizes[split])


def test_the_order_in_which_files_are_found_does_not_matter(monkeypatch):
    some = [(name, path) for name, path in builtin._modules() if name.startswith(("json", "email"))]
    monkeypatch.setattr(builtin, "_modules", lambda: some)
    forwards = builtin._paragraphs()
    monkeypatch.setattr(builtin, "_modules", lambda: some[::-1])
    assert len(some) > 10 and list(builtin._paragraphs().items()) == list(forwards.items())


def test_docstrings_are_found_wherever_statements_stand_and_in_their_order(tmp_path: Path):
    (tmp_path / "module.py").write_text(
        '"""Module."""\n'
        "if True:\n    def f():\n        'In if.'\n"
        "else:\n    class A:\n        '''Class.'''\n"
        "        async def g(self):\n            '''\n            Method.\n            '''\n"
        "try:\n    pass\nexcept OSError:\n    def h(): 'In except.'\nfinally:\n    def i(): 'In finally.'\n"
        "match 1:\n    case 1:\n        def j(): 'In case.'\n"
        "'no docstring'\nx = lambda: 'none either'\n"
    )
    texts = ["Module.", "In if.", "Class.", "Method.", "In except.", "In finally.", "In case."]
    assert list(builtin._docstrings(tmp_path / "module.py")) == texts
    (tmp_path / "broken.py").write_text('"""Doc."""\ndef (:\n')
    assert list(builtin._docstrings(tmp_path / "broken.py")) == []


def test_folders_that_are_not_the_library_are_left_out(tmp_path: Path, monkeypatch):
    for name in ("a.py", "b/__init__.py", "b/tests/c.py", "site-packages/d.py", "test/e.py", "b/f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(builtin.sysconfig, "get_path", lambda _: str(tmp_path))
    assert sorted(name for name, _ in builtin._modules()) == ["a", "b.__init__"]


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_as_before_also_after_an_error(monkeypatch, enabled):
    was = gc.isenabled()
    monkeypatch.setattr(builtin, "_modules", lambda: (_ for _ in ()).throw(OSError("unreadable")))
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(OSError, match="unreadable"):
            builtin_sentences()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
