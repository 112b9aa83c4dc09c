"""Text in, text out: generation with a language model (GPT-2, Llama ...) or with an encoder-decoder (T5, BART ...).

Runs of heed's were trained on bare texts; checkpoints on texts in their tokenizer's frame: `framed`, `target`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch

from .. import engine
from ..core.config import Count, Theirs
from ..core.contract import NOTHING, Given
from ..core.errors import ConfigError, InputError
from ..core.interfaces import Encodes
from ..core.state import Seen
from ..decode import AnyStrategy, Constraint
from .attentions import Attentions, CrossAttentions, Inspected, attentions_of, cross_attentions_of, ids_in
from .base import AnyModel, Padded, must_be_one
from .generation import GenerationPipeline, Prompts, room
from .settings import GenerationConfig, GenerationKeywords
from .verbs import Many, Message

if TYPE_CHECKING:
    from ..text import Tokenizer
    from ..text.batch import Numbers

CONTEXT = 256  # new tokens, if nothing else is said
LONG = 1 << 20  # tokens of a source, at most, where the model sets no limit


class TextGeneration(GenerationPipeline):
    """A language model: it continues a prompt and, if its checkpoint has a chat template, a conversation."""

    what = "a language model"

    def __init__(
        self,
        model: AnyModel,
        tokenizer: Tokenizer,
        strategy: AnyStrategy | None = None,
        *,
        context: int = CONTEXT,
        framed: bool = True,
    ) -> None:
        super().__init__(model, tokenizer, strategy)
        self.context, self.framed = context, framed

    @property
    def can(self) -> tuple[str, ...]:
        chats = ("chat",) if self.framed and self.tokenizer.chat is not None else ()
        return (*super().can, *chats)

    def chat(
        self,
        messages: str | Sequence[Message],
        config: GenerationConfig | None = None,
        *,
        stream: bool = False,
        **keywords: Unpack[GenerationKeywords],
    ) -> Any:  # overloads of `Verbs` tell what
        if stream:
            return self.chatting(messages, config, **keywords)
        settled = self._settled("chat", config, keywords)
        (found,) = self._completed([self._messages(messages)], self._chats, settled)
        texts = [one.text for one in found]
        return texts if (settled.num_return_sequences or 1) > 1 else texts[0]

    def chatting(
        self,
        messages: str | Sequence[Message],
        config: GenerationConfig | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> Iterator[str]:
        """What the model says next in a conversation, piece by piece."""
        settled = self._settled("chat", config, keywords)
        return self._stream(self._chats([self._messages(messages)]), settled)

    def _messages(self, messages: str | Sequence[Message]) -> Sequence[Message]:
        """A conversation that can be continued; a text alone is what the user says."""
        if not self.framed:
            raise self._cannot("chat")
        if self.tokenizer.chat is None:
            raise InputError("this checkpoint has no chat template, so it was not trained to chat; use generate")
        return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages

    def _chats(self, chats: Sequence[Sequence[Message]]) -> Prompts:
        return Prompts([self.tokenizer.prompt(messages) for messages in chats], NOTHING)

    def lead(self, text: str) -> str:
        return text

    def attentions(self, text: str | Numbers, target: str | None = None) -> Attentions:
        """The attention weights of every layer and head on a text, or on ids; a token of it sees those before it."""
        return attentions_of(self.model, self.inspect(text, target))

    def inspect(self, text: str | Numbers, target: str | None = None) -> Inspected:
        """The prompt that is made of a text, or these ids."""
        given = ids_in(text)
        if given is None:
            must_be_one(text)
        if target is not None:
            raise InputError("a target is what an encoder-decoder answers with; this is a language model: leave it out")
        ids = given or self.prompt(str(text))
        return Inspected(torch.tensor([ids], device=self.device), tuple(self.tokenizer.tokens(ids)))

    def _encoded_texts(self, texts: list[str]) -> Mapping[str, Any]:
        return {"input_ids": [self.prompt(text) for text in texts]}

    def prompt(self, text: str) -> list[int]:
        if not self.framed:
            return self.tokenizer.encode(text) or [self.tokenizer.need("end")]  # which stands before every text
        ids = list(self.tokenizer.framed(text).ids)
        while ids and ids[-1] in self.ends:  # what frames a whole text must not end one that is to be continued
            ids.pop()
        return ids or [self._first()]

    def given(self, texts: Sequence[str]) -> Given:
        return NOTHING

    @property
    def batch(self) -> int:
        """One by one if the model has a last position: then how much can be generated depends on the prompt."""
        return super().batch if room(self.model) == sys.maxsize else 1

    def default_length(self, prompts: Sequence[Sequence[int]]) -> int:
        longest = max(map(len, prompts))
        if longest >= room(self.model):
            raise InputError(
                f"the text has {longest} tokens, the model has places for {room(self.model)}; give a shorter one"
            )
        return min(self.context, room(self.model) - longest)

    def _first(self) -> int:
        """What stands before a text that is empty."""
        first = self.tokenizer.begin if self.tokenizer.begin is not None else next(iter(self.ends), None)
        if first is None:
            raise InputError("the text is empty, and the tokenizer has no token that begins one; give some text")
        return first


@dataclass(frozen=True)
class Target:
    """How the targets of an encoder-decoder begin, and which tokens they never hold."""

    begin: tuple[int, ...]
    never: tuple[int, ...] = ()


class Text2TextGeneration(GenerationPipeline):
    """An encoder-decoder: it translates, summarises or answers a source with a target.

    `longest`: tokens of a source, at most. `target`: how a checkpoint begins its targets; None for a run of heed's.
    """

    what = "an encoder-decoder, which answers a source with a target"

    def __init__(
        self,
        model: AnyModel,
        tokenizer: Tokenizer,
        strategy: AnyStrategy | None = None,
        *,
        longest: int | None = None,
        target: Target | None = None,
    ) -> None:
        super().__init__(model, tokenizer, strategy)
        self.longest, self.target = longest or LONG, target

    @property
    def constraint(self) -> Constraint | None:
        return self._spoken(() if self.target is None else self.target.never)

    @property
    def can(self) -> tuple[str, ...]:
        return ("translate", *super().can)

    def translate(
        self, texts: str | Many[str], config: GenerationConfig | None = None, **keywords: Unpack[GenerationKeywords]
    ) -> Any:  # overloads of `Verbs` tell what
        return self._texts("translate", texts, config, keywords)

    def attentions(self, text: str | Numbers, target: str | None = None) -> CrossAttentions:
        """The attention weights within a source, within its target, and between them.

        Without a target it is the one that the model generates.
        """
        return cross_attentions_of(self.model, self.inspect(text, target))

    def inspect(self, text: str | Numbers, target: str | None = None) -> Inspected:
        """A source and its target; without one it is generated."""
        must_be_one(text)
        source = self._sources([str(text)]).tokens
        written = self.translate(str(text)) if target is None else target
        ids = [*self.prompt(str(text)), *self.tokenizer.encode(written)]
        shown = self.tokenizer.tokens
        return Inspected.of_text(
            torch.tensor([ids], device=source.device), shown(ids), source, shown(source[0].tolist())
        )

    def _encoded_texts(self, texts: list[str]) -> Mapping[str, Any]:
        return {"input_ids": self._bare(texts) if self.target is None else self._framed(texts)}

    def prompt(self, text: str) -> list[int]:
        return [self.tokenizer.need("begin")] if self.target is None else list(self.target.begin)

    def given(self, texts: Sequence[str]) -> Given:
        with torch.no_grad():
            return Given(encoder_output=encoded(self.model, self._sources(texts)))

    def default_length(self, prompts: Sequence[Sequence[int]]) -> int:
        most = min(self.longest, room(self.model))
        return most if self.target is None else min(most, CONTEXT)

    def source_ids(self, text: str) -> list[int]:
        """The tokens that are encoded of a source."""
        return (self._bare if self.target is None else self._framed)([text])[0]

    def _sources(self, texts: Sequence[str]) -> Padded:
        rows = self._bare(texts) if self.target is None else self._framed(texts)
        return Padded.of([np.array(row, np.int32) for row in rows]).to(self.model.device or torch.device("cpu"))

    def _bare(self, texts: Sequence[str]) -> list[list[int]]:
        end, sources = self.tokenizer.need("end"), self._encoded_sources(texts)
        for text, ids in zip(texts, sources, strict=True):
            if len(ids) >= self.longest:
                raise InputError(
                    f"the text {text[:40]!r} has {len(ids)} tokens, the model was trained on at most "
                    f"{self.longest - 1} (task.longest); cut it into sentences"
                )
        return [[*ids, end] for ids in sources]

    def _encoded_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_all(texts)

    def _framed(self, texts: Sequence[str]) -> list[list[int]]:
        rows = [list(one.ids) for one in self.tokenizer.framed_all(texts)]
        longest = max(map(len, rows), default=0)
        if longest > self.longest:
            raise InputError(
                f"a text has {longest} tokens, the model has places for {self.longest}; cut it into sentences"
            )
        return rows


class Rewriting(Text2TextGeneration):
    """An encoder-decoder that rewrites texts: every source begins with the same words, and a long one is cut."""

    what = "an encoder-decoder that rewrites texts"

    def __init__(
        self,
        model: AnyModel,
        tokenizer: Tokenizer,
        strategy: AnyStrategy | None = None,
        *,
        longest: int | None = None,
        before: str = "",
    ) -> None:
        super().__init__(model, tokenizer, strategy, longest=longest)
        self.before = before

    def _bare(self, texts: Sequence[str]) -> list[list[int]]:
        end = self.tokenizer.need("end")
        sources = self.tokenizer.encode_all([self.before + text for text in texts])
        return [[*ids[: self.longest - 1], end] for ids in sources]


def encoded(model: AnyModel, source: Padded | None) -> Seen:
    """The encoder output of a source."""
    if not isinstance(model, Encodes) or source is None:
        raise InputError("to translate, a model with an encoder and a source are needed")
    return engine.compile(model).encode(source.tokens, source.where)


class _TargetTokens(Theirs):
    """What config.json and generation_config.json say of how targets are generated."""

    decoder_start_token_id: Count | None = None
    bos_token_id: Count | None = None
    pad_token_id: Count | None = None
    forced_bos_token_id: Count | None = None
    bad_words_ids: tuple[tuple[Count, ...], ...] | None = None


def target_of(config: Mapping[str, object], generation: Mapping[str, object]) -> Target:
    """How targets begin and what they never hold, by config.json and generation_config.json."""
    merged = {**config, **{name: value for name, value in generation.items() if value is not None}}
    try:
        told = _TargetTokens.load(merged)
    except ConfigError as error:
        raise InputError(f"how targets are generated cannot be understood: {error}") from None
    starts = (told.decoder_start_token_id, told.bos_token_id, told.pad_token_id)
    begin = next((start for start in starts if start is not None), None)
    if begin is None:
        raise InputError("config.json names no decoder_start_token_id, so heed cannot tell how a target begins")
    language = () if told.forced_bos_token_id is None else (told.forced_bos_token_id,)
    single = tuple(words[0] for words in told.bad_words_ids or () if len(words) == 1)
    return Target((begin, *language), single)
