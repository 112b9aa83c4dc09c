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
from .multimodal.audio import AudioEncoder
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
        heard = model.encoder
        given = _sound(heard, rows, source, draw) if isinstance(heard, AudioEncoder) else ids(source)
        where = Where.run(*given.shape[:2], device=model.device)
        return Case(x, model.encode(given.to(model.device), where).parts[0].double())


def _sound(model: AudioEncoder, rows: int, frames: int, draw: torch.Generator) -> Tensor:
    """Noise of so many frames of the stream: samples, or a spectrogram."""
    embeddings = model.config.embeddings
    for convolution in reversed(embeddings.strided):
        frames = (frames - 1) * convolution.stride + convolution.kernel - 2 * convolution.padding
    shape = (rows, frames) if embeddings.bands is None else (rows, frames, embeddings.bands)
    return torch.randn(shape, generator=draw, dtype=next(model.parameters()).dtype)
