"""Models to decode with: real ones in float64, a recurrence that reads its memory at every call, a scripted one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heed.core.contract import NOTHING, Given, Mixer, Reach, Where
from heed.core.spec import Entries, Slot, Spec
from heed.core.state import Cell, Seen
from heed.mixers import Attention
from heed.models import Decoder, transformer
from heed.models.architectures.transformer import ANNOTATED, TINY
from heed.parts.masks import Causal, Window
from heed.parts.positions import Alibi, Learned, Rope

VOCABULARY, END = 13, 0
PROMPTS = ((3, 1, 4, 1, 5), (9,), (2, 6), (5, 3, 5, 8, 9, 7, 9), (3, 2), (3, 8, 4))


class Subject(NamedTuple):
    """A model, its prompts, and what prompts are given."""

    model: Mixer[Any]
    prompts: Sequence[Sequence[int]] = PROMPTS
    given: Given = NOTHING

    def some(self, begin: int, end: int) -> Subject:
        """Only these prompts."""
        memory = self.given.encoder_output
        if memory is not None:
            memory = Seen(*(part[begin:end] for part in (memory.order, memory.position, *memory.parts)))
        return Subject(self.model, self.prompts[begin:end], Given(encoder_output=memory))

    def alone(self, row: int) -> Subject:
        return self.some(row, row + 1)

    def scores(self, tokens: Sequence[int]) -> Tensor:
        """After these tokens of a single row, from one call without a state."""
        where = Where.run(1, len(tokens)).beside(self.given)
        with torch.no_grad():
            return self.model(torch.tensor([list(tokens)]), where)[0][0, -1]


class Recurrent(Mixer[Cell]):
    """h ← tanh(W h + e_token + mean of the memory); scores = U h. The memory is read anew at every call."""

    reach = Reach()

    def __init__(self, vocabulary: int, width: int = 8) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.turn = nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary)
        nn.init.normal_(self.head.weight, std=2.0)

    def spec(self) -> Spec:
        return Slot(((self.table.embedding_dim,),), Entries(fixed=1), self.head.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        (h,) = self.start(len(x)).take() if state is None else state.take()
        memory, out = where.given.encoder_output, []
        more = 0 if memory is None else (memory.parts[0] * memory.real[..., None]).sum(1) / memory.real.sum(1)[:, None]
        for t in range(x.shape[1]):
            new = torch.tanh(self.turn(h) + self.table(x[:, t]) + more)
            h = torch.where(where.real[:, t, None], new, h)
            out.append(h)
        return self.head(torch.stack(out, 1)), None if state is None else Cell(h)


class Script(Mixer[Any]):
    """Scores are a function of the last token and its order: what a test needs to happen, happens."""

    reach = Reach(0, 0)

    def __init__(self, scores: Callable[[int, int], list[float]]) -> None:
        super().__init__()
        self.play = scores
        self.rows: list[int] = []  # of every call
        self.modes: list[bool] = []

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Any = None) -> tuple[Tensor, Any]:
        self.rows.append(len(x))
        self.modes.append(self.training or torch.is_grad_enabled())
        pairs = zip(x.tolist(), where.order.tolist(), strict=True)
        scores = [[self.play(t, o) for t, o in zip(tokens, orders, strict=True)] for tokens, orders in pairs]
        return torch.tensor(scores, dtype=torch.float64), state


def favour(vocabulary: int, **most: float) -> list[float]:
    """Scores 0 but for these tokens: favour(5, t3=2.0)."""
    return [most.get(f"t{token}", 0.0) for token in range(vocabulary)]


def counting(vocabulary: int) -> Script:
    """Writes 1 + the last token; after the last of the vocabulary comes 0."""
    return Script(lambda token, _: [5.0 * (other == (token + 1) % vocabulary) for other in range(vocabulary)])


def memory_of(rows: int, width: int) -> Given:
    where = Where.ragged([4, 2, 3, 1, 4, 2][:rows])
    return Given(encoder_output=Seen.of(where, torch.randn(rows, 4, width, dtype=torch.float64)))


def decoder(vocabulary: int = VOCABULARY, **more: Any) -> Decoder:
    layers = (
        Attention.Config(heads=2, mask=Window(back=3), position=Rope.Config()),
        Attention.Config(heads=2, kv_heads=1, mask=Causal(), position=Alibi.Config()),
    )
    config = Decoder.Config(
        **{"vocabulary": vocabulary, "width": 16, "depth": 2, "mixer": layers, "tied": False, **more}
    )
    model = config.build().double().eval()
    nn.init.normal_(model.head.weight, std=0.7)
    return model


def hybrid() -> Subject:
    return Subject(decoder())


def learned() -> Subject:
    return Subject(decoder(mixer=Attention.Config(heads=2), position=Learned.Config(length=32)))


def recurrent() -> Subject:
    return Subject(Recurrent(VOCABULARY).double(), PROMPTS, memory_of(len(PROMPTS), 8))


def translation() -> Subject:
    model = transformer(VOCABULARY, size=TINY, variant=ANNOTATED).build().double().eval()
    nn.init.normal_(model.decoder.head.weight, std=0.2)
    source = torch.randint(VOCABULARY, (len(PROMPTS), 5))
    with torch.no_grad():
        memory = model.encode(source, Where.ragged([5, 2, 4, 3, 1, 5]))
    return Subject(model, [[1]] * len(PROMPTS), Given(encoder_output=memory))


SUBJECTS = (hybrid, learned, recurrent, translation)
