"""Opening what a target names: a file, a notebook, a pasted text, a dotted name; each as a module."""

from __future__ import annotations

import importlib
import math
import os
import sys
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import numpy
import torch
from torch import nn

from ....core.errors import counted
from ..candidates import likely
from ..contain.process import Contained
from ..errors import CannotCheck
from .importer import OWN, OWNERS, Project, TooShallow, Wanted, ready
from .packages import remedy
from .project import Root, found, found_folder, identifier, names
from .text import CELL, Source, cells, last_place, one_line, pasted, read, shown, syntax_problem

PROJECTS: dict[Root, Project] = {}
PASTE = "-"
# What a pasted function is written against, and rarely brings along.
BESIDE = {
    "torch": torch,
    "nn": nn,
    "F": nn.functional,
    "Tensor": torch.Tensor,
    "math": math,
    "np": numpy,
    **{name: vars(typing)[name] for name in ("Any", "Callable", "Dict", "List", "Optional", "Tuple", "Union")},
}


class NoModule(CannotCheck):
    """A dotted name that is none of a module: its end may be that of a class."""


def opened(place: str, name: str, process: Contained) -> ModuleType:
    """The module that a place names; of what stands in it below the name, only what that uses is run."""
    ready()

    def wanted(sources: Sequence[Source]) -> frozenset[str]:
        return frozenset({name.partition(".")[0]}) if name else likely([source.tree for source in sources])

    if place == PASTE:
        return _pasted(process)
    path = _path(place)
    if path is None:
        module = _dotted(place, wanted)
    elif path.suffix == ".ipynb":
        module = _notebook(path, wanted)
    else:
        module = _file(path, wanted)
    project = project_of(module.__name__)
    if project is not None:
        _tell(project, module.__name__, process)
    return module


def project_of(name: str) -> Project | None:
    """The project that a module belongs to, by its name."""
    return OWNERS.get(name)


def _path(place: str) -> Path | None:
    """The file that a place names, also without its ending; a package's folder is its `__init__.py`."""
    path = Path(place).expanduser().absolute()
    for one in (path, path.with_name(f"{path.name}.py"), path / "__init__.py"):
        if one.is_file():
            return one.resolve()
    if path.suffix in {".py", ".ipynb"} or "/" in place or "\\" in place:
        raise CannotCheck(f"there is no file {place}")
    return None


def _file(path: Path, wanted: Wanted) -> ModuleType:
    home, source = Root.of_file(path), read(path)
    try:
        source.tree  # noqa: B018  # before anything is run
    except SyntaxError as error:
        raise CannotCheck(syntax_problem(error)) from None
    project = _project(home)
    for above, parts in names(path, source):
        project.targets[str(path)] = wanted
        try:
            module = project.open(path, above, parts)
        except TooShallow:  # the package begins higher
            project.forget()
            project = PROJECTS[home] = Project(home)
        except SyntaxError as error:
            raise CannotCheck(syntax_problem(error)) from None
        except ImportError as error:
            raise CannotCheck(f"{shown(str(path), None)} cannot be imported: {one_line(error)}") from error
        else:
            project.want(module.__name__, wanted([source]))  # if it was opened before, for something else
            return module
    raise CannotCheck(f"{path} imports from above the folder that it is in; name it as package.module:Name")


def _project(home: Root) -> Project:
    """The project of these folders: the one that was there, unless one of its files has changed since."""
    project = PROJECTS.get(home)
    if project is None or project.stale:
        if project is not None:
            project.forget()
        project = PROJECTS[home] = Project(home)
    return project


def _tell(project: Project, module: str, process: Contained) -> None:
    """All that is to be said of a module, also if it was opened before."""
    for words in project.notes(module):
        process.tell(words)
    script = project.scripts.get(module)
    if script is not None and script.unused:
        process.tell(f"not run, because it needs nothing of it: {counted(script.unused, 'statement')} of its file")


def _dotted(name: str, wanted: Wanted) -> ModuleType:
    """`package.module`, of the working directory or installed."""
    top, _, rest = name.partition(".")
    home = Root.of_working_directory()
    spec = found(top, home.first) or found_folder(top, [rest.partition(".")[0]] if rest else [], home.first)
    if spec is None or top in OWN:
        return _installed(name, wanted)
    return _imported(name, _project(home), spec, wanted)


