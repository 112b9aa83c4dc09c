"""A model in use: text in, text out. What it can do besides is a matter of its task."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from .. import engine
from ..core.config import Config, Size, Text
from ..core.contract import Given
from ..core.errors import InputError
from ..core.interfaces import LanguageModel
from ..data.base import Examples
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
from ..parts.outputs.heads import Pool
from ..tasks.base import AnyModel, Corpus, Item, Task
from ..tasks.feed import bucketed

if TYPE_CHECKING:
    from ..text import Tokenizer

TOGETHER = 64  # prompts that are answered in one batch
BUDGET = 4096  # tokens that are scored in one batch

T = TypeVar("T")

Scores: TypeAlias = "dict[str, float | str]"
Message: TypeAlias = Mapping[str, Any]  # role and content
Notify: TypeAlias = Callable[[int, int], None]  # so many are done, of so many


class GenerationConfig(Config):
    """How answers are to be written."""

    how: AnyStrategy = Greedy()
    limit: Size | None = None  # tokens of an answer; None: what the task finds enough
    stop: tuple[Text, ...] = ()  # an answer ends before the first of these
    prefix: Text = ""  # every answer begins so


@dataclass(frozen=True)
class Completion:
    """One answer: its text, the log-probability of its tokens, how many there are, and why it ended."""

    text: str
    score: float
    tokens: int
    why: Why


def room(model: AnyModel) -> int:
    """How many tokens a model can place."""
    return model.longest or sys.maxsize if isinstance(model, LanguageModel) else sys.maxsize


@dataclass(frozen=True)
class Response:
    """What a model has to say: for people, and for machines."""

    text: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Prediction:
    """One of several answers to choose from, and how likely it is; of a regression, `p` is the number itself."""

    label: str
    p: float


class Pipeline(ABC):
    """A model in use. What it can do is a matter of its kind; asked for anything else, it says so."""

    model: AnyModel

    @property
    @abstractmethod
    def what(self) -> str:
        """What it is, in words."""

    def generate(self, text: str = "", ask: GenerationConfig | None = None) -> str:
        """What the model writes after this text."""
        raise self._cannot("generate")

    def chat(self, messages: Sequence[Message], ask: GenerationConfig | None = None) -> str:
        """What the model says next in a conversation: [{"role": "user", "content": "..."}, ...]."""
        raise self._cannot("chat")

    def translate(self, texts: Sequence[str], ask: GenerationConfig | None = None) -> list[str]:
        """The best target for each source."""
        raise self._cannot("translate")

    def embed(self, texts: Sequence[str], *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        """One vector per text: [texts, channels]."""
        raise self._cannot("embed")

    def fill(self, text: str, best: int = 5) -> list[list[Prediction]]:
        """For each mask in the text: the likeliest tokens."""
        raise self._cannot("fill")

    def classify(self, given: Sequence[str | tuple[str, str]], labels: Sequence[str] = ()) -> list[list[Prediction]]:
        """For each text, pair of texts or path of an image: all classes, the likeliest first."""
        raise self._cannot("classify")

    def tag(self, texts: Sequence[str]) -> list[list[tuple[str, Prediction]]]:
        """For each text: its tokens, each with its likeliest class."""
        raise self._cannot("tag")

    def transcribe(self, sound: Path | str, *, language: str | None = None) -> str:
        """What is said in a sound file."""
        raise self._cannot("transcribe")

    @abstractmethod
    def respond(self, text: str) -> Response:
        """What the model has to say to a text, or to the file of that name, whatever it can do."""

    def _cannot(self, verb: str) -> InputError:
        return InputError(f"this model cannot {verb}: it is {self.what}")


class TextGeneration(Pipeline):
    """A model with its tokenizer and its task, which writes answers."""

    @property
    def together(self) -> int:
        """How many texts are answered in one batch."""
        return TOGETHER

    @property
    def ends(self) -> Collection[int]:
        """Tokens that end an answer."""
        return (self.tokenizer.need("end"),)

    @property
    def allow(self) -> Constraint | None:
        """Which tokens may come next; None = all."""
        return self.spoken()

    def spoken(self, never: Collection[int] = ()) -> Constraint | None:
        """What may be written: a model may score more tokens than its tokenizer has, for the sake of round sizes."""
        size = self.tokenizer.size
        vocabulary = self.model.vocabulary if isinstance(self.model, LanguageModel) else size
        banned = {*never, *range(size, vocabulary)}
        return Never(banned, vocabulary) if banned else None

    def __init__(self, task: Task, model: AnyModel, tokenizer: Tokenizer) -> None:
        self.task, self.model, self.tokenizer = task, model.eval(), tokenizer

    def respond(self, text: str) -> Response:
        (answer,) = self.answers([text])[0][:1]
        return Response(self.lead(text) + answer.text, asdict(answer))

    @abstractmethod
    def prompt(self, text: str) -> list[int]:
        """The tokens that an answer to this text goes on from."""

    @abstractmethod
    def given(self, texts: Sequence[str]) -> Given:
        """What the model is given beside the prompts."""

    @abstractmethod
    def enough(self, texts: Sequence[str]) -> int:
        """How many tokens an answer to any of these texts may need."""

    @abstractmethod
    def score(self, examples: Examples, ask: GenerationConfig | None = None, notify: Notify | None = None) -> Scores:
        """How good the model is on these examples."""

    @abstractmethod
    def lead(self, text: str) -> str:
        """What people want to see before an answer."""

    def answers(
        self, texts: Sequence[str], ask: GenerationConfig | None = None, *, first: int = 0, notify: Notify | None = None
    ) -> list[list[Completion]]:
        """The answers to each text, the best first.

        A text is answered as it would be alone; samples of text i are drawn with seed + `first` + i.
        """
        ask = ask or GenerationConfig(how=self.task.decode)
        order = list(range(len(texts)))
        if not isinstance(ask.how, Sample):  # texts of similar lengths go together; a sample's seed counts the texts
            order.sort(key=lambda place: len(texts[place]))
        found: dict[int, list[Completion]] = {}
        for begin in range(0, len(texts), self.together):
            places = order[begin : begin + self.together]
            written = self._write(generate, [texts[place] for place in places], ask, first + begin)
            found |= zip(places, ([self._answer(one, ask) for one in best] for best in written), strict=True)
            if notify is not None:
                notify(len(found), len(texts))
        return [found[place] for place in range(len(texts))]

    def stream(self, text: str, ask: GenerationConfig | None = None, *, first: int = 0) -> Iterator[str]:
        """The best answer piece by piece; joined, the pieces are the text that `answers` gives."""
        ask = ask or GenerationConfig(how=self.task.decode)
        if isinstance(ask.how, Beam):
            yield self.answers([text], ask, first=first)[0][0].text
            return
        written = self._write(stream, [text], ask, first)
        stop = self._stop(ask)
        yield from filter(None, self._told(written) if stop is None else self._told_until(stop, written))

    def _told(self, written: Iterable[Token]) -> Iterator[str]:
        """Pieces of text as soon as their characters are whole."""
        pieces = self.tokenizer.stream()
        for token in written:
            if token.why != "end":
                yield pieces.push(token.token)
        yield pieces.rest()

    def _told_until(self, stop: Stop, written: Iterable[Token]) -> Iterator[str]:
        """Pieces of text as soon as they cannot become a stop string any more."""
        tokens, shown = list[int](), ""
        for token in written:
            if token.why != "end":
                tokens.append(token.token)
            whole = self.tokenizer.decode(tokens)
            ready = stop.cut(whole) if token.why else stop.safe(whole)
            yield ready.removeprefix(shown)
            shown = ready

    def nats(self, corpus: Corpus) -> tuple[float, int]:
        """The cross-entropy of all labels of a corpus, and how many there are."""
        return cross_entropy_of(self.task, self.model, bucketed(corpus.once(), self.task.cost, BUDGET))

    def _write(self, way: Callable[..., T], texts: Sequence[str], ask: GenerationConfig, first: int = 0) -> T:
        """`generate` or `stream`, told all that follows from the texts and the wish."""
        how = ask.how
        if isinstance(how, Sample):
            how = how.model_copy(update={"seed": how.seed + first})
        prefix = self.tokenizer.encode(ask.prefix)
        return way(
            self.model,
            [self.prompt(text) for text in texts],
            how=how,
            limit=ask.limit or self.enough(texts) + len(prefix),
            end=self.ends,
            given=self.given(texts),
            stop=self._stop(ask),
            allow=Begin([prefix] * len(texts), self.allow) if prefix else self.allow,
        )

    def _stop(self, ask: GenerationConfig) -> Stop | None:
        return Stop(ask.stop, self.tokenizer.decode) if ask.stop else None

    def _answer(self, written: Generated, ask: GenerationConfig) -> Completion:
        stop = self._stop(ask)
        text = self.tokenizer.decode(written.tokens) if stop is None else stop.text(written)
        return Completion(text, written.score, len(written.tokens), written.why)


def perplexity(nats: float, tokens: int) -> float:
    """exp(nats / tokens), as large as a float can be."""
    return exp(min(nats / tokens, 700.0))


def cross_entropy_of(task: Task, model: AnyModel, batches: Iterable[Sequence[Item]]) -> tuple[float, int]:
    """Without smoothing and without dropout, summed; and the number of labels."""
    model = engine.compile(model)
    device, nats, tokens = model.device or torch.device("cpu"), 0.0, 0
    with torch.no_grad():
        for items in batches:
            batch = task.batch(items).to(device)
            nats += float(task.loss(model, batch).nats)
            tokens += batch.tokens
    return nats, tokens
