"""`compile(model)`: the same model for use, in which every stack is a compiled one.

A shadow is a shallow copy of the modules between the root and each stack; all parts and parameters are the model's own.
It has the model's class and methods, so nested stacks (encoder-decoders, Whisper, CLIP) need no code of their own.
Dropping it leaves the plain model as it was.
"""

from __future__ import annotations

from operator import is_
from threading import Lock
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..core.contract import Where
from ..models.block import States
from ..models.stack import Stack
from .emit.table import name_of
from .passes import passed
from .varlen import pays, varlen

M = TypeVar("M", bound=nn.Module)

STACK = "heed.models.stack:Stack"  # this very class: a subclass may compute something else


class CompiledStack(Stack):
    """A stack whose calls run as programs without gradients, and as varlen rows where there is padding.

    It shares all parts with the plain stack, and asks that one what there is to do: an edit is followed at once.
    """

    plain: Stack

    def __init__(self, plain: Stack) -> None:
        self.__dict__ = {**plain.__dict__, "plain": plain}  # beside `_modules`: it is no part of this one

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        plain = self.plain
        done = passed(plain, x, where, state)
        if done is not None:
            return done
        if state is None and pays(plain, where):
            return varlen(plain, x, where), None
        return plain.forward(x, where, state)

    def train(self, mode: bool = True) -> CompiledStack:
        self.plain.train(mode)
        super().train(mode)
        return self


class _Shadow:
    """A shadow, and the modules that were copied for it as they were."""

    def __init__(self, model: nn.Module) -> None:
        self._copied: list[tuple[nn.Module | None, list[object]]] = []
        copied = _copied(model, self._copied, root=True)
        self.model: nn.Module | None = copied

    def stands(self, model: nn.Module) -> bool:
        """Whether these modules are what they were. The root itself is not held: the cache must not keep it alive."""
        return all(_same(_read(module or model), before) for module, before in self._copied)


_SHADOWS: WeakKeyDictionary[nn.Module, _Shadow] = WeakKeyDictionary()
_LOCK = Lock()


def compile(model: M) -> M:  # as torch calls it
    """A shadow of this model: the same class, the same parameters, its stacks compiled.

    Without gradients its stacks run as programs where their parts have emitters; what has none runs as plain calls.
    With gradients padded rows are computed without their padding. A shadow is made once, and again after the model has
    changed; a model without a stack is its own.
    """
    if torch.compiler.is_compiling() or isinstance(model, CompiledStack):
        return model
    if name_of(type(model)) == STACK:
        return cast(M, CompiledStack(cast(Stack, model)))
    found = _SHADOWS.get(model)
    if found is None or not found.stands(model):
        found = _Shadow(model)
        with _LOCK:
            _SHADOWS[model] = found
    return model if found.model is None else cast(M, found.model)


def _copied(
    module: nn.Module, copied: list[tuple[nn.Module | None, list[object]]], *, root: bool = False
) -> nn.Module | None:
    """A copy with compiled stacks below it; None if there is none below."""
    if name_of(type(module)) == STACK:
        copied.append((module, _read(module)))
        return CompiledStack(cast(Stack, module))
    if isinstance(module, CompiledStack):
        return None  # a shadow is not compiled again
    changed = {
        name: twin
        for name, child in module._modules.items()
        if child is not None and (twin := _copied(child, copied)) is not None
    }
    if changed or root:
        copied.append((None if root else module, _read(module)))
    if not changed:
        return None
    twin = object.__new__(type(module))
    twin.__dict__ = {**module.__dict__, "_modules": {**module._modules, **changed}}
    return twin


def _read(module: nn.Module) -> list[object]:
    own: dict[str, Any] = module.__dict__
    children = own["_modules"]
    return [module.__class__, *own, *own.values(), *children, *children.values()]


def _same(now: list[object], before: list[object]) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))