def _installed(name: str, wanted: Wanted) -> ModuleType:
    """A module of a package that is installed: as Python imports it, or, if that fails, statement by statement."""
    before, top = set(sys.modules), name.partition(".")[0]
    try:
        with _explained(name):
            return importlib.import_module(name)
    except NoModule:
        raise
    except CannotCheck as error:
        spec = PathFinder.find_spec(top)
        if top in OWN or spec is None or not spec.has_location or top in before:
            raise
        for half in [other for other in sys.modules if other.partition(".")[0] == top]:
            del sys.modules[half]  # what it is made of must not be mixed with what comes now
        try:
            return _imported(name, _project(Root((), ())), spec, wanted)
        except CannotCheck:
            raise error from None


def _imported(name: str, project: Project, spec: ModuleSpec, wanted: Wanted) -> ModuleType:
    """A module as one of a project, in which what is missing is stood in for."""
    top = name.partition(".")[0]
    project.targets[name] = wanted
    with _explained(name, project):
        module = importlib.import_module(project.name_of(top, spec) + name[len(top) :])
    script = project.scripts.get(module.__name__)
    if script is not None:
        project.want(module.__name__, wanted(script.sources))
    return module


@contextmanager
def _explained(name: str, project: Project | None = None) -> Iterator[None]:
    """Whatever an import raises, with what to do or where it was raised."""
    try:
        yield
    except CannotCheck:
        raise
    except SyntaxError as error:
        raise CannotCheck(syntax_problem(error)) from None
    except ModuleNotFoundError as error:
        lacking = error.name or "" if project is None else project.seen_as(error.name or "")
        if not f"{name}.".startswith(f"{lacking}."):
            raise CannotCheck(f"{name} needs {lacking}, which is not installed; {remedy(lacking)}") from error
        words = f"there is no module {lacking}; is it installed ({remedy(lacking)}), or is it a file (.py)?"
        raise NoModule(words) from error
    except TooShallow:
        raise CannotCheck(f"{name} imports from above the working directory; go to the folder above it") from None
    except (Exception, SystemExit) as error:
        place = last_place(error.__traceback__, project.runner.sources if project else ()) or _last(error)
        raise CannotCheck(f"{name} cannot be imported: {shown(*place)}: {one_line(error)}") from error


def _last(error: BaseException) -> tuple[str, int]:
    """The innermost line of all."""
    place, trace = ("", 0), error.__traceback__
    while trace is not None:
        place, trace = (trace.tb_frame.f_code.co_filename, trace.tb_lineno), trace.tb_next
    return place


def _notebook(path: Path, wanted: Wanted) -> ModuleType:
    """All cells in one module. Each has one of its own, too, which says of what cell a class is."""
    project, texts = _project(Root.of_file(path)), cells(path)
    digest = sha256(str(path).encode()).hexdigest()[:8]
    main = _fresh(f"heed_checked_{digest}_{identifier(path.stem)}", str(path), project)
    right = []
    for text in texts:
        try:
            text.tree  # noqa: B018  # before anything is run
        except SyntaxError as error:
            project.note(f"{syntax_problem(error)}; the cell was skipped", main.__name__)
        else:
            right.append((text, f"{main.__name__}_{identifier(text.file.rpartition(CELL)[2])}"))
    parts = [_fresh(name, text.file, project) for text, name in right]
    os.chdir(path.parent)  # as Jupyter does; it is put back with all other settings
    project.run(right, main, wanted([text for text, _ in right]))
    vars(main)["__heed_parts__"] = tuple(part.__name__ for part in parts)
    for part in parts:
        vars(part).update({**vars(main), "__name__": part.__name__, "__file__": part.__file__})
    return main


def _pasted(process: Contained) -> ModuleType:
    source = pasted(process.stdin.read() if process.stdin is not None else "")
    project = _project(Root.of_working_directory())
    module = _fresh("heed_checked_stdin", source.file, project)
    vars(module).update(BESIDE)
    try:
        project.run([(source, module.__name__)], module, None)
    except SyntaxError as error:
        raise CannotCheck(syntax_problem(error)) from None
    return module


def _fresh(name: str, file: str, project: Project) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    OWNERS[name] = project
    return module
