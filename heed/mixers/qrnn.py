"""QRNN (Bradbury et al. 2016): gates by a convolution, so that only an elementwise recurrence is left to be run."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..core.config import Size
from ..core.contract import Mixer, MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Cell
from ..parts.recurrence.decay import must_rise
from ..parts.recurrence.scan import after, scan
from ..parts.recurrence.token_shift import continued


class Qrnn(Mixer[Cell]):
    """A quasi-recurrent network with fo-pooling: convolutions look at the last K tokens, gates carry the rest.

        z_i, f_i, o_i = tanh, σ, σ ( W_z * x, W_f * x, W_o * x ),     * over x_(i-K+1) ... x_i
        c_i = f_i ⊙ c_{i-1} + (1 - f_i) ⊙ z_i,   y_i = W ( o_i ⊙ c_i )

    Bradbury et al. 2016, eq. 1 and 3. No gate reads the state, so all gates of a sequence are one product of matrices,
    and c is a scan of pairs: O(n·K·d²) time in O(log n) steps. Remembers c and the last K - 1 tokens.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Bradbury et al. 2016, Quasi-Recurrent Neural Networks, arXiv 1611.01576"

        kind: Literal["qrnn"] = "qrnn"
        hidden: Size | None = None  # channels of the cell; None: the width
        kernel: Size = 2  # tokens that a gate looks at

        def build(self, width: int) -> Qrnn:
            return Qrnn(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return cls(), cls(kernel=1, hidden=10), cls(kernel=4, hidden=31)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.width, self.hidden = Dim("width", width), Dim("hidden", config.hidden or width)
        self.tail, self.reach = Dim("(kernel - 1)", config.kernel - 1), Reach(None, 0)
        self.gates = nn.Linear(config.kernel * width, 3 * self.hidden)  # of the last tokens side by side, oldest first
        self.out = nn.Linear(self.hidden, width)

    def spec(self) -> Spec:
        return Slot(((self.hidden,), (self.tail, self.width)), Entries(fixed=1), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        must_rise(where, "QRNN")
        cell, tail = (self.start(len(x)) if state is None else state).take()
        line, tail = continued(where.blank(x), where, tail)
        near = line.unfold(1, self.tail + 1, 1).movedim(-1, 2).flatten(2)  # [B, T, K·D]
        new, forget, show = self.gates(near).chunk(3, -1)
        forget = torch.sigmoid(forget)
        cells = scan(forget, torch.tanh(new) * (1 - forget), cell)
        y = self.out(torch.sigmoid(show) * cells)
        if state is None:
            return y, None
        return y, Cell(after(cells, cell, where.real.sum(1) if where.span.padded else None), tail)
