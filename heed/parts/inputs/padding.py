"""An attention mask of other libraries (1 = a token, 0 = padding), translated: heed pads only at a row's end.

`Where.of_mask` takes masks that pad there already. Left padding, or padding between tokens, needs the tokens moved:

    padded = Aligned.of(attention_mask)
    logits, _ = model(padded.align(input_ids), padded.where)
    logits = padded.restore(logits)                              # in the columns of `input_ids` again
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...core.contract import Where, real_of
from ...core.errors import InputError
from ...core.stamps import Span


@dataclass(frozen=True, eq=False)
class Aligned:
    """Rows whose tokens were moved to the front, so that all padding stands at the end; and the way back.

    Positions count the tokens of a row, as `generate` of other libraries counts them: padding between tokens leaves no
    gap.
    """

    where: Where
    index: Tensor | None  # [B, T] the column that each token comes from; None = nothing moves

    @classmethod
    def of(cls, mask: Tensor) -> Aligned:
        """From a mask [rows, tokens] with 1 = a token and 0 = padding, wherever the padding stands."""
        real = real_of(mask)
        if not bool((real[:, 1:] & ~real[:, :-1]).any()):
            return cls(Where.of_mask(mask), None)
        index = real.int().argsort(dim=1, descending=True, stable=True)  # tokens first, in their order
        where = Where.ragged(real.sum(1), width=real.shape[1])
        where.known(Span(0, int(where.order.max()), run=True, padded=True))
        return cls(where, index)

    def align(self, x: Tensor) -> Tensor:
        """Tokens, or anything else with a column per token, with each row's tokens first. [B, T, ...]"""
        return x if self.index is None else self._taken(x, self.index)

    def restore(self, y: Tensor) -> Tensor:
        """What a model made of them, each in the column its token was given in. [B, T, ...]"""
        return y if self.index is None else self._taken(y, self.index.argsort(1))

    def _taken(self, x: Tensor, index: Tensor) -> Tensor:
        if x.shape[:2] != index.shape:
            given = f"a tensor {list(x.shape)}, the mask {list(index.shape)}"
            raise InputError(f"the mask and what it is about must agree in rows and tokens; given: {given}")
        at = index.to(x.device).reshape(*index.shape, *(1,) * (x.dim() - 2))
        return x.gather(1, at.expand(-1, -1, *x.shape[2:]))
