"""Attention weights of a whole model, with the tokens they are about: what `output_attentions` gives elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from torch import Tensor, nn

from ..core.contract import Where
from ..core.errors import InputError
from ..core.interfaces import Encodes, Sees
from ..parts.look import look, points
from .base import AnyModel

POINT = "weights"  # what the points of attention weights are called
CROSS = "cross"  # and the part of a block that looks at the encoder output
SHOWN = 8  # tokens that a repr names


@dataclass(frozen=True, repr=False)
class Attentions(Sequence[Tensor]):
    """The weights of every layer: `found[layer]` is [heads, tokens, keys]; a row of softmax attention sums to 1.

    `tokens` look, `keys` are looked at: the same tokens, except in cross-attention.
    """

    tokens: tuple[str, ...]
    keys: tuple[str, ...]
    layers: tuple[Tensor, ...]

    @overload
    def __getitem__(self, layer: int) -> Tensor: ...
    @overload
    def __getitem__(self, layer: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, layer: int | slice) -> Tensor | tuple[Tensor, ...]:
        return self.layers[layer]

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.layers)

    @property
    def weights(self) -> Tensor:
        """All of them as one tensor, if all layers have as many heads. [layers, heads, tokens, keys]"""
        return torch.stack(self.layers)

    def __repr__(self) -> str:
        heads = sorted({len(layer) for layer in self.layers})
        sizes = f"{len(self.layers)} layers × {'/'.join(map(str, heads))} heads × {len(self.tokens)} tokens"
        if self.tokens != self.keys:
            return f"Attentions({sizes} × {len(self.keys)} keys: {_named(self.tokens)} to {_named(self.keys)})"
        return f"Attentions({sizes}: {_named(self.tokens)})"


@dataclass(frozen=True)
class CrossAttentions:
    """The weights of an encoder-decoder: within the source, within the target, and from the target to the source."""

    encoder: Attentions
    decoder: Attentions
    cross: Attentions


def numbered(count: int) -> tuple[str, ...]:
    """Names of what has none: 0, 1, 2 ..."""
    return tuple(map(str, range(count)))


@dataclass(frozen=True)
class Inspected:
    """What a model is given in order to be looked into, and how the tokens that come of it are called.

    A language model and an encoder of texts have `ids` alone; an encoder of images or sounds has a `source` alone, an
    encoder-decoder both. Of an image or a sound it is known only after the first layers how many tokens it is.
    """

    ids: Tensor | None = None  # [1, T], or [1, T, fields]
    tokens: tuple[str, ...] = ()
    source: Tensor | None = None  # [1, S], or an image [1, C, H, W], or features of a sound [1, frames, bands]
    sources: Callable[[int], Sequence[str]] = numbered  # the names of so many tokens of it

    @classmethod
    def of_text(cls, ids: Tensor, tokens: Sequence[str], source: Tensor, sources: Sequence[str]) -> Inspected:
        """A target and its source, both of them texts."""
        named = tuple(sources)
        return cls(ids, tuple(tokens), source, lambda _: named)

    def run(self, model: AnyModel) -> None:
        """Once through the model, with all that was given."""
        if self.source is None:
            assert self.ids is not None
            where = Where.run(1, self.ids.shape[1], device=self.ids.device)
            model.encode(self.ids, where) if isinstance(model, Encodes) else model(self.ids, where)
            return
        if isinstance(model, Sees):
            model.see(self.source)
            return
        assert isinstance(model, Encodes)
        output = model.encode(self.source, Where.run(*self.source.shape[:2], device=self.source.device))
        if self.ids is not None:
            model(self.ids, Where.run(*self.ids.shape, device=self.ids.device).give(encoder_output=output))


def ids_in(given: object) -> list[int] | None:
    """Ids, if they were given instead of a text: a list, a tensor or an array of one row."""
    if isinstance(given, Tensor | np.ndarray):
        given = given.reshape(-1).tolist() if given.ndim == 1 or given.shape[0] == 1 else given
    if not isinstance(given, list | tuple) or not given or not all(type(index) is int for index in given):
        return None
    return list(given)


def shows_weights(model: nn.Module) -> bool:
    """Whether a model has attention weights to show."""
    return any(_is_point(name) for name in points(model))


@torch.no_grad()
def attentions_of(model: AnyModel, reading: Inspected) -> Attentions:
    """Those of a language model or an encoder on one text."""
    _must_show(model)
    with look(model, f"*.{POINT}") as seen:
        reading.run(model)
    layers = [shown[0][0] for name, shown in seen.items() if shown and not is_cross(name)]
    return Attentions(reading.tokens, reading.tokens, tuple(layers))


@torch.no_grad()
def cross_attentions_of(model: AnyModel, reading: Inspected) -> CrossAttentions:
    """Those of an encoder-decoder on a source and its target."""
    _must_show(model)
    assert reading.source is not None
    with look(model, f"*.{POINT}") as seen:
        reading.run(model)
    shown = {name: tensors[0][0] for name, tensors in seen.items() if tensors}
    encoder = tuple(one for name, one in shown.items() if name.startswith("encoder."))
    decoder = tuple(one for name, one in shown.items() if name.startswith("decoder.") and not is_cross(name))
    cross = tuple(one for name, one in shown.items() if name.startswith("decoder.") and is_cross(name))
    read, written = tuple(reading.sources(reading.source.shape[1])), reading.tokens
    return CrossAttentions(
        Attentions(read, read, encoder), Attentions(written, written, decoder), Attentions(written, read, cross)
    )


def _must_show(model: nn.Module) -> None:
    if not shows_weights(model):
        raise InputError(
            "this model has no attention weights to show: what its mixers remember is a state, not a row of weights. "
            "heed.look(m.model) sees what else they compute"
        )


def _is_point(name: str) -> bool:
    return name.rpartition(".")[2] == POINT


def is_cross(name: str) -> bool:
    """Whether a point is one of a cross-attention."""
    return name.split(".")[-2] == CROSS


def _named(tokens: Sequence[str]) -> str:
    return " ".join(tokens[:SHOWN]) + (" …" if len(tokens) > SHOWN else "")
