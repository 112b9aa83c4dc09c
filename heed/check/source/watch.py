"""Watching the user's code run: every operation of torch, and the expression that asked for it.

The trace tells what a line really did: which product made the scores, by what they were divided, which tensor a mask
came from. The expression tells where to write something else. Nothing is guessed from the names of variables.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .code import Code
from .home import Home

MANY = 20_000  # operations after which no more are noted
MODELS = {"to", "type_as", "expand_as", "view_as", "reshape_as"}  # take shape or dtype of their second tensor
LIKE = {"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"}  # of their first
UNKNOWN = object()
Positions = tuple[int | None, int | None, int | None, int | None]


@dataclass(frozen=True, eq=False)
class Place:
    """An expression that was being computed, and what was known there."""

    code: Code
    node: ast.AST
    scope: Mapping[str, Any]  # local names
    known: Mapping[str, Any]  # global names

    def value(self, node: ast.AST | None) -> Any:
        """What a name, or an attribute of a module, is here; UNKNOWN for anything that would have to be computed."""
        match node:
            case ast.Name(id=name):
                return self.scope.get(name, self.known.get(name, UNKNOWN))
            case ast.Constant(value=value):
                return value
            case ast.Attribute(value=inner, attr=attr):
                base = self.value(inner)
                plain = isinstance(base, ModuleType | nn.Module)
                return getattr(base, attr, UNKNOWN) if plain else UNKNOWN
        return UNKNOWN

    def evaluated(self, node: ast.AST | None) -> Any:
        """What an expression of sizes and numbers is here, computed again; UNKNOWN if it might do more than that."""
        if not isinstance(node, ast.expr) or not all(map(self._plain, ast.walk(node))):
            return UNKNOWN
        try:
            compiled = compile(ast.Expression(node), "<size>", "eval")
            return eval(compiled, dict(self.known), dict(self.scope))
        except Exception:  # foreign objects may raise anything
            return UNKNOWN

    def _plain(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            return name in {"sqrt", "size", "dim", "float", "int", "len", "pow", "tensor", "log", "exp"}
        ways = ast.expr_context | ast.operator | ast.unaryop | ast.keyword | ast.Slice
        return isinstance(
            node, ways | ast.Name | ast.Attribute | ast.Constant | ast.BinOp | ast.UnaryOp | ast.Subscript | ast.Tuple
        )

    @property
    def owner(self) -> nn.Module | None:
        """The module whose method this is."""
        found = self.scope.get("self")
        return found if isinstance(found, nn.Module) else None

    def words(self, node: ast.AST) -> str:
        return self.code.words(node)


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor that an operation was given."""

    tensor: Tensor
    shape: tuple[int, ...]  # as it was then
    maker: Event | None
    fed: frozenset[str]  # inputs that it depends on


@dataclass(eq=False)
class Event:
    """One operation of torch."""

    name: str
    given: tuple[Any, ...]
    named: Mapping[str, Any]
    made: Any
    operands: tuple[Operand, ...]
    stack: tuple[Place, ...]  # the user's own, from the inside out
    users: list[Event] = field(default_factory=list)

    @property
    def place(self) -> Place | None:
        return self.stack[0] if self.stack else None

    @property
    def fed(self) -> frozenset[str]:
        return frozenset[str]().union(*(operand.fed for operand in self.operands))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what it made."""
        return next((tuple(t.shape) for t in tensors(self.made)), ())

    def argument(self, position: int, *names: str) -> Any:
        """What was given at a position, or by a name; None if nothing was."""
        if len(self.given) > position:
            return self.given[position]
        return next((self.named[name] for name in names if name in self.named), None)

    @property
    def sources(self) -> list[Event]:
        return [operand.maker for operand in self.operands if operand.maker is not None]

    def behind(self) -> list[Event]:
        """All that it was computed from, the nearest first."""
        return _reached(self.sources, lambda event: event.sources)

    def ahead(self) -> list[Event]:
        """All that was computed from it, the nearest first."""
        return _reached(self.users, lambda event: event.users)


class Recorder(TorchFunctionMode):
    """Notes every operation while it is active."""

    def __init__(self, home: Home, inputs: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.home, self.events = home, list[Event]()
        self.failed: BaseException | None = None
        self._makers: dict[int, Event] = {}
        self._inputs = {id(tensor): name for name, tensor in inputs.items()}
        self._kept: list[Tensor] = list(inputs.values())  # alive, so that nothing else gets their address
        self._positions: dict[CodeType, list[Positions]] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        name = _name(func)
        operands = tuple(self._operand(tensor) for tensor in tensors((args, named)))
        if name in LIKE or name.startswith("new_"):
            operands = ()
        made = func(*args, **named)
        if len(self.events) < MANY:
            self._note(Event(name, tuple(args), named, made, operands[:1] if name in MODELS else operands, ()))
        return made

    def _operand(self, tensor: Tensor) -> Operand:
        maker, label = self._makers.get(id(tensor)), self._inputs.get(id(tensor))
        fed = frozenset() if label is None else frozenset({label})
        return Operand(tensor, tuple(tensor.shape), maker, fed if maker is None else fed | maker.fed)

    def _note(self, event: Event) -> None:
        results = list(tensors(event.made))
        if event.name == "__setitem__":  # writes into what it is given
            results = [event.given[0]]
        if not results:
            return
        event.stack = tuple(self._stack())
        for source in dict.fromkeys(event.sources):
            source.users.append(event)
        for tensor in results:
            self._makers[id(tensor)] = event
        self._kept += results
        self.events.append(event)

    def _stack(self) -> Iterator[Place]:
        frame: FrameType | None = sys._getframe(3)
        while frame is not None:
            compiled = frame.f_code
            code = self.home.code(compiled.co_filename)
            node = None if code is None else code.at(self._position(frame))
            if code is not None and node is not None:
                yield Place(code, node, dict(frame.f_locals), frame.f_globals)
            frame = frame.f_back

    def _position(self, frame: FrameType) -> Positions:
        if frame.f_code not in self._positions:
            self._positions[frame.f_code] = list(frame.f_code.co_positions())
        return self._positions[frame.f_code][frame.f_lasti // 2]


@contextmanager
def watched(home: Home, **inputs: Tensor | None) -> Iterator[Recorder]:
    """What happens inside, whatever it raises: what was done until then is enough to find a place."""
    recorder = Recorder(home, {name: tensor for name, tensor in inputs.items() if tensor is not None})
    with torch.enable_grad(), recorder:
        try:
            yield recorder
        except Exception as error:  # foreign code may raise anything, which the probes have told
            recorder.failed = error


def _name(func: Any) -> str:
    """As it is called in code: `softmax`, `matmul`; of what is read like an attribute, that."""
    name = str(getattr(func, "__name__", ""))
    return str(func.__self__.__name__) if name == "__get__" else name


def tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor in what is given to an operation, or made by one."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from tensors(one)


def _reached(first: Iterable[Event], following: Callable[[Event], Iterable[Event]]) -> list[Event]:
    found: dict[Event, None] = {}
    waiting = list(first)
    while waiting:
        event = waiting.pop(0)
        if event not in found:
            found[event] = None
            waiting += following(event)
    return list(found)
