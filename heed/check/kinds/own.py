"""A model of heed behind the face that whole models have elsewhere: ids, a mask, labels and a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...core.contract import Mixer, Where
from ...core.interfaces import Encodes, LanguageModel

Losing = Callable[[Tensor, Tensor], Tensor]  # ids, labels -> the mean loss that training would take
SOURCE = 5  # tokens that are read before anything is written


class Own(nn.Module):
    """Scores for ids; where tokens stand is told by stamps, what was seen is handed on as a state."""

    def __init__(self, model: Mixer[Any], losing: Callable[[Mixer[Any]], Losing] | None = None) -> None:
        super().__init__()
        self.model, self.losing = model, losing

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        past: tuple[Any, int] | None = None,
        use_cache: bool = False,
    ) -> tuple[Any, ...]:
        state, done = (None, 0) if past is None else past
        where = self._where(input_ids, attention_mask, done)
        if use_cache and state is None:
            state = self.model.start(len(input_ids), where.given)
        scores, state = self.model(input_ids, where, state)
        kept = (state, done + input_ids.shape[1]) if use_cache else None
        if labels is None or self.losing is None:
            return scores, kept
        return self.losing(self.model)(input_ids, labels), scores, kept

    def _where(self, ids: Tensor, mask: Tensor | None, done: int) -> Where:
        where = Where.run(*ids.shape, start=done)
        if mask is not None:
            order = torch.where(mask.bool(), mask.cumsum(1) - 1 + done, -1)
            where = Where(order, order.clamp(min=0))
        if isinstance(self.model, Encodes) and isinstance(self.model, LanguageModel):
            source = torch.arange(3, 3 + SOURCE).expand(len(ids), -1)
            where = where.give(encoder_output=self.model.encode(source, Where.run(len(ids), SOURCE)))
        return where
