"""What happens inside a foreign call: its projections, its scores and its softmax, seen where torch executes them.

A projection is a product with a weight of the module, however it was written: as a linear layer, with einsum, as a bare
matrix, as a convolution over one place. Nothing is guessed from names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .factors import Factors, Flow, scale_given

PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mv", "aten::convolution"}
SOFTMAXES = {"aten::_softmax", "aten::_safe_softmax", "aten::_log_softmax"}
COARSE = {torch.float32, torch.float16, torch.bfloat16}
FUSED = "aten::_scaled_dot_product"
WAVES = {"aten::sin", "aten::cos", "aten::polar", "aten::view_as_complex", "aten::complex"}
CHOICES = {"aten::sort", "aten::topk", "aten::kthvalue"}
DROPS = {"aten::bernoulli", "aten::native_dropout", "aten::dropout"}
DRAWS = {"aten::rand", "aten::rand_like", "aten::uniform"}  # dropout by hand compares them with its share
COMPARES = {"aten::lt", "aten::gt", "aten::le", "aten::ge", "aten::floor"}


@dataclass(frozen=True)
class Projected:
    """A product of a stream with a weight."""

    name: str  # of the weight
    given: Tensor
    made: Tensor
    bias: str | None = None


@dataclass(frozen=True)
class Softmaxed:
    """One softmax: what went in, what came out, along which axis, and by what its scores were scaled."""

    scores: Tensor
    weights: Tensor
    axis: int
    flow: Flow = field(default_factory=Flow)


@dataclass(frozen=True)
class FusedCall:
    """One call of torch's own attention."""

    query: Tensor
    key: Tensor
    value: Tensor
    made: Tensor
    flow: Flow = field(default_factory=Flow)
    own_scale: bool = False  # whether it was left to scale by itself


class Product(NamedTuple):
    """A product of two activations."""

    one: Tensor
    other: Tensor
    made: Tensor


