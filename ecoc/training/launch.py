"""Starting a run, or going on with it: folder, text, parts, processes."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path

import torch
from torch.distributed import destroy_process_group, init_process_group

from ecoc.data import Corpus, open_corpus
from ecoc.options import TrainOptions, flag
from ecoc.training import run as runs
from ecoc.training.checkpoint import load_checkpoint
from ecoc.training.trainer import Trainer


def train(options: TrainOptions, progress: bool = True) -> Path:
    """Train (or go on training) the run that the options describe; returns its folder."""
    folder = Path(options.out)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if options.resume:
        options = _stored(options, folder)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    with _processes(world):
        if options.resume:
            if rank == 0:
                _sweep(folder)
            trainer, took = _built(options, folder, folder, (rank, world), progress and rank == 0)
        else:
            with (
                runs.new_folder(folder, options.overwrite, runs.CONFIG)
                if rank == 0
                else nullcontext(runs.unfinished(folder))
            ) as new:
                trainer, took = _built(options, new, folder, (rank, world), progress and rank == 0)
                if world > 1:  # the folder gets its name when all have read it
                    torch.distributed.barrier()
        if options.resume and (folder / runs.LAST).exists():
            trainer.restore(load_checkpoint(folder / runs.LAST))
        else:
            trainer.journal.start(took)
        trainer.run()
    return folder


def _built(
    options: TrainOptions, source: Path, folder: Path, shard: tuple[int, int], progress: bool
) -> tuple[Trainer, dict[str, float]]:
    """A trainer of the run in `folder` from the parts in `source`, and how long making them took."""
    clock = time.perf_counter(), time.process_time()
    corpus, parts = prepared(options, source, *shard, progress)
    took = {"seconds": time.perf_counter() - clock[0], "cpu_seconds": time.process_time() - clock[1]}
    if corpus.vocabulary.fingerprint != parts.vocabulary.fingerprint:
        raise ValueError(
            f"the words of {options.corpus} are not those of {folder}: its text has changed, start another"
        )
    torch.manual_seed(options.seed)
    return Trainer(options, corpus, runs.build_model(options, parts), folder, shard, progress), took


def _sweep(folder: Path) -> None:
    """Remove what a kill left of files that were being written."""
    for path in folder.glob("*.tmp*"):
        path.unlink()


def _stored(given: TrainOptions, folder: Path) -> TrainOptions:
    """Options of the run to go on with; others than its own cannot be given anew."""
    stored = runs.load_config(folder)
    standard = TrainOptions()
    free = {"out", "resume", "overwrite", "threads", "data_dir", "save_every"}
    for field in fields(TrainOptions):
        mine, old = getattr(given, field.name), getattr(stored, field.name)
        typed = mine != getattr(standard, field.name) if given.given is None else field.name in given.given
        if field.name not in free and typed and mine != old:
            raise ValueError(
                f"{flag(field.name)} {mine} differs from the run's {old}: leave it out, or start another run"
            )
    stored.resume, stored.out, stored.save_every = True, given.out, given.save_every
    stored.threads = given.threads if given.threads is not None else stored.threads
    stored.data_dir = given.data_dir if given.data_dir is not None else stored.data_dir
    return stored


def prepared(
    options: TrainOptions, folder: Path, rank: int = 0, world: int = 1, progress: bool = False
) -> tuple[Corpus, runs.Parts]:
    """Corpus and parts; the first process makes them, the others read what it made."""
    if rank == 0:
        corpus = _corpus(options, folder, progress)
        if not (folder / runs.CONFIG).exists():
            runs.prepare(options, corpus.vocabulary, corpus.train, progress).save(folder)
            runs.save_config(options, folder)  # last: a folder with a config has all its parts
    if world > 1:
        torch.distributed.barrier()
    if rank != 0:
        corpus = _corpus(options, folder, False)
    return corpus, runs.Parts.load(folder)


def _corpus(options: TrainOptions, folder: Path, progress: bool) -> Corpus:
    return open_corpus(
        options.corpus,
        data_dir=options.data_dir,
        cache=folder / "data",
        tokeniser=options.tokeniser,
        min_count=options.min_count,
        max_size=options.max_size,
        progress=progress,
    )


@contextmanager
def _processes(world: int) -> Iterator[None]:
    """Under torchrun, a process group around the block."""
    if world == 1:
        yield
        return
    init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        destroy_process_group()
