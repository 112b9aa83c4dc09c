"""`explain(model)`: what of a model runs as a program, what as plain calls, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..core.interfaces import LanguageModel
from ..kernels.abi import Matrix, Weights
from ..kernels.build import library, why_none
from ..kernels.linear import matrix
from ..models.block import Block
from ..models.stack import Stack
from .cache import written_from
from .compiled import DecoderProgram, decoder_of
from .emit.table import EMIT, name_of, why_not
from .passes import CompiledPass, Kind
from .program import Uncompiled
from .runners import in_training, resting
from .shadow import STACK, CompiledStack

if TYPE_CHECKING:
    from torch import nn

    from ..core.config import Config


@dataclass(frozen=True)
class Line:
    """One thing of a model: its name in the module tree, whether it is compiled, and why not."""

    name: str
    what: str
    compiled: bool
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name or 'model'} ({self.what}): {'compiled' if self.compiled else f'plain, {self.why}'}"


@dataclass(frozen=True)
class Report:
    """What is compiled: every stack and block, and the steps of a decoder."""

    lines: tuple[Line, ...]

    @property
    def compiled(self) -> bool:
        """Whether all of it is; of nothing, nothing is."""
        return bool(self.lines) and all(line.compiled for line in self.lines)

    def plain(self) -> list[dict[str, Any]]:
        """For machines."""
        return [asdict(line) for line in self.lines]

    def __str__(self) -> str:
        """Whole stacks in one line each; blocks only where they differ."""
        return "\n".join(map(str, self.lines)) or "plain: it has no stack that could be compiled"


def explain(model: nn.Module) -> Report:
    """What `compile` and `runner` make of a model as it is now, without running anything."""
    return Report((*_stacks(model), *_steps(model)))


def has_emitter(config: type[Config]) -> bool:
    """Whether what a configuration builds is compiled: its class has an emitter."""
    return f"{config.__module__}:{config.__qualname__.removesuffix('.Config')}" in EMIT


def _stacks(model: nn.Module) -> Iterator[Line]:
    for name, module in model.named_modules():
        if isinstance(module, Stack):
            yield from _stack(name, module.plain if isinstance(module, CompiledStack) else module)


def _stack(name: str, stack: Stack) -> Iterator[Line]:
    what, whole = type(stack).__name__, _never(stack)
    if whole is None and name_of(type(stack)) != STACK:
        whole = Uncompiled(stack, why_not({STACK: explain}, type(stack)))
    if whole is not None:
        yield Line(name, what, compiled=False, why=str(whole))
        return
    kind = Kind(width=stack.width, short=True, keeps=False)
    try:
        reasons = CompiledPass(stack, kind).reasons
    except Uncompiled as why:
        reasons = [why] * len(stack.layers)
    if not any(reasons):
        yield Line(name, what, compiled=True)
        return
    for place, (block, reason) in enumerate(zip(stack.layers, reasons, strict=True)):
        at = f"{name}.blocks.{stack.order[place]}".lstrip(".")
        yield Line(at, _named(block), compiled=reason is None, why="" if reason is None else str(reason))


class _Trial(DecoderProgram):
    """A program that is written and never run: weights stay where they are."""

    def float32(self, layer: nn.Linear) -> Matrix:
        return matrix(Weights.FLOAT32, layer.weight, None, layer.bias, layer.out_features, layer.in_features)


def _steps(model: nn.Module) -> Iterator[Line]:
    """Of a model that generates."""
    if not isinstance(model, LanguageModel):
        return
    decoder = decoder_of(model)
    why = decoder if isinstance(decoder, Uncompiled) else _never(decoder)
    if why is None and not isinstance(decoder, Uncompiled):
        with resting(in_training(decoder)):
            try:
                _Trial(decoder)
            except Uncompiled as found:
                why = found
    yield Line("", "steps", compiled=why is None, why="" if why is None else str(why))


def _never(module: nn.Module) -> Uncompiled | None:
    """Why none of it is compiled now."""
    if library() is None:
        return Uncompiled(module, f"there are no kernels: {why_none()}")
    first = next(module.parameters(), None)
    if first is not None and (first.dtype != torch.float32 or not first.is_cpu):
        return Uncompiled(module, f"{first.dtype} on {first.device}; float32 on the CPU is compiled")
    read = written_from(module)
    return read if isinstance(read, Uncompiled) else None


def _named(block: Block) -> str:
    return " + ".join(type(part).__name__ for part in block.parts)
