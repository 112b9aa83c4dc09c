"""FAVOR+ attention of Performer (Choromanski et al. 2021): softmax attention by random features, in linear time."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self, TypeAlias

import torch
from pydantic import model_validator
from torch import Tensor

from ..core.config import Flag, Seed, Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.errors import InputError
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Cell
from ..parts.attention import linear as kernelised
from ..parts.attention.linear import Sums
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.attention.random_features import AnyKernel, FlooredKernel, ReluKernel, SoftmaxKernel, orthogonal
from ..parts.layers.norms import RMSNorm

Memory: TypeAlias = "tuple[Cell, Cell]"


class Performer(Headed[Memory]):
    """Softmax attention approximated by random features, in time linear in the length.

        y_i = W_o Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j),   φ(x) = m^-1/2 exp( Ωx - |x|²/2 ),   j <= i

    with q and k divided by d^1/4, and Ω of m random directions, in blocks of d at right angles. The mean of φ(q)·φ(k)
    over Ω is exp(q·k / √d): the more features, the nearer to softmax attention. Choromanski et al. 2021 (FAVOR+).

    Costs O(n·m·d) time over n tokens and O(n·(m + d)) memory, whatever the length, and one step of decoding O(m·d).
    Remembers Σ φ(k) vᵀ, Σ φ(k) and, so that neither overflows, the largest log φ(k) of each feature. Ω is drawn from
    `seed` and kept among the weights. The authors' code divides the features of all keys by the largest in the call and
    adds 1e-4 (`FlooredKernel`), which depends on keys to come: it is offered both ways only.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Choromanski et al. 2021, Rethinking Attention with Performers, arXiv 2009.14794"

        kind: Literal["performer"] = "performer"
        features: Size | None = None  # m; None: head_size · ln(head_size)
        kernel: AnyKernel = SoftmaxKernel()
        causal: Flag = True  # or both ways
        seed: Seed = 0  # of the directions; layers may share one

        @model_validator(mode="after")
        def _possible(self) -> Self:
            if self.dropout:
                raise ValueError("a performer never holds its weights, so none can be dropped; leave dropout at 0")
            if self.causal and self.kernel.at_once:
                raise ValueError("the floored kernel needs all keys at once; set causal = false, or kernel = softmax")
            return self

        def build(self, width: int) -> Performer:
            return Performer(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(causal=False), cls(kernel=ReluKernel()), cls(features=7, seed=3, kv_heads=2, bias=False)),
                *(cls(causal=False, kernel=FlooredKernel()), cls(causal=False, kernel=ReluKernel(eps=0.1), kv_heads=1)),
                cls(heads=3, head_size=5, scale=0.3, features=12, head_norm=RMSNorm()),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        few = max(1, int(self.head_size * math.log(self.head_size)))
        self.features = Dim("features", config.features or few)
        self.kernel, self.reach = config.kernel, Reach(None, 0 if config.causal else None)
        directions = orthogonal(self.features, self.head_size, config.seed).to(self.out.weight.dtype)
        self.register_buffer("directions", directions)  # Ω
        self.directions: Tensor

    @property
    def precision(self) -> torch.dtype:
        """Long sums need at least float32."""
        return torch.promote_types(self.out.weight.dtype, torch.float32)

    def spec(self) -> Spec:
        if not self.streams:
            return ()
        each = self.kv_heads, self.features
        sums = Slot(((*each, self.head_size), each), Entries(fixed=1), self.precision)
        return sums, Slot((each,), Entries(fixed=1), self.precision, fill=float("-inf"))

    def forward(self, x: Tensor, where: Where, state: Memory | None = None) -> tuple[Tensor, Memory | None]:
        x = where.blank(x)
        query, key = self._features(x, where)
        value = where.blank(self.values(x)).to(self.precision)
        if self.reach.ahead is None:
            self.weights(lambda: kernelised.weights(query, key))
            y, kept = kernelised.both_ways(query, key, value), None
        else:
            _must_rise(where)
            before = Sums.none(key, value) if state is None else Sums(*state[0].take(), *state[1].take())
            self.weights(lambda: kernelised.weights(query, key, before))
            y, after = kernelised.causal(query, key, value, before)
            kept = None if state is None else (Cell(after.values, after.total), Cell(after.level))
        return self.merge(where.blank(y.flatten(2, 3)).to(x.dtype)), kept

    def _features(self, x: Tensor, where: Where) -> tuple[Tensor, Tensor]:
        """log φ of queries [B, T, K, H/K, m] and of keys [B, T, K, m], which is -inf at padding."""
        half, directions = self.scale**0.5, self.directions.to(self.precision)
        query = (self.queries(x) * half).to(self.precision)
        key = self.kernel.keys((self.keys(x) * half).to(self.precision), directions, where.real)
        query = query.view(*x.shape[:2], self.kv_heads, -1, self.head_size)
        return self.kernel.queries(query, directions), kernelised.hidden(key, where.real)


def _must_rise(where: Where) -> None:
    """Raise if tokens do not come in the order of their revelation: sums take them as they come."""
    if where.span.run:
        return
    order = where.order
    if bool(((order[:, 1:] <= order[:, :-1]) & where.real[:, 1:]).any()):
        raise InputError(
            "a causal performer takes tokens as they come: their order must rise from column to column; sort them by it"
        )
