"""Long sources in overlapping windows, as in SLED (Ivgi et al. 2022) and Unlimiformer (Bertsch et al. 2023)."""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Size
from ...core.contract import Reach, Where
from ...core.errors import InputError
from ...core.spec import Spec
from ..block import States
from ..encoder import Encoder


class SledEncoder(Encoder):
    """An encoder of long sources in sliding windows, which overlap by half; it keeps the middle half of each.

    So a token has at least a quarter of a window of context on either side; the first window keeps its begin and the
    last one, which ends where the row ends, its end. Positions restart in every window: a source may be longer than the
    encoder has positions for. The weights are those of an `encoder`, and so is the output for a source of one window.

    Ivgi et al. 2022 (SLED), Bertsch et al. 2023 (Unlimiformer). n tokens in windows of w cost 2n/w times what the
    encoder costs over w tokens.
    """

    class Config(Encoder.Config):
        kind: Literal["sled_encoder"] = "sled_encoder"  # type: ignore[assignment]  # a shape of its own
        window: Size = 512  # tokens

        @model_validator(mode="after")
        def _quarters(self) -> Self:
            if self.window % 4:
                near = max(4, self.window - self.window % 4)
                raise ValueError(f"a window of {self.window} has no middle half; use a multiple of 4, such as {near}")
            return self

        def build(self) -> SledEncoder:
            return SledEncoder(self)

    def __init__(self, config: Config, table: nn.Embedding | None = None) -> None:
        super().__init__(config, table)
        self.window = config.window
        self.reach = Reach(None, None)  # where the last window begins is known at the end

    def spec(self) -> Spec:
        return ()

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        if where.shape[1] <= self.window:
            return super().mix(x, where)
        if where.given.marked is not None or where.given.segment is not None:
            raise InputError("a source that is encoded in windows has no marked tokens and no segments; leave them out")
        length, longest = where.real.sum(1), where.shape[1]
        column = self._columns(length, longest)
        rows = torch.arange(len(x), device=x.device)[:, None, None]
        y, _ = super().mix(where.blank(x)[rows, column].flatten(0, 1), self._stamps(where, column, length))
        kept = self._kept(length, column[..., 0], longest)
        return y.reshape(len(x), -1, y.shape[-1]).take_along_dim(kept[..., None], 1), None

    def _columns(self, length: Tensor, longest: int) -> Tensor:
        """Which column of a row stands where in each window; windows that a row does not need repeat its last one.

        [B] -> [B, C, window]
        """
        half = self.window // 2
        first = torch.arange(-(-longest // half) - 1, device=length.device) * half
        begin = torch.minimum(first, (length - self.window).clamp(min=0)[:, None])
        return begin[..., None] + torch.arange(self.window, device=length.device)

    def _stamps(self, where: Where, column: Tensor, length: Tensor) -> Where:
        """The stamps of all windows as rows, each restarted where the row begins. [B·C, window]"""
        rows = torch.arange(len(column), device=column.device)[:, None, None]
        hidden = column >= length[:, None, None]

        def restarted(stamp: Tensor, filler: int) -> Tensor:
            moved = stamp[rows, column] - stamp[rows, column[..., :1]] + stamp[:, :1, None]
            return moved.masked_fill(hidden, filler).flatten(0, 1)

        return Where(restarted(where.order, -1), restarted(where.position, 0))

    def _kept(self, length: Tensor, begin: Tensor, longest: int) -> Tensor:
        """Where each token of a row stands in its windows, side by side. [B], [B, C] -> [B, T]"""
        half = self.window // 2
        token = torch.arange(longest, device=length.device).expand(len(length), -1)
        last = (-(-length // half) - 2).clamp(min=0)[:, None]
        window = torch.minimum(((token - half // 2) // half).clamp(min=0), last)
        place = window * self.window + token - begin.take_along_dim(window, 1)
        return place.masked_fill(token >= length[:, None], 0)
