"""Gated attention unit of FLASH (Hua et al. 2022): attention and feed-forward in one, linear across chunks."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from ..core.config import Flag, OneOf, Positive, Share, Size
from ..core.contract import Mixer, MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.stamps import Stamps
from ..core.state import Cell, Log, Seen, remember
from ..parts.feedforward.mlp import Activation, activate
from ..parts.layers.dropout import Dropout
from ..parts.look import Look
from ..parts.masks import Causal, Mask, Segments, Whole
from ..parts.positions import Alibi, Buckets, NoPosition, RelativeConfig, Rope
from ..parts.recurrence.retention import AnyTurn
from ..parts.segments.segmented import Segmented, folded

AnyRelation = Annotated[RelativeConfig, OneOf(lambda: (Buckets.Config, Alibi.Config, NoPosition.Config))]
Remembered: TypeAlias = "tuple[Cell, Log]"  # what is summed up of chunks that are over, and the entries of the open one
ROLES = 4  # near query, near key, far query, far key


class GatedUnit(Mixer[Remembered]):
    """A gated linear unit whose values are mixed by attention: quadratic with squared relu in a chunk, linear across
    chunks.

        y_i = W_o ( u_i ⊙ ( Σ_j relu²(q_i·k_j + b_ij) v_j + q'_i M ) ),   M = Σ_j k'_jᵀ v_j
        u = silu(W_u x),   v = silu(W_v x),   z = silu(W_z x),   q = γ_1 ⊙ z + β_1,   and so k, q' and k'

    with j <= i of i's own chunk in the first sum and all j of the chunks before it in M; both ways, all j of the chunk
    and of the whole text. b depends on the distance; q, k, q' and k' are turned by their position. Hua et al. 2022
    (FLASH, eq. 6 to 8). Costs O(n·(c + d)·d) time over n tokens in chunks of c; remembers M, and the keys and values of
    the chunk that is open. The authors' code divides scores and M by c: `scale`.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Hua et al. 2022, Transformer Quality in Linear Time, arXiv 2202.10447"

        kind: Literal["gated_unit"] = "gated_unit"
        hidden: Size | None = None  # channels of u and v; 2 · width
        size: Size = 128  # channels of z
        chunk: Size = 256  # tokens that attend to one another pair by pair
        causal: Flag = True  # or both ways
        scale: Positive = 1.0  # of q·k, and of M
        weigh: Activation = "relu_squared"  # what scores become; "laplace" is Mega's (Ma et al. 2022)
        activation: Activation = "silu"  # of u, v and z
        position: AnyTurn = Rope.Config()
        relation: AnyRelation | None = None  # b; None: buckets, as T5 has them
        bias: Flag = True
        dropout: Share = 0.0  # of the weights within chunks

        def build(self, width: int) -> GatedUnit:
            return GatedUnit(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            small = cls(size=6, chunk=4)
            options: tuple[dict[str, Any], ...] = (
                *({}, {"chunk": 1}, {"chunk": 3, "scale": 0.3}, {"causal": False}, {"causal": False, "chunk": 30}),
                {"weigh": "laplace", "activation": "gelu", "bias": False, "hidden": 7},
                {"position": NoPosition.Config(), "relation": NoPosition.Config()},
                {"relation": Alibi.Config(), "dropout": 0.5, "causal": False, "chunk": 5},
            )
            return (cls(), *(small.model_copy(update=change) for change in options))

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.hidden, self.size = Dim("hidden", config.hidden or 2 * width), Dim("size", config.size)
        self.chunk, self.scale, self.activation, self.weigh = (
            config.chunk,
            config.scale,
            config.activation,
            config.weigh,
        )
        self.mask: Mask = Causal() if config.causal else Whole()
        self.reach = Reach(None, 0 if config.causal else None)
        self.gate, self.value = (nn.Linear(width, self.hidden, bias=config.bias) for _ in range(2))
        self.base = nn.Linear(width, self.size, bias=config.bias)
        self.gain = nn.Parameter(torch.empty(ROLES, self.size))  # γ
        self.shift = nn.Parameter(torch.zeros(ROLES, self.size))  # β
        nn.init.normal_(self.gain, std=0.02)
        self.position = config.position.build(ROLES, self.size)
        relation = config.relation or Buckets.Config(both_ways=not config.causal)
        self.relation = relation.build(1, self.size)
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(self.hidden, width, bias=config.bias)
        self.weights = Look()

    @property
    def precision(self) -> torch.dtype:
        """Long sums need at least float32."""
        return torch.promote_types(self.out.weight.dtype, torch.float32)

    def spec(self) -> Spec:
        return (Slot(((self.size, self.hidden),), Entries(fixed=1), self.precision), self._open) if self.streams else ()

    @property
    def _open(self) -> Slot:
        """Near keys, far keys and values of the open chunk."""
        cap = Dim("(chunk - 1)", self.chunk - 1)
        return Slot(((self.size,), (self.size,), (self.hidden,)), Entries(each=1, cap=cap), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Remembered | None = None) -> tuple[Tensor, Remembered | None]:
        x = where.blank(x)
        gate, value, base = (activate(self.activation, part(x)) for part in (self.gate, self.value, self.base))
        roles = self.position.turn(base.unsqueeze(2) * self.gain + self.shift, where)  # [B, T, 4, s]
        near, near_key, far, far_key = roles.unbind(2)
        cell, log = (None, None) if state is None else state
        seen, kept = remember(log, where, near_key, where.blank(far_key), value)
        self.weights(lambda: self._shown(near, where, seen))
        segments = Segmented(seen, self.chunk)
        past = x.new_zeros(len(x), self.size, self.hidden, dtype=self.precision) if cell is None else cell.take()[0]
        if segments.count == 1 and self.streams:
            y, after = self._near(near, where, seen) + self._far(far, past), past.unsqueeze(1)
            if kept is not None and not segments.settled:
                after = self._summed(past, *(part.unsqueeze(1) for part in seen.parts[1:]))
        else:
            y, after = self._across(near, far, segments, seen, past)
        mixed: Tensor = self.out(gate * where.blank(y))
        return mixed, None if kept is None else folded([after], segments, seen, kept, self._open)

    def _across(
        self, near: Tensor, far: Tensor, segments: Segmented, seen: Seen, past: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Both sums where tokens lie in several chunks: all of them at once, side by side in a grid."""
        tokens = near.shape[1]
        near, far = (segments.put(_moved(x, seen.shape[1])) for x in (near, far))  # [B, S, c, s]
        keys = [segments.put(part) for part in seen.parts]
        grid = self._alike(segments, seen, len(keys[0].flatten(0, 1)))
        y = self._near(near.flatten(0, 1), grid, Seen.of(grid, *(key.flatten(0, 1) for key in keys)))
        after = self._summed(past, *keys[1:])
        before = after[:, :-1] if self.streams else after[:, -1:]
        return segments.take(y.view_as(keys[2]) + self._far(far, before), tokens), after

    def _near(self, query: Tensor, where: Stamps, seen: Seen) -> Tensor:
        """Attention within the chunk. [R, T, s] -> [R, T, e]"""
        weight = self._weights(query, where, seen).masked_fill(~self.mask(where, seen).pairs(1)[:, 0], 0)
        read: Tensor = self.dropout(weight) @ seen.parts[2]
        return read

    def _weights(self, query: Tensor, where: Stamps, seen: Seen) -> Tensor:
        """relu²(q·k + b). [R, T, N]"""
        key, term = seen.parts[0], self.relation.bias
        score = self.scale * (query @ key.mT)
        if term is not None:
            score = score + term(query.unsqueeze(2), key.unsqueeze(2), where, seen)[:, 0]
        return activate(self.weigh, score)

    def _far(self, query: Tensor, past: Tensor) -> Tensor:
        """q' M. [..., T, s], [..., s, e] -> [..., T, e]"""
        return (query.to(past.dtype) @ past).to(query.dtype)

    def _summed(self, past: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """M before each chunk and after the last. [B, S, c, *] -> [B, S + 1, s, e]"""
        added = self.scale * (key.mT.to(past.dtype) @ value.to(past.dtype))
        return torch.cat((past.unsqueeze(1), added), 1).cumsum(1)

    def _alike(self, segments: Segmented, seen: Seen, rows: int) -> Stamps:
        """The stamps of the grid; where positions are orders all chunks are alike but for padding, and one stands for
        all of them when distances are looked up. [B·S, c]
        """
        grid = segments.grid
        if seen.position is not seen.order:
            return grid
        place = torch.arange(self.chunk, device=grid.order.device).expand(rows, -1)
        return Stamps(grid.order if grid.span.padded else place, place)

    def _shown(self, query: Tensor, where: Stamps, seen: Seen) -> Tensor:
        """The weights within the chunk. [B, 1, T, N]"""
        sight = (self.mask & Segments(length=self.chunk))(where, seen)
        return self._weights(query, where, seen).masked_fill(~sight.pairs(1)[:, 0], 0).unsqueeze(1)


def _moved(x: Tensor, columns: int) -> Tensor:
    """Behind so many empty columns that there are `columns` in all. [B, T, s]"""
    return nn.functional.pad(x, (0, 0, columns - x.shape[1], 0))
