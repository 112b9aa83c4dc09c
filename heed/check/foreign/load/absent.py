"""What stands for things that are not there: it may be imported, decorate and be a base, but it computes nothing.

While a module is being imported a stand-in lets everything pass, because most of what is done with a package at import
(decorators, registries, annotations, loggers) does not matter to an attention. Whatever is done with it during the
check would be part of the result, so that it is refused, with what to install.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ..contain.process import current
from ..errors import CannotCheck
from .packages import HARMLESS, KERNELS
from .substitutes import SUBSTITUTES
from .text import shown

LOGS = re.compile(r"(^|_|\.)(log|logger|logging|getLogger|debug|info|warn|warning|print|registry|register\w*)$")
CHANGES = re.compile(
    r"(^|\.)(vmap|pmap|grad|scan|custom_vjp|value_and_grad)$"
)  # decorators that change what is computed
SETS_UP = {"save_hyperparameters", "log", "log_dict", "post_init", "init_weights", "register_to_config"}
HERE = __file__


class Absent(CannotCheck):
    """A stand-in that was asked to compute."""


class _Phase:
    importing = 0  # how many modules are being imported, one within another


@contextmanager
def importing() -> Iterator[None]:
    """Meanwhile stand-ins let everything pass."""
    _Phase.importing += 1
    try:
        yield
    finally:
        _Phase.importing -= 1


class Stub:
    """In the place of something that is not there; `why` says so, and what to do."""

    def __init__(self, name: str, why: str, tell: Callable[[str], None] | None = None) -> None:
        self.__dict__.update(_heed_name=name, _heed_why=why, _heed_tell=tell)

    def __repr__(self) -> str:
        return f"<stand-in for {self._heed_name}>"

    def __format__(self, form: str) -> str:
        return repr(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_heed")):
            if name in {"__version__", "__name__", "__qualname__"}:
                return "0.0.0" if name == "__version__" else self._heed_name.rpartition(".")[2]
            raise AttributeError(name)  # nobody must take it for what it is not
        package = self._heed_name.partition(".")[0]
        made: Any = self._part(f"{self._heed_name}.{name}")
        if (package, name) in SUBSTITUTES:
            made, words = SUBSTITUTES[package, name]
            if self._heed_tell is not None:
                self._heed_tell(f"{self._heed_why}; here {name} is {words}")
        self.__dict__[name] = made
        return made

    def _part(self, name: str) -> Stub:
        return Stub(name, self._heed_why, self._heed_tell)

    def __call__(self, *args: Any, **options: Any) -> Any:
        package = self._heed_name.partition(".")[0]
        alone = args[0] if len(args) == 1 and not options else None
        if LOGS.search(self._heed_name) is None:
            self._used("called")
        if package == "tqdm" and args:
            return range(*args) if self._heed_name.endswith("trange") else args[0]  # what it counts
        decorates = inspect.isfunction(alone) or inspect.isclass(alone)
        if decorates and package not in KERNELS and not CHANGES.search(self._heed_name):
            return alone
        return self._part(f"{self._heed_name}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """As a base it is a module that takes any arguments, unless there is a real one beside it."""
        others = [base for base in bases if inspect.isclass(base)]
        first = next(base for base in bases if isinstance(base, Stub))
        return () if others or first is not self else (type("AbsentBase", (AbsentBase,), {"_heed_stub": self}),)

    def __instancecheck__(self, instance: Any) -> bool:
        return False  # of a class that is not there, there are no instances

    def __subclasscheck__(self, kind: type) -> bool:
        return False

    def __deepcopy__(self, memo: Any) -> Stub:
        return self

    def __copy__(self) -> Stub:
        return self

    def __bool__(self) -> bool:
        self._used("asked")
        return False

    def __len__(self) -> int:
        self._used("counted")
        return 0

    def __iter__(self) -> Iterator[Any]:
        self._used("iterated over")
        return iter(())

    def __contains__(self, item: Any) -> bool:
        self._used("searched")
        return False

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def __enter__(self) -> Stub:
        self._used("entered")
        return self

    def __exit__(self, *error: object) -> None: ...

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        stub = next(_stubs((args, kwargs or {})))
        if not _Phase.importing:  # of a logger, too: its answer would be in the result
            raise refused(stub, f"given to torch.{getattr(func, '__name__', func)}")
        return stub

    def _used(self, how: str) -> None:
        """Refuse, unless a module is being imported, or it cannot matter."""
        if not _Phase.importing and self._heed_name.partition(".")[0] not in HARMLESS:
            raise refused(self, how)


def refused(stub: Stub, how: str) -> Absent:
    """The error of a use during the check, with its place."""
    words = f"{stub._heed_name} is {how}{_place()}, but {stub._heed_why}"
    process = current()
    if process is not None:
        process.missed.append(words)
    return Absent(words)


def _operation(name: str) -> Callable[..., Any]:
    def operate(self: Stub, *others: Any) -> Any:
        self._used("computed with")
        return self._part(f"{self._heed_name}.{name}")

    return operate


_TWO = "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift"
for _name in (*_TWO.split(), *(f"r{name}" for name in _TWO.split())):
    setattr(Stub, f"__{_name}__", _operation(_name))
for _name in ("neg", "pos", "abs", "invert", "getitem", "lt", "le", "gt", "ge"):
    setattr(Stub, f"__{_name}__", _operation(_name))


class AbsentBase(nn.Module):
    """The base of a class whose own base is not there: a module without anything of its own."""

    _heed_stub: Stub

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()

    def __getattr__(self, name: str) -> Any:
        if name in SETS_UP:
            return lambda *args, **options: None
        return super().__getattr__(name)

    def forward(self, *args: Any, **options: Any) -> Any:
        raise refused(type(self)._heed_stub, "the base that would compute it")


def _place() -> str:
    """Where in the user's code the stand-in was met: the first frame that is neither here nor in torch."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename.replace("\\", "/")
        if file != HERE.replace("\\", "/") and "/torch/" not in file and "/heed/check/" not in file:
            return f" at {shown(frame.f_code.co_filename, frame.f_lineno)}"
        frame = frame.f_back
    return ""


def _stubs(value: Any) -> Iterator[Stub]:
    if isinstance(value, Stub):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _stubs(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _stubs(one)
