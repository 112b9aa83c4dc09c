"""Pickled torch files: opened in a process of their own, never in this one, and written as safetensors.

A pickle is a small program that makes what it holds, and a hostile one makes more than that. `torch.load` with
weights_only=True runs none but the few calls that make tensors; the process around it may use so much memory and time
and no more; and what comes out of it is a file without programs. Nothing here is ever opened to be used directly.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from ...core.atomic import appearing, replacing
from ...core.errors import HeedError, WeightsError
from .safetensors import INDEX, WEIGHTS, shards_of
from .sidecars import bring

WHOLE, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
KINDS = ("*.pt", "*.pth", "*.ckpt")
OTHER = re.compile(r"(optim|optimizer|scheduler|rng_state|training_args|scaler|random_states).*")  # of a training
INNER = ("state_dict", "model_state_dict", "model", "module")  # where training scripts put the weights
DEEPEST, ENTRIES = 8, 2**17  # of dictionaries within dictionaries
GROWTH = 4  # tensors may share memory in a pickle, but never in a safetensors file
MEMORY, SECONDS, PER_SECOND = 2**32, 60, 5_000_000  # for a file of no size, and bytes that any disk manages
REFUSED = 3  # the exit code that comes with a reason
APART = """
import sys
sys.path.insert(0, sys.argv[1])
import heed
del sys.path[0]
from heed.weights.formats.pickles import main
sys.exit(main(*sys.argv[2:]))
"""  # isolated Python finds installed packages alone; it must be this very heed that opens a pickle, wherever it lies


def find(folder: Path | str) -> list[Path]:
    """The pickled weights in a folder: those that an index names, or one, or all that look like weights."""
    place = Path(folder)
    if (place / PICKLED_INDEX).is_file():
        return [place / name for name in sorted(set(shards_of(place / PICKLED_INDEX).values()))]
    if (place / WHOLE).is_file():
        return [place / WHOLE]
    found = {path for kind in KINDS for path in place.glob(kind) if path.is_file() and not OTHER.fullmatch(path.name)}
    return sorted(found)


def is_pickled(path: Path | str) -> bool:
    """Whether a file begins as torch's pickles do: as an archive, or as a pickle that is not a number of llama2.c."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}") from None
    bare = len(start) == 4 and start[0] == 0x80 and 2 <= start[1] <= 5 and start[2:] != b"\0\0"
    return start == b"PK\3\4" or bare


def read_to(source: Path | str, target: Path | str) -> None:
    """The weights of a pickled file, or of a folder of them, as a new folder of safetensors, with what lies beside.

    The folder appears whole or not at all.
    """
    given, wanted = Path(source), Path(target)
    files = _files(given)
    if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        raise WeightsError(f"{wanted} exists already; name a new folder for the converted weights")
    with appearing(wanted) as fresh:
        _apart(given, files, fresh)
        bring(files[0].parent, fresh)


def _apart(source: Path, files: list[Path], target: Path) -> None:
    """Run `convert` in a process of its own and tell what came of it."""
    kept = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ} | {"OMP_NUM_THREADS": "1"}
    seconds = _seconds(files)
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-c",
                APART,
                str(Path(__file__).parents[3]),
                str(source.absolute()),
                str(target.absolute()),
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WeightsError(f"{source} was not converted within {seconds} seconds; nothing was written") from None
    if done.returncode == REFUSED:
        raise WeightsError(done.stdout.strip())
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1][:300]
        raise WeightsError(
            f"{source} could not be converted: the process that opened it ended with code {done.returncode} ({last}); "
            "nothing was written"
        )


# --- in the other process ---


def main(source: str, target: str) -> int:
    """Convert under limits; an exit code, with the reason on standard output."""
    try:
        files = _files(Path(source))
        _limit(files)
        convert(files, Path(target))
    except HeedError as error:
        print(error)
        return REFUSED
    except MemoryError:
        print(f"{source} needs more memory than its size allows for; it is not what it seems")
        return REFUSED
    return 0


def convert(files: list[Path], target: Path) -> None:
    """Each file as one of safetensors; several with an index."""
    held: dict[str, str] = {}
    total = 0
    for number, path in enumerate(files, 1):
        name = WEIGHTS if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
        tensors = _opened(path)
        twice = held.keys() & tensors
        if twice:
            raise WeightsError(
                f"{path} holds {min(twice)}, which another file holds as well; give the one file that you mean"
            )
        held |= dict.fromkeys(tensors, name)
        total += sum(tensor.nbytes for tensor in tensors.values())
        with replacing(target / name) as fresh:
            save_file(_own(tensors), fresh, {"format": "pt"})
    index = files[0].parent / PICKLED_INDEX
    if len(files) > 1 and index.is_file():
        lost = sorted(shards_of(index).keys() - held)
        if lost:
            raise WeightsError(f"{index} names tensors that its files do not hold: {', '.join(lost[:5])}")
    if len(files) > 1:
        with replacing(target / INDEX) as fresh:
            fresh.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": held}, indent=1))


