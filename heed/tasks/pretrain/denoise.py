"""Denoising: an encoder-decoder restores a text that was corrupted (T5, BART)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...core.config import Size
from ...core.errors import ConfigError, InputError
from ...core.interfaces import Encodes, LanguageModel
from ...data.base import Examples
from ...decode.generated import Generated
from ...parts.outputs.loss import Loss
from ...pipelines.base import AnyModel, Padded, Pipeline
from ...pipelines.generation import Completion
from ...pipelines.settings import GenerationConfig
from ...pipelines.text import Target, Text2TextGeneration, encoded
from ...text.kinds import knowing
from ..base import Batch, Corpus, GeneratingTask, Item, Notify, TextTask, next_token_loss, proposed, some
from ..metrics import Metrics, corpus_cross_entropy, perplexity
from .documents import Documents
from .noise import AnyNoise, Infilling, SpanCorruption

if TYPE_CHECKING:
    from ...text import Tokenizer


class Denoise(TextTask, GeneratingTask):
    """What is missing, or the whole text, is predicted from a corrupted one: -Σ_t log p( y_t | y_<t, corrupted x )."""

    kind: Literal["denoise"] = "denoise"
    noise: AnyNoise = SpanCorruption()  # how texts are corrupted
    context: Size = 128  # tokens of a corrupted text, end token included; longer texts are cut

    def equip(self, tokenizer: Tokenizer) -> Tokenizer:
        return knowing(super().equip(tokenizer), *self.noise.special(self.context))

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Corrupted:
        return Corrupted(self, examples, tokenizer)

    def batch(self, items: Sequence[Item]) -> Batch:
        return Batch.shifted([target for _, target in items], Padded.of([source for source, _ in items]))

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        where = batch.inputs.where.give(encoder_output=encoded(model, batch.source))
        return next_token_loss(model, batch, where)

    def must_fit(self, model: AnyModel) -> None:
        if not (isinstance(model, Encodes) and isinstance(model, LanguageModel) and model.streams):
            raise ConfigError(
                f"to restore a text, a model must encode a corrupted one, then decode; {type(model).__name__} does "
                f"not: use model.kind=t5, seq2seq or transformer{proposed(model)}"
            )

    def cost(self, item: Item) -> int:
        source, target = item
        return max(len(source), len(target) - 1)

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> Denoiser:
        return Denoiser(model, tokenizer, self)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        """Texts are corrupted in the same way each time."""
        if config not in (None, GenerationConfig(strategy=self.decode)):
            raise InputError("nothing is generated to evaluate this: leave --beam, --temperature ... out")
        nats, tokens = corpus_cross_entropy(self, pipeline.model, self.corpus(examples, pipeline.tokenizer))
        return {"loss": nats / tokens, "perplexity": perplexity(nats, tokens), "tokens": tokens}


class Denoiser(Text2TextGeneration):
    """A model that restores texts: special tokens that a text spells are what is missing, <mask> or <extra_id_0>."""

    what = "an encoder-decoder that restores a text with gaps"

    def __init__(self, model: AnyModel, tokenizer: Tokenizer, task: Denoise) -> None:
        target = None if tokenizer.begin is not None else Target((begin_of(tokenizer),))
        super().__init__(model, tokenizer, task.decode, longest=task.context, target=target)
        self.shown = isinstance(task.noise, SpanCorruption)  # a target says which gap is which

    def _encoded_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.tokenizer.encode_marked(text) for text in texts]

    def _completion(self, made: Generated, config: GenerationConfig, seed: int | None = None) -> Completion:
        found = super()._completion(made, config, seed)
        if not self.shown or config.stop:
            return found
        kept = [token for token in made.tokens if token not in self.ends]
        return replace(found, text=self.tokenizer.decode(kept, skip_special_tokens=False))


def begin_of(tokenizer: Tokenizer) -> int:
    """What a target begins with: the begin token or, where there is none, padding, as T5 has it."""
    return tokenizer.need("pad") if tokenizer.begin is None else tokenizer.begin


class Corrupted(Corpus):
    """Windows of texts, corrupted: a source and its target, other ones in every round."""

    def __init__(self, task: Denoise, examples: Examples, tokenizer: Tokenizer) -> None:
        self._noise, self._begin, self._end = task.noise, begin_of(tokenizer), tokenizer.need("end")
        self._room = task.noise.room(task.context)
        self._special = [_known(tokenizer, name) for name in task.noise.special(task.context)]
        cut = isinstance(task.noise, Infilling) and task.noise.sentences
        self._documents = Documents.of(task.every(examples), tokenizer, cut=cut)
        some(self._corrupted(self._windows(0)[:1], np.random.default_rng(0)), self.report())

    def round(self, number: int, seed: int) -> list[Item]:
        draw = np.random.default_rng((seed, number, 4))
        windows = self._windows(int(draw.integers(self._room)))
        return self._corrupted([windows[place] for place in draw.permutation(len(windows))], draw)

    def once(self) -> list[Item]:
        return self._corrupted(self._windows(0), np.random.default_rng(0))

    def report(self) -> str:
        return self._documents.report(self._room)

    def _windows(self, first: int) -> list[tuple[int, int]]:
        """Those of two tokens at least: of one alone nothing would be left."""
        return [(begin, end) for begin, end in self._documents.windows(self._room, first) if end - begin > 1]

    def _corrupted(self, windows: Sequence[tuple[int, int]], draw: np.random.Generator) -> list[Item]:
        items, documents = list[Item](), self._documents
        for begin, end in windows:
            tokens, inner = documents.tokens[begin:end], documents.inner(begin, end) - begin
            source, target = self._noise.corrupted(tokens, inner, self._special, draw)
            framed = np.concatenate([[self._begin], target, [self._end]]).astype(np.int32)
            items.append((np.append(source, self._end).astype(np.int32), framed))
        return items


def _known(tokenizer: Tokenizer, name: str) -> int:
    if name == "<mask>" and tokenizer.mask is not None:
        return tokenizer.mask
    found = tokenizer.convert_tokens_to_ids(name)
    if found is None or found == tokenizer.unknown:
        raise InputError(
            f"this tokenizer has no {name}, which stands for what is missing; a shorter task.context needs fewer of "
            "them, and noise of kind infill needs <mask> alone"
        )
    return int(found)
