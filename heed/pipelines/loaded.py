"""Checkpoints of language models and encoder-decoders in use: they write as trained ones do, framed as they were."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..core.config import Count, Theirs
from ..core.errors import ConfigError, InputError
from ..decode import Constraint
from ..tasks.base import AnyModel, Padded
from ..tasks.causal import Causal, Writer
from ..tasks.translate import Translate, Translator
from .base import GenerationConfig, Message

if TYPE_CHECKING:
    from ..text import Tokenizer

LONG = 1 << 20  # tokens of a source, at most, where the model sets no limit


class Continuer(Writer):
    """A language model that somebody else trained: it goes on from a text, or answers in a conversation."""

    def __init__(self, model: AnyModel, tokenizer: Tokenizer) -> None:
        super().__init__(Causal(), model, tokenizer)

    @property
    def ends(self) -> Collection[int]:
        return self.tokenizer.ends

    def prompt(self, text: str) -> list[int]:
        ids = list(self.tokenizer.framed(text).ids)
        while ids and ids[-1] in self.ends:  # what frames a whole text must not end one that is to go on
            ids.pop()
        return ids or [self._first()]

    def chat(self, messages: Sequence[Message], ask: GenerationConfig | None = None) -> str:
        return "".join(self.chatting(messages, ask))

    def chatting(self, messages: Sequence[Message], ask: GenerationConfig | None = None) -> Iterator[str]:
        """What the model says next in a conversation, piece by piece."""
        if self.tokenizer.chat is None:
            raise InputError("this checkpoint has no chat template, so it was not trained to chat; use generate")
        return _Turn(self.model, self.tokenizer, self.tokenizer.prompt(messages)).stream("", ask)

    def _first(self) -> int:
        """What stands before a text that is empty."""
        first = self.tokenizer.begin if self.tokenizer.begin is not None else next(iter(self.ends), None)
        if first is None:
            raise InputError("the text is empty, and the tokenizer has no token that begins one; give some text")
        return first


class _Turn(Continuer):
    """What is said next after a conversation, which a chat template made tokens of."""

    def __init__(self, model: AnyModel, tokenizer: Tokenizer, said: list[int]) -> None:
        super().__init__(model, tokenizer)
        self._said = said

    def prompt(self, text: str) -> list[int]:
        return self._said


@dataclass(frozen=True)
class Target:
    """How the targets of an encoder-decoder begin, and which tokens they never hold."""

    begin: tuple[int, ...]
    never: tuple[int, ...] = ()


class Rewriter(Translator):
    """An encoder-decoder that somebody else trained: it answers a source with a target."""

    def __init__(self, model: AnyModel, tokenizer: Tokenizer, target: Target, longest: int | None = None) -> None:
        super().__init__(Translate(longest=longest or LONG), model, tokenizer)
        self.target = target

    @property
    def ends(self) -> Collection[int]:
        return self.tokenizer.ends

    @property
    def allow(self) -> Constraint | None:
        return self.spoken(self.target.never)

    def generate(self, text: str = "", ask: GenerationConfig | None = None) -> str:
        """What the model writes when it has read this text."""
        return self.translate([text], ask)[0]

    def prompt(self, text: str) -> list[int]:
        return list(self.target.begin)

    def enough(self, texts: Sequence[str]) -> int:
        return min(super().enough(texts), 256)

    def _sources(self, texts: Sequence[str]) -> Padded:
        framed = [np.array(one.ids, np.int32) for one in self.tokenizer.framed_all(texts)]
        longest = max(map(len, framed), default=0)
        if longest > self.task.longest:
            raise InputError(
                f"a text has {longest} tokens, the model has places for {self.task.longest}; cut it into sentences"
            )
        return Padded.of(framed).to(self.model.device or torch.device("cpu"))


class Generation(Theirs):
    """What config.json and generation_config.json say of how targets are written."""

    decoder_start_token_id: Count | None = None
    bos_token_id: Count | None = None
    pad_token_id: Count | None = None
    forced_bos_token_id: Count | None = None
    bad_words_ids: tuple[tuple[Count, ...], ...] | None = None


def target_of(config: Mapping[str, object], generation: Mapping[str, object]) -> Target:
    """How targets begin and what they never hold, by config.json and generation_config.json."""
    merged = {**config, **{name: value for name, value in generation.items() if value is not None}}
    try:
        told = Generation.load(merged)
    except ConfigError as error:
        raise InputError(f"how targets are written cannot be understood: {error}") from None
    starts = (told.decoder_start_token_id, told.bos_token_id, told.pad_token_id)
    begin = next((start for start in starts if start is not None), None)
    if begin is None:
        raise InputError("config.json names no decoder_start_token_id, so heed cannot tell how a target begins")
    language = () if told.forced_bos_token_id is None else (told.forced_bos_token_id,)
    single = tuple(words[0] for words in told.bad_words_ids or () if len(words) == 1)
    return Target((begin, *language), single)
