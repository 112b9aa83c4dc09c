"""Modules and functions as arguments: norms, activations, feed-forwards, and an attention that takes whatever comes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Set
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sizes import Sizes, cut, listed, size_word

ATTENDS = listed("attn attention attend mha msa mhsa inner mixer")
FEEDS = frozenset(["ff", "ffn", "mlp", "feedforward", "feed", "forward", "pff", "rff", "dnn"])
ACTS = frozenset(["act", "activation", "nonlinearity", "gelu", "relu"])
NORMS = frozenset(["norm", "ln", "layernorm", "normalization"])
WRAPS = listed("fn func function module layer sublayer block net callable submodule core model encoder")
PROJECTS = listed("proj projection linear lin fc dense")
MADE = listed("layer cls class factory builder type ctor constructor")  # of a class rather than of an object


class AnyAttention(nn.Module):
    """Attention over whatever it is given: a stream, three of them, split into heads or not; without weights."""

    def __init__(self, pair: bool = False) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, *given: Any, **named: Any) -> Any:
        tensors = [part for part in (*given, *named.values()) if isinstance(part, Tensor)]
        streams = [
            part for part in tensors if part.dim() == tensors[0].dim() and part.shape[-1] == tensors[0].shape[-1]
        ]
        query, key, value = streams[:3] if len(streams) >= 3 else (streams[0],) * 3
        turned = query.dim() == 4  # [rows, tokens, heads, size], as time series are
        three = [part.transpose(1, 2) if turned else part for part in (query, key, value)]
        score = three[0] @ three[1].mT / query.shape[-1] ** 0.5
        for mask in (part for part in tensors if not any(part is stream for stream in streams)):
            score = _masked(score, mask)
        made = score.softmax(-1) @ three[2]
        made = made.transpose(1, 2) if turned else made
        return (made, None) if self.pair else made


class MadeAttention(AnyAttention):
    """The same as a class, for what makes its attention itself, of whatever sizes."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__()


def _masked(score: Tensor, mask: Tensor) -> Tensor:
    """What is True or 1 may be seen; numbers with a point are added."""
    if mask.dim() == 2 and mask.shape[0] != score.shape[-2]:
        mask = mask[:, None]  # [B, S]: who is there
    while mask.dim() > score.dim():
        mask = mask[:, 0]
    if mask.is_floating_point():
        return score + mask.to(score)
    return score.masked_fill(~mask.bool(), -1e30)


class Taken(nn.Module):
    """A module that takes a stream and, unlike most, whatever else it is given."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, *given: Any, **named: Any) -> Any:
        return self.inner(x)


def feeding(sizes: Sizes) -> nn.Module:
    """A feed-forward layer."""
    return nn.Sequential(nn.Linear(sizes.width, sizes.hidden), nn.GELU(), nn.Linear(sizes.hidden, sizes.width))


def part_named(name: str, sizes: Sizes, make: Callable[..., Any], build: Callable[[Any], Any]) -> Iterator[Any]:
    """What may be meant by an argument that its name says is a module, a class of modules or a function."""
    words = frozenset(cut(name))
    if words & NORMS:
        both = (nn.LayerNorm, nn.LayerNorm(sizes.width))
        yield from both if words & MADE else both[::-1]
    elif words & ACTS:
        yield from (nn.GELU, nn.GELU()) if words & MADE else ("gelu", "relu", nn.GELU(), nn.GELU, F.gelu)
    elif words & ATTENDS:
        yield from _beside(ATTENDS, make, build)
        yield from (AnyAttention(), AnyAttention(pair=True), MadeAttention)
    elif words & FEEDS:
        yield from _beside(FEEDS, make, build)
        yield Taken(feeding(sizes))
    elif words & PROJECTS:
        yield from _projections(words, sizes, make)
    elif words & WRAPS:
        yield from (AnyAttention(), nn.GELU(), nn.Identity, AnyAttention(pair=True))


def _projections(words: Set[str], sizes: Sizes, make: Callable[..., Any]) -> Iterator[nn.Module]:
    """A linear layer; of keys or values, first as wide as their heads, where there are fewer of them."""
    grouped = any(size_word(name) == "kv_heads" for name in inspect.signature(make).parameters)
    if grouped and words & {"k", "v", "kv", "key", "value"}:
        yield nn.Linear(sizes.width, sizes.kv_heads * sizes.head)
    yield nn.Linear(sizes.width, sizes.width)


def built_of(kind: Any, sizes: Sizes, build: Callable[[Any], Any]) -> Iterator[Any]:
    """Instances of an annotated class of modules."""
    if kind is nn.Module:
        yield from (AnyAttention(), Taken(feeding(sizes)), nn.Identity())
    elif inspect.isclass(kind) and issubclass(kind, nn.Module):
        try:
            yield build(kind)
        except Exception:  # foreign code may raise anything
            return


def _beside(wanted: frozenset[str], make: Callable[..., Any], build: Callable[[Any], Any]) -> Iterator[Any]:
    """Classes of the same file whose names say so, built; at most three."""
    home = sys.modules.get(getattr(make, "__module__", ""))
    names = dict(vars(home)) if home is not None else {}
    kinds = [
        value
        for name, value in names.items()
        if inspect.isclass(value)
        and issubclass(value, nn.Module)
        and value.__module__ == getattr(make, "__module__", "")
        and value is not make
        and set(cut(name)) & wanted
        and not set(cut(name)) & {"layer", "block", "encoder", "decoder", "model"}
    ]
    kinds.sort(key=lambda kind: sum(p.default is p.empty for p in inspect.signature(kind).parameters.values()))
    for kind in kinds[:2]:
        try:
            with torch.no_grad():
                yield build(kind)
        except Exception:  # foreign code may raise anything
            continue
