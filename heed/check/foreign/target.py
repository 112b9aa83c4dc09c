"""Finding what is to be checked: `path/to/file.py:Name`, `notebook.ipynb:Name`, `package.module:Name`, `-` (pasted)."""

from __future__ import annotations

import difflib
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from .candidates import candidates, defined
from .contain.cuda import asks_for_gpu, on_cpu
from .contain.process import Contained, contained
from .contain.restore import restored
from .errors import CannotCheck
from .load.absent import Stub
from .load.opened import NoModule, opened, project_of

__all__ = ["CannotCheck", "Located", "checkpoint_model", "explained", "locate", "locate_module", "wants_gpu"]
FORMS = "write path/to/file.py:Name, notebook.ipynb:Name, package.module:Name, or - for what comes on standard input"


@dataclass(frozen=True)
class Located:
    """What a target names, and what had to be done, or left out, to get at it."""

    found: Any
    notes: tuple[str, ...] = ()


def locate(target: str) -> Located:
    """The class or function that a target names. Its module is run: foreign code in this process.

    Without a name it is the one thing in the module that looks like attention.
    """
    place, name = _split(target)
    with contained() as process:
        try:
            module = _opened(place, name, process)
        except NoModule:
            if name or "." not in place:
                raise
            place, _, name = place.rpartition(".")  # torch.nn.MultiheadAttention
            module = _opened(place, name, process)
        try:
            found = _named(module, place, name) if name else _only(module, place)
        except CannotCheck as error:
            raise explained(error, process, doubt=True) from None
    return Located(found, process.notes)


def locate_module(place: str) -> Located:
    """The module of a file, a notebook or a dotted name: what `candidates` takes."""
    with contained() as process:
        module = _opened(place, "", process)
    return Located(module, process.notes)


def explained(error: CannotCheck, process: Contained, doubt: bool = False) -> CannotCheck:
    """A refusal with what may have led to it: first what is not installed, then, if in doubt, what was skipped."""
    missed = list(dict.fromkeys(process.missed))[:3]
    told = [*missed, str(error).splitlines()[0] if missed else str(error)]
    if doubt or any(word in str(error) for word in ("NameError", "stand-in", "Stub", "has no attribute")):
        told += [words for words in process.notes if "skipped" in words or "stubbed" in words][:8]
    return CannotCheck("\n  ".join(dict.fromkeys(told)))


def wants_gpu(found: Any) -> bool:
    """Whether the source of a target, or of what is imported with it, asks for a GPU."""
    kind = type(found) if isinstance(found, nn.Module) else found
    project = project_of(str(getattr(kind, "__module__", "")))
    if project is not None:
        return any(asks_for_gpu(source.text) for source in project.runner.sources.values())
    module = inspect.getmodule(kind)
    if module is None or module.__name__.startswith("torch."):  # torch itself asks where its inputs are
        return False
    try:
        return asks_for_gpu(inspect.getsource(module))
    except (OSError, TypeError):
        return False


def _split(target: str) -> tuple[str, str]:
    """Place and name; `::` of pytest does too, and a drive of Windows is no place."""
    place, colon, name = target.rpartition(":")
    if not colon or "/" in name or "\\" in name:
        place, name = target, ""
    place = place.rstrip(":")
    if not place or (not name and place.isidentifier()):
        raise CannotCheck(f"{target!r} names no class or function; {FORMS}, or give the folder of a checkpoint")
    return place, name


def _opened(place: str, name: str, process: Contained) -> ModuleType:
    with restored(), on_cpu(process.tell):
        sys.argv[:] = [place]
        return opened(place, name, process)


def _named(module: ModuleType, place: str, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)  # also of a package that imports its names when they are asked for
        except AttributeError:
            raise CannotCheck(f"{place} has no {part!r}{_near(part, _public(module))}") from None
    if isinstance(found, Stub):
        raise CannotCheck(f"{place} does not give {name!r}: {found._heed_why}")
    return found


def _only(module: ModuleType, place: str) -> Any:
    """The one thing in a module that looks like attention; in the user's own file, the one thing that there is."""
    there = [one.name for one in candidates(module)]
    if not there and project_of(module.__name__) is not None:
        there = [name for name, _ in defined(module)]
    if len(there) == 1:
        return getattr(module, there[0])
    if not there:
        raise CannotCheck(f"{place!r} names no class or function, and nothing in it looks like attention; {FORMS}")
    listed = "\n  ".join(f"{place}:{name}" for name in there[:20])
    raise CannotCheck(f"{place} has several classes and functions that could be checked; name one:\n  {listed}")


def _public(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def _near(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1, 0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; it has {', '.join(sorted(names)[:12])}" if names else ""


def checkpoint_model(folder: Path) -> nn.Module:
    """The model of a checkpoint's folder, by the reference library; no code of the folder is run."""
    try:
        import transformers
    except ImportError:
        raise CannotCheck("checking a checkpoint's folder needs transformers; run: pip install transformers") from None
    import json

    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CannotCheck(f"{folder} is no checkpoint's folder: {error}") from error
    if "model_type" not in config:
        raise CannotCheck(
            f"{folder} is not of transformers; if heed wrote it: heed.check(heed.load({str(folder)!r}).model)"
        )
    name = (config.get("architectures") or ["AutoModelForCausalLM"])[0]
    kind = getattr(transformers, name, None)
    if kind is None:
        raise CannotCheck(f"{folder} holds a {name}, which transformers {transformers.__version__} does not have")
    try:
        return kind.from_pretrained(folder, use_safetensors=True, trust_remote_code=False)  # type: ignore[no-any-return]
    except Exception as error:
        raise CannotCheck(f"{folder} cannot be loaded: {type(error).__name__}: {error}") from error
