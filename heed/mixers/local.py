"""Local attention of Reformer (Kitaev, Kaiser & Levskaya 2020): chunks attend to themselves and to adjacent ones."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from torch import Tensor

from ..core.config import Flag
from ..core.contract import MixerConfig, Reach, Where
from ..core.spec import Spec
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.segments.chunks import Chunks, Laid, Ring, around

Nothing: TypeAlias = "tuple[()]"


class Local(Headed[Nothing]):
    """Every token asks the tokens of its own chunk and of some chunks before and after it, in a ring.

        y_i = W_o Σ_j softmax_j(q_i·k_j / √d) v_j,   ⌊j/c⌋ in { ⌊i/c⌋ - before, ..., ⌊i/c⌋ + after } modulo chunks

    The local layers of Reformer encoders (Kitaev et al. 2020, in the authors' code): the neighbour before the first
    chunk is the last one, and a chunk that is a neighbour on both sides counts twice. Where tokens look back only, the
    same is `Attention` with the mask `Causal() & Segments(length, memory)`, which streams. Costs O(n·c·d) time; looks
    ahead, so it remembers nothing.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Kitaev et al. 2020, Reformer: The Efficient Transformer, arXiv 2001.04451"

        kind: Literal["local"] = "local"
        chunks: Chunks = Chunks()
        causal: Flag = False  # whether later tokens are hidden; how often a chunk counts still depends on them

        def build(self, width: int) -> Local:
            return Local(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(chunks=Chunks(length=3, before=1, after=1), bias=False)),
                cls(heads=3, head_size=5, scale=0.3, chunks=Chunks(length=2, before=2, after=0, multiple=4, filled=9)),
                cls(kv_heads=2, chunks=Chunks(length=5, before=0, after=1)),
                cls(causal=True, chunks=Chunks(length=4, before=3, after=1)),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.chunks, self.causal = config.chunks, config.causal
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        x = where.blank(x)
        query, key, value = self.queries(x), self.each_head(self.keys(x)), self.each_head(self.values(x))
        places = self.chunks.places((where.order.amax(1) + 1).clamp(min=0))  # [B]
        long = int(places.max()) if len(places) else self.chunks.length
        place = where.order.masked_fill(~where.real, long)  # padding lands beside the ring

        def laid(tensor: Tensor, empty: int = 0) -> Tensor:  # [B, T, ...] -> [B, L, ...]
            board = tensor.new_full((len(x), long + 1, *tensor.shape[2:]), empty)
            slot = place.reshape(*place.shape, *(1,) * (tensor.dim() - 2)).expand_as(tensor)
            return board.scatter(1, slot, tensor)[:, :long]

        def heads(vector: Tensor) -> Tensor:  # [B, T, H, d] -> [B·H, L, d]
            return laid(vector).transpose(1, 2).flatten(0, 1)

        rings = (places // self.chunks.length).repeat_interleave(self.heads)
        near = self.chunks.neighbours(long // self.chunks.length, rings)
        where_laid = Laid(laid(where.order, -1).repeat_interleave(self.heads, 0), near)
        ring = self.around(heads(query * self.scale), heads(key), heads(value), where_laid)
        self.weights(lambda: self._spread(ring, place, long))
        y = ring.y.view(len(x), self.heads, long, -1).transpose(1, 2)  # [B, L, H, d]
        y = y.take_along_dim(place.clamp(max=long - 1)[..., None, None], 1)
        return where.blank(self.merge(y)), state

    def around(self, query: Tensor, key: Tensor, value: Tensor, laid: Laid) -> Ring:
        """Attention along the rings of all rows and heads. [B·H, L, d] three times"""
        return around(query, key, value, laid, causal=self.causal, itself=True, dropout=self.drop)

    def _spread(self, ring: Ring, place: Tensor, long: int) -> Tensor:
        """The weights of every pair of tokens. [B, H, T, T]"""
        rings, chunks, length, keys = ring.weight.shape
        index = ring.key[:, :, None].expand(rings, chunks, length, keys).flatten(1, 2)
        dense = ring.weight.new_zeros(rings, long + 1, long + 1)
        dense[:, :long] = dense[:, :long].scatter_add(2, index, ring.weight.flatten(1, 2))
        dense = dense.view(-1, self.heads, long + 1, long + 1)
        dense = dense.take_along_dim(place[:, None, :, None], 2)
        return dense.take_along_dim(place[:, None, None], 3)
