"""Softmax self-attention (Vaswani et al. 2017): multi-head, multi-query or grouped-query; any mask, any position."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator
from torch import Tensor

from ..core.config import Positive
from ..core.contract import MixerConfig, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Log, Seen, remember
from ..parts.attention.attend import attend, written_out
from ..parts.attention.scored import Scored, ScoredConfig
from ..parts.layers.norms import RMSNorm
from ..parts.masks import (
    AnyMask,
    Atrous,
    Blocks,
    Causal,
    Fixed,
    Padding,
    Prefix,
    Segments,
    Sparse,
    Strided,
    Summaries,
    Whole,
    Window,
)
from ..parts.positions import RELATIVE, TAKEN, Alibi, AnyPlace, NoPosition, Relative, Rope, Shaw, ShawValues, Takes
from ..parts.scores import Additive, Cosine, Dot, General, Location, ScaledDot


class Attention(Scored[Log]):
    """Every token asks all tokens it may see, and takes what answers in proportion to how well it answers.

        y_i = W_o Σ_j softmax_j(q_i·k_j / √d) v_j,   q = W_q x, k = W_k x, v = W_v x, per head

    Vaswani et al. 2017; `score` names another comparison than q·k / √d, one for all heads. Costs O(n²·d) time over n
    tokens, O(n·w·d) with a mask of reach w; remembers the keys and values of every token, or of the last w.
    """

    class Config(ScoredConfig):
        paper: ClassVar[str] = "Vaswani et al. 2017, Attention Is All You Need"

        kind: Literal["attention"] = "attention"
        mask: AnyMask = Causal()
        position: AnyPlace = NoPosition.Config()  # how places enter the scores
        cap: Positive | None = None  # scores are bent to stay within ±cap (Gemma 2)

        @model_validator(mode="after")
        def _one_scale(self) -> Self:
            if not isinstance(self.position, Relative.Config | Shaw.Config | ShawValues.Config):
                return self
            if self.scale is not None or not isinstance(self.score, ScaledDot.Config):
                raise ValueError(
                    f"the code {self.position.dump()['kind']} scales its term by head_size^-1/2, as scaled dot "
                    "products are; leave scale and score unset beside it"
                )
            return self

        def build(self, width: int) -> Attention:
            return Attention(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            heads = (
                *(cls(), cls(kv_heads=1), cls(kv_heads=2, bias=False), cls(heads=3, head_size=5, scale=0.3)),
                cls(key_bias=False, head_norm=RMSNorm(), clip=0.5),
                *(cls(kv_heads=2, cap=0.5), cls(cap=0.5, mask=Window(back=3), position=Rope.Config())),
            )
            masks = tuple(cls(mask=mask) for mask in SAMPLE_MASKS)
            positions = tuple(cls(position=code) for kind in (*RELATIVE, *TAKEN) for code in kind.samples())
            both = (
                cls(kv_heads=2, mask=Window(back=3), position=code)
                for kind in (*RELATIVE, *TAKEN)
                for code in kind.samples()[:1]
            )
            scores = tuple(cls(kv_heads=2, score=score) for score in SAMPLE_SCORES)
            scored = (
                cls(score=SAMPLE_SCORES[2], mask=Window(back=3), position=Rope.Config()),
                cls(score=SAMPLE_SCORES[-1], mask=Window(back=3), cap=0.5),
                cls(score=SAMPLE_SCORES[1], mask=Whole(), position=Alibi.Config()),
            )
            return (*heads, *masks, *positions, *both, *scores, *scored)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.mask, self.cap = config.mask, config.cap
        self.position = config.position.build(self.heads, self.head_size)
        self.reach = config.mask.reach

    def spec(self) -> Spec:
        if not self.streams:
            return ()
        window = None if self.reach.back is None else Dim("window", self.reach.back)
        return Slot(((self.kv_heads, self.head_size),) * 2, Entries(each=1, cap=window), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        query, key, value = self.project(where.blank(x), where)
        seen, state = remember(state, where, key, value)
        return self.merge(self.attend_to(query, where, seen)), state

    def project(self, x: Tensor, where: Where) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of these tokens, turned by their positions. Each [B, T, heads, head_size]"""
        query, key = self.position.turn(self.queries(x), where), self.position.turn(self.keys(x), where)
        return query, key, self.position.turn_value(self.values(x), where)

    def attend_to(self, query: Tensor, where: Where, seen: Seen) -> Tensor:
        """What queries take of the keys and values that they see. [B, T, heads, head_size]"""
        key, value = seen.parts
        query, key = self.position.meet(query, key, where, seen)
        sight, bias = self.mask(where, seen), self.position.bias
        scale, cap, score = self.scale, self.cap, self.pairwise
        self.weights(lambda: written_out(query, key, value, sight, bias=bias, scale=scale, cap=cap, score=score)[1])
        if isinstance(self.position, Takes):
            y, weight = written_out(query, key, value, sight, bias=bias, scale=scale, cap=cap, dropout=self.drop)
            return where.blank(y + self.position.taken(weight, where, seen))
        return attend(query, key, value, sight, bias=bias, scale=scale, cap=cap, dropout=self.drop, score=score)


SAMPLE_SCORES = (  # beside the scaled dot product
    Dot.Config(),
    General.Config(),
    Additive.Config(hidden=5),
    Cosine.Config(sharpness=4.0, learned=True),
    Location.Config(length=64),
)
SAMPLE_MASKS = (
    Whole(),
    Padding(),
    Window(back=0),
    Window(back=3),
    Window(back=2, ahead=3),
    Atrous(step=3),
    Causal() & Atrous(step=3),
    Sparse(step=2),
    Causal() & Sparse(step=2),
    Strided(stride=3),
    Window(back=2) | Strided(stride=3),
    Window(back=4, ahead=2) & Atrous(step=2),
    Window(back=6) & Atrous(step=2) | Window(back=1),
    Causal() - Window(back=0),
    Summaries(context=4, block=2) | Window(back=0),
    Fixed(context=4, block=2, patterns=2),
    Prefix(length=3),
    Segments(length=4),
    Causal() & Segments(length=3, memory=2),
    Blocks(size=4, layouts=(("100", "110", "101"), ("100", "010", "111"))),
    Causal() & Blocks(size=4, layouts=(("100", "110", "101"),)),
)
