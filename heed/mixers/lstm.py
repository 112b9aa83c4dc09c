"""LSTM (Hochreiter & Schmidhuber 1997), GRU (Cho et al. 2014) and the plain RNN (Elman 1990): cells, as baselines."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal, TypeVar

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..core.config import Flag, Size
from ..core.contract import Mixer, MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Cell
from ..parts.recurrence.decay import must_rise
from ..parts.recurrence.scan import Memory

Tokens = TypeVar("Tokens", Tensor, PackedSequence)


class CellConfig(MixerConfig):
    """The width of a recurrent cell."""

    hidden: Size | None = None  # channels of the cell; None: the width
    bias: Flag = True

    @classmethod
    def samples(cls) -> tuple[MixerConfig, ...]:
        return cls(), cls(hidden=10, bias=False), cls(hidden=31)


class Gates(Mixer[Cell]):
    """A recurrent cell of torch, run over a call from its state, and an output projection."""

    parts: ClassVar[int]  # tensors of its state

    def __init__(self, config: CellConfig, width: int) -> None:
        super().__init__()
        self.hidden, self.reach = Dim("hidden", config.hidden or width), Reach(None, 0)
        self.out = nn.Linear(self.hidden, width)

    def spec(self) -> Spec:
        return Slot(((self.hidden,),) * self.parts, Entries(fixed=1), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        must_rise(where, type(self).__name__)
        known = (self.start(len(x)) if state is None else state).take()
        y, after = self._ragged(x, where, known) if where.span.padded else self.run(x, known)
        return self.out(y), None if state is None else Cell(*after)

    @abstractmethod
    def run(self, x: Tokens, known: Memory) -> tuple[Tokens, Memory]:
        """The outputs of the cell, and its state after the last token. [B, T, D] and [B, hidden] each"""

    def _ragged(self, x: Tensor, where: Where, known: Memory) -> tuple[Tensor, Memory]:
        """Padding never meets the cell: rows are packed, and one without a token stays as it was."""
        lengths = where.real.sum(1)
        rows = lengths.nonzero().flatten()
        y = x.new_zeros(*x.shape[:2], self.hidden)
        if not len(rows):
            return y, known
        packed = pack_padded_sequence(x[rows], lengths[rows].cpu(), batch_first=True, enforce_sorted=False)
        made, after = self.run(packed, tuple(part[rows] for part in known))
        some, _ = pad_packed_sequence(made, batch_first=True, total_length=x.shape[1])
        kept = tuple(old.index_copy(0, rows, new) for old, new in zip(known, after, strict=True))
        return y.index_copy(0, rows, some), kept


class Lstm(Gates):
    """Long short-term memory: a cell state with forget, input and output gates.

        c_i = σ(f_i) ⊙ c_{i-1} + σ(w_i) ⊙ tanh(g_i),   h_i = σ(o_i) ⊙ tanh(c_i),   y_i = W_o h_i
        f_i, w_i, g_i, o_i = W x_i + U h_{i-1} + b

    Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000. Costs O(n·d²) time, one token after the
    other: torch's own loop. Remembers c and h.
    """

    class Config(CellConfig):
        paper: ClassVar[str] = "Hochreiter & Schmidhuber 1997, Long Short-Term Memory"

        kind: Literal["lstm"] = "lstm"

        def build(self, width: int) -> Lstm:
            return Lstm(self, width)

    parts = 2

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.cell = nn.LSTM(width, self.hidden, bias=config.bias, batch_first=True)

    def run(self, x: Tokens, known: Memory) -> tuple[Tokens, Memory]:
        shown, cell = known
        y, after = self.cell(x, (shown.unsqueeze(0), cell.unsqueeze(0)))
        return y, tuple(part[0] for part in after)


class Gru(Gates):
    """Gated recurrent unit: a hidden state with an update gate and a reset gate.

        h_i = σ(z_i) ⊙ h_{i-1} + (1 - σ(z_i)) ⊙ tanh(W x_i + b + σ(r_i) ⊙ (U h_{i-1} + b')),   y_i = W_o h_i
        z_i, r_i = W x_i + U h_{i-1} + b

    Cho et al. 2014. Costs O(n·d²) time, one token after the other: torch's own loop. Remembers h.
    """

    class Config(CellConfig):
        paper: ClassVar[str] = (
            "Cho et al. 2014, Learning Phrase Representations using RNN Encoder-Decoder, arXiv 1406.1078"
        )

        kind: Literal["gru"] = "gru"

        def build(self, width: int) -> Gru:
            return Gru(self, width)

    parts = 1

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.cell = nn.GRU(width, self.hidden, bias=config.bias, batch_first=True)

    def run(self, x: Tokens, known: Memory) -> tuple[Tokens, Memory]:
        y, after = self.cell(x, known[0].unsqueeze(0))
        return y, (after[0],)


class Rnn(Gates):
    """A plain recurrent network: the state is one layer over the token and the state before it.

        h_i = tanh(W x_i + U h_{i-1} + b),   y_i = W_o h_i

    Elman 1990. What is remembered passes a tanh and U at every token, so its gradient fades or grows exponentially with
    the distance (Bengio et al. 1994): what the gates of `lstm` and `gru` are for. Costs O(n·d²) time, one token after
    the other: torch's own loop. Remembers h.
    """

    class Config(CellConfig):
        paper: ClassVar[str] = "Elman 1990, Finding Structure in Time"

        kind: Literal["rnn"] = "rnn"

        def build(self, width: int) -> Rnn:
            return Rnn(self, width)

    parts = 1

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.cell = nn.RNN(width, self.hidden, bias=config.bias, batch_first=True)

    def run(self, x: Tokens, known: Memory) -> tuple[Tokens, Memory]:
        y, after = self.cell(x, known[0].unsqueeze(0))
        return y, (after[0],)
