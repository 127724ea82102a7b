"""Files that are whole or not there at all."""

import hashlib
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary name to write to; it becomes `path` when the block ends well, and is on disk by then.

    A link stays one: what it leads to is replaced. A device or a folder is none to replace.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no file that could be replaced: give another name")
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        if temporary.stat().st_mode != mode:  # safetensors lets nobody but the owner read
            temporary.chmod(mode)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename != str(temporary):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error  # of the file that was asked for
    finally:
        temporary.unlink(missing_ok=True)


def save_weights(module: nn.Module, path: Path, vocabulary: str) -> None:
    """Parameters and buffers as safetensors; a tensor that two parts share is written once.

    The file also has a digest of its content and the fingerprint of the vocabulary it belongs to.
    """
    tensors, seen = {}, set[int]()
    for name, tensor in module.state_dict().items():
        if tensor.numel() and tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        tensors[name] = tensor.detach().cpu().contiguous()
    with written_whole(path) as temporary:
        save_file(tensors, temporary, {"vocabulary": vocabulary, "digest": _digest(tensors)})


def load_weights(module: nn.Module, path: Path, vocabulary: str) -> None:
    """Read what :func:`save_weights` wrote into a module of the same shape; a damaged or foreign file is an error."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged or missing ({error}): train again, or use another run") from error
    if metadata.get("digest") != _digest(tensors):
        raise ValueError(f"{path} is damaged (its content does not match its digest): train again, or use another run")
    if metadata.get("vocabulary") != vocabulary:
        raise ValueError(f"{path} belongs to another vocabulary than {path.parent}: these are two runs' files")
    shared = {}
    for name, tensor in module.state_dict().items():
        if name in tensors:
            shared[tensor.data_ptr()] = tensors[name]
    for name, tensor in module.state_dict().items():
        if name not in tensors and tensor.data_ptr() in shared:
            tensors[name] = shared[tensor.data_ptr()]
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f"{path} does not fit its model ({reason}): its config or codebook was changed") from error


def _digest(tensors: dict[str, Tensor]) -> str:
    result = hashlib.sha256()
    for name in sorted(tensors):
        result.update(name.encode())
        result.update(tensors[name].contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return result.hexdigest()


def load_tensor(path: Path) -> Tensor | None:
    """The one tensor of a safetensors file; None if there is no file."""
    if not path.exists():
        return None
    try:
        return load_file(path)["tensor"]
    except (SafetensorError, KeyError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}): train again, or use another run") from error


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Everything that training needs to go on, in one file."""
    with written_whole(path) as temporary:
        torch.save(state, temporary)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what :func:`save_checkpoint` wrote."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch does not look at the sums it writes
            if archive.testzip() is not None:
                raise ValueError
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged file
        raise ValueError(f"{path} is damaged ({type(error).__name__}): delete it to start over") from error
    return state
