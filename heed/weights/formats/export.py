"""A loaded model back in its family's layout: config.json and safetensors, in several files if it is large."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from ...core.atomic import appearing
from ...core.errors import HeedError, InputError, WeightsError
from ..families.base import Opened
from ..rename import exported
from .folder import CONFIG
from .safetensors import INDEX, WEIGHTS

SHARD = 5 << 30  # bytes of a file, at most, unless one tensor is larger


def write(
    opened: Opened, folder: Path | str, shard: int = SHARD, beside: Callable[[Path], None] = lambda folder: None
) -> None:
    """A new folder that the reference library loads, in the precision it came in: all of it appears, or nothing.

    `beside` writes what belongs into that folder besides config and weights.
    """
    if not isinstance(opened, Opened):
        raise InputError(
            f"what is written is a checkpoint, as heed.weights.load gives it, not {type(opened).__name__}; a pipeline "
            "is written by m.save(folder)"
        )
    place = new_folder(folder)
    with writing(place), appearing(place) as fresh:
        (fresh / CONFIG).write_text(json.dumps(opened.config, indent=2) + "\n", encoding="utf-8")
        names = [_save(fresh, number, tensors) for number, tensors in enumerate(_shards(opened, shard))]
        _finish(fresh, names)
        beside(fresh)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever the disk refuses, as one kind of error and with the path."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if isinstance(error, HeedError):
            raise
        raise WeightsError(f"{path} could not be written: {error}; nothing was left of it") from None


def new_folder(given: Path | str) -> Path:
    """The path of a folder to be made: nothing may be there, or an empty folder."""
    if not isinstance(given, str | Path):
        raise InputError(f"a folder is named by a text or a Path, not by {type(given).__name__}")
    folder = Path(given).expanduser()
    if folder.is_file():
        raise WeightsError(f"{folder} is a file; name a folder that is not there yet")
    if folder.is_dir() and any(folder.iterdir()):
        raise WeightsError(f"{folder} is already there and not empty; name another folder, or remove that one first")
    return folder


def _shards(opened: Opened, size: int) -> Iterator[dict[str, Tensor]]:
    """Tensors in groups of at most so many bytes."""
    held, used = dict[str, Tensor](), 0
    for name, exact in exported(opened.model, opened.table):
        tensor = exact.to(opened.dtypes.get(name, exact.dtype))
        if held and used + tensor.nbytes > size:
            yield held
            held, used = {}, 0
        held[name] = tensor
        used += tensor.nbytes
    yield held


def _save(folder: Path, number: int, tensors: dict[str, Tensor]) -> tuple[Path, dict[str, int]]:
    path = folder / f"part-{number}.safetensors"
    alone = {name: tensor.contiguous() for name, tensor in tensors.items()}
    seen = set[int]()
    for name, tensor in alone.items():  # a file must not hold the same memory twice
        place = tensor.data_ptr()
        alone[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    save_file(alone, path, {"format": "pt"})
    return path, {name: tensor.nbytes for name, tensor in alone.items()}


def _finish(folder: Path, parts: list[tuple[Path, dict[str, int]]]) -> None:
    """One file keeps the plain name; several are numbered, and an index tells which tensor is where."""
    if len(parts) == 1:
        parts[0][0].rename(folder / WEIGHTS)
        return
    index: dict[str, str] = {}
    for number, (path, sizes) in enumerate(parts, 1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        path.rename(folder / name)
        index |= dict.fromkeys(sizes, name)
    total = sum(size for _, sizes in parts for size in sizes.values())
    data = {"metadata": {"total_size": total}, "weight_map": index}
    (folder / INDEX).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
