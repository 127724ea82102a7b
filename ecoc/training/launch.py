"""Starting a run, or going on with it: folder, text, parts, processes."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path

import torch
from torch.distributed import destroy_process_group, init_process_group

from ecoc.data import CaptionBatches, CaptionData, Corpus, Vocabulary, open_captions, open_corpus
from ecoc.data.extract import Projection
from ecoc.data.scenes import builtin_scenes
from ecoc.options import CaptionTrainOptions, RunOptions, TrainOptions, flag
from ecoc.training import run as runs
from ecoc.training.checkpoint import load_checkpoint
from ecoc.training.parts import Parts, prepare
from ecoc.training.task import CaptionTask, LanguageTask, Task
from ecoc.training.trainer import Trainer


def train(options: RunOptions, progress: bool = True) -> Path:
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
    options: RunOptions, source: Path, folder: Path, shard: tuple[int, int], progress: bool
) -> tuple[Trainer, dict[str, float]]:
    """A trainer of the run in `folder` from the parts in `source`, and how long making them took."""
    clock = time.perf_counter(), time.process_time()
    data, parts = prepared(options, source, *shard, progress)
    took = {"seconds": time.perf_counter() - clock[0], "cpu_seconds": time.process_time() - clock[1]}
    if data.vocabulary.fingerprint != parts.vocabulary.fingerprint:
        raise ValueError(
            f"the words of {options.source} are not those of {folder}: its text has changed, start another"
        )
    torch.manual_seed(options.seed)
    return Trainer(options, build_task(options, data, parts, shard), folder, shard, progress), took


def build_task(options: RunOptions, data: Corpus | CaptionData, parts: Parts, shard: tuple[int, int] = (0, 1)) -> Task:
    """A new model with its data."""
    if isinstance(options, TrainOptions):
        assert isinstance(data, Corpus)
        return LanguageTask(options, data, runs.build_model(options, parts), shard)
    assert isinstance(data, CaptionData)
    return CaptionTask(options, data, runs.build_captioner(options, parts), shard)


def _sweep(folder: Path) -> None:
    """Remove what a kill left of files that were being written."""
    for path in folder.glob("*.tmp*"):
        path.unlink()


def _stored(given: RunOptions, folder: Path) -> RunOptions:
    """Options of the run to go on with; others than its own cannot be given anew."""
    stored = runs.load_config(folder)
    if stored.command != given.command:
        raise ValueError(f"{folder} is a run of `ecoc {stored.command}`: go on with that")
    standard = type(given)()
    places = {"data_dir", "captions", "features"}  # what may have moved
    free = {"out", "resume", "overwrite", "threads", "save_every", *places}
    for field in fields(given):
        mine, old = getattr(given, field.name), getattr(stored, field.name)
        typed = mine != getattr(standard, field.name) if given.given is None else field.name in given.given
        if field.name not in free and typed and mine != old:
            raise ValueError(
                f"{flag(field.name)} {mine} differs from the run's {old}: leave it out, or start another run"
            )
    stored.resume, stored.out, stored.save_every = True, given.out, given.save_every
    stored.threads = given.threads if given.threads is not None else stored.threads
    for name in places & vars(given).keys():
        if getattr(given, name) is not None:
            setattr(stored, name, getattr(given, name))
    return stored


def prepared(
    options: RunOptions, folder: Path, rank: int = 0, world: int = 1, progress: bool = False
) -> tuple[Corpus | CaptionData, Parts]:
    """Data and parts; the first process makes them, the others read what it made."""
    if rank == 0:
        data = _data(options, folder, progress)
        if not (folder / runs.CONFIG).exists():
            _parts(options, data, progress).save(folder)
            runs.save_config(options, folder)  # last: a folder with a config has all its parts
    if world > 1:
        torch.distributed.barrier()
    if rank != 0:
        data = _data(options, folder, False)
    return data, Parts.load(folder)


def _data(options: RunOptions, folder: Path, progress: bool) -> Corpus | CaptionData:
    if isinstance(options, CaptionTrainOptions):
        data = caption_data(options, progress)
        if data.skipped and progress:
            print(f"ecoc: {data.left_out()}", file=sys.stderr)
        return data
    return open_corpus(
        options.corpus,
        data_dir=options.data_dir,
        cache=folder / "data",
        tokeniser=options.tokeniser,
        min_count=options.min_count,
        max_size=options.max_size,
        progress=progress,
    )


def caption_data(
    options: CaptionTrainOptions, progress: bool = False, vocabulary: Vocabulary | None = None
) -> CaptionData:
    """The captioned images that the options name, with their own vocabulary or a given one."""
    if options.captions is None or options.features is None:
        return builtin_scenes(options.scenes or 3000, progress=progress)[0]
    min_count = options.min_count or 5
    return open_captions(
        options.captions, options.features, min_count=min_count, vocabulary=vocabulary, progress=progress
    )


def _parts(options: RunOptions, data: Corpus | CaptionData, progress: bool) -> Parts:
    if isinstance(data, Corpus):
        return prepare(options, data.vocabulary, data.train, progress)
    assert isinstance(options, CaptionTrainOptions)
    parts = prepare(options, data.vocabulary, CaptionBatches(data, 1).words(), progress)
    parts.features = data.features.shape
    if options.projection is not None:
        parts.projection = Projection.load(Path(options.projection))
        size = parts.projection.components.shape[1]
        if size != parts.features[-1]:
            raise ValueError(
                f"--projection {options.projection} gives {size} numbers, the features have {parts.features[-1]}: "
                "give the one that they went through"
            )
    return parts


@contextmanager
def _processes(world: int) -> Iterator[None]:
    """Under torchrun, a process group around the block."""
    if world == 1:
        yield
        return
    init_process_group("gloo")
    try:
        yield
    finally:
        destroy_process_group()
