"""Cross-attention (Bahdanau et al. 2015, Vaswani et al. 2017): a decoder's tokens attend to the encoder output."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from ..core.contract import NOTHING, Given, MixerConfig, Reach, Where
from ..core.errors import InputError
from ..core.spec import Entries, Slot, Spec
from ..core.state import Log, Seen
from ..parts.attention.attend import attend, written_out
from ..parts.attention.scored import Scored, ScoredConfig
from ..parts.masks import Whole
from ..parts.scores import Additive, Cosine, Dot, General, Location

EVERYTHING = Whole()


class Cross(Scored[Log]):
    """Every token of one sequence asks all tokens of another one.

        y_i = W_o Σ_j softmax_j(q_i·k_j / √d) v_j,   q = W_q x, k = W_k m, v = W_v m

    Bahdanau et al. 2015 in the form of Vaswani et al. 2017, sec. 3.2.3. `score` names another comparison than q·k / √d:
    additive is Bahdanau's own, dot, general and location are Luong's (Luong et al. 2015). The source is projected once,
    when a state is started; its keys and values are all that is remembered. Costs O(n·s·d) time over n tokens and s
    source tokens, and where the score is of pairs (additive) as many hidden layers.
    """

    class Config(ScoredConfig):
        paper: ClassVar[str] = "Vaswani et al. 2017, Attention Is All You Need, sec. 3.2.3"

        kind: Literal["cross"] = "cross"

        def build(self, width: int) -> Cross:
            return Cross(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            heads = (cls(), cls(kv_heads=1), cls(kv_heads=2, bias=False), cls(heads=3, head_size=5, scale=0.3))
            scores = (Dot.Config(), General.Config(), Additive.Config(hidden=5))
            places = (Cosine.Config(sharpness=4.0, learned=True), Location.Config(length=64))
            return (*heads, *(cls(kv_heads=2, score=score) for score in (*scores, *places)))

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.reach = Reach(0, 0)

    def spec(self) -> Spec:
        return Slot(((self.kv_heads, self.head_size),) * 2, Entries(per_source=True), self.out.weight.dtype)

    def start(self, rows: int, given: Given = NOTHING) -> Log:
        source = self._source(given)
        if source.shape[0] != rows:
            raise InputError(f"a state for {rows} rows needs a memory of {rows} rows, not {source.shape[0]}")
        return Log(source.order, source.position, *source.parts)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        seen, kept = (self._source(where.given), None) if state is None else state.read()
        query, (key, value) = self.queries(where.blank(x)), seen.parts
        sight, score = EVERYTHING(where, seen), self.pairwise
        self.weights(lambda: written_out(query, key, value, sight, scale=self.scale, score=score)[1])
        mixed = attend(query, key, value, sight, scale=self.scale, dropout=self.drop, score=score)
        return self.merge(mixed), kept

    def _source(self, given: Given) -> Seen:
        memory = given.encoder_output
        if memory is None:
            raise InputError(
                "cross-attention needs the encoder's output; pass where.give(encoder_output=...) or start(rows, given)"
            )
        x = memory.blank(memory.parts[0])
        return Seen.of(memory, self.keys(x), self.values(x))