def _files(source: Path) -> list[Path]:
    files = [source] if source.is_file() else find(source)
    if not files:
        raise WeightsError(f"{source} holds no pickled weights; needed is {WHOLE}, its index or {', '.join(KINDS)}")
    lost = [path.name for path in files if not path.is_file()]
    if lost:
        raise WeightsError(f"{source} misses files that its index names: {', '.join(lost[:5])}; copy them, too")
    return files


def _seconds(files: list[Path]) -> int:
    return SECONDS + sum(path.stat().st_size for path in files) // PER_SECOND


def _limit(files: list[Path]) -> None:
    """So much memory, time and room on the disk as these files can need. Where there are no limits, there are none."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        sizes = [path.stat().st_size for path in files]
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (_seconds(files),) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20 + GROWTH * max(sizes),) * 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY + 2 * GROWTH * max(sizes),) * 2)


def _opened(path: Path) -> dict[str, Tensor]:
    """The tensors of a pickle by name."""
    try:
        zipped = zipfile.is_zipfile(path)
        if zipped:
            with zipfile.ZipFile(path) as archive:
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                    raise WeightsError(f"{path} is compressed, which torch never writes; unpack and save it again")
        data = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except (HeedError, MemoryError):
        raise
    except Exception as error:  # whatever a broken or hostile pickle leads to
        raise WeightsError(_reason(path, str(error))) from None
    tensors = dict(_named(path, _inner(data)))
    if not tensors:
        raise WeightsError(f"{path} holds no tensors by name; save model.state_dict()")
    if all(name.startswith("module.") for name in tensors):  # as wrapped for several devices
        tensors = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    claimed, size = sum(tensor.nbytes for tensor in tensors.values()), path.stat().st_size
    if claimed > GROWTH * size:
        raise WeightsError(f"{path} has {size} bytes, but its tensors {claimed}; it is not what it seems")
    return tensors


def _reason(path: Path, told: str) -> str:
    """Why torch refuses a file, without its advice to open it nevertheless."""
    called = re.search(r"GLOBAL ([\w.]+)", told)
    if called:
        return (
            f"{path} does not only hold weights: opening it would call {called[1]}, which heed never does; "
            "ask its authors for safetensors, or save model.state_dict() alone"
        )
    if told.startswith("Weights only load failed"):
        return f"{path} does not only hold weights, so heed does not open it; ask its authors for safetensors"
    if "allocate memory" in told:
        return f"{path} needs more memory than its size allows for; it is not what it seems"
    first = (told.strip().splitlines() or ["torch does not say why"])[0][:200]
    return f"{path} is not a whole file of pickled weights ({first}); copy it again"


def _inner(data: object) -> object:
    """The weights in what a training script saved."""
    for _ in range(DEEPEST):
        if not isinstance(data, Mapping) or any(isinstance(value, Tensor) for value in data.values()):
            break
        inside = [data[name] for name in INNER if isinstance(data.get(name), Mapping)]
        if not inside:
            break
        data = inside[0]
    return data


def _named(path: Path, data: object) -> Iterator[tuple[str, Tensor]]:
    """Tensors under dotted names; numbers and texts beside them are passed over."""
    pending, visited = [("", data, 0)], 0
    while pending:
        name, value, depth = pending.pop()
        visited += 1
        if visited > ENTRIES or depth > DEEPEST:
            raise WeightsError(f"{path} has more than {ENTRIES} entries, or more than {DEEPEST} levels of them")
        if isinstance(value, Tensor):
            if value.layout != torch.strided or value.is_quantized or value.is_meta:
                raise WeightsError(f"{path}: {name} is not an ordinary tensor; save it dense and not quantised")
            yield name, value.detach()
        elif isinstance(value, Mapping):
            pending += [(f"{name}.{key}" if name else str(key), inner, depth + 1) for key, inner in value.items()]


def _own(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor in memory of its own, as safetensors wants it. Those that have it already are not copied."""
    taken: set[int] = set()
    made = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage()
        alone = tensor.is_contiguous() and memory.nbytes() == tensor.nbytes and memory.data_ptr() not in taken
        taken.add(memory.data_ptr())
        made[name] = tensor if alone else tensor.contiguous().clone()
    return made
