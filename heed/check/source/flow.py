"""What the operations of a call were for: scores, softmax, weights and what they mix; where a mask goes.

All of it is read off the trace: a product of two things that depend on the input is one of attention's two products,
whichever way it was written and however many helpers lie between.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import Tensor

from .watch import UNKNOWN, Event, Operand, Place

PRODUCTS = {"matmul", "bmm", "mm", "einsum", "baddbmm", "__rmatmul__"}
RESHAPES = {"view", "reshape", "flatten", "unflatten", "_unsafe_view", "view_as", "reshape_as"}
MOVES = RESHAPES | {
    *(
        "transpose",
        "permute",
        "contiguous",
        "squeeze",
        "unsqueeze",
        "chunk",
        "split",
        "unbind",
        "__getitem__",
        "mT",
        "T",
    ),
    *("movedim", "swapaxes", "expand", "to", "type", "float", "double", "clone", "select", "narrow", "H", "type_as"),
    *("repeat_interleave", "repeat", "moveaxis", "swapdims", "tensor_split", "expand_as", "t"),
}
FUSED = "scaled_dot_product_attention"
TORCHS = "multi_head_attention_forward"


@dataclass(frozen=True, eq=False)
class Attended:
    """One attention inside a call."""

    scores: Event | None  # the product of queries and keys
    softmax: Event | None
    mix: Event | None  # the product of weights and values
    fused: Event | None = None  # torch's own function instead of all three


def attended(events: Sequence[Event]) -> list[Attended]:
    """Every attention of a call, one for each place in the code."""
    found: dict[Any, Attended] = {}
    for event in events:
        if event.name in ("softmax", "softmax_", "_softmax"):
            scores = next((e for e in event.behind() if meets(e)), None)
            if scores is not None:
                found.setdefault(_spot(event), Attended(scores, event, _mix(event)))
        elif event.name == FUSED:
            found.setdefault(_spot(event), Attended(None, None, None, event))
    if not found:
        for event in filter(meets, events):
            mix = _mix(event)
            if mix is not None:
                found.setdefault(_spot(event), Attended(event, None, mix))
    return list(found.values())


def _spot(event: Event) -> Any:
    return event.place.node if event.place is not None else id(event)


def meets(event: Event) -> bool:
    """Whether it is a product of two things that depend on the input."""
    return (
        event.name in PRODUCTS and event.place is not None and sum(bool(operand.fed) for operand in event.operands) >= 2
    )


def _mix(event: Event) -> Event | None:
    return next((e for e in event.ahead() if meets(e)), None)


def operand_nodes(event: Event) -> list[ast.expr]:
    """The expressions of what an operation was given, in order: both sides, or the receiver and the arguments."""
    place = event.place
    match None if place is None else place.node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Compare(left=left, comparators=[right]):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.AugAssign(target=target, value=value):
            return [target, value]
        case ast.Subscript(value=value, slice=index):
            return [value, index]
        case ast.Call(func=func, args=args) if place is not None:
            return [*_receiver(place, func), *args]
        case ast.Attribute(value=value):
            return [value]
    return []


def _receiver(place: Place, func: ast.expr) -> list[ast.expr]:
    """What a method is called on; nothing of a function, or of a layer that is called."""
    if not isinstance(func, ast.Attribute):
        return []
    holder = place.value(func.value)
    if isinstance(holder, ModuleType) or place.value(func) is not UNKNOWN:
        return []
    return [func.value]


def named_node(call: ast.AST, *names: str) -> ast.expr | None:
    """What a call gives by one of these names."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return next((keyword.value for keyword in keywords if keyword.arg in names), None)


@dataclass(frozen=True, eq=False)
class Factor:
    """A number that scores, queries or keys are multiplied with."""

    event: Event
    node: ast.expr  # the number
    divides: bool
    value: float  # the number itself

    @property
    def place(self) -> Place:
        assert self.event.place is not None
        return self.event.place

    @property
    def times(self) -> float:
        """What it multiplies with."""
        return 1 / self.value if self.divides else self.value


def factor(event: Event) -> Factor | None:
    """The number in a product or a quotient of a tensor and a number, with the expression that stands for it."""
    if event.name not in ("mul", "mul_", "div", "div_", "true_divide", "multiply", "divide") or event.place is None:
        return None
    numbers = [number for number in map(_number, event.given[:2]) if number is not None]
    streams = [operand for operand in event.operands if operand.fed and math.prod(operand.shape) > 1]
    if len(numbers) != 1 or len(streams) != 1 or not numbers[0]:
        return None
    for node in reversed(operand_nodes(event)):
        value = _number(event.place.evaluated(node))
        if value is not None and math.isclose(value, numbers[0], rel_tol=1e-5):
            return Factor(event, node, "div" in event.name, numbers[0])
    return None


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return float(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def factors(found: Attended) -> list[Factor]:
    """All numbers between the projections and the softmax, each once."""
    passed: dict[Event, None] = {}
    if found.fused is not None:
        for operand in found.fused.operands[:2]:
            passed |= dict.fromkeys(_moved(operand))
    elif found.scores is not None:
        last = found.softmax or found.mix
        between = [] if last is None else [e for e in last.behind() if found.scores in e.behind()]
        passed |= dict.fromkeys(between)
        for operand in found.scores.operands:
            passed |= dict.fromkeys(_moved(operand))
    return [one for event in passed if (one := factor(event)) is not None]


def _moved(operand: Operand) -> Iterator[Event]:
    """What was done to a query or a key since it was projected."""
    event = operand.maker
    while event is not None and not meets(event) and event.name != "linear":
        yield event
        streams = [o for o in event.operands if o.fed and math.prod(o.shape) > 1]
        event = streams[0].maker if streams else None


def contracted(event: Event) -> int:
    """Over how many channels a product of queries and keys sums: the size of a head."""
    if event.name == FUSED or event.name != "einsum":
        first = event.operands[1 if event.name == "baddbmm" else 0]
        return first.shape[-1]
    pattern = str(event.given[0]).replace(" ", "")
    inputs, _, output = pattern.partition("->")
    letters = inputs.split(",")[0]
    sizes = dict(zip(letters, event.operands[0].shape, strict=False))
    return math.prod(size for letter, size in sizes.items() if letter not in output)
