"""Infini-attention (Munkhdalai et al. 2024): softmax attention in a segment, a compressive memory of all before it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from annotated_types import Ge
from pydantic import Strict
from torch import Tensor, nn

from ..core.config import Flag, Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.stamps import Stamps
from ..core.state import Cell, Log, Seen, remember
from ..parts.attention.attend import attend, written_out
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.layers.norms import RMSNorm
from ..parts.masks import Causal, Segments
from ..parts.positions import Alibi, AnyRelative, NoPosition, Rope, XPos
from ..parts.segments.segmented import Segmented

CAUSAL = Causal()
Remembered: TypeAlias = "tuple[Cell, Log]"  # the matrix with its sum, and the keys and values of the open segment


class Matrix(NamedTuple):
    """The compressive memory: values by keys, and the sum of the keys. [B, S, K, d, e] and [B, S, K, d]"""

    values: Tensor
    keys: Tensor


class Infini(Headed[Remembered]):
    """Causal softmax attention within a segment plus linear attention to a compressive memory of all segments before
    it, weighed by a gate per head.

        A_i = σ(β) M_i + (1 - σ(β)) L_i,     L_i = Σ_j softmax_j(q_i·k_j / √d) v_j   over j <= i of i's segment
        M_i = φ(q_i) M / (φ(q_i)·z),         M = Σ_j φ(k_j)ᵀ v_j,  z = Σ_j φ(k_j)    over all segments before it

    with φ(x) = elu(x) + 1, and 0 / 0 = 0: nothing is known of before the first segment. With `update` "delta" what is
    written of v_j is v_j - φ(k_j) M / (φ(k_j)·z): only what the matrix does not hold already. Position codes turn
    queries and keys for the softmax, the matrix has them unturned; as codes are relative it does not matter whether
    positions restart in every segment.

    Munkhdalai et al. 2024. Costs O(n·(L + d)·d) time over n tokens in segments of L, all segments at once ("delta":
    one after the other); remembers d² + d numbers per head and the keys and values of the segment that is open.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Munkhdalai et al. 2024, Leave No Context Behind, arXiv 2404.07143"

        kind: Literal["infini"] = "infini"
        segment: Size = 64  # tokens
        update: Literal["linear", "delta"] = "linear"  # of the memory: by adding, or by what it lacks (delta rule)
        position: AnyRelative = NoPosition.Config()  # within a segment
        gates: Literal["memory", "local"] = "memory"  # what σ(β) weighs; the other gets 1 - σ(β) (lucidrains: "local")
        ungated_first: Flag = False  # the first segment has its softmax alone (lucidrains)
        floor: Annotated[float, Strict(), Ge(0)] = 0.0  # a reading divides at least by this (lucidrains: 1e-10)

        def build(self, width: int) -> Infini:
            return Infini(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            reference = cls(segment=4, gates="local", ungated_first=True, floor=1e-10, position=Rope.Config())
            return (
                *(cls(), cls(segment=4), cls(segment=3, update="delta"), cls(segment=1), cls(segment=2, kv_heads=2)),
                *(reference, reference.model_copy(update={"update": "delta", "kv_heads": 1})),
                cls(segment=4, bias=False, head_norm=RMSNorm(), norm=RMSNorm(), clip=0.9, position=XPos.Config()),
                cls(segment=5, heads=3, head_size=5, scale=0.3, update="delta", position=Alibi.Config()),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.segment, self.update, self.floor = config.segment, config.update, config.floor
        self.gates, self.ungated_first = config.gates, config.ungated_first
        self.position = config.position.build(self.heads, self.head_size)
        self.gate = nn.Parameter(torch.zeros(self.heads))  # β: at first both halves count alike
        self.reach = Reach(None, 0)

    def spec(self) -> Spec:
        return self._matrix_slot, self._open_slot

    @property
    def _matrix_slot(self) -> Slot:
        size = self.head_size
        return Slot(((self.kv_heads, size, size), (self.kv_heads, size)), Entries(fixed=1), self.out.weight.dtype)

    @property
    def _open_slot(self) -> Slot:
        cap = Dim("(segment - 1)", self.segment - 1)
        return Slot(((self.kv_heads, self.head_size),) * 2, Entries(each=1, cap=cap), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Remembered | None = None) -> tuple[Tensor, Remembered | None]:
        x = where.blank(x)
        query = self.queries(x)
        cell, log = (None, None) if state is None else state
        seen, kept = remember(log, where, self.keys(x), self.values(x))
        past = self._nothing(x) if cell is None else Matrix(*(part.unsqueeze(1) for part in cell.take()))
        self.weights(lambda: self._shown(query, where, seen))
        segments = Segmented(seen, self.segment)
        if segments.count == 1:
            local = self._local(query, where, seen)
            recalled = self._read(query.unsqueeze(1), past).squeeze(1)
        else:
            past = self._written(past, *(segments.put(part) for part in (*seen.parts, seen.real)))
            local, recalled = self._across(query, segments, seen, past)
        y = self.merge(where.blank(self._gated(local, recalled, where)))
        return y, None if kept is None else self._folded(past, segments, seen, kept)

    def closed(self, state: Remembered) -> Matrix:
        """The matrix [B, K, d, e] and its sum [B, K, d] as if the open segment were over. The state is not used up."""
        (values, keys), (order, _, key, value) = (leaf.tensors() for leaf in state)
        written = self._written(
            Matrix(values[:, None], keys[:, None]), key[:, None], value[:, None], order[:, None] >= 0
        )
        return Matrix(*(part[:, -1] for part in written))

    def _local(self, query: Tensor, where: Stamps, seen: Seen) -> Tensor:
        """The softmax over what is seen of one segment. [B, T, H, d]"""
        query, key, value = self._turned(query, where, seen)
        sight, bias = CAUSAL(where, seen), self.position.bias
        return attend(query, key, value, sight, bias=bias, scale=self.scale, dropout=self.drop)

    def _across(self, query: Tensor, segments: Segmented, seen: Seen, past: Matrix) -> tuple[Tensor, Tensor]:
        """Both halves where tokens lie in several segments: all of them at once, side by side in a grid."""
        tokens = query.shape[1]
        queries = segments.put(F.pad(query, (0, 0, 0, 0, seen.shape[1] - tokens, 0)))  # [B, S, L, H, d]
        grid = segments.grid
        parts = (segments.put(part).flatten(0, 1) for part in seen.parts)
        local = self._local(queries.flatten(0, 1), grid, Seen.of(grid, *parts)).view_as(queries)
        before = Matrix(*(part[:, :-1] for part in past))
        return segments.take(local, tokens), segments.take(self._read(queries, before), tokens)

    def _read(self, query: Tensor, matrix: Matrix) -> Tensor:
        """φ(q) M / (φ(q)·z), for any number of queries per key head. [B, S, T, H, d] -> [B, S, T, H, e]"""
        feature = self._grouped(F.elu(query) + 1)
        divisor = torch.einsum("bstkgd,bskd->bstkg", feature, matrix.keys).clamp(min=self.floor)
        divisor = divisor.masked_fill(divisor == 0, 1.0)  # where nothing is known the sum above is zero, too
        found = torch.einsum("bstkgd,bskde->bstkge", feature, matrix.values) / divisor.unsqueeze(-1)
        return found.flatten(3, 4)

    def _grouped(self, x: Tensor) -> Tensor:
        """By the key head of each head. [B, S, T, H, d] -> [B, S, T, K, H/K, d]"""
        return x.reshape(*x.shape[:3], self.kv_heads, x.shape[3] // self.kv_heads, x.shape[4])

    def _written(self, matrix: Matrix, key: Tensor, value: Tensor, real: Tensor) -> Matrix:
        """The matrix before each segment and after the last. [B, S, L, K, d] -> [B, S + 1, K, d, e]"""
        feature = (F.elu(key) + 1) * real[..., None, None]
        sums = torch.cat((matrix.keys, feature.sum(2)), 1).cumsum(1)
        if self.update == "linear":
            added = torch.einsum("bslkd,bslke->bskde", feature, value)
            return Matrix(torch.cat((matrix.values, added), 1).cumsum(1), sums)
        steps = [matrix.values]
        # Split, not sliced: the gradient of every slice would be as large as the whole.
        each = (torch.split(part, 1, 1) for part in (key, value, feature, sums[:, :-1]))
        for one, new, written, known in zip(*each, strict=True):  # what is written depends on what was written before
            fresh = new - self._read(one, Matrix(steps[-1], known))
            steps.append(steps[-1] + torch.einsum("bslkd,bslke->bskde", written, fresh))
        return Matrix(torch.cat(steps, 1), sums)

    def _gated(self, local: Tensor, recalled: Tensor, where: Where) -> Tensor:
        share = torch.sigmoid(self.gate)[:, None]
        share = share if self.gates == "memory" else 1 - share  # of the memory
        y = share * recalled + (1 - share) * local
        return torch.where((where.order < self.segment)[..., None, None], local, y) if self.ungated_first else y

    def _folded(self, past: Matrix, segments: Segmented, seen: Seen, kept: Log) -> Remembered:
        """What is kept: in rows where a segment is over it goes into the matrix, and the next one is open."""
        if segments.settled or not bool(segments.closed.any()):
            return Cell(*(part[:, 0] for part in past)), kept
        if segments.count == 1:
            past = self._written(past, *(part.unsqueeze(1) for part in (*seen.parts, seen.real)))
        rows = torch.arange(len(seen.order), device=seen.order.device)
        opened = Stamps(seen.order.masked_fill(~segments.open, -1), seen.position)
        _, log = Log.empty(self._open_slot, len(rows), seen.order.device).append(opened, *seen.parts)
        return Cell(*(part[rows, segments.closed] for part in past)), log

    def _turned(self, query: Tensor, where: Stamps, seen: Seen) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as the softmax has them."""
        key, value = seen.parts
        query, key = self.position.turn(query, where), self.position.turn(key, seen)
        return *self.position.meet(query, key, where, seen), self.position.turn_value(value, seen)

    def _shown(self, query: Tensor, where: Where, seen: Seen) -> Tensor:
        """The weights of the softmax. [B, H, T, N]"""
        sight = (CAUSAL & Segments(length=self.segment))(where, seen)
        turned = self._turned(query, where, seen)
        return written_out(*turned, sight, bias=self.position.bias, scale=self.scale)[1]

    def _nothing(self, x: Tensor) -> Matrix:
        size = self.head_size
        return Matrix(x.new_zeros(len(x), 1, self.kv_heads, size, size), x.new_zeros(len(x), 1, self.kv_heads, size))
