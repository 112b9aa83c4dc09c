"""Targets that are not called with a stream alone: behind the user's own function, or heed's own mixers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ...core.cases import arrived
from ...core.contract import Mixer, Where
from ...core.state import Seen
from .sizes import Sizes, size_word


class Adapted(nn.Module):
    """A target behind the user's own function (target, x) -> y."""

    def __init__(self, target: Any, adapter: Callable[..., Any]) -> None:
        super().__init__()
        self.target, self.adapter = target, adapter

    def forward(self, x: Tensor) -> Any:
        return self.adapter(self.target, x)


class Ours(nn.Module):
    """A mixer of heed, beside a source if it looks at one; neighbours arrive for mixers that ask for them."""

    def __init__(self, mixer: Mixer[Any]) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        rows, tokens, width = x.shape
        drawn = torch.randn(1, 1, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        near = arrived(drawn.to(x).expand(rows, -1, -1), [0] * rows, [tokens] * rows)
        where = Where.run(rows, tokens).give(neighbours=near)
        if memory is not None:
            where = where.give(encoder_output=Seen.of(Where.run(*memory.shape[:2]), memory))
        y: Tensor = self.mixer(x, where)[0]
        return y


class Beside(nn.Module):
    """A target that looks at a source, with the source held fast: what is left is a call of its own stream."""

    def __init__(self, target: nn.Module, name: str, source: Tensor) -> None:
        super().__init__()
        self.target, self.name, self.source = target, name, source

    def forward(self, **given: Any) -> Any:
        rows = next(value.shape[0] for value in given.values() if isinstance(value, Tensor) and value.dim() == 3)
        return self.target(**given, **{self.name: self.source[:1].expand(rows, -1, -1)})


def measured(module: nn.Module) -> list[Sizes]:
    """Sizes that a ready-made module may have: from its attributes, by their names, and from its weights."""
    real = _real(module)
    wide = [p.shape[1] for p in module.parameters() if not isinstance(p, UninitializedParameter) and p.dim() == 2]
    widths = sorted(set(wide), key=lambda size: -wide.count(size))
    first = [real.pop("width")] if "width" in real else []
    tried = dict.fromkeys([*first, *widths, Sizes().width])
    return [replace(Sizes(), **real, width=width) for width in tried]


def sized(target: Any, sizes: Sizes) -> Sizes:
    """The sizes with which something was built, where it says itself how many heads it has."""
    if not isinstance(target, nn.Module):
        return sizes
    real = _real(target)
    heads = real.get("heads", sizes.heads)
    return replace(sizes, heads=heads) if heads > 0 and sizes.width % heads == 0 else sizes


def _real(module: nn.Module) -> dict[str, int]:
    """Sizes that a module, or a part of it, holds under their names."""
    real: dict[str, int] = {}
    for part in module.modules():
        for name, value in vars(part).items():
            word = size_word(name)
            if word in {"width", "heads", "kv_heads"} and type(value) is int and (part is module or word == "heads"):
                real.setdefault(word, value)
    return real
