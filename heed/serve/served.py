"""A model that is served: its name, what of texts and ids it understands, and the limits it is served within."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.errors import InputError
from ..core.interfaces import Encodes, LanguageModel
from ..decode import Constraint
from ..engine.runners import PlainRunner
from ..pipelines.base import Pipeline
from ..pipelines.checkpoint import Bare
from ..pipelines.generation import GenerationPipeline, room
from ..pipelines.text import Text2TextGeneration, TextGeneration
from ..text import Tokenizer
from .request import Request

ENOUGH = 256  # new tokens of a model without a pipeline, if nothing else is said


@dataclass(frozen=True)
class Limits:
    """What an engine may use, and how it cuts its work."""

    memory: int = 1 << 30  # bytes of what is remembered, of all models together: each has the same share
    rows: int = 64  # requests of a model at work at once
    waiting: int = 256  # requests of a model that wait; one more is told to come again
    chunk: int = 64  # tokens of a prompt that are read at once; where prompts can be shared
    page: int = 16  # tokens that a growing log gets room for at once
    gap: float = 0.1  # seconds between two tokens of an answer that reading a prompt should not stretch
    prefixes: bool = True  # whether prompts that begin alike are read once
    ahead: int = 7  # tokens of an answer that are guessed at once, at most, where rows are free and it pays; 0: none

    def __post_init__(self) -> None:
        for name in ("memory", "rows", "waiting", "page"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; needed is 1 or more")
        if self.ahead < 0:
            raise InputError(f"ahead is {self.ahead}; needed is 0 or more, 0 for no guesses")
        if self.chunk < 2:
            raise InputError(f"chunk is {self.chunk}; a prompt is read at least 2 tokens at a time")


@dataclass(frozen=True)
class ModelInfo:
    """What there is to know of a served model."""

    name: str
    pipeline: Pipeline | None
    generates: bool  # whether it takes requests; others are only called
    vocabulary: int
    context: int | None  # tokens of prompt and answer together; None: any number
    executor: str  # "compiled": rows step together, by the step program; "plain": each by calls of its own
    exact: bool  # whether an answer has the same bits whatever the neighbours
    page_tokens: int
    page_bytes: int
    row_bytes: int
    budget: int  # bytes

    def rows_that_fit(self, tokens: int) -> int:
        """Requests of so many tokens each, at once, by memory alone."""
        each = self.row_bytes + (-(-tokens // self.page_tokens) * self.page_bytes if self.page_bytes else 0)
        return self.budget // max(each, 1)


class Served:
    """A model and, if there is one, its pipeline."""

    def __init__(self, name: str, model: Pipeline | Mixer[Any]) -> None:
        self.name = name
        self.pipeline = model if isinstance(model, Pipeline) else None
        self.model: Mixer[Any] = model.model if isinstance(model, Pipeline) else model.eval()
        pipeline = self.pipeline
        texts = isinstance(pipeline, TextGeneration | Text2TextGeneration)
        self.texts = pipeline if isinstance(pipeline, GenerationPipeline) and texts else None
        able = self.texts is not None or pipeline is None or isinstance(pipeline, Bare)  # the last ones take ids
        self.generates = able and self.model.streams and isinstance(self.model, LanguageModel)
        self.encodes = isinstance(self.model, Encodes)

    @property
    def tokenizer(self) -> Tokenizer | None:
        return None if self.pipeline is None else getattr(self.pipeline, "tokenizer", None)

    @property
    def vocabulary(self) -> int:
        if not isinstance(self.model, LanguageModel):
            return 0 if self.tokenizer is None else self.tokenizer.size
        return self.model.vocabulary

    @property
    def context(self) -> int | None:
        return self.model.longest if isinstance(self.model, LanguageModel) else None

    def must_have_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(f"{self.name} has no tokenizer; give ids, and no stop strings")
        return self.tokenizer

    def prompt(self, request: Request) -> list[int]:
        """The ids that are continued."""
        given: object = request.prompt
        if isinstance(given, str):
            if self.texts is None:
                raise InputError(f"{self.name} has no tokenizer; give the prompt as ids")
            return self.texts.prompt(given)
        ids = [int(token) for token in request.prompt]
        if not ids and isinstance(self.texts, Text2TextGeneration):
            return self.texts.prompt("")
        return self._checked("prompt", ids, self.vocabulary)

    def source(self, request: Request) -> list[int] | None:
        """The ids that an encoder-decoder encodes; a text as the prompt is one, too."""
        source = request.source
        if not self.encodes:
            if source is not None:
                raise InputError(f"{self.name} encodes no source; only an encoder-decoder does")
            return None
        if source is None and isinstance(request.prompt, str):
            source = request.prompt
        if source is None:
            raise InputError(f"{self.name} is an encoder-decoder: say what to encode by source=")
        if isinstance(source, str):
            if not isinstance(self.texts, Text2TextGeneration):
                raise InputError(f"{self.name} has no pipeline that encodes texts; give the source as ids")
            return self.texts.source_ids(source)
        return self._checked("source", [int(token) for token in source], None)  # the encoder knows its vocabulary

    def given(self, source: Sequence[int] | None) -> Given:
        """What the model is given beside the prompt."""
        if source is None:
            return NOTHING
        where = Where.run(1, len(source), device=self.model.device)
        return PlainRunner(self.model).encode(torch.tensor([list(source)], device=self.model.device), where)

    def limit(self, request: Request, prompt: Sequence[int]) -> int:
        """New tokens, at most."""
        left = room(self.model) - len(prompt) + 1  # the last token is not read
        if left < 1:
            raise InputError(
                f"the prompt has {len(prompt)} tokens, the model has places for {self.context}; shorten it"
            )
        if request.max_new_tokens is None:
            usual = ENOUGH if self.texts is None else self.texts.default_length([prompt])
            return min(usual, left)
        if request.max_new_tokens > left:
            raise InputError(
                f"{len(prompt)} tokens of the prompt and max_new_tokens={request.max_new_tokens} are more than the "
                f"{self.context} places of the model; ask for at most {left}"
            )
        return request.max_new_tokens

    def ends(self, request: Request) -> Collection[int]:
        if request.ends is None:
            return () if self.texts is None else self.texts.ends
        strange = [end for end in request.ends if not 0 <= end < self.vocabulary]
        if strange:
            raise InputError(f"end tokens {strange[:5]} are not in the vocabulary, which is 0 to {self.vocabulary - 1}")
        return request.ends

    def constraint(self) -> Constraint | None:
        return None if self.texts is None else self.texts.constraint

    def check(self, request: Request) -> None:
        """Raise at what this model cannot do."""
        if not self.generates:
            raise InputError(f"{self.name} does not generate; it is to be called")
        if request.stop:
            self.must_have_tokenizer()
        strange = [token for token in request.logit_bias if not 0 <= token < self.vocabulary]
        if strange:
            raise InputError(f"logit_bias names tokens {strange[:5]}; the vocabulary is 0 to {self.vocabulary - 1}")

    @staticmethod
    def _checked(what: str, ids: list[int], vocabulary: int | None) -> list[int]:
        if not ids:
            raise InputError(f"the {what} is empty; needed is at least one token")
        if min(ids) < 0 or (vocabulary and max(ids) >= vocabulary):
            known = f"the vocabulary is 0 to {vocabulary - 1}" if vocabulary else "there is none below 0"
            raise InputError(f"the {what} holds tokens from {min(ids)} to {max(ids)}; {known}")
        return ids
