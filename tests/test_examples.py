"""The examples run, on the built-in corpus."""

import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from rich.progress import Progress

from ecoc import codes
from examples import compare_heads, demo


def test_the_comparison_of_heads_shows_codebooks_and_neighbours() -> None:
    vocabulary, counts, ids = compare_heads.read_corpus()
    assert len(counts) == len(vocabulary) > 3000 and int(counts.sum()) == len(ids) > 200_000
    vectors = codes.WordVectors(torch.randn(len(vocabulary), 20), torch.ones(len(vocabulary)).bool(), "random")
    built = compare_heads.codebooks(counts, vectors, Progress(disable=True))
    assert set(built) == set(codes.KINDS)
    console = Console(record=True, width=150)
    console.print(compare_heads.codebook_table({kind: built[kind] for kind in ("bch", "span-unigram")}))
    console.print(compare_heads.neighbours(built["semantic"], vocabulary))
    shown = console.export_text()
    assert "bch" in shown and "string" in shown


def test_the_demo_trains_both_and_compares_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--seconds", "4", "--out", str(tmp_path)])
    demo.main()
    shown = capsys.readouterr().out
    assert "test perplexity (normalised)" in shown and "suggests:" in shown and "goes on from 'the file'" in shown
    assert f"{256 * 512 + 512:,}" in shown  # the decoder of 512 bits
