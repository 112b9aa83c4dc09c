"""What a retention is divided by, token by token and head by head, before it is normed.

A norm takes any positive factor out again, but for its eps. So the paper has none in its equations, and its authors'
code has three, one in each of its forms, which keep numbers small. Where activations are small the forms visibly
differ: a checkpoint that was trained in one of them is given that one.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.config import Config, OneOf, Size
from ...core.contract import Where
from ...core.spec import Dim, Entries, Slot, Spec
from ...core.state import Cell, Log, State, remember
from ..segments.segmented import Segmented, folded
from .decay import chunked, entering

LARGEST = 5e4  # a sum of scores counts as at most this


class Made(NamedTuple):
    """What a divisor may look at."""

    query: Tensor  # [B, T, H, d]
    key: Tensor  # [B, T, H, d]
    value: Tensor  # [B, T, H, e]
    fade: Tensor  # log γ [1, 1, H]

    @property
    def log_decay(self) -> Tensor:
        """log γ, as what ages are multiplied by. [H, 1, 1]"""
        return self.fade[0, 0, :, None, None]


class DivisorConfig(Config):
    """A rule for what to divide by, with a memory of its own."""

    @abstractmethod
    def spec(self, heads: int, size: int, value_size: int, dtype: torch.dtype) -> Spec:
        """What it remembers."""

    @abstractmethod
    def divide(self, made: Made, where: Where, state: State | None) -> tuple[Tensor | None, State | None]:
        """What each head of each token is divided by, [B, T, H, 1], without a gradient; and what is kept."""


class Undivided(DivisorConfig):
    """Nothing: the equations of the paper."""

    kind: Literal["undivided"] = "undivided"

    def spec(self, heads: int, size: int, value_size: int, dtype: torch.dtype) -> Spec:
        return ()

    def divide(self, made: Made, where: Where, state: State | None) -> tuple[Tensor | None, State | None]:
        return None, state


class Rooted(DivisorConfig):
    """√Σ_j γ^(i-j): the recurrent form of torchscale. Remembers that sum."""

    kind: Literal["rooted"] = "rooted"

    def spec(self, heads: int, size: int, value_size: int, dtype: torch.dtype) -> Spec:
        return Slot(((heads,),), Entries(fixed=1), dtype)

    def divide(self, made: Made, where: Where, state: State | None) -> tuple[Tensor | None, State | None]:
        ones = made.key.new_ones(*made.key.shape[:3], 1)
        past = None if state is None else cast(Cell, state).take()[0][..., None, None]
        fade = made.fade if state is None else where.blank(made.fade)
        sums, after = chunked(ones, where.blank(ones), ones, fade, past)
        # A token counts itself, so only a row without any token has less than one.
        return sums.clamp(min=1).sqrt(), None if state is None else Cell(after[..., 0, 0])


class Summed(DivisorConfig):
    """√Σ_j γ^(i-j) · clamp(Σ_j |s_ij|, 1, 5·10⁴), s the scores divided by the root: the parallel form of torchscale.

    All scores are needed for it: it remembers every key, and n tokens cost O(n²·d).
    """

    kind: Literal["summed"] = "summed"

    def spec(self, heads: int, size: int, value_size: int, dtype: torch.dtype) -> Spec:
        return Slot(((heads, size),), Entries(each=1), dtype)

    def divide(self, made: Made, where: Where, state: State | None) -> tuple[Tensor | None, State | None]:
        seen, kept = remember(cast("Log | None", state), where, made.key.detach())
        age = where.order[:, None, :, None] - seen.order[:, None, None, :]  # [B, 1, T, N]
        hidden = (age < 0) | ~seen.real[:, None, None]
        decay = (made.log_decay * age).masked_fill(hidden, -torch.inf).exp().to(made.key)  # [B, H, T, N]
        root = decay.sum(-1).clamp(min=1).sqrt()
        score = torch.einsum("bthd,bnhd->bhtn", made.query.detach(), seen.parts[0]) * decay
        total = (score.abs().sum(-1) / root).clamp(1, LARGEST)
        return (root * total).transpose(1, 2).unsqueeze(-1), kept


class Chunkwise(DivisorConfig):
    """c_i · max(1, Σ_j |s_ij|, ‖R‖), i and j within chunks of `chunk` tokens: the chunkwise form of torchscale.

    c_i = √Σ_j γ^(i-j) over the chunk up to i, s the scores divided by it, and R the matrix that enters the chunk,
    divided by γ^0 + ... + γ^(chunk-1), of which ‖R‖ is the largest sum of a column's magnitudes. Remembers that matrix,
    and the keys and values of the open chunk.
    """

    kind: Literal["chunkwise"] = "chunkwise"
    chunk: Size = 512  # tokens

    def spec(self, heads: int, size: int, value_size: int, dtype: torch.dtype) -> Spec:
        return Slot(((heads, size, value_size),), Entries(fixed=1), dtype), self._open(heads, size, value_size, dtype)

    def _open(self, heads: int, size: int, value_size: int, dtype: torch.dtype) -> Slot:
        cap = Dim("(chunk - 1)", self.chunk - 1)
        return Slot(((heads, size), (heads, value_size)), Entries(each=1, cap=cap), dtype)

    @torch.no_grad()
    def divide(self, made: Made, where: Where, state: State | None) -> tuple[Tensor | None, State | None]:
        cell, log = (None, None) if state is None else cast("tuple[Cell, Log]", state)
        tokens, heads, size = made.key.shape[1:]
        seen, kept = remember(log, where, made.key, made.value)
        segments = Segmented(seen, self.chunk)
        asked = F.pad(made.query, (0, 0, 0, 0, seen.shape[1] - tokens, 0))
        query, key, value = (segments.put(x).transpose(2, 3) for x in (asked, *seen.parts))  # [B, S, H, C, *]
        place = torch.arange(self.chunk, device=key.device)
        age = place[:, None] - place
        decay = (made.log_decay * age).masked_fill(age < 0, -torch.inf).exp().to(key)  # [H, C, C]
        root = decay.sum(-1).sqrt()  # [H, C]
        inner = ((query @ key.mT).abs() * decay).sum(-1) / root  # [B, S, H, C]
        past = self._past(made, key, value, cell)
        outer = (past[:, :-1] / decay[:, -1].sum(-1)[:, None, None]).abs().sum(-2).amax(-1)  # [B, S, H]
        divisor = root * torch.maximum(inner, outer.unsqueeze(-1)).clamp(min=1)
        made_of = segments.take(divisor.transpose(2, 3).unsqueeze(-1), tokens)
        if kept is None:
            return made_of, None
        slot = self._open(heads, size, made.value.shape[-1], made.key.dtype)
        return made_of, folded([past], segments, seen, kept, slot)

    def _past(self, made: Made, key: Tensor, value: Tensor, cell: Cell | None) -> Tensor:
        """The matrix before each chunk and after the last. [B, S, H, C, *] -> [B, S + 1, H, d, e]"""
        rows, _, heads, _, size = key.shape
        first = key.new_zeros(rows, heads, size, value.shape[-1]) if cell is None else cell.take()[0]
        left = (made.log_decay[:, 0] * torch.arange(self.chunk - 1, -1, -1, device=key.device)).exp().to(key)  # [H, C]
        added = ((key * left.unsqueeze(-1)).mT @ value).transpose(1, 2)  # [B, H, S, d, e]
        before, after = entering(added.flatten(3), made.fade.transpose(1, 2) * self.chunk, first.flatten(2))
        return torch.cat((before, after.unsqueeze(2)), 2).view(rows, heads, -1, *first.shape[2:]).transpose(1, 2)


DIVISORS: tuple[type[DivisorConfig], ...] = (Undivided, Rooted, Summed, Chunkwise)
AnyDivisor = Annotated[DivisorConfig, OneOf(lambda: DIVISORS)]
