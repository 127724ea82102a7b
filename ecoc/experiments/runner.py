"""Runs the rows of a study, several at a time, and each only once."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ecoc.data import open_captions, open_corpus
from ecoc.experiments.job import Job
from ecoc.experiments.process import Failed, data_dir_of
from ecoc.experiments.rows import read_study
from ecoc.options import ReproduceOptions


def jobs(settings: ReproduceOptions) -> list[Job]:
    """All rows that the settings ask for, in order."""
    study = read_study(settings.study)
    corpora, rows = study.corpora(settings.budget, settings.corpora), study.chosen(settings.rows)
    found = [
        Job(study, row, corpus, seed, settings)
        for corpus in corpora
        for seed in range(1, settings.seeds + 1)
        for row in rows
        if corpus in (row.corpora or corpora)
    ]
    if not found:
        raise ValueError(f"{', '.join(row.name for row in rows)} is not run on {', '.join(corpora)}: see --list")
    return found


def reproduce(settings: ReproduceOptions, progress: bool = True) -> list[str]:
    """Run what is not finished; returns what failed, a line each."""
    asked = [(job, job.state) for job in jobs(settings)]
    changed = [f"{job.row.name} on {job.corpus}, seed {job.seed}" for job, state in asked if state == "changed"]
    if changed and not settings.overwrite:
        raise ValueError(
            f"{settings.results} has rows that were run with other options, rates or files: {'; '.join(changed)}: "
            "choose other --rows, give another --results, or --overwrite to run them anew in their place"
        )
    for job, state in asked:
        if state == "finished":
            job.refresh()
    todo = [job for job, state in asked if state != "finished"]
    todo.sort(key=lambda job: bool(job.row.tuned_as))  # last, as one that waits for another's tuning does nothing else
    _check_data(settings, todo, progress)
    failed: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[doing]}"))
    bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=not progress)
    stop = threading.Event()

    def one(job: Job) -> None:
        if stop.is_set():
            return
        try:
            job.run()
            if progress:
                bar.console.print(f"{job.row.name} on {job.corpus}, seed {job.seed}: done")
        except Failed as error:
            failed.append(str(error))
        except KeyboardInterrupt:
            stop.set()
        except Exception as error:  # the others go on
            reason = repr(error)
            if isinstance(error, OSError) and error.filename:
                reason = f"{error.filename}: {error.strerror}"
            failed.append(f"{job.row.name} on {job.corpus}, seed {job.seed}, {job.doing}: {reason}")
        job.done, job.doing = job.work, ""

    with bar, ThreadPoolExecutor(settings.at_once) as pool:
        task = bar.add_task(settings.study, total=sum(job.work for job in todo), doing="")
        running = [pool.submit(one, job) for job in todo]
        try:
            while not all(future.done() for future in running):
                doing = "; ".join(f"{job.row.name}: {job.doing}" for job in todo if job.doing)
                bar.update(task, completed=sum(job.done for job in todo), doing=doing)
                time.sleep(0.5)
            bar.update(task, completed=sum(job.work for job in todo), doing="")
        except KeyboardInterrupt:
            stop.set()
            for future in running:
                future.cancel()
            while not all(future.done() for future in running):
                for job in todo:
                    job.interrupt()
                time.sleep(0.1)
    if stop.is_set():
        raise KeyboardInterrupt
    return failed


def _check_data(settings: ReproduceOptions, todo: Sequence[Job], progress: bool) -> None:
    """What the rows need is there: a mistake is an error now, not after hours."""
    for name in ("data_dir", "vectors", "captions", "features", "projection", "images"):
        if (path := getattr(settings, name)) is not None and not Path(path).exists():
            raise ValueError(f"--{name.replace('_', '-')}: {path} is not there")
    for job in todo:
        if job.study.command == "train":
            data_dir_of(settings.data_dir, job.corpus)
        elif settings.captions is None or settings.features is None:
            raise ValueError(f"{job.study.name} needs --captions and --features: MSCOCO in Karpathy's layout")
    lacking = dict.fromkeys(job.row.name for job in todo if job.row.needs_vectors)
    if lacking and settings.vectors is None:
        raise ValueError(
            f"--vectors FILE (outside word vectors, GloVe or word2vec) is missing for {', '.join(lacking)}: "
            "give it, or choose other --rows"
        )
    trained = [job for job in todo if job.study.command == "train"]
    with TemporaryDirectory() as cache:
        for corpus in sorted({corpus for job in trained for corpus in job.corpora_to_read}):
            open_corpus(corpus, cache=cache, data_dir=data_dir_of(settings.data_dir, corpus), progress=progress)
    if len(trained) < len(todo):
        open_captions(str(settings.captions), str(settings.features), progress=progress)
    for folder in (settings.results, settings.out) if todo else ():
        Path(folder).mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
