"""A corpus and a run small enough to train in a second."""

import random
from pathlib import Path
from typing import Any

from ecoc.options import TrainOptions
from ecoc.training import train

WORDS = [f"w{i}" for i in range(30)]


def write_corpus(folder: Path) -> Path:
    """Sentences in which each word is followed by one of three."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    for split, lines in (("train", 150), ("valid", 20), ("test", 20)):
        sentences = []
        for _ in range(lines):
            word = draw.randrange(30)
            sentence = []
            for _ in range(draw.randrange(5, 15)):
                sentence.append(WORDS[word])
                word = (word * 7 + draw.randrange(3)) % 30
            sentences.append(" ".join(sentence))
        (folder / f"{split}.txt").write_text("\n".join(sentences) + "\n")
    return folder


def options(corpus: Path, out: Path, **more: Any) -> TrainOptions:
    small = {"hidden": 16, "layers": 1, "epochs": 3, "batch": 4, "bptt": 8, "save_every": 7, "threads": 1}
    if more.get("head", "ecoc") == "ecoc":
        small |= {"bits": 24, "samples": 20}
    return TrainOptions(corpus=str(corpus), out=str(out), **{**small, **more})


def trained(tmp_path: Path, **more: Any) -> Path:
    return train(options(write_corpus(tmp_path / "corpus"), tmp_path / "run", **more), progress=False)
