"""Text in, text out: generation with a language model (GPT-2, Llama ...) or with an encoder-decoder (T5, BART ...).

Runs of heed's were trained on bare texts; checkpoints on texts in their tokenizer's frame: `framed`, `target`.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from warnings import warn

import numpy as np
import torch

from .. import engine
from ..core.config import Config, Count, Size, Text, Theirs, renamed_keys
from ..core.contract import NOTHING, Given
from ..core.errors import ConfigError, InputError
from ..core.interfaces import Encodes, LanguageModel
from ..core.state import Seen
from ..decode import (
    AnyStrategy,
    Beam,
    Begin,
    Constraint,
    Generated,
    Greedy,
    Never,
    Sample,
    Stop,
    Token,
    Why,
    generate,
    stream,
)
from .base import AnyModel, Message, Padded, Pipeline, Response

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..text import Tokenizer

BATCH = 64  # prompts that are completed in one batch
CONTEXT = 256  # new tokens, if nothing else is said
LONG = 1 << 20  # tokens of a source, at most, where the model sets no limit

T = TypeVar("T")


class GenerationConfig(Config):
    """How texts are generated."""

    strategy: AnyStrategy = Greedy()
    max_new_tokens: Size | None = None  # None: what the pipeline finds enough
    stop: tuple[Text, ...] = ()  # a completion ends before the first of these
    prefix: Text = ""  # every completion begins so
    _old = renamed_keys(how="strategy", limit="max_new_tokens")


@dataclass(frozen=True)
class Completion:
    """One generated text, the log-probability of its tokens, how many there are, and why it ended."""

    text: str
    score: float
    tokens: int
    why: Why


def room(model: AnyModel) -> int:
    """How many tokens a model can place."""
    return model.longest or sys.maxsize if isinstance(model, LanguageModel) else sys.maxsize


class GenerationPipeline(Pipeline):
    """A model that generates text, with its tokenizer and the strategy that is used unless a call names another."""

    def __init__(self, model: AnyModel, tokenizer: Tokenizer, strategy: AnyStrategy | None = None) -> None:
        self.model, self.tokenizer, self.strategy = model.eval(), tokenizer, strategy or Greedy()

    @abstractmethod
    def prompt(self, text: str) -> list[int]:
        """The tokens that a completion of this text begins after."""

    @abstractmethod
    def given(self, texts: Sequence[str]) -> Given:
        """What the model is given beside the prompts."""

    @abstractmethod
    def default_length(self, prompts: Sequence[Sequence[int]]) -> int:
        """How many new tokens are enough after any of these prompts."""

    def lead(self, text: str) -> str:
        """What is shown before a completion: its prompt, if it continues one."""
        return ""

    @property
    def batch(self) -> int:
        """How many texts are completed together."""
        return BATCH

    @property
    def ends(self) -> Collection[int]:
        """Tokens that end a completion."""
        return self.tokenizer.ends

    @property
    def constraint(self) -> Constraint | None:
        """Which tokens may come next; None = all."""
        return self._spoken()

    def respond(self, text: str) -> Response:
        (best,) = self.completions([text])[0][:1]
        return Response(self.lead(text) + best.text, asdict(best))

    def completions(
        self,
        texts: Sequence[str],
        config: GenerationConfig | None = None,
        *,
        first: int = 0,
        notify: Callable[[int, int], None] | None = None,
    ) -> list[list[Completion]]:
        """The completions of each text, the best first. `notify` is told how many are done, of how many.

        A text is completed as it would be alone; samples of text i are drawn with seed + `first` + i.
        """
        config = self._config(config)
        order = list(range(len(texts)))
        if not isinstance(config.strategy, Sample):  # similar lengths go together; a sample's seed counts the texts
            order.sort(key=lambda place: len(texts[place]))
        found: dict[int, list[Completion]] = {}
        for begin in range(0, len(texts), self.batch):
            places = order[begin : begin + self.batch]
            some = [texts[place] for place in places]
            prompts = [self.prompt(text) for text in some]
            made = self._generated(generate, prompts, self.given(some), config, first + begin)
            found |= zip(places, ([self._completion(one, config) for one in best] for best in made), strict=True)
            if notify is not None:
                notify(len(found), len(texts))
        return [found[place] for place in range(len(texts))]

    def answers(self, *given: Any, **named: Any) -> list[list[Completion]]:
        """What `completions` was called in the last release."""
        warn("answers is called completions now; the old name will go", DeprecationWarning, stacklevel=2)
        return self.completions(*given, **named)

    def stream(self, text: str, config: GenerationConfig | None = None, *, first: int = 0) -> Iterator[str]:
        """The best completion piece by piece; joined, the pieces are the text that `completions` gives."""
        return self._stream(self.prompt(text), self.given([text]), self._config(config), first)

    def _config(self, config: GenerationConfig | None) -> GenerationConfig:
        return config or GenerationConfig(strategy=self.strategy)

    def _stream(self, prompt: list[int], given: Given, config: GenerationConfig, first: int = 0) -> Iterator[str]:
        if isinstance(config.strategy, Beam):
            ((best, *_),) = self._generated(generate, [prompt], given, config, first)
            yield self._completion(best, config).text
            return
        made = self._generated(stream, [prompt], given, config, first)
        stop = self._stop(config)
        yield from filter(None, self._told(made) if stop is None else self._told_until(stop, made))

    def _told(self, made: Iterable[Token]) -> Iterator[str]:
        """Pieces of text as soon as their characters are whole."""
        pieces = self.tokenizer.stream()
        for token in made:
            if token.why != "end":
                yield pieces.push(token.token)
        yield pieces.rest()

    def _told_until(self, stop: Stop, made: Iterable[Token]) -> Iterator[str]:
        """Pieces of text as soon as they cannot become a stop string any more."""
        tokens, shown = list[int](), ""
        for token in made:
            if token.why != "end":
                tokens.append(token.token)
            whole = self.tokenizer.decode(tokens)
            safe = stop.cut(whole) if token.why else stop.safe(whole)
            yield safe.removeprefix(shown)
            shown = safe

    def _generated(
        self, way: Callable[..., T], prompts: Sequence[list[int]], given: Given, config: GenerationConfig, first: int
    ) -> T:
        """`generate` or `stream`, with all that follows from the prompts and the configuration."""
        strategy = config.strategy
        if isinstance(strategy, Sample):
            strategy = strategy.model_copy(update={"seed": strategy.seed + first})
        prefix = self.tokenizer.encode(config.prefix)
        return way(
            self.model,
            prompts,
            strategy=strategy,
            max_new_tokens=config.max_new_tokens or self.default_length(prompts) + len(prefix),
            end=self.ends,
            given=given,
            stop=self._stop(config),
            constraint=Begin([prefix] * len(prompts), self.constraint) if prefix else self.constraint,
        )

    def _spoken(self, never: Collection[int] = ()) -> Constraint | None:
        """What may be generated: a model may have logits of more tokens than its tokenizer has, for round sizes."""
        size = self.tokenizer.size
        vocabulary = self.model.vocabulary if isinstance(self.model, LanguageModel) else size
        banned = {*never, *range(size, vocabulary)}
        return Never(banned, vocabulary) if banned else None

    def _stop(self, config: GenerationConfig) -> Stop | None:
        return Stop(config.stop, self.tokenizer.decode) if config.stop else None

    def _completion(self, made: Generated, config: GenerationConfig) -> Completion:
        stop = self._stop(config)
        text = self.tokenizer.decode(made.tokens) if stop is None else stop.text(made)
        return Completion(text, made.score, len(made.tokens), made.why)


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

    def generate(self, text: str = "", config: GenerationConfig | None = None) -> str:
        return self.completions([text], config)[0][0].text

    def chat(self, messages: Sequence[Message], config: GenerationConfig | None = None) -> str:
        return "".join(self.chatting(messages, config))

    def chatting(self, messages: Sequence[Message], config: GenerationConfig | None = None) -> Iterator[str]:
        """What the model says next in a conversation, piece by piece."""
        if not self.framed:
            raise self._cannot("chat")
        if self.tokenizer.chat is None:
            raise InputError("this checkpoint has no chat template, so it was not trained to chat; use generate")
        return self._stream(self.tokenizer.prompt(messages), NOTHING, self._config(config))

    def lead(self, text: str) -> str:
        return text

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

    def translate(self, texts: Sequence[str], config: GenerationConfig | None = None) -> list[str]:
        return [best[0].text for best in self.completions(texts, config)]

    def generate(self, text: str = "", config: GenerationConfig | None = None) -> str:
        """The target that the model generates for this source."""
        return self.translate([text], config)[0]

    def prompt(self, text: str) -> list[int]:
        return [self.tokenizer.need("begin")] if self.target is None else list(self.target.begin)

    def given(self, texts: Sequence[str]) -> Given:
        with torch.no_grad():
            return Given(encoder_output=encoded(self.model, self._sources(texts)))

    def default_length(self, prompts: Sequence[Sequence[int]]) -> int:
        most = min(self.longest, room(self.model))
        return most if self.target is None else min(most, CONTEXT)

    def _sources(self, texts: Sequence[str]) -> Padded:
        rows = self._bare(texts) if self.target is None else self._framed(texts)
        return Padded.of([np.array(row, np.int32) for row in rows]).to(self.model.device or torch.device("cpu"))

    def _bare(self, texts: Sequence[str]) -> list[list[int]]:
        end, sources = self.tokenizer.need("end"), self.tokenizer.encode_all(texts)
        for text, ids in zip(texts, sources, strict=True):
            if len(ids) >= self.longest:
                raise InputError(
                    f"the text {text[:40]!r} has {len(ids)} tokens, the model was trained on at most "
                    f"{self.longest - 1} (task.longest); cut it into sentences"
                )
        return [[*ids, end] for ids in sources]

    def _framed(self, texts: Sequence[str]) -> list[list[int]]:
        rows = [list(one.ids) for one in self.tokenizer.framed_all(texts)]
        longest = max(map(len, rows), default=0)
        if longest > self.longest:
            raise InputError(
                f"a text has {longest} tokens, the model has places for {self.longest}; cut it into sentences"
            )
        return rows


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
