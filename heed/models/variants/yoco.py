"""YOCO (Sun et al. 2024): a decoder-decoder that keeps one KV cache for all upper layers."""

from __future__ import annotations

from typing import Literal, Self, cast

from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Flag, Positive, Share, Size
from ...core.contract import NOTHING, Given, Mixer, MixerConfig, Reach, Where
from ...core.errors import InputError
from ...core.spec import Dim, Entries, Slot, Spec
from ...core.state import Log, State, allocate, remember
from ...mixers import GatedRetention, SomeMixers
from ...parts.attention.attend import attend, written_out
from ...parts.attention.multihead import per_head
from ...parts.feedforward import Gated, SomeFeedForwards
from ...parts.feedforward.mlp import Nothing
from ...parts.layers.norms import AnyNorm, RMSNorm
from ...parts.look import Look
from ...parts.masks import Causal
from ...parts.positions import Rope
from ...parts.recurrence.retention import AnyTurn
from ...parts.residual.wiring import AnyWiring, PreNorm, ResiDual, Reversible
from ..block import States
from ..decoder import Decoder
from ..stack import tiled

CAUSAL = Causal()


class SharedKVAttention(Mixer[Nothing]):
    """Attention over the shared KV cache, `where.given.shared`; it has no keys, values and state of its own.

    y_i = W_o Σ_{j <= i} softmax_j(q_i·k_j / √d) v_j,   q = turn(W_q x)
    """

    reach = Reach(None, 0)

    class Config(MixerConfig):
        """`kv_heads` of the shared cache; the query heads of every layer share them evenly."""

        kind: Literal["reader"] = "reader"
        heads: Size = 4
        kv_heads: Size | None = None  # as many as heads
        head_size: Size | None = None  # width / heads
        bias: Flag = False
        scale: Positive | None = None  # head_size^-1/2
        dropout: Share = 0.0  # of the weights
        position: AnyTurn = Rope.Config(layout="pairs")

        @model_validator(mode="after")
        def _groups(self) -> Self:
            if self.heads % self.shared:
                raise ValueError(
                    f"{self.heads} heads cannot share kv_heads = {self.shared} evenly; use a divisor of {self.heads}"
                )
            return self

        @property
        def shared(self) -> int:
            """Heads of keys and values."""
            return self.kv_heads or self.heads

        def size(self, width: int) -> int:
            """Channels per head."""
            return self.head_size or per_head(width, self.heads, "; or set reader.head_size")

        def build(self, width: int) -> SharedKVAttention:
            return SharedKVAttention(self, width)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        size = config.size(width)
        self.heads, self.scale, self.dropout = config.heads, config.scale or size**-0.5, config.dropout
        self.query = nn.Linear(width, self.heads * size, bias=config.bias)
        self.position = config.position.build(self.heads, size)
        self.out = nn.Linear(self.heads * size, width, bias=config.bias)
        self.weights = Look()

    def spec(self) -> Nothing:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        seen = where.given.shared
        if seen is None:
            raise InputError("attention to a shared KV cache needs its keys and values; pass where.give(shared=...)")
        query = self.position.turn(self.query(where.blank(x)).unflatten(-1, (self.heads, -1)), where)
        sight, (key, value) = CAUSAL(where, seen), seen.parts
        self.weights(lambda: written_out(query, key, value, sight, scale=self.scale)[1])
        dropout = self.dropout if self.training else 0.0
        mixed: Tensor = self.out(attend(query, key, value, sight, scale=self.scale, dropout=dropout).flatten(2))
        return mixed, state


class SharedKV(nn.Module):
    """The one KV cache of the upper half: k = turn(W_k norm(x)), v = W_v norm(x)."""

    def __init__(self, config: SharedKVAttention.Config, width: int, norm: nn.Module) -> None:
        super().__init__()
        self.heads, self.size = Dim("kv_heads", config.shared), Dim("head_size", config.size(width))
        self.norm = norm
        self.key, self.value = (nn.Linear(width, self.heads * self.size, bias=config.bias) for _ in range(2))
        for project in (self.key, self.value):
            nn.init.xavier_uniform_(project.weight)
            if config.bias:
                nn.init.zeros_(project.bias)
        self.position = config.position.build(self.heads, self.size)

    def spec(self) -> Slot:
        return Slot(((self.heads, self.size),) * 2, Entries(each=1), self.key.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Log | None) -> tuple[Where, Log | None]:
        """The tokens of this call with all of the cache so far, and what is kept."""
        normed = self.norm(where.blank(x))
        key, value = (project(normed).unflatten(-1, (self.heads, -1)) for project in (self.key, self.value))
        seen, kept = remember(state, where, self.position.turn(key, where), value)
        return where.give(shared=seen), kept


class Yoco(Decoder):
    """A decoder whose lower layers have a state of fixed size, and whose upper layers share one KV cache.

    You Only Cache Once: the cache is made from the output of the lower half (the self-decoder) and serves all layers of
    the upper half (the cross-decoder).

    Remembers 2·kv_heads·head_size numbers per token, however deep it is: the n-th part of the KV cache of a decoder of
    n layers, but for the fixed state of the lower half.
    """

    class Config(Decoder.Config):
        kind: Literal["yoco"] = "yoco"  # type: ignore[assignment]  # a shape of its own
        mixer: SomeMixers = (GatedRetention.Config(),)  # of the lower half: the paper has these, or a window
        upper: Size | None = None  # layers of the upper half; None: half of the depth
        reader: SharedKVAttention.Config = SharedKVAttention.Config()
        feedforward: SomeFeedForwards = (Gated.Config(),)
        norm: AnyNorm = RMSNorm()
        wiring: AnyWiring = PreNorm()

        @model_validator(mode="after")
        def _two_halves(self) -> Self:
            if self.lower < 1:
                raise ValueError(f"{self.readers} of {self.depth} layers cannot be the upper half; leave one below")
            if isinstance(self.wiring, ResiDual | Reversible):
                raise ValueError(  # noqa: TRY004  # pydantic takes no TypeError
                    "keys and values are made of one stream; use a wiring that has no second one"
                )
            if self.cross or self.order or self.convolution or self.one_position:
                raise ValueError("YOCO has no cross, order, convolution or one_position; leave them")
            return self

        @property
        def readers(self) -> int:
            """Layers of the upper half."""
            return self.upper or self.depth // 2

        @property
        def lower(self) -> int:
            """Layers of the lower half."""
            return self.depth - self.readers

        def mixer_of(self, block: int) -> MixerConfig:
            return tiled(self.mixer, block) if block < self.lower else self.reader

        def build(self) -> Yoco:
            return Yoco(self)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.shared = SharedKV(config.reader, config.width, config.norm.build(config.width))

    def spec(self) -> Spec:
        return (*cast("tuple[Spec, ...]", self.stack.spec()), self.shared.spec()) if self.streams else ()

    def start(self, rows: int, given: Given = NOTHING) -> States:
        return (*super().start(rows, given), allocate(self.shared.spec(), rows, self.device))

    def hidden(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        x = self.stack.ends.enter(self.embeddings.place(x, where))
        layers = self.stack.layers
        *before, log = (None,) * (len(layers) + 1) if state is None else state
        after: list[State | None] = []
        for number, (block, memory) in enumerate(zip(layers, before, strict=True)):
            if number == self.config.lower:
                where, log = self.shared(x, where, cast("Log | None", log))
            x, kept = block(x, where, cast("States | None", memory))
            after.append(kept)
        x = self.stack.ends.leave(x)
        x = x if self.narrow is None else self.narrow(x)
        return x, None if state is None else tuple(kept for kept in (*after, log) if kept is not None)
