"""Hidden tokens that keep their places: how references treat padding, added to heed's mixers from outside.

In heed padding ends a row, and a row is as long as its tokens. References lay their patterns over the width of a batch
instead: a token that the attention mask hides is part of the row, asks like all others, and only is no key. A mixer of
a model is replaced by one of the classes here while a recording is replayed; it has the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from ...core.contract import Mixer, Where
from ...core.stamps import Stamps
from ...mixers import Attention, BigBird, Local, Longformer, Lsh, Nystrom, Yoso
from ...mixers.bigbird import Blocks
from ...models import Encoder
from ...models.stack import Stack
from ...parts.attention.attend import attend, written_out
from ...parts.attention.lsh import hashed
from ...parts.attention.sdpa import Term
from ...parts.convolution.value_convolution import Beside
from ...parts.masks import Whole
from ...parts.positions import Relates
from ...parts.segments.chunks import Laid, Ring, attended

M = TypeVar("M", bound=nn.Module)
HIDDEN = -1e9  # the score that Reformer's reference gives to what is hidden


def with_weights_of(module: nn.Module, kind: type[M], **attributes: object) -> M:
    """A module of this class with everything that another one holds, and these attributes.

    If the other one's class is changed already, that change stays below this one.
    """
    if not issubclass(kind, type(module)):
        kind = cast("type[M]", type(kind.__name__, (kind, type(module)), {}))
    made = kind.__new__(kind)
    vars(made).update(vars(module) | {"_modules": dict(module._modules)})
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@contextmanager
def mixers_swapped(stack: Stack, swap: Callable[[Mixer[Any]], Mixer[Any]]) -> Iterator[None]:
    """While this lasts, every block of a stack has what `swap` makes of its mixer."""
    blocks: list[Any] = list(stack.blocks)
    before = [block.mixer for block in blocks]
    for block in blocks:
        block.mixer = swap(block.mixer)
    try:
        yield
    finally:
        for block, mixer in zip(blocks, before, strict=True):
            block.mixer = mixer


@contextmanager
def hidden_keys(model: Encoder, shown: Tensor) -> Iterator[None]:
    """While this lasts, tokens that the attention mask does not show are no keys. [B, T]"""
    if bool(shown.all()):
        yield
        return
    with mixers_swapped(model.stack, lambda mixer: _hiding(mixer, shown)):
        yield


def can_hide(mixer: nn.Module) -> bool:
    """Whether hidden tokens can keep their places in this mixer."""
    plain = isinstance(mixer, Attention) and isinstance(mixer.mask, Whole)
    return plain or isinstance(mixer, Longformer | BigBird | Nystrom | Yoso)


def _hiding(mixer: Mixer[Any], shown: Tensor) -> Mixer[Any]:
    match mixer:
        case Attention():
            return with_weights_of(mixer, type(mixer), position=HiddenKeys(mixer.position, shown))
        case Longformer():
            return with_weights_of(mixer, HiddenLongformer, shown=shown)
        case BigBird():
            return with_weights_of(mixer, HiddenBigBird, shown=shown)
        case Nystrom():
            return with_weights_of(mixer, HiddenNystrom, shown=shown)
        case Yoso(convolution=Beside() as convolution):
            return with_weights_of(mixer, Yoso, convolution=with_weights_of(convolution, HiddenValues, shown=shown))
        case _:
            return mixer


class HiddenKeys(Relates):
    """A position code that hides keys: the lowest number there is is added to their scores.

    Hidden tokens ask like all others. In a row that hides everything that number swallows all scores, and all keys
    weigh the same.
    """

    def __init__(self, code: Relates, shown: Tensor) -> None:
        super().__init__()
        self.code, self.shown = code, shown  # shown: [B, T], by order

    def turn(self, x: Tensor, where: Stamps) -> Tensor:
        return self.code.turn(x, where)

    def turn_value(self, x: Tensor, where: Stamps) -> Tensor:
        return self.code.turn_value(x, where)

    def meet(self, query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> tuple[Tensor, Tensor]:
        return self.code.meet(query, key, where, seen)

    @property
    def bias(self) -> Term:
        return self._added

    def _added(self, query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        lowest = _lowest(self.shown.gather(1, seen.order), query.dtype)
        return lowest if self.code.bias is None else self.code.bias(query, key, where, seen) + lowest


class HiddenLongformer(Longformer):
    """Hidden tokens are padding, wherever they stand: windows are measured over them."""

    shown: Tensor  # [B, T]

    def forward(self, x: Tensor, where: Where, state: tuple[()] | None = None) -> tuple[Tensor, tuple[()] | None]:
        return super().forward(x, Where(where.order.masked_fill(~self.shown, -1), where.position, where.given), state)


class HiddenBigBird(BigBird):
    """Blocks are cut over all columns; hidden tokens are no keys, and get nothing."""

    shown: Tensor

    def cut(self, where: Where) -> Blocks:
        blocks = super().cut(where)
        return replace(blocks, there=blocks.there & self.shown)


class HiddenNystrom(Nystrom):
    """Hidden tokens are no keys of exact attention. Where there are landmarks, the reference can hide nothing."""

    shown: Tensor

    def exactly(self, query: Tensor, key: Tensor, value: Tensor, real: Tensor) -> Tensor:
        return attend(query, key, value, bias=_lowest(self.shown, query.dtype), scale=self.scale)

    def written_out(self, query: Tensor, key: Tensor, where: Where) -> Tensor:
        return written_out(query, key, key, bias=_lowest(self.shown, query.dtype), scale=self.scale)[1]


class HiddenValues(Beside):
    """The convolution beside YOSO's attention: it does not see hidden tokens, which attention does."""

    shown: Tensor

    def forward(self, value: Tensor) -> Tensor:
        return super().forward(value * self.shown[..., None, None])


