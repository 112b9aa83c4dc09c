"""What happens inside a foreign call: its projections, its scores and its softmax, seen where torch executes them.

A projection is a product with a weight of the module, however it was written: as a linear layer, with einsum, as a bare
matrix. Nothing is guessed from names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mv", "aten::convolution"}
SOFTMAXES = {"aten::_softmax", "aten::_safe_softmax"}
COARSE = {torch.float32, torch.float16, torch.bfloat16}
FUSED = "aten::_scaled_dot_product"


@dataclass(frozen=True)
class Projected:
    """A product of a stream with a weight."""

    name: str  # of the weight
    given: Tensor
    made: Tensor
    bias: str | None = None


@dataclass(frozen=True)
class Softmaxed:
    """One softmax: what went in, what came out, along which axis."""

    scores: Tensor
    weights: Tensor
    axis: int


@dataclass(frozen=True)
class FusedCall:
    """One call of torch's own attention."""

    query: Tensor
    key: Tensor
    value: Tensor
    made: Tensor


@dataclass
class Trace:
    """What one call did, in order."""

    projections: list[Projected] = field(default_factory=list)
    softmaxes: list[Softmaxed] = field(default_factory=list)
    fused: list[FusedCall] = field(default_factory=list)
    products: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)  # of two activations
    coarse: bool = False  # something was computed in less than float64


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes products with weights, softmaxes and fused attention while it is active."""

    def __init__(self, weights: Mapping[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weights, self.trace = dict(weights), Trace()
        self._kept: list[Tensor] = []  # copies of weights stay alive, so that nothing else gets their address

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func.name().split(".")[0]
        self.trace.coarse |= isinstance(made, Tensor) and made.dtype in COARSE and made.dim() > 0
        if name in PRODUCTS:
            self._product(args, made)
        elif name in SOFTMAXES:
            self.trace.softmaxes.append(Softmaxed(args[0].clone(), made.clone(), int(args[1]) % args[0].dim()))
        elif name.startswith(FUSED) and len(args) >= 3:
            out = made[0] if isinstance(made, tuple) else made
            self.trace.fused.append(FusedCall(args[0].clone(), args[1].clone(), args[2].clone(), out.clone()))
        else:
            self._derived(args, made)
        return made

    def _derived(self, args: Sequence[Any], made: Any) -> None:
        """A weight that is only moved, cast or copied is still that weight: einsum does so."""
        given = [arg for arg in args if isinstance(arg, Tensor)]
        if len(given) != 1 or not isinstance(made, Tensor) or made.numel() != given[0].numel():
            return
        name = self.weights.get(given[0].untyped_storage().data_ptr())
        if name is not None and made.dim() >= 2:
            self.weights[made.untyped_storage().data_ptr()] = name
            self._kept.append(made)

    def _product(self, args: Sequence[Any], made: Tensor) -> None:
        given = [arg for arg in args if isinstance(arg, Tensor)]
        named = [self.weights.get(arg.untyped_storage().data_ptr()) for arg in given]
        wide = [place for place, arg in enumerate(given) if named[place] is not None and arg.dim() >= 2]
        if not wide:
            if len(given) == 2:
                self.trace.products.append((given[0].clone(), given[1].clone(), made.clone()))
            return
        weight, bias = wide[-1], next((n for n, arg in zip(named, given, strict=True) if n and arg.dim() == 1), None)
        others = [arg for place, arg in enumerate(given) if named[place] is None]
        name = named[weight]
        if others and name is not None:
            self.trace.projections.append(Projected(name, others[0].clone(), made.clone(), bias))


@contextmanager
def traced(target: Any) -> Iterator[Trace]:
    """The trace of the calls made inside."""
    named = dict(target.named_parameters(remove_duplicate=False)) if isinstance(target, nn.Module) else {}
    tracer = Tracer({weight.untyped_storage().data_ptr(): name for name, weight in named.items()})
    with torch.enable_grad(), tracer:  # with gradients nn.MultiheadAttention takes no fast path that hides everything
        yield tracer.trace
