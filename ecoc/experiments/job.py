"""One row of a study on one corpus with one seed: its tuning, training and evaluation, each in a process of its own.

One epoch with each learning rate, then the whole budget with the best of them, then the evaluation; what came out is
one file of results. Whatever is killed goes on where it was when it is started again; what was run with other options
than the row has now is run anew.
"""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ecoc.experiments.process import Failed, alone, data_dir_of, output_of, start
from ecoc.experiments.record import command_of, commit, digest, first_captions, flags, versions
from ecoc.experiments.results import Result, read_result
from ecoc.experiments.rows import Row, Study
from ecoc.options import ReproduceOptions
from ecoc.training.checkpoint import written_whole
from ecoc.training.journal import read_log
from ecoc.training.trainer import NOT_FINITE

MEASURED_SECONDS = 60.0  # of a row that is only measured


@dataclass
class Job:
    """One row on one corpus with one seed.

    Args:
        study, row: What is run.
        corpus, seed, budget: Under which conditions.
        settings: Where data is and where files go.
    """

    study: Study
    row: Row
    corpus: str
    seed: int
    settings: ReproduceOptions
    done: float = 0.0  # of its work
    doing: str = ""
    lock: int = -1  # descriptor that its processes keep, even if the runner is killed
    part: str = ""  # of the job, if it has a folder of its own
    processes: "list[subprocess.Popen[str]]" = field(default_factory=list)  # that were started and not asked to stop
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def folder(self) -> Path:
        """Where its runs are."""
        name = f"{self.row.name}.{self.settings.budget}.seed{self.seed}{self.part}"
        return Path(self.settings.out) / self.study.name / self.corpus / name

    @property
    def blank(self) -> Result:
        """The result, before there is any."""
        return Result(
            self.study.name,
            self.row.name,
            self.corpus,
            self.seed,
            self.settings.budget,
            paper=self.row.paper.get(self.corpus, {}),
            note=self.row.note,
        )

    @property
    def state(self) -> str:
        """``to do``, ``finished``, or ``changed`` if the result is of other options, rates, tuning or data than now."""
        path = self.blank.path(Path(self.settings.results))
        if not path.exists() or ((result := read_result(path)).skipped and not self.measured_only):
            return "to do"
        rate = result.options.get("lr", 0.0)
        rates = {float(one) for one in result.tuning} or {rate}
        same = result.options == self.options() | ({"lr": rate} if rate else {})
        same = same and all(result.data.get(key) == now for key, now in self._data(result.options).items())
        same = same and bool(result.skipped or rates == set(self.rates))
        known = self.tuner.known_tuning() if len(rates) > 1 and not self.tunes_itself and self.tuner.finished else {}
        if known:
            same = same and rate == min(known, key=known.__getitem__)
        return "finished" if same else "changed"

    @property
    def finished(self) -> bool:
        return self.state == "finished"

    @property
    def measured_only(self) -> bool:
        return self.corpus in self.row.measure_only.get(self.settings.budget, ())

    @property
    def epochs(self) -> int:
        """Epochs of the whole budget."""
        return int(self.study.budgets[self.settings.budget][self.corpus]["epochs"])

    @property
    def rates(self) -> list[float]:
        """Learning rates to choose from: those of all rows, or the row's own."""
        own = self.row.options.get("lr")
        return self.study.learning_rates if own is None else [own]

    @property
    def work(self) -> float:
        """Epochs of tuning and training; the evaluation counts as one."""
        tuning = len(self.rates) if len(self.rates) > 1 else 0
        return 1.0 if self.measured_only else float(self.epochs + tuning + 1)

    def options(self) -> dict[str, Any]:
        """Options of training, but for those that tuning decides and where the run goes."""
        values = self.study.options | self.study.budgets[self.settings.budget][self.corpus]
        values = values | self.row.options | self.row.by_corpus.get(self.corpus, {}) | {"seed": self.seed}
        if self.study.command == "train":
            return {"corpus": self.corpus, "data_dir": "DATA"} | values
        return {"captions": "CAPTIONS", "features": "FEATURES", "projection": "PROJECTION"} | values

    def refresh(self) -> None:
        """Bring what the finished result says of its row, beside numbers, in step with the config."""
        result, now = read_result(self.blank.path(Path(self.settings.results))), self.blank
        if (result.paper, result.note) != (now.paper, now.note):
            result.paper, result.note = now.paper, now.note
            result.save(Path(self.settings.results))

    def run(self) -> None:
        """Do all that is still to do, and write the result."""
        self.doing = "waiting for another process on it"
        with alone(self.folder, self.stop) as self.lock:
            if self.finished:
                return
            if self.measured_only:
                result = self._measure()
            else:
                tuning = self._tune()
                result = self._train(min(tuning, key=tuning.__getitem__))
                if len(tuning) > 1:
                    result.tuning = {f"{rate:g}": value for rate, value in tuning.items()}
                    result.tuned = f"{self.tuner.row.name} on {self.tuner.corpus}"
            result.save(Path(self.settings.results))
            if not self.settings.keep:
                shutil.rmtree(self.folder, ignore_errors=True)
                self._forget_tuning()

    def interrupt(self) -> None:
        """Stop what it waits for, once; started again, the job goes on there."""
        self.stop.set()
        while self.processes:
            if (process := self.processes.pop()).poll() is None:
                process.send_signal(signal.SIGTERM)  # not ignored in the background of a script, as SIGINT is

    @property
    def tuner(self) -> "Job":
        """Whose learning rate it takes: that of the first seed, or of another row or on another corpus."""
        (row,) = self.study.chosen(self.row.tuned_as or self.row.name)
        corpus = self.study.tuned_on.get(self.settings.budget, {}).get(self.corpus, self.corpus)
        return replace(self, row=row, corpus=corpus, seed=1, part=".tuning")

    @property
    def tunes_itself(self) -> bool:
        tuner = self.tuner
        return (tuner.row.name, tuner.corpus, tuner.seed) == (self.row.name, self.corpus, self.seed)

    @property
    def corpora_to_read(self) -> set[str]:
        """Its own, and the one that it is tuned on if that is still to be done."""
        tuned = self.measured_only or len(self.rates) == 1 or set(self.rates) <= set(self.tuner.known_tuning())
        return {self.corpus} if tuned else {self.corpus, self.tuner.corpus}

    def _tune(self) -> dict[float, float]:
        """Validation perplexity (normalised) after one epoch, by learning rate; of a single rate nothing is run."""
        rates, tuner = self.rates, self.tuner
        if len(rates) == 1:
            return {rates[0]: 0.0}
        self.doing = f"waiting for the tuning of {tuner.row.name} on {tuner.corpus}"
        with alone(tuner.folder, self.stop) as tuner.lock:  # other rows may want the same
            found, asked = tuner.known_tuning(), tuner._asked(tuner.options() | {"epochs": 1})
            for rate in rates:
                self.doing = f"learning rate {rate:g}"
                if rate not in found:
                    found[rate] = tuner._try_rate(rate)
                    tuner._remember("tuning.json", asked | {"tuning": found})
                self.done += 1
        return {rate: found[rate] for rate in rates}

    def _forget_tuning(self) -> None:
        """Delete its own tuning, which the result has now: rows that are run anew are tuned anew."""
        if self.tunes_itself:
            folder = self.tuner.folder
            with alone(folder, self.stop):
                shutil.rmtree(folder, ignore_errors=True)

    def known_tuning(self) -> dict[float, float]:
        """What was found before with the same options: in the row's result, or by a tuning that is not finished."""
        if self.finished:
            known = read_result(self.blank.path(Path(self.settings.results))).tuning
        else:
            asked = self._asked(self.options() | {"epochs": 1})
            known = self._remembered("tuning.json", asked).get("tuning", {})
        return {float(rate): value for rate, value in known.items()}

    def _asked(self, options: dict[str, Any]) -> dict[str, Any]:
        """What a run depends on: its options, and what is in outside files."""
        return {"options": {key: self._filled(value) for key, value in options.items()}, "data": self._data(options)}

    def _data(self, options: dict[str, Any]) -> dict[str, str]:
        """Digests of the outside files that these options name, if the settings say where they are."""
        files = [key for key in ("vectors", "captions", "features", "projection") if key.upper() in str(options)]
        return {key: digest(path) for key in files if (path := getattr(self.settings, key))}

    def _remembered(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What an earlier process left in this file of its folder; nothing if it was asked for something else."""
        try:
            found = json.loads((self.folder / name).read_text())
        except (FileNotFoundError, ValueError):  # a damaged one is worth as much as none
            return {}
        return found if isinstance(found, dict) and all(found.get(key) == value for key, value in asked.items()) else {}

    def _remember(self, name: str, values: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with written_whole(self.folder / name) as temporary:
            temporary.write_text(json.dumps(values))

    def _try_rate(self, rate: float) -> float:
        run, options = self.folder / f"lr-{rate:g}", self.options() | {"lr": rate, "epochs": 1}
        self._started(run, options)
        try:
            self._process(options, run, f"learning rate {rate:g}", 1)
        except Failed as error:
            if NOT_FINITE not in str(error):
                raise
            shutil.rmtree(run)
            return sys.float_info.max  # a rate that diverges is the worst; JSON has no infinity
        last = [record for record in read_log(run) if record["event"] == "epoch"][-1]
        shutil.rmtree(run)
        return float(last["valid_perplexity"]["normalised"])

    def _train(self, lr: float) -> Result:
        run, options = self.folder / "run", self.options() | {"lr": lr}
        result = self._started(run, options)
        self._process(options, run, "training", self.epochs)
        self.doing = "evaluating"
        records = read_log(run)
        epochs = [record for record in records if record["event"] == "epoch"]
        first, last = next(record for record in records if record["event"] == "start"), epochs[-1]
        result.evaluated = commit()
        names = ("epoch", "step", "train_loss", "valid_perplexity", "cpu_seconds", "mixing", "changed_inputs")
        result.curve = [{name: record[name] for name in names if name in record} for record in epochs]
        result.cost = {name: last[name] for name in ("cpu_seconds", "validation_cpu_seconds", "peak_memory_bytes")}
        result.cost |= {"preparation_cpu_seconds": first["cpu_seconds"], "threads": first["threads"]}
        result.cost["epochs"] = last["epoch"]
        sizes = ("decoder_parameters", "parameters", "bytes")
        if self.study.command == "train":
            flips = ["--flips"] if self.study.name == "ablation" and options["head"] == "ecoc" else []
            result.valid, result.test = self._scores(run, "valid"), self._scores(run, "test", *flips)
            if "bit_flips" in result.test:
                result.extra = result.test.pop("bit_flips")
        else:
            captions = self.folder / "captions.json"
            result.valid, result.test = self._scores(run, "val"), self._scores(run, "test", "--out", str(captions))
            result.extra["captions"] = first_captions(captions, self.settings)
        result.sizes = {name: result.test.pop(name) for name in sizes}
        return result

    def _measure(self) -> Result:
        """Cost of an epoch, from as many steps as there are in a minute."""
        run, options = self.folder / "measured", self.options()
        limited = options | {"max_seconds": MEASURED_SECONDS}
        shutil.rmtree(run, ignore_errors=True)
        result = replace(self._started(run, limited), options=options)
        self._process(limited, run, "measuring an epoch", 1)
        last = [record for record in read_log(run) if record["event"] == "epoch"][-1]
        seconds = last["cpu_seconds"] - last["validation_cpu_seconds"]
        whole = seconds * read_log(run)[0]["steps_per_epoch"] / last["step"] + last["validation_cpu_seconds"]
        result.cost = {"cpu_seconds_per_epoch": whole, "measured_steps": last["step"]}
        result.skipped = f"{whole:,.0f} CPU seconds an epoch, measured over {last['step']} steps"
        return result

    def _started(self, run: Path, options: dict[str, Any]) -> Result:
        """A result with what the run was started with, now or by an earlier process; of other options it is deleted."""
        name, asked = f"{run.name}.json", self._asked(options)
        if not (known := self._remembered(name, asked)):
            shutil.rmtree(run, ignore_errors=True)
            known = asked | {"commit": commit(), "versions": versions()}
            self._remember(name, known)
        result = self.blank
        result.options, result.data = options, known["data"]
        result.commit, result.versions = known["commit"], known["versions"]
        given = {key: value for key, value in options.items() if asked["options"][key] is not None}
        result.command = command_of(self.study.command, given)
        return result

    def _process(self, options: dict[str, Any], run: Path, doing: str, epochs: int) -> None:
        """Train one run in a process, or go on with it; count its epochs meanwhile."""
        self.doing = doing
        before = self.done
        arguments = flags({name: self._filled(value) for name, value in options.items()} | {"out": str(run)})
        if (run / "config.json").exists():
            arguments = ["--out", str(run), "--resume"]
        process = self._start([*self.study.command.split(), *arguments, "--threads", str(self.settings.threads)])
        while process.poll() is None:
            time.sleep(0.5)
            self.done = before + min(epochs, _epochs_done(run))
        self._check(process)
        self.done = before + epochs

    def _scores(self, run: Path, split: str, *more: str) -> dict[str, Any]:
        command = ["eval"] if self.study.command == "train" else ["caption", "eval"]
        process = self._start([*command, str(run), "--split", split, "--json", *more])
        scores: dict[str, Any] = json.loads(self._check(process))
        self.done += 0.5  # there are two splits
        cost = ("cpu_seconds", "validation_cpu_seconds", "preparation_cpu_seconds", "peak_memory_bytes", "epochs")
        return {name: value for name, value in scores.items() if name not in cost}

    def _start(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        self.processes.append(start(arguments, self.folder, self.settings.threads, self.lock))
        return self.processes[-1]

    def _check(self, process: "subprocess.Popen[str]") -> str:
        code = process.wait()
        if self.stop.is_set() and code != 0:
            raise KeyboardInterrupt
        return output_of(process, self.folder, f"{self.row.name} on {self.corpus}, seed {self.seed}, {self.doing}")

    def _filled(self, value: Any) -> Any:
        """With whole paths: the same file is the same, from wherever it is named."""
        if not isinstance(value, str):
            return value
        if value == "DATA":
            return str(Path(data_dir_of(self.settings.data_dir, self.corpus)).resolve())
        if value in ("CAPTIONS", "FEATURES", "PROJECTION"):
            path = getattr(self.settings, value.lower())
            return None if path is None else str(Path(path).resolve())
        return value.replace("VECTORS", str(Path(self.settings.vectors).resolve()) if self.settings.vectors else "")


def _epochs_done(run: Path) -> float:
    records = read_log(run)
    return float(max((record.get("epoch", 0) for record in records), default=0))
