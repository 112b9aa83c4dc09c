"""S4 and S4D (Gu et al. 2022): a linear time-invariant state space, at once a long convolution and a recurrence."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor, nn

from ..core.config import Size
from ..core.contract import Mixer, MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.stamps import Stamps
from ..core.state import Cell
from ..parts.feedforward import Activation, activate
from ..parts.recurrence.decay import must_rise
from ..parts.recurrence.scan import scan

CHUNK = (
    64  # tokens of which all pairs are taken at once: as many as a state has numbers, so that both halves cost alike
)
SLOWEST, FASTEST = 0.001, 0.1  # first steps lie between

Begin: TypeAlias = Literal["linear", "inverse", "real"]
Form: TypeAlias = Literal["zoh", "bilinear"]


class S4(Mixer[Cell]):
    """A diagonal linear state space in every channel, run as a convolution within chunks and as a recurrence between
    them.

        h_i = Ā ⊙ h_{i-1} + B̄ x_i,   s_i = 2 Re(C·h_i) + D x_i,   y_i = W_o act(s_i)
        "zoh":  Ā = exp(ΔA),  B̄ = (Ā - 1) / A        "bilinear":  Ā = (1 + ΔA/2) / (1 - ΔA/2),  B̄ = Δ / (1 - ΔA/2)

    with one complex number kept of each pair of conjugates, and Re A = -exp(a) < 0. This is S4 (Gu et al. 2022a) in its
    diagonal form S4D (Gu et al. 2022b): A begins as -1/2 + iπm ("linear"), as -1/2 + i N/π (N/(2m + 1) - 1) ("inverse")
    or as -(m + 1), all real ("real": N numbers, and no factor 2).

    Costs O(n·(c + N)·d) time and O(n·d) memory over n tokens: within chunks of c tokens the convolution is one matrix
    per channel, between them a scan carries the state. A step of decoding costs O(N·d). Remembers N numbers of each
    channel.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = (
            "Gu et al. 2022, Efficiently Modeling Long Sequences with Structured State Spaces, arXiv 2111.00396; "
            "On the Parameterization and Initialization of Diagonal State Space Models, arXiv 2206.11893"
        )

        kind: Literal["s4"] = "s4"
        state: Size = 64  # N, real numbers that each channel remembers
        begins: Begin = "linear"  # A at first
        form: Form = "zoh"  # how continuous time becomes steps
        activation: Activation = "gelu"

        @model_validator(mode="after")
        def _in_pairs(self) -> Self:
            if self.begins != "real" and self.state % 2:
                raise ValueError(f"a state of {self.state} numbers has no pairs; use an even one, or begins = 'real'")
            return self

        def build(self, width: int) -> S4:
            return S4(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(state=6, begins="inverse"), cls(state=5, begins="real", activation="identity")),
                *(cls(state=4, form="bilinear"), cls(state=2, begins="inverse", form="bilinear")),
                cls(state=1, begins="real", form="bilinear", activation="relu"),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.width, self.state = Dim("width", width), Dim("state", config.state)
        self.form, self.activation, self.reach = config.form, config.activation, Reach(None, 0)
        fade, turn = _rates(config.begins, config.state)
        self.fade = nn.Parameter(fade.log().repeat(width, 1))  # a
        self.turn = None if turn is None else nn.Parameter(turn.repeat(width, 1))  # Im A
        self.read = nn.Parameter(torch.randn(width, len(fade), *(() if turn is None else (2,))))  # C
        self.step = nn.Parameter(torch.empty(width).uniform_(math.log(SLOWEST), math.log(FASTEST)))  # log Δ
        self.skip = nn.Parameter(torch.ones(width))  # D
        self.out = nn.Linear(width, width)

    @property
    def precision(self) -> torch.dtype:
        """Long sums need at least float32."""
        return torch.promote_types(self.out.weight.dtype, torch.float32)

    def spec(self) -> Spec:
        return Slot(((self.width, self.state),), Entries(fixed=1), self.precision)

    def forward(self, x: Tensor, where: Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        must_rise(where, "S4")
        u = where.blank(x).to(self.precision)
        (start,) = (self.start(len(x)) if state is None else state).take()
        tokens = x.shape[1]
        chunk = self._chunk(-(-tokens // -(-tokens // CHUNK)))  # all of one length, at most CHUNK
        y, states = chunk.mixed(u, _whole(start, chunk.power))
        y = self.out(activate(self.activation, (y + self.skip * u).to(x.dtype)))
        return y, None if state is None else Cell(_apart(chunk.last(u, states, where)))

    def _chunk(self, length: int) -> Chunk:
        """What so many tokens do to the state, and it to them."""
        exact = self.precision
        step, fade = self.step.to(exact).exp()[:, None], -self.fade.to(exact).exp()
        rate = fade if self.turn is None else torch.complex(fade, self.turn.to(exact))  # A, [D, M]
        if self.form == "zoh":
            decay, write = torch.exp(step * rate), torch.expm1(step * rate) / rate
        else:
            half = step * rate / 2
            decay, write = (1 + half) / (1 - half), step / (1 - half)
        power = _powers(decay, length)
        read = self.read.to(exact) if self.turn is None else 2 * torch.view_as_complex(self.read.to(exact))
        return Chunk(power, write * power[:-1].flip(0), read * power)


class Chunk(NamedTuple):
    """L tokens of a state space, as tables over D channels of M numbers, real or complex."""

    power: Tensor  # [L + 1, D, M] what is left of a state after 0 .. L tokens
    enter: Tensor  # [L, D, M] what each token leaves in the state after the last one
    leave: Tensor  # [L + 1, D, M] how a state is read 0 .. L tokens after it

    def mixed(self, u: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """C·h of every token, and the state before each chunk and after the last. [B, T, D] and [B, D, M]"""
        rows, tokens, width = u.shape
        if tokens == 1:
            return self._step(u, start)
        length = len(self.enter)
        count = -(-tokens // length)
        filled = F.pad(u, (0, 0, 0, count * length - tokens))
        columns = filled.view(rows * count, length, width).permute(2, 1, 0)  # [D, L, B·count]
        entered = _apart(self.enter).permute(1, 2, 0) @ columns  # [D, N, B·count]
        entered = _whole(entered.permute(2, 0, 1).reshape(rows, count, width, -1), self.power)
        states = scan(self.power[-1].expand(1, count, -1, -1), entered, start)
        states = torch.cat((start.unsqueeze(1), states), 1)  # [B, count + 1, D, M]
        found = _apart(states[:, :-1]).flatten(0, 1).permute(1, 2, 0)  # [D, N, B·count]
        # Re(a·b) is a product of real matrices, of the parts of a's conjugate and those of b.
        y = self.pairs @ columns + _apart(self.leave[1:].conj()).transpose(0, 1) @ found
        return y.permute(2, 1, 0).reshape(rows, count * length, width)[:, :tokens], states

    def _step(self, u: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """The equation as it stands, of one token."""
        state = self.power[1] * start + self.enter[0] * u.mT  # [B, D, M]
        return _real(self.leave[0] * state).sum(-1).unsqueeze(1), torch.stack((start, state), 1)

    @property
    def pairs(self) -> Tensor:
        """What each token takes of each at or before it in its chunk: Re(C Ā^(i-j) B̄). [D, L, L]"""
        length = len(self.enter)
        kernel = _real(self.leave[:-1] * self.enter[-1]).sum(-1).T  # [D, L]
        return F.pad(kernel, (length - 1, 0)).unfold(1, length, 1).flip(2)

    def last(self, u: Tensor, states: Tensor, where: Stamps) -> Tensor:
        """The state after each row's last token. [B, D, M]"""
        rows, length = len(u), len(self.enter)
        if not where.span.padded and u.shape[1] % length == 0:
            return states[:, -1].clone()  # a view would keep all of them alive
        ends = where.real.sum(1)  # padding stands at a row's end
        full, rest = ends // length, ends % length  # chunks that are full, and tokens of the next one
        index = ends[:, None] - length + torch.arange(length, device=u.device)  # the last ones, at the end of a chunk
        some = u.take_along_dim(index.clamp(min=0)[..., None], 1) * (index >= (full * length)[:, None])[..., None]
        entered = torch.einsum("bld,ldn->bdn", some, _apart(self.enter))
        return self.power[rest] * states[torch.arange(rows), full] + _whole(entered, self.power)


def _powers(base: Tensor, highest: int) -> Tensor:
    """base^0 .. base^highest, in log steps: each is a product of few. [...] -> [highest + 1, ...]"""
    power, top = torch.ones_like(base).unsqueeze(0), base
    while len(power) <= highest:
        power, top = torch.cat((power, power * top)), top * top
    return power[: highest + 1]


def _rates(begins: Begin, state: int) -> tuple[Tensor, Tensor | None]:
    """-Re A and Im A at first, for each number of a channel."""
    number = torch.arange(state if begins == "real" else state // 2)
    if begins == "real":
        return number + 1.0, None
    turn = math.pi * number if begins == "linear" else state / math.pi * (state / (2 * number + 1) - 1)
    return torch.full(number.shape, 0.5), turn


def _real(x: Tensor) -> Tensor:
    return x.real if x.is_complex() else x


def _apart(x: Tensor) -> Tensor:
    """Complex numbers as two real ones each. [..., M] -> [..., N]"""
    return torch.view_as_real(x.resolve_conj()).flatten(-2) if x.is_complex() else x


def _whole(x: Tensor, like: Tensor) -> Tensor:
    """The way back, if `like` is complex."""
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous()) if like.is_complex() else x
