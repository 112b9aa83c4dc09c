"""The imports of strangers' modules: each sees its own project first, and nobody else sees it.

A module of a project has builtins of its own with an `__import__` of its own. What it imports is looked for in the
folders of the project; what torch, the standard library or heed import never is. So a `random.py` or `tokenizers.py`
beside an attention breaks nothing, a `utils` of one project is not taken for that of another, and imports inside
functions work as long as the module lives. A name that is taken already is kept apart under a longer one.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from ..contain.process import current
from .missing import Elsewhere, Import
from .project import Root, folder_spec, found, found_folder, identifier, installed, same_file
from .statements import Runner, Script, caught_above
from .text import Source, read, syntax_problem

Wanted = Callable[[Sequence[Source]], frozenset[str]]  # names, of texts
TOLD = 4  # notes on one module, at most
OWN = frozenset(sys.stdlib_module_names) | {"torch"}  # never a stranger's, whatever lies beside the file


class TooShallow(BaseException):
    """A relative import climbs out of the package: the package begins higher. Not for the user's own `except`."""


class Project:
    """Modules that are imported together: how they are found, run, and what is missing."""

    def __init__(self, home: Root) -> None:
        self.home, self.runner = home, Runner()
        self.real: dict[str, str] = {}  # what its files call a module -> what it is called in `sys.modules`
        self.scripts: dict[str, Script] = {}  # by module
        self.targets: dict[str, Wanted] = {}  # files and modules of which only some names are wanted
        self.stamps: dict[Path, tuple[int, int]] = {}  # of the files that were read
        self._notes: dict[str, list[str]] = {}  # by module
        self._needs: dict[str, set[str]] = {}  # what a module imports of the project
        self._path, self._added = list(sys.path), dict[Path, None]()
        self._builtins = {**vars(builtins), "__import__": self.import_, "display": _nothing, "get_ipython": _nothing}

    def note(self, words: str, module: str) -> None:
        """Something to say whenever something of this module, or of one that needs it, is checked."""
        self._notes.setdefault(module, []).append(words)
        process = current()
        if process is not None:
            process.tell(words)

    def notes(self, module: str) -> list[str]:
        """What is to be said of a module and all that it needs."""
        reached, left = dict[str, None](), [module]
        while left:
            name = left.pop()
            if name not in reached:
                reached[name] = None
                left += [*self._needs.get(name, ()), *([name.rpartition(".")[0]] if "." in name else [])]
        return [words for name in reached for words in self._notes.get(name, [])]

    @property
    def stale(self) -> bool:
        """Whether a file was changed since it was read."""
        return any(stamp != _stamp(path) for path, stamp in self.stamps.items())

    def seen_as(self, name: str) -> str:
        """What its files call a module, which may be kept under a longer name."""
        top, dot, rest = name.partition(".")
        return next((own for own, real in self.real.items() if real == top), top) + dot + rest

    def forget(self) -> None:
        """Take its modules out of Python's table."""
        for name in [name for name, owner in OWNERS.items() if owner is self]:
            OWNERS.pop(name)
            sys.modules.pop(name, None)

    def run(self, texts: Sequence[tuple[Source, str]], module: ModuleType, wanted: frozenset[str] | None) -> None:
        """Texts as one module of this project; `wanted` is what is to be checked of it, None if all of it is used."""
        vars(module)["__builtins__"] = self._builtins
        script = self.scripts[module.__name__] = self.runner.script(texts, vars(module))
        with self._noted(script, module.__name__):
            script.run(wanted)

    def run_file(self, module: ModuleType, path: Path) -> None:
        """A module of its own file."""
        self.stamps[path] = _stamp(path)
        wanted = self.targets.get(str(path)) or self.targets.get(self.seen_as(module.__name__))
        try:
            source = read(path)
            vars(module)["__doc__"] = ast.get_docstring(source.tree, clean=False)
            self.run([(source, module.__name__)], module, wanted([source]) if wanted is not None else None)
        except SyntaxError as error:
            if path.name != "__init__.py":
                raise
            self.note(f"{syntax_problem(error)}; the package is taken without it", module.__name__)

    def want(self, module: str, names: Iterable[str] | None) -> None:
        """Run what of a module still waits and these names, or all, need."""
        script = self.scripts.get(module)
        if script is None:
            return
        with self._noted(script, module):
            if names is None:
                script.want_all()
            else:
                script.want(names)

    @contextmanager
    def _noted(self, script: Script, module: str) -> Iterator[None]:
        """Tell what was skipped, but no more than a reader will read; keep that and all else for the next time."""
        process = current()
        before = process.told if process is not None else ()
        try:
            yield
        finally:
            self._remember_path()
            if process is not None:  # what was refused, waived or moved to the CPU
                self._notes.setdefault(module, []).extend(process.told[len(before) :])
            many, script.skipped = script.skipped, []
            for words in many[:TOLD]:
                self.note(words, module)
            if len(many) > TOLD:
                self.note(f"{many[0].partition(' ')[0]} and others: {len(many) - TOLD} more were skipped", module)

    def open(self, path: Path, above: Path, parts: Sequence[str]) -> ModuleType:
        """A file as the module of this dotted name, whose outermost package lies in a folder."""
        if len(parts) == 1 and path.name != "__init__.py":
            return self._alone(path)
        top = parts[0]
        spec = found(top, [above]) if "." not in top else None
        name = self.name_of(top, spec or folder_spec(top, [above / top]))
        module = importlib.import_module(".".join((name, *parts[1:])))
        return module if same_file(module.__file__, str(path)) else self._alone(path, f"{module.__package__}.")

    def _alone(self, path: Path, package: str = "") -> ModuleType:
        """A file that is in no package, or beside a package of its name."""
        top = path.stem if not package else f"{package}{path.stem}_py"
        there = sys.modules.get(self.real.get(top, ""))
        if there is None or not same_file(there.__file__, str(path)):
            name = identifier(path.stem)
            spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
            assert spec is not None
            self.real.pop(top, None)
            self._top(top, spec)
        return sys.modules[self.real[top]]

    def name_of(self, top: str, spec: ModuleSpec) -> str:
        """What an outermost module is called in Python's table; it is loaded if it was not."""
        if top not in self.real:
            self._top(top, spec, target=True)
        return self.real[top]

    def _top(self, top: str, spec: ModuleSpec, target: bool = False) -> None:
        """Load an outermost module under its own name, or, if that is taken, under a longer one."""
        there = sys.modules.get(top)
        if there is not None and top not in OWNERS and same_file(getattr(there, "__file__", None), spec.origin):
            self.real[top] = top  # the user's own process has it already
            return
        taken = there is not None or top in OWN or (not target and installed(top, self.home))
        name = identifier(top)
        if taken:
            name = f"heed_checked_{sha256(repr(self.home).encode()).hexdigest()[:8]}_{name}"
        self.real[top] = name
        FINDER.pending[name] = self.adopted(_renamed(spec, name))
        try:
            importlib.import_module(name)
        except BaseException:
            self.real.pop(top)
            OWNERS.pop(name, None)
            raise

    def adopted(self, spec: ModuleSpec) -> ModuleSpec:
        """A module as one of this project."""
        OWNERS[spec.name] = self
        if isinstance(spec.loader, SourceFileLoader) and spec.origin is not None:
            spec.loader = Loader(spec.name, spec.origin, self)
        return spec

    def import_(
        self,
        name: str,
        globals: Any = None,  # as Python names them
        locals: Any = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """`__import__`, as the files of this project see it."""
        wanted, importer = tuple(fromlist or ()), str((globals or {}).get("__name__", ""))
        asked = Import("." * level + name, wanted, partial(self.note, module=importer), self.home, OWNERS)
        try:
            real = name if level else self._placed(name, wanted, (globals or {}).get("__file__"))
            module = builtins.__import__(real, globals, locals, wanted, level)
        except ImportError as error:
            if caught_above(error, self.runner.sources):
                raise
            if "relative import" in str(error):
                raise TooShallow from error
            return asked.absent(error, sys.modules.get(self.real.get(asked.top, asked.top)))
        except Exception as error:  # a package of others that is broken, or wants what is not here
            if self._owns(name, level) or caught_above(error, self.runner.sources):
                raise
            return asked.absent(error, sys.modules.get(self.real.get(asked.top, asked.top)))
        if module.__name__ in OWNERS:
            self.want(module.__name__, None if wanted in ((), ("*",)) else wanted)
            within = [f"{module.__name__}.{part}" for part in (*wanted, *name.split(".")[1:])]
            self._needs.setdefault(importer, set()).update({module.__name__, *within} & OWNERS.keys())
        guarded = partial(caught_above, ImportError(), self.runner.sources)
        return asked.complete(module, self.seen_as(module.__name__), guarded)

    def _owns(self, name: str, level: int) -> bool:
        return level > 0 or name.partition(".")[0] in self.real

    def _placed(self, name: str, wanted: tuple[str, ...], importer: str | None) -> str:
        """The name under which Python's own import finds what a file of this project asks for."""
        top, dot, rest = name.partition(".")
        if top in OWN and top not in self.real:
            return name
        mine = self.real.get(top)
        there = sys.modules.get(mine or "")
        if mine is not None and (
            hasattr(there, "__path__") or not same_file(getattr(there, "__file__", None), importer)
        ):
            return f"{mine}{dot}{rest}"
        spec = self._found(top, [rest.partition(".")[0]] if rest else wanted, importer)
        if spec is not None:
            self._top(top, spec)
            return f"{self.real[top]}{dot}{rest}"
        if mine == top:  # `flash_attn.py` means the package of that name, not itself
            raise Elsewhere(f"No module named {name!r}", name=name)
        return name

    def _remember_path(self) -> None:
        """Folders that its files add to Python's path: it is put back, and imports inside functions come later."""
        self._added |= {Path(place).resolve(): None for place in sys.path if place not in self._path}

    def _found(self, top: str, inside: Sequence[str], importer: str | None) -> ModuleSpec | None:
        self._remember_path()
        first = [*self.home.first, *self._added]
        last = [*self.home.last, *([Path(importer).parent] if importer else [])]
        spec = found(top, first, importer) or found_folder(top, inside, first)
        if spec is not None or installed(top, self.home):
            return spec
        return found(top, last, importer) or found_folder(top, inside, last)


OWNERS: dict[str, Project] = {}  # of modules in Python's table


class Loader(SourceFileLoader):
    """Runs a file of a project; writes no bytecode beside it."""

    def __init__(self, name: str, path: str, project: Project) -> None:
        super().__init__(name, path)
        self.project = project

    def exec_module(self, module: ModuleType) -> None:
        self.project.run_file(module, Path(self.path))


class Finder(MetaPathFinder):
    """Finds what lies inside packages of projects, and what a project has just found itself."""

    def __init__(self) -> None:
        self.pending: dict[str, ModuleSpec] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name in self.pending:
            return self.pending.pop(name)
        project = OWNERS.get(name.rpartition(".")[0])
        if project is None or path is None:
            return None
        spec = PathFinder.find_spec(name, path)
        return None if spec is None else project.adopted(spec)


class LastFinder(MetaPathFinder):
    """Finds what nobody else does for `importlib.import_module`, where a file of a project calls it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        for project in set(OWNERS.values()) if frame is not None and path is None else ():
            if frame is not None and frame.f_code.co_filename in project.runner.sources:
                spec = found(name, project.home.folders)
                project.real |= {} if spec is None else {name: name}
                return None if spec is None else project.adopted(spec)
        return None


FINDER, LAST = Finder(), LastFinder()


def ready() -> None:
    """Have Python ask for what lies inside strangers' packages, and look at its folders afresh."""
    if FINDER not in sys.meta_path:
        sys.meta_path[:] = [FINDER, *sys.meta_path, LAST]
    importlib.invalidate_caches()


def _renamed(spec: ModuleSpec, name: str) -> ModuleSpec:
    if spec.origin is None or spec.loader is None:
        return folder_spec(name, spec.submodule_search_locations or [])
    loader = SourceFileLoader(name, spec.origin) if isinstance(spec.loader, SourceFileLoader) else spec.loader
    found = importlib.util.spec_from_file_location(
        name, spec.origin, loader=loader, submodule_search_locations=spec.submodule_search_locations
    )
    assert found is not None
    return found


def _stamp(path: Path) -> tuple[int, int]:
    try:
        told = path.stat()
    except OSError:
        return (0, 0)
    return told.st_mtime_ns, told.st_size


def _nothing(*args: Any, **options: Any) -> None:
    """What a notebook has beside Python."""
