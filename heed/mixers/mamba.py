"""Mamba (Gu & Dao 2023): a selective state space, whose parameters depend on the input."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.config import Flag, Size
from ..core.contract import Mixer, MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Cell
from ..kernels import selective, served
from ..parts.convolution.sliding import depthwise
from ..parts.feedforward import Activation, activate
from ..parts.recurrence.decay import must_rise
from ..parts.recurrence.scan import Memory, after, pieces, recomputed, scan
from ..parts.recurrence.token_shift import continued

SLOWEST, FASTEST = 0.001, 0.1  # first steps lie between

Remembered: TypeAlias = "tuple[Cell, Cell]"  # the last inputs of the convolution, and the state space


class Mamba(Mixer[Remembered]):
    """A selective state space: per channel a diagonal linear recurrence whose step size, input and output vectors
    depend on the token, after a short convolution and times a gate.

        h_i = exp(Δ_i A) ⊙ h_{i-1} + Δ_i B_i u_i,   y_i = W_o ((C_i·h_i + D u_i) ⊙ silu(z_i)),   A = -exp(log A) < 0
        u, z = W_i x,   u ← act(conv(u)),   B_i, C_i, δ_i = W_s u_i,   Δ_i = softplus(W_Δ δ_i + b)

    with a causal convolution of each channel over `kernel` tokens. Gu & Dao 2023. Over n tokens it costs O(n·e·s) time
    beside its projections, for s numbers in each of e channels, and O(n·e) memory: states are computed piece by piece
    and, backwards, once more; in float32 by a kernel (`kernels/selective_scan.py`), else by a scan
    (`parts/recurrence/scan.py`). A step of decoding costs O(e·s). Remembers the state, and kernel - 1 inputs of the
    convolution.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Gu & Dao 2023, Mamba: Linear-Time Sequence Modeling, arXiv 2312.00752"

        kind: Literal["mamba"] = "mamba"
        hidden: Size | None = None  # channels inside; None: twice the width
        state: Size = 16  # numbers that each channel remembers
        kernel: Size = 4  # tokens that the convolution sees
        rank: Size | None = None  # of what the steps are made from; None: a sixteenth of the width
        activation: Activation = "silu"  # after the convolution
        bias: Flag = False  # of the way in and the way out
        kernel_bias: Flag = True  # the convolution has a bias

        def build(self, width: int) -> Mamba:
            return Mamba(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(hidden=10, state=3, kernel=2, rank=5), cls(state=1, kernel=1, kernel_bias=False)),
                cls(hidden=31, state=5, kernel=12, bias=True, activation="gelu"),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        inner, rank = config.hidden or 2 * width, config.rank or -(-width // 16)
        self.hidden, self.state, self.before = Dim("hidden", inner), Dim("state", config.state), config.kernel - 1
        self.activation, self.rank, self.reach = config.activation, rank, Reach(None, 0)
        self.input = nn.Linear(width, 2 * inner, bias=config.bias)  # u and z
        self.kernel = nn.Parameter(torch.empty(inner, config.kernel))
        self.kernel_bias = nn.Parameter(torch.zeros(inner)) if config.kernel_bias else None
        self.select = nn.Linear(inner, rank + 2 * config.state, bias=False)  # δ, B and C
        self.step = nn.Parameter(torch.empty(inner, rank))  # W_Δ; no Linear, as its first weights matter
        self.step_bias = nn.Parameter(torch.empty(inner))
        self.decay = nn.Parameter(torch.arange(1.0, config.state + 1).log().repeat(inner, 1))  # log -A
        self.skip = nn.Parameter(torch.ones(inner))  # D
        self.out = nn.Linear(inner, width, bias=config.bias)
        nn.init.uniform_(self.kernel, -(config.kernel**-0.5), config.kernel**-0.5)
        nn.init.uniform_(self.step, -(rank**-0.5), rank**-0.5)
        with torch.no_grad():  # softplus gives back steps that are spread evenly over their orders of magnitude
            step = torch.exp(torch.empty(inner).uniform_(math.log(SLOWEST), math.log(FASTEST)))
            self.step_bias.copy_(step + torch.log(-torch.expm1(-step)))

    @property
    def precision(self) -> torch.dtype:
        """Long sums need at least float32."""
        return torch.promote_types(self.out.weight.dtype, torch.float32)

    def spec(self) -> Spec:
        tail = Slot(((Dim("(kernel - 1)", self.before), self.hidden),), Entries(fixed=1), self.out.weight.dtype)
        return tail, Slot(((self.state, self.hidden),), Entries(fixed=1), self.precision)

    def forward(self, x: Tensor, where: Where, state: Remembered | None = None) -> tuple[Tensor, Remembered | None]:
        must_rise(where, "Mamba")
        u, gate = self.input(where.blank(x)).chunk(2, -1)
        (tail,), space = (cell.take() for cell in (self.start(len(x)) if state is None else state))
        both, tail = continued(u, where, tail)
        u = depthwise(both, self.kernel)
        u = activate(self.activation, u if self.kernel_bias is None else u + self.kernel_bias)
        low, write, read = self.select(u).split((self.rank, self.state, self.state), -1)
        step = F.softplus(F.linear(low, self.step, self.step_bias))  # Δ
        inputs = [part.to(self.precision) for part in (step, u, write, read)]
        rates = -torch.exp(self.decay.to(self.precision)).T  # A, [S, D]
        y, kept = self._spaced(inputs, rates, space, where)
        y = self.out((y.to(x.dtype) + self.skip * u) * F.silu(gate))
        return y, None if state is None else (Cell(tail), Cell(*kept))

    def _spaced(self, inputs: list[Tensor], rates: Tensor, space: Memory, where: Where) -> tuple[Tensor, Memory]:
        """C·h of all tokens, and the last h: by the kernel, or all tokens of a piece at once."""
        if served(*inputs, rates, *space):
            step, u, write, read = inputs
            y, last = selective(where.blank(step), u, write, read, rates, *space)
            return y, (last,)
        numbers = len(inputs[0]) * self.state * self.hidden
        return pieces(recomputed(_spaced), space, inputs, where, numbers, (rates,))


def _spaced(space: Memory, count: Tensor | None, *inputs: Tensor) -> tuple[Tensor, Memory]:
    """C·h of some tokens, and h after them. Steps and inputs [B, T, D], what is written and read [B, T, S]."""
    (start,), (step, u, write, read, rates) = space, inputs
    decay = torch.exp(step.unsqueeze(2) * rates)  # [B, T, S, D]
    states = scan(decay, write.unsqueeze(-1) * (step * u).unsqueeze(2), start)
    y = (read.unsqueeze(2) @ states).squeeze(2)
    return y, (after(states, start, count),)