@dataclass
class Trace:
    """What one call did, in order."""

    projections: list[Projected] = field(default_factory=list)
    softmaxes: list[Softmaxed] = field(default_factory=list)
    fused: list[FusedCall] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    scores: list[Flow] = field(default_factory=list)  # that a softmax, of torch or by hand, was taken of
    coarse: bool = False  # something was computed in less than float64
    waves: bool = False  # sines, cosines or complex numbers were computed: what a rotation is made of
    choices: list[torch.Size] = field(default_factory=list)  # shapes of what was sorted, or the best few chosen of
    drops: bool = False  # numbers were drawn as dropout draws them
    drew: bool = False  # random numbers were drawn, of whatever kind
    gates: list[Product] = field(default_factory=list)  # activations times activations, one by one

    @property
    def attends(self) -> bool:
        """Whether how much of one thing counts depends on another: without that there is no attention."""
        return bool(self.gates or self.softmaxes or self.fused or self.products or self.scores)


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes products with weights, softmaxes and fused attention while it is active."""

    def __init__(self, weights: Mapping[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weights, self.trace = dict(weights), Trace()
        self._factors = Factors(lambda tensor: tensor.untyped_storage().data_ptr() in self.weights)
        self._drew = False  # numbers between 0 and 1
        self._kept: list[Tensor] = []  # copies of weights stay alive, so that nothing else gets their address

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would keep its compiler away, and import it for that: a second, where nothing is compiled."""
        return False

    @classmethod
    def of(cls, target: Any) -> Tracer:
        """One that knows the weights of a target."""
        named = dict(target.named_parameters(remove_duplicate=False)) if isinstance(target, nn.Module) else {}
        return cls({weight.untyped_storage().data_ptr(): name for name, weight in named.items()})

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what happens inside; with gradients, nn.MultiheadAttention takes no fast path that hides everything."""
        with torch.enable_grad(), self:
            yield

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func.name().split(".")[0]
        self.trace.coarse |= isinstance(made, Tensor) and made.dtype in COARSE and made.dim() > 0
        self.trace.waves |= name.rstrip("_") in WAVES
        if name == "aten::mul":
            self._gated(args, made)
        if name in CHOICES:
            self.trace.choices.append(args[0].shape)
        self._drew |= name.rstrip("_") in DRAWS
        self.trace.drew |= torch.Tag.nondeterministic_seeded in func.tags
        self.trace.drops |= name.rstrip("_") in DROPS or (self._drew and name.rstrip("_") in COMPARES)
        if name in PRODUCTS:
            self._product(name, args, kwargs or {}, made)
        elif name in SOFTMAXES:
            self._softmax(name, args, made)
        elif name.startswith(FUSED) and len(args) >= 3:
            self._fused(args, kwargs or {}, made[0] if isinstance(made, tuple) else made)
        elif name == "aten::exp" and (flow := self._factors.of(args[0])).size is not None:  # a softmax by hand
            self.trace.scores.append(flow)
            self._factors.set(made, Flow())
        else:
            self._factors.follow(name, args, made)
            self._derived(args, made)
        return made

    def _gated(self, args: Sequence[Any], made: Tensor) -> None:
        given = [arg for arg in args if isinstance(arg, Tensor) and arg.dim() > 1]
        if len(given) == 2 and not any(arg.untyped_storage().data_ptr() in self.weights for arg in given):
            self.trace.gates.append(Product(given[0].clone(), given[1].clone(), made.clone()))

    def _softmax(self, name: str, args: Sequence[Any], made: Tensor) -> None:
        weights, flow = made.exp() if "log" in name else made.clone(), self._factors.of(args[0])
        self.trace.softmaxes.append(Softmaxed(args[0].clone(), weights, int(args[1]) % args[0].dim(), flow))
        self.trace.scores.append(flow)
        self._factors.set(made, Flow())

    def _fused(self, args: Sequence[Any], kwargs: Mapping[str, Any], made: Tensor) -> None:
        query, key, value = args[:3]
        size = query.shape[-1]
        flow = Flow(self._factors.of(query).factor * self._factors.of(key).factor * scale_given(kwargs, size), size)
        alone = kwargs.get("scale") is None
        self.trace.fused.append(FusedCall(query.clone(), key.clone(), value.clone(), made.clone(), flow, alone))
        self.trace.scores.append(flow)
        self._factors.set(made, Flow())

    def _derived(self, args: Sequence[Any], made: Any) -> None:
        """A weight that is only moved, cast, copied or repeated is still that weight: einsum does so."""
        given = [arg for arg in args if isinstance(arg, Tensor)]
        if len(given) != 1 or not isinstance(made, Tensor) or not made.numel() or not given[0].numel():
            return
        if made.numel() % given[0].numel():
            return
        name = self.weights.get(given[0].untyped_storage().data_ptr())
        if name is not None and made.dim() >= 2:
            self.weights[made.untyped_storage().data_ptr()] = name
            self._kept.append(made)

    def _product(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], made: Tensor) -> None:
        given = [arg for arg in args if isinstance(arg, Tensor)]
        named = [self.weights.get(arg.untyped_storage().data_ptr()) for arg in given]
        wide = [place for place, arg in enumerate(given) if named[place] is not None and arg.dim() >= 2]
        self._factors.set(made, Flow())
        if not wide:
            self._met(given[-2:], kwargs, made)
            return
        weight, bias = wide[-1], next((n for n, arg in zip(named, given, strict=True) if n and arg.dim() == 1), None)
        others = [arg for place, arg in enumerate(given) if named[place] is None]
        known = named[weight]
        if others and known is not None:
            one, out = (t.movedim(1, -1) if name == "aten::convolution" else t for t in (others[0], made))
            self.trace.projections.append(Projected(known, one.clone(), out.clone(), bias))

    def _met(self, two: Sequence[Tensor], kwargs: Mapping[str, Any], made: Tensor) -> None:
        """A product of activations: scores, or what the weights make of the values."""
        if len(two) != 2:
            return
        one, other = two
        factor = self._factors.of(one).factor * self._factors.of(other).factor * float(kwargs.get("alpha", 1.0))
        self._factors.set(made, Flow(factor, one.shape[-1], len(self.trace.products)))
        self.trace.products.append(Product(one.clone(), other.clone(), made.clone()))
