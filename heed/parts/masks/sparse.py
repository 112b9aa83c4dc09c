"""Sparse patterns: every so many tokens, summaries of groups, blocks that a user draws."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import gcd
from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from ...core.config import Size, Text
from ...core.contract import Reach
from ...core.errors import InputError
from ...core.stamps import Span
from .base import Causal, Layout, Mask, Whole
from .plain import Segments, Window


class Atrous(Mask):
    """A token looks at those a multiple of `step` away: i - j ≡ 0 (mod step)."""

    kind: Literal["atrous"] = "atrous"
    step: Size  # tokens from one that is seen to the next

    @property
    def reach(self) -> Reach:
        return Reach(None, None)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key) % self.step == 0

    @property
    def uniform(self) -> bool:
        return True

    @property
    def modulus(self) -> int:
        return self.step

    def thinned(self, step: int) -> Mask:
        left = self.step // gcd(self.step, step)
        return Whole() if left == 1 else Atrous(step=left)


class Sparse(Mask):
    """Local and atrous at once: |i - j| <= step, or i - j ≡ 0 (mod step)."""

    kind: Literal["sparse"] = "sparse"
    step: Size  # tokens that are near, and from one far token to the next

    @property
    def reach(self) -> Reach:
        return Reach(None, None)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        gap = query - key
        return (gap.abs() <= self.step) | (gap % self.step == 0)

    @property
    def uniform(self) -> bool:
        return True

    @property
    def terms(self) -> tuple[Mask, ...]:
        return Atrous(step=self.step), Window(back=self.step, ahead=self.step)


class Strided(Mask):
    """The strided half of the Sparse Transformer (Child et al. 2019): j <= i and i - j ≡ 0 (mod stride).

    Its other half is a `Window`; the paper gives the two to different heads, or merges them with `|`.
    """

    kind: Literal["strided"] = "strided"
    stride: Size  # tokens from one that is seen to the next

    @property
    def reach(self) -> Reach:
        return Reach(None, 0)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & ((query - key) % self.stride == 0)

    @property
    def uniform(self) -> bool:
        return True

    @property
    def modulus(self) -> int:
        return self.stride

    def thinned(self, step: int) -> Mask:
        left = self.stride // gcd(self.stride, step)
        return Causal() if left == 1 else Strided(stride=left)


class Summaries(Mask):
    """A token looks at the summary blocks of every group before its own: the far half of the fixed pattern.

    Tokens come in blocks of `block`, blocks in groups of `context / block`. The last `summaries` blocks of a group sum
    it up in the first pattern, those before them in the second, and so on over `patterns` patterns, which the heads
    take in turn.
    """

    kind: Literal["summaries"] = "summaries"
    context: Size  # tokens of a group
    block: Size = 1  # tokens of a block
    summaries: Size = 1  # blocks at the end of a group that sum it up
    patterns: Size = 1  # that the heads take in turn

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.context % self.block:
            raise ValueError(f"context {self.context} is not a multiple of block {self.block}")
        if self.summaries * self.patterns > self.context // self.block:
            raise ValueError(
                f"{self.patterns} patterns of {self.summaries} summary blocks need a context of at least "
                f"{self.summaries * self.patterns * self.block}, not {self.context}"
            )
        return self

    @property
    def reach(self) -> Reach:
        return Reach(None, 0)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (key // self.context < query // self.context) & self._sums_up(key)

    def columns(self, keys: int) -> Tensor | None:
        shown = self._sums_up(torch.arange(keys)[None, None])[:, 0]  # [P, keys]
        many = int(shown.sum(-1).min())  # a last group that is not full is in no pattern's past
        return shown.byte().argsort(dim=-1, descending=True, stable=True)[:, :many]

    def _sums_up(self, key: Tensor) -> Tensor:
        """Which tokens are summaries, in each pattern. [..., 1 or P, 1, N] -> [..., P, 1, N]"""
        size = self.context // self.block
        place = key // self.block % size
        last = size - 1 - self.summaries * torch.arange(self.patterns, device=key.device)[:, None, None]  # [P, 1, 1]
        return (place <= last) & (place > last - self.summaries)


class Fixed(Summaries):
    """The fixed pattern of the Sparse Transformer (Child et al. 2019), in the block form of its authors' code.

    A token looks back over its own group of `context` tokens, and at the summaries of every group before it.
    """

    kind: Literal["fixed"] = "fixed"  # type: ignore[assignment]  # another entry of the table

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        own = query // self.context == key // self.context
        return (key <= query) & (own | self._sums_up(key))

    def columns(self, keys: int) -> None:  # every key is seen by its own group
        return None

    @property
    def terms(self) -> tuple[Mask, ...]:
        far = self.model_dump(exclude={"kind"})
        return Causal() & Segments(length=self.context), Summaries(**far)


class Blocks(Mask):
    """A pattern given block by block: `layouts[p][i][j] == "1"` lets block i look at block j.

    Several layouts are patterns that the heads take in turn.
    """

    kind: Literal["blocks"] = "blocks"
    size: Size  # tokens of a block
    layouts: tuple[tuple[Text, ...], ...]  # per pattern, per block of queries: a 1 for every block of keys it sees

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.layouts or not self.layouts[0]:
            raise ValueError("a block pattern needs at least one layout of at least one row, such as (('1',),)")
        count = len(self.layouts[0])
        for row in (row for layout in self.layouts for row in layout):
            if len(row) != count or set(row) - {"0", "1"}:
                raise ValueError(
                    f"{row!r} is not a row of {count} characters 0 or 1; layouts are square and equal in size"
                )
        if any(len(layout) != count for layout in self.layouts):
            raise ValueError(f"every layout must have {count} rows, as the first one has")
        return self

    @cached_property
    def reach(self) -> Reach:
        gaps = [
            i - j for layout in self.layouts for i, row in enumerate(layout) for j, on in enumerate(row) if on == "1"
        ]
        back, ahead = max([*gaps, 0]), max([-gap for gap in gaps] + [0])
        return Reach(back * self.size + self.size - 1, ahead * self.size + self.size - 1)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        table = self._table.to(key.device)
        pattern = torch.arange(len(table), device=key.device)[:, None, None]
        return table[pattern, query.clamp(min=0) // self.size, key.clamp(min=0) // self.size]

    @classmethod
    def drawn(cls, size: int, count: int, *rules: Callable[[int, int], bool]) -> Self:
        """A layout of count × count blocks from each rule (block of the query, block of the key) -> sees it.

        Blocks.drawn(64, 32, lambda i, j: abs(i - j) <= 1 or j == 0)        a window, and a first block that all see
        """
        layouts = (tuple("".join("01"[rule(i, j)] for j in range(count)) for i in range(count)) for rule in rules)
        return cls(size=size, layouts=tuple(layouts))

    @property
    def layout(self) -> Layout:
        return Layout(self.size, self._table)

    @cached_property
    def _table(self) -> Tensor:  # [P, n, n]
        return torch.tensor([[[on == "1" for on in row] for row in layout] for layout in self.layouts])

    def check(self, query: Span, key: Span) -> None:
        limit = len(self.layouts[0]) * self.size
        if max(query.last, key.last) >= limit:
            raise InputError(
                f"the block pattern covers {limit} tokens, but token {max(query.last, key.last)} was given; "
                f"give layouts with more rows, or blocks larger than {self.size}"
            )
