"""Features of images from files: ``.npz``, ``.npy`` and HDF5, as vectors or grids, matched with images by their ids."""

import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rich.progress import Progress

ID_NAMES = ("cocoid", "imgid", "filename")
DAMAGED = (  # TypeError and AttributeError: numpy opens by content, and finds a single array where many are due
    *(OSError, EOFError, ValueError, KeyError, TypeError, AttributeError),
    *(RecursionError, zlib.error, zipfile.BadZipFile),
)


class Rows(Protocol):
    """Numbers by row: an array, a memory map, or a file that is read when rows are asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


def open_features(path: Path, entries: list[dict[str, Any]], bar: Progress) -> tuple[Rows, list[int]]:
    """The features in a file, and the row of each entry, -1 where there is none."""
    if path.is_dir():
        raise ValueError(f"{path}: a folder; make features of its images with `ecoc features {path} -o features.npz`")
    if not path.is_file():
        raise ValueError(f"{path}: no such file; give features as .npz, .npy or HDF5 (.h5)")
    array: Rows
    try:
        if path.suffix == ".npy":
            array, kind, ids = np.lib.format.open_memmap(path, mode="r"), "", None
        elif path.suffix == ".npz":
            with np.load(path) as archive:
                array, kind, ids = _by_name(archive, bar, path.name, stack=True)
        elif path.suffix in (".h5", ".hdf5"):
            array, kind, ids = _by_name(import_module("h5py").File(path, "r"), bar, path.name, stack=False)
        else:
            raise ValueError("a name that does not end in .npz, .npy, .h5 or .hdf5")
        numbers = np.issubdtype(array[np.arange(min(1, array.shape[0]))].dtype, np.number)
        if not numbers or len(array.shape) not in (2, 3) or 0 in array.shape:
            raise ValueError(f"an array of shape {tuple(array.shape)}, not numbers (N, d) or (N, cells, d)")
    except ImportError as error:
        raise ValueError(f"{path}: reading HDF5 needs h5py; pip install h5py, or give .npz or .npy") from error
    except DAMAGED as error:
        raise ValueError(
            f"{path}: no features, or damaged ({error}); give .npz or .h5 with 'feats' and 'cocoid', 'imgid', "
            f"'filename' or 'ids', or with an array an id, or give .npy"
        ) from error
    expected = len(entries) if ids is None else len(ids)
    if array.shape[0] != expected:
        what = "images in the captions, in whose order they must be" if ids is None else "ids beside them"
        raise ValueError(f"{path}: {array.shape[0]} rows of features for {expected} {what}; give one row for each")
    return array, list(range(expected)) if ids is None else _match(path, entries, kind, ids)


def _by_name(file: Mapping[str, Any], bar: Progress, name: str, stack: bool) -> tuple[Rows, str, list[Any] | None]:
    """The features in a file of named arrays, of what kind their ids are if that is known, and the ids if there are."""
    if "feats" in file:
        array = file["feats"] if stack else _Dataset(file["feats"])
        kind = next((kind for kind in (*ID_NAMES, "ids") if kind in file), None)
        return (array, "", None) if kind is None else (array, kind, np.asarray(file[kind]).tolist())
    names = list(file)
    if not names:
        raise ValueError("nothing is in it")
    parts = [file[one] for one in bar.track(names, description=f"read {name}")]
    if different := [one for one, part in zip(names, parts, strict=True) if part.shape != parts[0].shape]:
        raise ValueError(f"the shape of {different[0]!r} is not that of {names[0]!r}")
    return np.stack(parts) if stack else _Datasets(parts), "ids", names


def _match(path: Path, entries: list[dict[str, Any]], kind: str, ids: list[Any]) -> list[int]:
    """The row of each entry, -1 where there is none; ids of unknown kind are of the one that finds most images."""
    rows = {one.decode() if isinstance(one, bytes) else str(one): row for row, one in enumerate(ids)}
    if len(rows) < len(ids):
        raise ValueError(f"{path}: {len(ids) - len(rows)} id(s) have features twice; give each image one row")
    found = []
    for name in (*ID_NAMES, "stem") if kind == "ids" else (kind,):
        keys = (Path(str(entry.get("filename"))).stem if name == "stem" else entry.get(name) for entry in entries)
        found.append([rows.get(str(key), -1) for key in keys])
    if kind in ("ids", "filename"):  # COCO's files were renamed in 2017, and kept the number that is the cocoid
        numbers = {
            str(int(digits[0])): row for one, row in rows.items() if (digits := re.findall(r"\d+(?=\.\w+$)", one))
        }
        found.append([numbers.get(str(entry.get("cocoid")), -1) for entry in entries])
    counts = [sum(place >= 0 for place in places) for places in found]
    best = found[counts.index(max(counts))]
    if max(counts) and any(count == max(counts) and other != best for count, other in zip(counts, found, strict=True)):
        raise ValueError(
            f"{path}: its ids could be {' or '.join(ID_NAMES[:2])}, which name other images; call them by what they are"
        )
    return best


def broken_rows(array: Rows, at_once: int = 4096) -> set[int]:
    """Rows of vectors ``(N, d)`` with numbers that are not finite; grids are too large to look at beforehand."""
    if len(array.shape) != 2:
        return set()
    found: set[int] = set()
    for start in range(0, array.shape[0], at_once):
        rows = np.arange(start, min(start + at_once, array.shape[0]))
        values = np.asarray(array[rows], np.float32)
        found |= set((start + np.flatnonzero(~np.isfinite(values).all(1))).tolist())
    return found


class _Dataset:
    """Rows of an HDF5 dataset, which wants them in order and each once."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.shape = dataset, tuple(dataset.shape)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        ordered, places = np.unique(rows, return_inverse=True)
        return np.asarray(self.dataset[ordered])[places]


class _Datasets:
    """HDF5 datasets, one a row."""

    def __init__(self, datasets: Sequence[Any]) -> None:
        self.datasets, self.shape = datasets, (len(datasets), *datasets[0].shape)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self.datasets[row][()] for row in rows])