class HiddenLsh(Lsh):
    """Hidden tokens share a bucket of their own behind all others. Rotations are given, not drawn from the seed."""

    shown: Tensor
    rotation: Tensor  # [heads, head_size, rounds, Σ factors / 2]

    def buckets(self, query: Tensor) -> Tensor:
        bucket = hashed(query, self.rotation, self.factors)
        return bucket.masked_fill(~self.shown[..., None, None], prod(self.factors))

    def around(self, query: Tensor, key: Tensor, value: Tensor, laid: Laid) -> Ring:
        score, visible, keys = _scores(query, key, laid, self.shown, causal=self.causal, itself=False)
        return attended(score, visible, laid.at(keys, value), keys, 0.0)


class HiddenLocal(Local):
    """Hidden tokens are no keys. A token that sees no other, weighs all of its neighbourhood alike."""

    shown: Tensor

    def around(self, query: Tensor, key: Tensor, value: Tensor, laid: Laid) -> Ring:
        score, visible, keys = _scores(query, key, laid, self.shown, causal=self.causal, itself=True)
        blind = ~visible.any(-1, keepdim=True)
        visible = visible | (blind & laid.visible(keys, causal=False, itself=True))
        return attended(score.masked_fill(blind, HIDDEN), visible, laid.at(keys, value), keys, 0.0)


def _scores(
    query: Tensor, key: Tensor, laid: Laid, shown: Tensor, *, causal: bool, itself: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores along rings and which of them count, both [S, chunks, c, k], and the places of the keys."""
    keys = laid.keys
    shown = shown.repeat_interleave(len(laid.order) // len(shown), 0).gather(1, laid.order.clamp(min=0))  # [S, L]
    visible = laid.visible(keys, causal=causal, itself=itself) & laid.at(keys, shown)[:, :, None]
    return laid.scores(keys, query, key), visible, keys


def _lowest(shown: Tensor, dtype: torch.dtype) -> Tensor:
    """What hides keys: the lowest number there is, to be added to their scores. [B, N] -> [B, 1, 1, N]"""
    return torch.zeros_like(shown, dtype=dtype).masked_fill(~shown, torch.finfo(dtype).min)[:, None, None]
