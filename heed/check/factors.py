"""By what numbers a tensor was multiplied on its way from the projections to the softmax.

The scale of attention may stand anywhere: on queries, on keys, on both, on their product. Followed operation by
operation, it is one number in the end, whatever form the attention has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from torch import Tensor

UNKNOWN = math.nan
Place: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]
# What only moves numbers, picks some of them, hides some of them or shifts them leaves their factor as it is.
_MOVES = (
    "view _unsafe_view _reshape_alias reshape transpose t permute expand slice select clone _to_copy contiguous split "
    "split_with_sizes chunk unbind squeeze unsqueeze alias detach index index_select gather repeat roll flip narrow "
    "constant_pad_nd masked_fill tril triu neg unfold as_strided copy view_as_complex view_as_real _conj cat stack "
    "where maximum minimum amax max add sub rsub diagonal lift_fresh repeat_interleave"
)
MOVES = frozenset(_MOVES.split())
# What raises numbers to a power raises their factor, too: so what is divided by its own length loses it.
POWERS = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "mean": 1.0, "abs": 1.0, "clamp_min": 1.0}
POWERS |= {"linalg_vector_norm": 1.0, "norm": 1.0, "std": 1.0, "var": 2.0, "clamp": 1.0}
LENGTHS = frozenset({"linalg_vector_norm", "norm"})
NORMS = frozenset({"native_layer_norm", "native_group_norm", "rms_norm", "_fused_rms_norm", "native_batch_norm"})


@dataclass(frozen=True)
class Flow:
    """What became of a tensor since its projection."""

    factor: float = 1.0  # the product of all numbers that it was multiplied by; NaN if that is not known
    size: int | None = None  # of scores: over how many channels they are sums
    product: int | None = None  # of scores: which product of the trace they are
    length: bool = False  # of vectors: what they may be divided by to be of length one
    unit: bool = False  # whether they were

    @property
    def known(self) -> bool:
        return not math.isnan(self.factor)


class Factors:
    """The flow of every tensor, by its place in memory: where something new is written, the old is forgotten."""

    def __init__(self, weighs: Callable[[Tensor], bool]) -> None:
        self._weighs, self._flows = weighs, dict[Place, Flow]()

    def of(self, tensor: Tensor) -> Flow:
        """What came untouched from a projection, or from outside, has the factor 1."""
        return self._flows.get(_place(tensor), Flow())

    def set(self, made: Any, flow: Flow | None) -> None:
        for tensor in _tensors((made,)):
            if flow is None:
                self._flows.pop(_place(tensor), None)
            else:
                self._flows[_place(tensor)] = flow

    def follow(self, name: str, args: Sequence[Any], made: Any) -> None:
        """One operation that is neither a product nor a softmax."""
        plain = name.removeprefix("aten::").rstrip("_")
        given = [self._flows[_place(t)] for t in _tensors(args) if _place(t) in self._flows]
        if plain in ("mul", "div") and len(args) >= 2:
            self.set(made, self._multiplied(args[0], args[1], -1 if plain == "div" else 1))
        elif plain in NORMS:
            self.set(made, Flow())
        elif plain in LENGTHS:
            self.set(made, replace(self.of(args[0]), length=True))
        elif not given:
            self.set(made, None)
        elif plain == "pow" and len(args) > 1 and isinstance(args[1], int | float):
            self.set(made, _raised(given[0], float(args[1])))
        elif plain in POWERS:
            self.set(made, _raised(given[0], POWERS[plain]))
        elif plain == "sum":
            self.set(made, _summed(given[0], args))
        elif plain in MOVES:
            self.set(made, _joined(given))
        else:
            self.set(made, replace(given[0], factor=UNKNOWN))

    def _multiplied(self, one: Any, other: Any, power: int) -> Flow | None:
        if isinstance(one, Tensor) and (number := _number(other)) is not None:
            learned = isinstance(other, Tensor) and self._weighs(other)
            flow = self.of(one)
            if learned or not number:
                return replace(flow, factor=UNKNOWN)
            return _of_root_mean_square(replace(flow, factor=flow.factor * number**power), one)
        if isinstance(other, Tensor) and (number := _number(one)) is not None and power == 1:
            return self._multiplied(other, one, power)
        if not isinstance(one, Tensor) or not isinstance(other, Tensor):
            return None
        if not any(_place(t) in self._flows for t in (one, other)):
            return None
        left, right = self.of(one), self.of(other)
        if right.length and power == -1 and left.size is None:
            return _of_root_mean_square(Flow(left.factor / right.factor, unit=True), one)
        scores = left if left.size is not None else right
        if scores.size is not None and (self._weighs(one) or self._weighs(other)):
            return replace(scores, factor=UNKNOWN)  # a temperature that is learnt
        return replace(scores, factor=left.factor * right.factor**power)


def _of_root_mean_square(flow: Flow, vectors: Tensor) -> Flow:
    """Vectors of length one, times the root of their size, are what a norm makes of them: no scale of scores."""
    root = vectors.shape[-1] ** 0.5 if vectors.dim() else 1.0
    return Flow() if flow.unit and math.isclose(flow.factor, root, rel_tol=1e-4) else flow


def _summed(flow: Flow, args: Sequence[Any]) -> Flow:
    """A sum over the last axis of a product of queries and keys, element by element, makes scores."""
    axes = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else []
    last = len(axes) == 1 and axes[0] in (-1, args[0].dim() - 1)
    return replace(flow, size=args[0].shape[-1]) if last and flow.size is None else flow


def _raised(flow: Flow, power: float) -> Flow:
    return replace(flow, factor=abs(flow.factor) ** power if flow.factor else UNKNOWN)


def _joined(flows: Sequence[Flow]) -> Flow:
    """Several of one factor are of that factor: a rotation adds what it has turned."""
    first = next((flow for flow in flows if flow.size is not None), flows[0])
    if all(math.isclose(flow.factor, first.factor, rel_tol=1e-6) for flow in flows):
        return first
    return replace(first, factor=UNKNOWN)


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and not value.is_complex() else None
    return float(value) if isinstance(value, int | float) else None


def _tensors(args: Sequence[Any]) -> Iterator[Tensor]:
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from _tensors(arg)


def _place(tensor: Tensor) -> Place:
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())


def scale_given(kwargs: Mapping[str, Any], size: int) -> float:
    """The scale of a call of torch's own attention."""
    given = kwargs.get("scale")
    return float(given) if given is not None else float(size**-0.5)
