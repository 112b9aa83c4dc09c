"""Sequence to sequence: a target is written after a source was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal
from unicodedata import normalize

import numpy as np
import torch

from .. import engine
from ..core.config import Share, Size
from ..core.contract import Given
from ..core.errors import ConfigError, InputError, MissingExtra
from ..core.interfaces import Encodes, LanguageModel
from ..core.state import Seen
from ..data.base import Example, Examples
from ..parts.outputs.loss import Loss
from ..pipelines.base import GenerationConfig, Notify, Scores, TextGeneration, perplexity, room
from .base import AnyModel, Batch, Corpus, Item, Padded, Task, next_token_loss, some

if TYPE_CHECKING:
    from ..text import Tokenizer

ROUND = 8192  # examples of an endless source that are encoded and sorted together


class Translate(Task):
    """A target is written after a source was read: -Σ_t log p(y_t | y_<t, x), labels smoothed (Vaswani et al. 2017)."""

    kind: Literal["translate"] = "translate"
    columns: ClassVar[tuple[str, ...]] = ("source", "target")
    smoothing: Share = 0.1
    case: Literal["kept", "ignored"] = "kept"  # whether scores distinguish upper and lower case
    longest: Size = 256  # tokens of a source or target, end token included; longer pairs are left out and counted

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Pairs:
        return Pairs(examples, tokenizer, self.longest)

    def batch(self, items: Sequence[Item]) -> Batch:
        return Batch.shifted([target for _, target in items], Padded.of([source for source, _ in items]))

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        where = batch.inputs.where.give(encoder_output=self.memory(model, batch.source))
        return next_token_loss(model, batch, where, self.smoothing if model.training else 0.0)

    def memory(self, model: AnyModel, source: Padded | None) -> Seen:
        """The encoded source."""
        if not isinstance(model, Encodes) or source is None:
            raise InputError("to translate, a model and a source to read are needed")
        return engine.compile(model).encode(source.tokens, source.where)

    def must_fit(self, model: AnyModel) -> None:
        if not (isinstance(model, Encodes) and isinstance(model, LanguageModel) and model.streams):
            raise ConfigError(
                f"to translate, a model must read a source first, then write looking back only; {type(model).__name__} "
                "does not: use model.kind=seq2seq or model.kind=transformer"
            )

    def cost(self, item: Item) -> int:
        source, target = item
        return max(len(source), len(target) - 1)

    def ready(self, model: AnyModel, tokenizer: Tokenizer) -> Translator:
        return Translator(self, model, tokenizer)


class Translator(TextGeneration):
    """An encoder-decoder in use: it answers a source with a target."""

    what = "an encoder-decoder, which answers a source with a target"
    task: Translate

    def translate(self, texts: Sequence[str], ask: GenerationConfig | None = None) -> list[str]:
        """The best target for each source."""
        return [best[0].text for best in self.answers(texts, ask)]

    def lead(self, text: str) -> str:
        return ""

    def prompt(self, text: str) -> list[int]:
        return [self.tokenizer.need("begin")]

    def given(self, texts: Sequence[str]) -> Given:
        with torch.no_grad():
            return Given(encoder_output=self.task.memory(self.model, self._sources(texts)))

    def enough(self, texts: Sequence[str]) -> int:
        return min(self.task.longest, room(self.model))

    def score(self, examples: Examples, ask: GenerationConfig | None = None, notify: Notify | None = None) -> Scores:
        corpus = self.task.corpus(examples, self.tokenizer)
        nats, tokens = self.nats(corpus)
        pairs = [pair for pair, fits in zip(examples, corpus.fits, strict=True) if fits]
        written = self.answers([source for source, _ in pairs], ask, notify=notify)
        return {
            "loss": nats / tokens,
            "perplexity": perplexity(nats, tokens),
            **agreement([best[0].text for best in written], [target for _, target in pairs], self.task.case),
            "left_out": corpus.left_out,
        }

    def _sources(self, texts: Sequence[str]) -> Padded:
        end, sources = self.tokenizer.need("end"), self.tokenizer.encode_all(texts)
        for text, ids in zip(texts, sources, strict=True):
            if len(ids) >= self.task.longest:
                raise InputError(
                    f"the text {text[:40]!r} has {len(ids)} tokens, the model was trained on at most "
                    f"{self.task.longest - 1} (task.longest); cut it into sentences"
                )
        padded = Padded.of([np.array([*ids, end], np.int32) for ids in sources])
        return padded.to(self.model.device or torch.device("cpu"))


def agreement(written: Sequence[str], wanted: Sequence[str], case: Literal["kept", "ignored"]) -> Scores:
    """sacreBLEU (Post 2018) with its signature, chrF, and the share of answers that are exactly right, in percent."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise MissingExtra.of("sacrebleu", "train") from None
    lower = case == "ignored"
    written, wanted = ([normalize("NFC", text) for text in texts] for texts in (written, wanted))
    bleu, chrf = BLEU(lowercase=lower), CHRF(lowercase=lower)
    equal = [a.lower() == b.lower() if lower else a == b for a, b in zip(written, wanted, strict=True)]
    return {
        "bleu": bleu.corpus_score(list(written), [list(wanted)]).score,
        "chrf": chrf.corpus_score(list(written), [list(wanted)]).score,
        "exact": 100 * sum(equal) / len(equal),
        "pairs": len(equal),
        "signature": str(bleu.get_signature()),
    }


class Pairs(Corpus):
    """Encoded pairs: a source with its end token, a target between begin and end."""

    def __init__(self, examples: Examples, tokenizer: Tokenizer, longest: int) -> None:
        self._examples, self._tokenizer, self._longest = examples, tokenizer, longest
        self._begin, self._end = tokenizer.need("begin"), tokenizer.need("end")
        self.fits: list[bool] = []  # whether an example is short enough, in their order
        self._items = [] if examples.endless else some(self._encoded(examples), self.report())

    def round(self, number: int, seed: int) -> list[Item]:
        if self._examples.endless:
            size = min(ROUND, len(self._examples))
            some_of_them = (self._examples[index] for index in range(number * size, (number + 1) * size))
            return some(self._encoded(some_of_them), self.report())
        order = np.random.default_rng((seed, number, 0)).permutation(len(self._items))
        return [self._items[place] for place in order]

    def once(self) -> list[Item]:
        return self._encoded(self._examples) if self._examples.endless else self._items

    def report(self) -> str:
        kept = "pairs without end" if self._examples.endless else f"{len(self._examples) - self.left_out:,} pairs"
        too_long = f", {self.left_out:,} left out: longer than {self._longest} tokens (task.longest)"
        return kept + (too_long if self.left_out else "")

    def _encoded(self, examples: Iterable[Example]) -> list[Item]:
        sources, targets = zip(*examples, strict=True) if (examples := list(examples)) else ((), ())
        read = self._tokenizer.encode_all(sources)
        written = self._tokenizer.encode_all(targets)
        fits = [max(len(x), len(y)) < self._longest for x, y in zip(read, written, strict=True)]
        self.fits += fits
        return [
            (np.array([*x, self._end], np.int32), np.array([self._begin, *y, self._end], np.int32))
            for x, y, short in zip(read, written, fits, strict=True)
            if short
        ]

    @property
    def left_out(self) -> int:
        """Pairs that are too long."""
        return self.fits.count(False)
