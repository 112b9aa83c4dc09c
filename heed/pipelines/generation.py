"""What all pipelines share that generate text: completions of prompts, whole or piece by piece."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack
from warnings import warn

from ..core.contract import Given
from ..core.errors import InputError
from ..core.interfaces import LanguageModel
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
from .attentions import shows_weights
from .base import AnyModel, Pipeline, one_or_many
from .results import Response
from .settings import GenerationConfig, GenerationKeywords
from .verbs import Many

if TYPE_CHECKING:
    from ..text import Tokenizer

BATCH = 64  # prompts that are completed in one batch

T = TypeVar("T")


@dataclass(frozen=True)
class TokenLogprob:
    """One generated token and its log-probability, by the model itself: before temperature and penalties."""

    token: str
    id: int
    logprob: float


@dataclass(frozen=True)
class Completion:
    """One generated text, the log-probability of its tokens, how many there are, and why it ended.

    `seed`: of a sample; the same prompt alone, with this seed, gives the same text. `logprobs`: if they were asked for.
    """

    text: str
    score: float
    tokens: int
    why: Why
    seed: int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None

    def data(self) -> dict[str, Any]:
        """For machines: what there is."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Prompts(NamedTuple):
    """What a batch of texts is completed from: ids, and what the model is given beside them."""

    ids: list[list[int]]
    given: Given


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

    @property
    def can(self) -> tuple[str, ...]:
        return ("generate", "stream", "completions", *(("attentions",) if shows_weights(self.model) else ()))

    def respond(self, text: str) -> Response:
        (best,) = self.completions([text])[0][:1]
        return Response(self.lead(text) + best.text, best.data())

    def completions(
        self,
        texts: str | Many[str],
        config: GenerationConfig | None = None,
        *,
        first: int = 0,
        notify: Callable[[int, int], None] | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> Any:  # overloads of `Verbs` tell what
        settled = self._settled("completions", config, keywords)
        one, given = one_or_many(texts, "text")
        found = self._completed(given, self._prompts, settled, first, notify)
        return found[0] if one else found

    def answers(self, *given: Any, **named: Any) -> Any:
        """What `completions` was called in the last release."""
        warn("answers is called completions now; the old name will go", DeprecationWarning, stacklevel=2)
        return self.completions(*given, **named)

    def stream(
        self,
        text: str,
        config: GenerationConfig | None = None,
        *,
        first: int = 0,
        **keywords: Unpack[GenerationKeywords],
    ) -> Iterator[str]:
        settled = self._settled("stream", config, keywords)
        one, given = one_or_many(text, "text")
        if not one:
            raise InputError("a stream is of one text; loop over the texts, or give the list to generate")
        return self._stream(self._prompts(given), settled, first)

    # --- how it is done ---

    def _texts(
        self,
        verb: str,
        text: str | Many[str],
        config: GenerationConfig | None,
        keywords: Mapping[str, Any],
        *,
        stream: bool = False,
    ) -> Any:
        if stream:
            return self.stream(text, config, **keywords)  # type: ignore[arg-type]  # which checks it
        settled = self._settled(verb, config, keywords)
        one, given = one_or_many(text, "text")
        found = [[best.text for best in some] for some in self._completed(given, self._prompts, settled)]
        several = (settled.num_return_sequences or 1) > 1
        texts = found if several else [some[0] for some in found]
        return texts[0] if one else texts

    def _settled(self, verb: str, config: GenerationConfig | None, keywords: Mapping[str, Any]) -> GenerationConfig:
        """All that is known of how to generate: the usual strategy, the configuration, the keywords; and a seed."""
        if config is not None and not isinstance(config, GenerationConfig):
            raise InputError(f"{verb} takes a GenerationConfig after the text, not {type(config).__name__}")
        settled = (config or GenerationConfig(strategy=self.strategy)).given(verb, keywords).seeded()
        self.last_seed = settled.seed
        return settled

    def _prompts(self, texts: Sequence[str]) -> Prompts:
        return Prompts([self.prompt(text) for text in texts], self.given(texts))

    def _completed(
        self,
        texts: Sequence[T],
        prompts: Callable[[Sequence[T]], Prompts],
        config: GenerationConfig,
        first: int = 0,
        notify: Callable[[int, int], None] | None = None,
    ) -> list[list[Completion]]:
        """The completions of each text. A text is completed as it would be alone; each has a row for each draw."""
        rows = [text for text in texts for _ in range(config.draws)]
        begun = first * config.draws
        order = list(range(len(rows)))
        if not isinstance(config.strategy, Sample):  # similar lengths go together; a sample's seed counts the rows
            order.sort(key=lambda row: len(str(rows[row])))
        found: dict[int, list[Completion]] = {}
        for begin in range(0, len(rows), self.batch):
            places = order[begin : begin + self.batch]
            made = self._generated(generate, prompts([rows[row] for row in places]), config, begun + begin)
            for row, best in zip(places, made, strict=True):
                seed = None if config.seed is None else config.seed + begun + row
                found[row] = [self._completion(one, config, seed) for one in best]
            if notify is not None:
                notify(len(found) // config.draws, len(texts))
        drawn = range(config.draws)
        return [[one for j in drawn for one in found[i * config.draws + j]] for i in range(len(texts))]

    def _stream(self, prompts: Prompts, config: GenerationConfig, first: int = 0) -> Iterator[str]:
        if (config.num_return_sequences or 1) > 1:
            raise InputError("a stream is one text; leave num_return_sequences out, or use generate")
        return self._pieces(prompts, config, first)

    def _pieces(self, prompts: Prompts, config: GenerationConfig, first: int) -> Iterator[str]:
        if isinstance(config.strategy, Beam):
            ((best, *_),) = self._generated(generate, prompts, config, first)
            yield self._completion(best, config).text
            return
        made = self._generated(stream, prompts, config, first)
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

    def _generated(self, way: Callable[..., T], prompts: Prompts, config: GenerationConfig, first: int) -> T:
        """`generate` or `stream`, with all that follows from the prompts and the configuration."""
        strategy = config.whole_strategy
        if isinstance(strategy, Sample) and strategy.seed is not None:
            strategy = strategy.model_copy(update={"seed": strategy.seed + first})
        prefix = self.tokenizer.encode(config.prefix)
        return way(
            self.model,
            prompts.ids,
            strategy=strategy,
            max_new_tokens=config.max_new_tokens or self.default_length(prompts.ids) + len(prefix),
            end=self.ends,
            given=prompts.given,
            stop=self._stop(config),
            constraint=Begin([prefix] * len(prompts.ids), self.constraint) if prefix else self.constraint,
        )

    def _spoken(self, never: Collection[int] = ()) -> Constraint | None:
        """What may be generated: a model may have logits of more tokens than its tokenizer has, for round sizes."""
        size = self.tokenizer.size
        vocabulary = self.model.vocabulary if isinstance(self.model, LanguageModel) else size
        banned = {*never, *range(size, vocabulary)}
        return Never(banned, vocabulary) if banned else None

    def _stop(self, config: GenerationConfig) -> Stop | None:
        return Stop(config.stop, self.tokenizer.decode) if config.stop else None

    def _completion(self, made: Generated, config: GenerationConfig, seed: int | None = None) -> Completion:
        stop = self._stop(config)
        text = self.tokenizer.decode(made.tokens) if stop is None else stop.text(made)
        logprobs = self._logprobs(made) if config.logprobs else None
        return Completion(text, made.score, len(made.tokens), made.why, seed, logprobs)

    def _logprobs(self, made: Generated) -> tuple[TokenLogprob, ...]:
        each = zip(self.tokenizer.tokens(made.tokens), made.tokens, made.logprobs, strict=False)
        return tuple(TokenLogprob(*one) for one in each)
