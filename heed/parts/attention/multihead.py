"""What every attention with heads has in common: its sizes, its four projections, its point to look at."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Flag, Positive, Share, Size
from ...core.contract import Mixer, MixerConfig
from ...core.errors import ConfigError
from ...core.spec import Dim
from ...core.state import S
from ..layers.norms import AnyNorm
from ..look import Look


class HeadedConfig(MixerConfig):
    """`kv_heads` = 1 is multi-query (Shazeer 2019), between 1 and `heads` grouped-query (Ainslie et al. 2023)."""

    heads: Size = 4
    kv_heads: Size | None = None  # heads of keys and values; None: as many as heads
    head_size: Size | None = None  # channels of a head; None: width / heads
    bias: Flag = True  # of query, key and value
    key_bias: Flag | None = None  # of the key; None = as bias (Whisper has none: a softmax does not see it)
    out_bias: Flag | None = None  # of the output; None = as bias
    scale: Positive | None = None  # of the scores; None: head_size^-1/2
    dropout: Share = 0.0  # of the weights
    norm: AnyNorm | None = None  # over the concatenated heads, before the output (SubLN, Wang et al. 2022)
    head_norm: AnyNorm | None = None  # over each head of query and key (Dehghani et al. 2023; Qwen 3)
    clip: Positive | None = None  # queries, keys and values are cut off at ±clip (MPT)

    @model_validator(mode="after")
    def _groups(self) -> Self:
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(
                f"{self.heads} heads cannot share kv_heads = {self.kv_heads} evenly; use a divisor of {self.heads}"
            )
        return self

    def size(self, width: int) -> int:
        """Channels per head."""
        return self.head_size or per_head(width, self.heads, "; or set head_size")


def per_head(width: int, heads: int, remedy: str = "") -> int:
    """Channels per head, where the width divides."""
    if width % heads:
        below = width - width % heads
        near = ", ".join(str(w) for w in (below, below + heads) if w)
        raise ConfigError(f"width {width} does not divide into {heads} heads; nearest widths: {near}{remedy}")
    return width // heads


class Headed(Mixer[S]):
    """Queries, keys and values by heads, and the way back."""

    def __init__(self, config: HeadedConfig, width: int) -> None:
        super().__init__()
        self.heads = config.heads
        self.kv_heads = Dim("kv_heads", config.kv_heads or config.heads)
        self.head_size = Dim("head_size", config.size(width))
        self.scale = self.head_size**-0.5 if config.scale is None else config.scale
        self.dropout = config.dropout
        inner, shared = self.heads * self.head_size, self.kv_heads * self.head_size
        self.query = nn.Linear(width, inner, bias=config.bias)
        self.key = nn.Linear(width, shared, bias=config.bias if config.key_bias is None else config.key_bias)
        self.value = nn.Linear(width, shared, bias=config.bias)
        self.clip = config.clip
        self.query_norm, self.key_norm = (
            None if config.head_norm is None else config.head_norm.build(self.head_size) for _ in range(2)
        )
        self.norm = None if config.norm is None else config.norm.build(inner)
        self.out = nn.Linear(inner, width, bias=config.bias if config.out_bias is None else config.out_bias)
        self.weights = Look()

    def queries(self, x: Tensor) -> Tensor:
        """[B, T, heads, head_size]"""
        query = self._split(self.query, x, self.heads)
        return query if self.query_norm is None else self.query_norm(query)

    def keys(self, x: Tensor) -> Tensor:
        """[B, T, kv_heads, head_size]"""
        key = self._split(self.key, x, self.kv_heads)
        return key if self.key_norm is None else self.key_norm(key)

    def values(self, x: Tensor) -> Tensor:
        """[B, T, kv_heads, head_size]"""
        return self._split(self.value, x, self.kv_heads)

    def each_head(self, x: Tensor) -> Tensor:
        """A key or a value for every query head. [B, T, kv_heads, d] -> [B, T, heads, d]"""
        return x if x.shape[2] == self.heads else x.repeat_interleave(self.heads // x.shape[2], 2)

    def merge(self, y: Tensor) -> Tensor:
        """Heads side by side, then back into the stream."""
        joined: Tensor = y.flatten(2)
        mixed: Tensor = self.out(joined if self.norm is None else self.norm(joined))
        return mixed

    def _split(self, project: nn.Linear, x: Tensor, heads: int) -> Tensor:
        projected: Tensor = project(x)
        projected = projected if self.clip is None else projected.clamp(-self.clip, self.clip)
        return projected.view(*x.shape[:2], heads, self.head_size)

    @property
    def drop(self) -> float:
        """The dropout of the weights that applies now."""
        return self.dropout if self.training else 0.0
