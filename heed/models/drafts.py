"""Programs that are written once and used again, as long as all that they were written from is as it was."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import is_
from typing import Self, TypeVar

from torch import Tensor, nn
from torch.nn.modules import module as hooks

from ..kernels.program import Unknown
from ..parts.look import Look

Script = TypeVar("Script")


class Basis:
    """All that a program is written from: modules and their attributes, and where their tensors lie.

    Attributes are compared by identity, which is enough where none can be changed in place. The numbers in tensors are
    left out: programs point to them and hold no copies. What is held here stays where it is, so nothing else can come
    to lie in its place and be taken for it.
    """

    def __init__(self, told: list[object]) -> None:
        self._told = told
        self._tensors = [thing for thing in told if isinstance(thing, Tensor)]
        self._places = [tensor.detach() for tensor in self._tensors]  # the same memory, wherever tensors go

    def stands(self, told: list[object]) -> bool:
        """Whether this is the same."""
        same = len(told) == len(self._told) and all(map(is_, told, self._told))
        return same and all(map(_lies, self._tensors, self._places))


class Drafts:
    """The programs of a module, by what they are for. Copies of the module begin with none."""

    def __init__(self) -> None:
        self._known: tuple[Basis, dict[Hashable, object]] | None = None  # replaced as a whole: threads may share it

    def of(self, module: nn.Module, key: Hashable, write: Callable[[], Script]) -> Script | None:
        """What `write` gives, or gave; None if it meets something `Unknown`, or if calls must be made one by one.

        What is written must be fit for several runs at once.
        """
        told = _told(module)
        if told is None:
            return None
        known = self._known
        if known is None or not known[0].stands(told):
            known = self._known = Basis(told), {}  # before anything is written: who writes may move tensors
        if key not in known[1]:
            try:
                known[1][key] = write()
            except Unknown:
                known[1][key] = None
        return known[1][key]  # type: ignore[return-value]  # what this key's `write` gave

    def holds(self, key: Hashable) -> bool:
        """Whether it was written before, whatever has changed since."""
        return self._known is not None and self._known[1].get(key) is not None

    def forget(self) -> None:
        """Let go of all, and of the memory that it points to."""
        self._known = None

    def __reduce__(self) -> tuple[type[Drafts], tuple[()]]:
        return Drafts, ()


class Drafted(nn.Module):
    """A module that programs are written of."""

    def __init__(self) -> None:
        super().__init__()
        self.drafts = Drafts()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.drafts.forget()  # tensors move: nothing is to hold where they were
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


def _told(root: nn.Module) -> list[object] | None:
    """What a program of this module is written from; None if somebody looks, is told of calls or answers them."""
    if hooks._global_forward_hooks or hooks._global_forward_pre_hooks:
        return None
    told: list[object] = []
    modules: list[nn.Module | None] = [root]
    for module in modules:  # which grows
        if module is None:
            continue
        own = module.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own or _watched(module):
            return None
        told.append(module.__class__)
        told += own
        told += own.values()
        told += own["_parameters"].values()
        told += own["_buffers"].values()
        modules += own["_modules"].values()
    return told + modules


def _watched(module: nn.Module) -> bool:
    return isinstance(module, Look) and module.watched


def _lies(tensor: Tensor, place: Tensor) -> bool:
    """Whether it is this very memory, read in the same way."""
    return tensor.is_cpu and place.is_cpu and tensor.is_set_to(place) and tensor.dtype is place.dtype
