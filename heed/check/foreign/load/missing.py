"""What an import gives where something is missing: stand-ins, or what torch and Python have in its place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .absent import Stub
from .packages import listed, remedy
from .project import Root, installed
from .substitutes import MOVED, SUBSTITUTES
from .text import one_line, syntax_problem


class Elsewhere(ModuleNotFoundError):
    """A file that imports what is called like itself: a package that is not installed."""


@dataclass(frozen=True)
class Import:
    """One import of a project's file: `from name import wanted`, or `import name`."""

    name: str  # with the dots of a relative import
    wanted: tuple[str, ...]
    note: Callable[[str], None]
    home: Root
    owned: Container[str]  # modules of projects

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    def absent(self, error: Exception, there: ModuleType | None) -> Any:
        """What stands for a module that cannot be imported; `there` is the package that it would be in."""
        told = self._why(error)
        whole = not self.name.startswith(".") and (isinstance(error, Elsewhere) or self.top not in sys.modules)
        subject = self.top if whole else self.name
        leaf = Stub(self.name, f"{subject} is {told}", self.note)
        vars(leaf).update({name: MOVED[self.name, name] for name in self.wanted if (self.name, name) in MOVED})
        ours = {name: SUBSTITUTES[self.top, name] for name in self.wanted if (self.top, name) in SUBSTITUTES}
        vars(leaf).update({name: value for name, (value, _) in ours.items()})
        if ours:
            words = ", ".join(f"{name} is {words}" for name, (_, words) in ours.items())
            self.note(f"{subject} is {told}; here {words}")
        if self.wanted in ((), ("*",)) or any(isinstance(getattr(leaf, name), Stub) for name in self.wanted):
            self.note(f"stubbed: {subject} ({told})")
        if self.wanted or "." not in self.name.lstrip("."):
            return leaf
        if there is None:
            return Stub(self.top, leaf._heed_why, self.note)
        inner = self.name.split(".")[1]
        return _with(there, {inner: Stub(f"{self.top}.{inner}", leaf._heed_why, self.note)})

    def complete(self, module: Any, name: str, guarded: Callable[[], bool]) -> Any:
        """A module with stand-ins for names that it does not have, unless the user's code is ready for that."""
        if not self.wanted or getattr(getattr(module, "__spec__", None), "_initializing", False):
            return module  # in a circle of imports Python itself says what is missing
        extra: dict[str, Any] = {}
        for part in self.wanted:
            if part == "*" or f"{module.__name__}.{part}" in sys.modules:
                continue
            try:
                getattr(module, part)
            except Exception as error:  # a module that imports its names when they are asked for
                if (name, part) in MOVED:
                    extra[part] = MOVED[name, part]
                elif not guarded():
                    extra[part] = self._lacking(f"{name}.{part}", module.__name__, error)
        return _with(module, extra) if extra else module

    def _lacking(self, name: str, module: str, error: Exception) -> Stub:
        where = "that file" if module in self.owned else f"the version of {self.top} that is installed"
        told = f"not in {where}" if isinstance(error, AttributeError) else f"of no use: {one_line(error)}"
        self.note(f"stubbed: {name} ({told})")
        return Stub(name, f"{name} is {told}", self.note)

    def _why(self, error: Exception) -> str:
        """What the module is: not installed, not there, broken."""
        if isinstance(error, SyntaxError):
            return f"there, but cannot be imported: {syntax_problem(error)}"
        if not isinstance(error, ModuleNotFoundError) or error.name is None:
            return f"there, but cannot be imported: {one_line(error)}"
        top = error.name.partition(".")[0]
        if isinstance(error, Elsewhere) or listed(error.name):
            return f"not installed; {remedy(error.name)}"
        if top in self.owned or self.name.startswith("."):
            return "not in the project"
        if top in sys.modules or installed(top, self.home):
            return f"not in the version of {top} that is installed"
        if top != self.top:
            return f"of no use without {error.name}, which is not installed; {remedy(error.name)}"
        return f"not installed; {remedy(self.name)}"


def _with(module: Any, extra: dict[str, Any]) -> ModuleType:
    """A module with more names; all others are its own."""
    made = ModuleType(module.__name__)
    vars(made).update(extra, __getattr__=lambda name: getattr(module, name))
    return made
