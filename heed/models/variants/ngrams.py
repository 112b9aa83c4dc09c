"""Words by their n-grams (Bojanowski et al. 2017), read by a stack: characters or bytes in, and out again."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator
from torch import Tensor

from ...core.config import Count, Share, Size
from ...core.contract import Reach, Where
from ...core.spec import Spec
from ...parts.inputs.ngrams import NGrams, Words
from ..block import States
from ..encoder import Encoder

FRAME = (1, 2)  # of a tokenizer that heed trains: the beginning and the end of a text
BLANK = (13, 14, 17, 36)  # tab, line feed, carriage return and space of the byte tokenizer


class NGramEncoder(Encoder):
    """An encoder of words that are spelled out: the stack runs over words, a word is the sum of its hashed n-grams.

        x_w = G[w] + 1/√m · Σ_{g in w} G[g] + 1/√|w| · Σ_{t in w} E[t],   y_t = stack(x)_w for every token t of w

    Bojanowski et al. 2017, whose sums here are not the end but the input, as in Ling et al. 2015. Tokens are bytes or
    characters, `between` those that no word has; no word is unknown. Each token gets what the stack made of its word,
    and any head reads it. Without `between` each token is a word of its own, and its n-grams are those that end with
    it: for scripts without spaces. Costs what the stack costs over words. A word is known when it has ended, so there
    is no state.
    """

    class Config(Encoder.Config):
        kind: Literal["ngram_encoder"] = "ngram_encoder"  # type: ignore[assignment]  # a shape of its own
        sizes: tuple[Size, ...] = (2, 3, 4, 5)  # tokens of an n-gram; the edge of a word counts as one
        buckets: Size = 2**16  # rows of the table that n-grams and words are hashed into
        between: tuple[Count, ...] = (*FRAME, *BLANK)  # tokens between words, by default of the byte tokenizer; or none
        unread: Share = 0.2  # share of n-grams and words not read, others in every step of a training

        @model_validator(mode="after")
        def _several(self) -> Self:
            if not self.sizes or min(self.sizes) < 2 or len(set(self.sizes)) < len(self.sizes):
                raise ValueError(
                    f"sizes are different numbers of 2 or more, at least one, not {self.sizes}; 1 is the table"
                )
            return self

        def build(self) -> NGramEncoder:
            return NGramEncoder(self)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        whole = bool(config.between)
        self.ngrams = NGrams(config.sizes, config.buckets, config.embedded, whole=whole, unread=config.unread)
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        tokens = where.blank(x[..., 0] if x.dim() == 3 else x)
        words = Words.of(tokens, where, self.config.between)
        single = words.summed(self.embeddings.embed(x, where))
        count = words.summed(words.inside[..., None].to(single)).clamp(min=1)
        y, state = self.mix(single / count.sqrt() + self.ngrams(tokens, words), words.where, state)
        return words.spread(y), state
