"""Pictures from files: found in folders, turned upright, put on white, brought to one size."""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ecoc.data.vocabulary import PathLike

SIDE = 224  # pixels
SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".avif")


def read_picture(path: Path, side: int = SIDE) -> np.ndarray:
    """The whole first picture of a file, upright, on white where it is transparent, as ``(side, side, 3)`` uint8.

    Raises:
        ValueError: Why it cannot be read, in a few words and without its name.
    """
    with quiet():
        return decode(path, side)


def find_images(names: Sequence[PathLike]) -> list[Path]:
    """The files among ``names`` as they are, and all images in the folders, sorted; each once."""
    found: list[Path] = []
    for path in map(Path, names):
        inside = path.rglob("*") if path.is_dir() else ()
        some = sorted(one for one in inside if one.suffix.lower() in SUFFIXES and one.is_file())
        found += some or [path]
    if not found:
        raise ValueError("no images; give files, or folders of images")
    if all(path.is_dir() for path in found):
        raise ValueError(f"{found[0]}: no image in this folder; give one with {', '.join(SUFFIXES)} files")
    return list(dict.fromkeys(found))


def pictures_by_id(folder: PathLike) -> dict[str, Path]:
    """Pictures of a folder by name without suffix, and by the number it ends with, as COCO names its files."""
    if not Path(folder).is_dir():
        raise ValueError(f"{folder}: is no folder; give one with pictures")
    paths = find_images([folder])
    numbers = {str(int(found[0])): path for path in paths if (found := re.findall(r"[0-9]+$", path.stem))}
    return numbers | {path.stem: path for path in paths}


def check_pillow() -> None:
    """Say so at once if no picture can be read for want of Pillow."""
    need("PIL.Image")


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings by Pillow. What a process warns of is the same for all threads: not for each of several."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def decode(path: Path, side: int) -> np.ndarray:
    """As :func:`read_picture`, inside :func:`quiet`."""
    pil, ops = need("PIL.Image"), need("PIL.ImageOps")
    if path.is_dir():
        raise ValueError("no image in this folder")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError((error.strerror or "not readable").lower()) from error
    try:
        image = pil.open(io.BytesIO(content))
        image.load()
    except pil.DecompressionBombError as error:
        raise ValueError("too many pixels") from error
    except pil.UnidentifiedImageError as error:
        raise ValueError("no image of a known format" if content else "empty file") from error
    except Exception as error:  # Pillow raises many kinds for a damaged file
        raise ValueError("truncated or damaged") from error
    with suppress(Exception):  # the camera's other notes may be damaged, and are written again after the turn
        ops.exif_transpose(image, in_place=True)
    return np.array(on_white(image).resize((side, side), pil.Resampling.BICUBIC))


def on_white(image: Any) -> Any:
    """Any picture of Pillow's with 8 bits of red, green and blue, on white where it is transparent."""
    pil = need("PIL.Image")
    if image.mode[0] in "IF":  # grey of 16 bits or more, which Pillow would cut off at 255
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() > 65535:
            raise ValueError("grey of more than 16 bits")
        if image.mode != "I" or values.max() > 255:  # 32 bits may hold numbers of 8
            values = values >> 8
        return pil.fromarray(values.astype(np.uint8)).convert("RGB")
    if "transparency" in image.info or image.mode[-1] in "Aa":
        canvas = pil.new("RGBA", image.size, "white")
        canvas.alpha_composite(image.convert("RGBA"))
        image = canvas
    return image.convert("RGB")


def need(module: str) -> Any:
    """A module that only pictures need."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ValueError(f'pictures need {module.split(".")[0]}: pip install "ecoc[captions]"') from error
