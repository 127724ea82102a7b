"""What a result remembers of how it was made: the command, the code, the data, and what a captioner said."""

import hashlib
import json
import platform
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ecoc import __version__
from ecoc.data import open_captions
from ecoc.data.pictures import pictures_by_id
from ecoc.options import ReproduceOptions

CAPTIONS_SHOWN = 10


def flags(options: dict[str, Any]) -> list[str]:
    """Options as they are typed; those that are off are not."""
    result = []
    for name, value in options.items():
        if value is not None and value is not False:
            result += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return result


def command_of(command: str, options: dict[str, Any]) -> str:
    """The whole line, with placeholders for what is elsewhere on another machine."""
    return f"ecoc {command} {shlex.join(flags(options))}"


def commit() -> str:
    """Of the code that runs, with ``-dirty`` if it or a config has changes; ``unknown`` outside its own repository."""
    here = Path(__file__).parents[2]
    if not (here / ".git").exists():  # an installed package may lie in the repository of something else
        return "unknown"
    name = _git(here, "rev-parse", "--short=12", "HEAD")
    changed = _git(here, "status", "--porcelain", "--", "ecoc", "configs", "pyproject.toml")
    return "unknown" if name is None else f"{name}{'-dirty' if changed else ''}"


def _git(folder: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def versions() -> dict[str, str]:
    """Of what a result depends on."""
    return {"python": platform.python_version(), "torch": torch.__version__, "ecoc": __version__}


@cache
def digest(path: str) -> str:
    """Of a file's content, short."""
    result = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(2**20):
            result.update(block)
    return result.hexdigest()[:12]


def first_captions(captions: Path, settings: ReproduceOptions) -> list[dict[str, Any]]:
    """The first captions, with what people said; of images that have a picture, if there are pictures."""
    assert settings.captions is not None
    assert settings.features is not None
    data = open_captions(settings.captions, settings.features)
    said = {image.id: [" ".join(words) for words in image.captions] for image in data.split("test")}
    pictures = said if settings.images is None else pictures_by_id(settings.images)
    found = [(one["image_id"], one["caption"]) for one in json.loads(captions.read_text())]
    seen = [(image, caption) for image, caption in found if image in pictures or str(image) in pictures]
    return [{"image": image, "caption": caption, "references": said[image]} for image, caption in seen[:CAPTIONS_SHOWN]]
