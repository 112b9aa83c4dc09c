"""A model without its token table: differentiable in its input, as the laws need it."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.laws import Case
from ..core.spec import Spec
from ..core.state import State
from .decoder import Decoder
from .encoder import Encoder
from .seq2seq import Seq2seq

AnyModel: TypeAlias = Encoder | Decoder | Seq2seq


class Embedded(Mixer[State]):
    """A model from its bare embeddings on."""

    def __init__(self, model: AnyModel) -> None:
        super().__init__()
        self.model, self.reach = model, model.reach

    def spec(self) -> Spec:
        return self.model.spec()

    def start(self, rows: int, given: Given = NOTHING) -> State:
        return self.model.start(rows, given)

    def forward(self, x: Tensor, where: Where, state: State | None = None) -> tuple[Tensor, State | None]:
        return self.model.mix(x, where, state)  # type: ignore[arg-type]  # a model's state is a tuple


def familiar(model: AnyModel, *, rows: int = 2, tokens: int = 7, source: int = 4) -> Case:
    """Inputs as trained weights know them: embeddings of tokens and, for an encoder-decoder, a source that it read.

    Random numbers of another size drive trained attention to where softmax is flat and digits cancel.
    """
    draw = torch.Generator().manual_seed(0)
    table = (model.decoder if isinstance(model, Seq2seq) else model).embeddings.table

    def ids(length: int) -> Tensor:
        return torch.randint(table.num_embeddings, (rows, length), generator=draw).to(model.device)

    with torch.no_grad():
        x = table(ids(tokens)).double()
        if not isinstance(model, Seq2seq):
            return Case(x, torch.zeros_like(x[:, :source]))
        where = Where.run(rows, source, device=model.device)
        return Case(x, model.encode(ids(source), where).parts[0].double())
