"""Options of ``ecoc reproduce`` and ``ecoc report``."""

import math
import os
from dataclasses import dataclass

from ecoc.options.checks import in_range


@dataclass
class ReproduceOptions:
    """Run the rows of the paper's tables and figure under equal conditions.

    Started again, it goes on where it was, and runs no finished row twice.

    Args:
        study: table1 (language models), table2 (captions), figure2 (bits) or ablation (code, bits, objective, and what
            happens when bits are flipped).
        budget: small is what 2 cores finish in an evening or two; paper is 40 epochs.
        rows: Names of rows, joined by commas; all by default.
        corpora: Names of corpora, joined by commas; all of the budget by default.
        seeds: Run every row with this many seeds, from 1 on; all take the learning rate that the first one chose.
        data_dir: Folder with the folders ptb and wikitext-2, or the one that has the files.
        vectors: Outside word vectors (GloVe or word2vec), for the rows that use some.
        captions: Captions of table2, JSON in Karpathy's layout.
        features: Features of their images.
        projection: The projection that the features went through, if they did.
        images: Folder of pictures; the ten captions kept to be shown are then of images that have one there.
        results: Folder for the results, a JSON file a row.
        out: Folder for the runs themselves.
        overwrite: Run rows anew whose options or outside files have changed since, in place of what is there.
        keep: Keep the runs when their results are written.
        jobs: Rows at a time; by default as many as there are cores for.
        threads: CPU threads of each.
        list: Only list the rows: finished, to do, or changed since they were run.
    """

    study: str
    budget: str = "small"
    rows: str | None = None
    corpora: str | None = None
    seeds: int = 1
    data_dir: str | None = None
    vectors: str | None = None
    captions: str | None = None
    features: str | None = None
    projection: str | None = None
    images: str | None = None
    results: str = "results"
    out: str = "runs/reproduce"
    overwrite: bool = False
    keep: bool = False
    jobs: int | None = None
    threads: int = 1
    list: bool = False

    def __post_init__(self) -> None:
        in_range(self, 1, math.inf, "seeds", "jobs", "threads")

    @property
    def at_once(self) -> int:
        """Rows that run at a time."""
        return self.jobs if self.jobs is not None else max(1, (os.cpu_count() or 1) // self.threads)


@dataclass
class ReportOptions:
    """Turn results into a page with tables and figures.

    Args:
        results: Folder of the results.
        out: The page to write; all is in the one file.
        markdown: Folder for the tables as Markdown; by default that of the results.
        images: Folder of pictures, with names that end with COCO's numbers, to show beside their captions.
        readme: README whose headline table is to be brought up to date.
    """

    results: str = "results"
    out: str = "report.html"
    markdown: str | None = None
    images: str | None = None
    readme: str | None = None
