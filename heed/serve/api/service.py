"""What a server has: models by name, who may ask, bounds, and where it tells what it does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from ...core.spec import price
from ...pipelines import TextGeneration
from .grammar import Grammar, Grammars, wants_format
from .settings import HttpLimits
from .shapes.requests import Generating
from .tokens import Namer
from .wire.guard import Guard
from .wire.log import Log
from .wire.metrics import Metrics
from .wire.refusal import Refusal

if TYPE_CHECKING:
    from ...pipelines import GenerationPipeline
    from .. import Engine
    from ..served import ModelInfo

T = TypeVar("T")


class NamedModel:
    """A model that can be asked by its name."""

    def __init__(self, name: str, info: ModelInfo, parent: str | None = None) -> None:
        self.name, self.info, self.created = name, info, int(time.time())
        self.parent = parent  # the base, where it is an adapter

    @property
    def pipeline(self) -> GenerationPipeline:
        """What generates text."""
        from ...pipelines import GenerationPipeline

        if not isinstance(self.info.pipeline, GenerationPipeline):
            raise Refusal(400, f"the model {self.name} does not generate text", "model", code="wrong_model")
        return self.info.pipeline

    @property
    def chats(self) -> bool:
        """Whether it has a chat template."""
        return isinstance(self.info.pipeline, TextGeneration) and "chat" in self.info.pipeline.can

    @cached_property
    def namer(self) -> Namer:
        """What its tokens are called."""
        return Namer(self.pipeline.tokenizer)

    @cached_property
    def grammars(self) -> Grammars:
        """What compiles the forms of its answers."""
        return Grammars(self.pipeline.tokenizer, self.info.vocabulary, self.pipeline.ends)

    def state_bytes(self, tokens: int) -> int:
        """What the state of an answer holds after so many tokens."""
        return price(self.pipeline.model.spec(), tokens)


@dataclass
class Service:
    """One server. What takes a while is done on threads of its own, so that the event loop serves everybody else."""

    engine: Engine
    guard: Guard
    version: str  # of heed
    bounds: HttpLimits = field(default_factory=HttpLimits)
    metrics: Metrics = field(default_factory=Metrics)
    log: Log = field(default_factory=Log)
    draining: bool = False
    parents: Mapping[str, str] = field(default_factory=dict)  # of models that are adapters: their bases
    _preparing: int = 0

    def __post_init__(self) -> None:
        self.models = {
            name: NamedModel(name, info, self.parents.get(name)) for name, info in self.engine.models.items()
        }
        # Templates of strangers may take their time: they have threads of their own, and wait for one another.
        self._templates = ThreadPoolExecutor(2, thread_name_prefix="heed-templates")
        self._texts = ThreadPoolExecutor(2, thread_name_prefix="heed-texts")

    @property
    def fingerprint(self) -> str:
        """What answers depend on beside the model and the request."""
        return f"heed-{self.version}"

    def model(self, name: str) -> NamedModel:
        """The model of that name: a key of a table, never a path."""
        if name not in self.models:
            known = ", ".join(self.models)
            raise Refusal(404, f"there is no model {name[:80]!r}; served are: {known}", "model", code="model_not_found")
        return self.models[name]

    async def prepared(self, work: Callable[[], T], *, template: bool = False) -> T:
        """The result of work on texts: rendering, encoding, decoding."""
        if self._preparing >= self.bounds.texts:
            raise Refusal(429, "too many requests are being prepared", code="busy", headers={"retry-after": "1"})
        self._preparing += 1
        try:
            pool = self._templates if template else self._texts
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        finally:
            self._preparing -= 1

    async def grammar(self, served: NamedModel, asked: Generating, calls: str = "") -> Grammar | None:
        """The form of the answers, if one was asked for. `calls`: a grammar of tool calls, which leaves no other."""
        if not calls and not wants_format(asked):
            return None
        return await self.prepared(lambda: served.grammars.of(asked, calls))

    def close(self) -> None:
        """No more work on texts."""
        for pool in (self._templates, self._texts):
            pool.shutdown(wait=False, cancel_futures=True)
