"""A model without its token table: differentiable in its input, as the laws need it."""

from __future__ import annotations

from torch import Tensor

from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.state import Spec, State
from .decoder import Decoder
from .encoder import Encoder
from .seq2seq import Seq2seq


class Embedded(Mixer[State]):
    """A model from its bare embeddings on."""

    def __init__(self, model: Encoder | Decoder | Seq2seq) -> None:
        super().__init__()
        self.model, self.reach = model, model.reach

    def spec(self) -> Spec:
        return self.model.spec()

    def start(self, rows: int, given: Given = NOTHING) -> State:
        return self.model.start(rows, given)

    def forward(self, x: Tensor, where: Where, state: State | None = None) -> tuple[Tensor, State | None]:
        return self.model.mix(x, where, state)  # type: ignore[arg-type]  # a model's state is a tuple
