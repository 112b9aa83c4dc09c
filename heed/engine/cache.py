"""The program cache: what is compiled once is used again as long as all that it was written from is as it was.

Programs are kept beside a model, never in it: copies and pickles of a model carry none, and a model that is let go of
takes its programs along.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import is_
from threading import Lock
from typing import TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from ..core.torch_private import global_forward_hooks
from ..parts.look import Look
from .program import Uncompiled

T = TypeVar("T")


class Basis:
    """All that a program is written from: modules and their attributes, and where their tensors lie.

    Attributes are compared by identity, which is enough where none can be changed in place. The numbers in tensors are
    left out: programs point to them and hold no copies. What is held here stays where it is, so nothing else can come
    to lie in its place and be taken for it.
    """

    def __init__(self, read: list[object]) -> None:
        self._read = read
        self._tensors = [thing for thing in read if isinstance(thing, Tensor)]
        self._places = [tensor.detach() for tensor in self._tensors]  # the same storage, wherever tensors go

    def stands(self, read: list[object]) -> bool:
        """Whether this is the same."""
        same = len(read) == len(self._read) and all(map(is_, read, self._read))
        return same and all(map(_lies, self._tensors, self._places))


class ProgramCache:
    """The programs of a module, by what they are for."""

    def __init__(self) -> None:
        self._known: tuple[Basis, dict[Hashable, object]] | None = None  # replaced as a whole: threads may share it

    def of(self, module: nn.Module, key: Hashable, write: Callable[[], T]) -> T | Uncompiled:
        """What `write` gives, or gave; or why there is no program, or why none may run now.

        What is written must be fit for several executions at once.
        """
        read = written_from(module)
        if isinstance(read, Uncompiled):
            return read
        known = self._known
        if known is None or not known[0].stands(read):
            known = self._known = Basis(read), {}  # before anything is written: that may move tensors
        if key not in known[1]:
            try:
                known[1][key] = write()
            except Uncompiled as why:
                known[1][key] = why.with_traceback(None)  # frames would hold the module
        return known[1][key]  # type: ignore[return-value]  # what this key's `write` gave

    def holds(self, key: Hashable) -> bool:
        """Whether a program was written before, whatever has changed since."""
        known = None if self._known is None else self._known[1].get(key)
        return known is not None and not isinstance(known, Uncompiled)

    def forget(self) -> None:
        """Let go of all, and of the storage that it points to."""
        self._known = None


_CACHES: WeakKeyDictionary[nn.Module, ProgramCache] = WeakKeyDictionary()
_LOCK = Lock()


def programs(module: nn.Module) -> ProgramCache:
    """The programs of this module."""
    found = _CACHES.get(module)
    if found is None:
        with _LOCK:
            found = _CACHES.setdefault(module, ProgramCache())
    return found


def forget(model: nn.Module) -> None:
    """Let go of all programs of a model and of its parts, and of the storage that they point to."""
    with _LOCK:
        for module in model.modules():
            _CACHES.pop(module, None)


def written_from(root: nn.Module) -> list[object] | Uncompiled:
    """All that a program of this module is written from; or why calls must be made one by one.

    The root itself is left out: the cache must not keep it alive.
    """
    if global_forward_hooks():
        return Uncompiled(root, "hooks are registered on all modules")
    read: list[object] = []
    modules: list[nn.Module | None] = [root]
    for module in modules:  # which grows
        if module is None:
            continue
        own = module.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own:
            return Uncompiled(module, "a hook is registered, or `forward` is replaced")
        if isinstance(module, Look) and module.watched:
            return Uncompiled(module, "someone looks: `look` sees plain calls")
        read.append(module.__class__)
        read += own
        read += own.values()
        read += own["_parameters"].values()
        read += own["_buffers"].values()
        modules += own["_modules"].values()
    return read + modules[1:]


def _lies(tensor: Tensor, place: Tensor) -> bool:
    """Whether it is this very storage, read in the same way."""
    return tensor.is_cpu and place.is_cpu and tensor.is_set_to(place) and tensor.dtype is place.dtype
