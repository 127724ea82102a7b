"""What the commands for the paper's tables and figure do."""

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ecoc.options import ReportOptions, ReproduceOptions


def reproduce_command(options: ReproduceOptions) -> int:
    """Run the rows of a study."""
    from ecoc.experiments.runner import jobs, reproduce

    if options.list:
        for job in jobs(options):
            print(f"{job.state:9} {job.corpus:12} seed {job.seed}  {job.row.name}")
        return 0
    asked = jobs(options)
    before = sum(job.finished for job in asked)
    with _other_ends_as_interrupts():
        failed = reproduce(options)
    for line in failed:
        print(f"ecoc: failed: {line}", file=sys.stderr)
    done, folder = len(asked) - before - len(failed), options.results
    elsewhere = "" if folder == ReproduceOptions.results else f" --results {shlex.quote(folder)}"
    more = "" if before < len(asked) else f", or --results FOLDER to run all anew beside {folder}"
    print(f"{folder}: {options.study}, {done} of {len(asked)} rows run, {before} were there before.", end="")
    print(f" Next: ecoc report{elsewhere}{more}" if before + done else "")
    return 1 if failed else 0


def report_command(options: ReportOptions) -> int:
    """A page of all results."""
    from ecoc.experiments.report import update_readme, write_report

    results = Path(options.results)
    images = Path(options.images) if options.images else None
    write_report(results, Path(options.out), Path(options.markdown or options.results), images, progress=True)
    print(f"{options.out}: done")
    if options.readme is not None:
        update_readme(Path(options.readme), results)
    return 0


@contextmanager
def _other_ends_as_interrupts() -> Iterator[None]:
    """While the block runs, a kill or a terminal that closes is an interrupt, so that what was started stops too."""
    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) == signal.SIG_DFL]  # not nohup
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
