"""What a trained language model and a trained captioner share: folder, sizes, how training went."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from ecoc.heads import ECOC
from ecoc.models import Captioner, LanguageModel
from ecoc.options import CaptionTrainOptions, TrainOptions
from ecoc.training import run as runs
from ecoc.training.checkpoint import save_weights
from ecoc.training.journal import read_log
from ecoc.training.parts import Parts

if TYPE_CHECKING:
    from ecoc.captioning import TrainedCaptioner
    from ecoc.language import TrainedModel

Model = TypeVar("Model", LanguageModel, Captioner)
Options = TypeVar("Options", TrainOptions, CaptionTrainOptions)


class TrainedRun(Generic[Model, Options]):
    """A run's folder, and the model in it."""

    def __init__(self, folder: Path, model: Model, parts: Parts, options: Options) -> None:
        self.folder, self.parts = folder, parts
        self.model: Model = model
        self.options: Options = options
        self.vocabulary = parts.vocabulary

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folder}, {self.options.head} on {self.options.source})"

    def save_pretrained(self, folder: str | Path) -> None:
        """Write what ``from_pretrained`` needs, and no more: nothing to resume from, no corpus."""
        folder = Path(folder)
        if folder.resolve() == self.folder.resolve():
            raise ValueError(f"{folder} is the run itself: choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: choose another folder")
        replace(self.parts, vectors=None).save(folder)
        save_weights(self.model, folder / runs.BEST, self.vocabulary.fingerprint)
        if (self.folder / runs.LOG).exists():
            shutil.copy(self.folder / runs.LOG, folder / runs.LOG)
        runs.save_config(self.options, folder)

    def sizes(self) -> dict[str, object]:
        """Parameters, bytes, and the time that training took."""
        parameters = self.model.num_parameters()
        records = read_log(self.folder)
        last: dict[str, object] = next((r for r in reversed(records) if r["event"] == "epoch"), {})
        start: dict[str, object] = next((r for r in records if r["event"] == "start"), {})
        return {
            "decoder_parameters": parameters["decoder"],
            "parameters": sum(parameters.values()),
            "bytes": self.model.num_bytes(),
            "cpu_seconds": last.get("cpu_seconds"),
            "validation_cpu_seconds": last.get("validation_cpu_seconds"),
            "preparation_cpu_seconds": start.get("cpu_seconds"),
            "peak_memory_bytes": last.get("peak_memory_bytes"),
            "epochs": last.get("epoch"),
        }

    def summary(self) -> str:
        """A few lines about the run, for people."""
        parts = self.model.num_parameters()
        lines = [f"{self.folder}: {self.options.head} on {self.options.source}, {len(self.vocabulary):,} words"]
        lines += [f"  {name}: {number:,} parameters" for name, number in parts.items()]
        lines += [f"  on disk: {self.model.num_bytes():,} bytes"]
        if isinstance(self.model.head, ECOC):
            lines += [f"  objective: {self.model.head.objective}"]
        if self.parts.codebook is not None:
            lines += [f"  code: {self.parts.codebook}"]
        for record in read_log(self.folder):
            if record["event"] == "epoch":
                modes = ", ".join(f"{value:.2f} ({mode})" for mode, value in record["valid_perplexity"].items())
                seconds = f"{record['cpu_seconds']:,.0f} CPU seconds"
                lines += [f"  epoch {record['epoch']}: valid perplexity {modes}, {seconds}"]
        return "\n".join(lines)


def load(run: str | Path) -> "TrainedModel | TrainedCaptioner":
    """A trained language model, or a trained captioner, from its run's folder."""
    from ecoc.captioning import TrainedCaptioner
    from ecoc.language import TrainedModel

    return TrainedModel(run) if isinstance(runs.load_config(Path(run)), TrainOptions) else TrainedCaptioner(run)
