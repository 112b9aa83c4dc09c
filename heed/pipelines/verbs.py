"""The verbs of a pipeline, as hands type them: one text in, one result out; a list in, a list out.

A pipeline defines those that its model can do; the others say what it is. Overloads tell type checkers what comes back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack, overload

from torch import Tensor

from ..core.errors import InputError
from .results import Prediction

if TYPE_CHECKING:
    from ..media.images import Source
    from ..parts.outputs.heads import Pool
    from .generation import Completion
    from .labels.answering import Answer
    from .labels.tagging import TaggedWords
    from .settings import GenerationConfig, GenerationKeywords, OneTextKeywords

V = TypeVar("V")

Message: TypeAlias = Mapping[str, Any]  # role and content
Many: TypeAlias = list[V] | tuple[V, ...]  # not Sequence: a text alone is a sequence of texts, too
Notify: TypeAlias = Callable[[int, int], None]  # so many are done, of so many


class Verbs(ABC):
    """What a model may be asked to do."""

    @property
    @abstractmethod
    def what(self) -> str:
        """What it is, in words."""

    def _cannot(self, verb: str) -> InputError:
        return InputError(f"this model cannot {verb}: it is {self.what}")

    # --- texts from texts ---

    @overload
    def generate(
        self,
        text: str = "",
        config: GenerationConfig | None = None,
        *,
        stream: Literal[True],
        **keywords: Unpack[GenerationKeywords],
    ) -> Iterator[str]: ...
    @overload
    def generate(
        self,
        text: str = "",
        config: GenerationConfig | None = None,
        *,
        num_return_sequences: int,
        stream: Literal[False] = False,
        **keywords: Unpack[OneTextKeywords],
    ) -> list[str]: ...
    @overload
    def generate(
        self,
        text: str = "",
        config: GenerationConfig | None = None,
        *,
        stream: Literal[False] = False,
        **keywords: Unpack[OneTextKeywords],
    ) -> str: ...
    @overload
    def generate(
        self,
        text: Many[str],
        config: GenerationConfig | None = None,
        *,
        num_return_sequences: int,
        stream: Literal[False] = False,
        **keywords: Unpack[OneTextKeywords],
    ) -> list[list[str]]: ...
    @overload
    def generate(
        self,
        text: Many[str],
        config: GenerationConfig | None = None,
        *,
        stream: Literal[False] = False,
        **keywords: Unpack[OneTextKeywords],
    ) -> list[str]: ...
    def generate(
        self,
        text: str | Many[str] = "",
        config: GenerationConfig | None = None,
        *,
        stream: bool = False,
        **keywords: Unpack[GenerationKeywords],
    ) -> Any:
        """What the model generates after this prompt, or after each of several.

        `stream=True` gives pieces of text while they are generated; `num_return_sequences` of 2 or more gives a list of
        texts for each prompt. Without a `seed` every call draws its own, which `last_seed` tells.
        """
        return self._texts("generate", text, config, keywords, stream=stream)

    def stream(
        self,
        text: str,
        config: GenerationConfig | None = None,
        *,
        first: int = 0,
        **keywords: Unpack[GenerationKeywords],
    ) -> Iterator[str]:
        """The best completion piece by piece; joined, the pieces are the text that `generate` gives."""
        raise self._cannot("generate")

    @overload
    def completions(
        self,
        texts: str,
        config: GenerationConfig | None = None,
        *,
        first: int = 0,
        notify: Notify | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> list[Completion]: ...
    @overload
    def completions(
        self,
        texts: Many[str],
        config: GenerationConfig | None = None,
        *,
        first: int = 0,
        notify: Notify | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> list[list[Completion]]: ...
    def completions(
        self,
        texts: str | Many[str],
        config: GenerationConfig | None = None,
        *,
        first: int = 0,
        notify: Notify | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> Any:
        """All that is known of what is generated: texts, log-probabilities, why they ended, seeds; the best first.

        Draws are in their order. `notify` is told how many texts are done, of how many. A text is completed as it would
        be alone: draw j of text i, of n draws each, has the seed `seed + (first + i) n + j`.
        """
        raise self._cannot("generate")

    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        config: GenerationConfig | None = None,
        *,
        stream: Literal[True],
        **keywords: Unpack[OneTextKeywords],
    ) -> Iterator[str]: ...
    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        config: GenerationConfig | None = None,
        *,
        num_return_sequences: int,
        stream: Literal[False] = False,
        **keywords: Unpack[OneTextKeywords],
    ) -> list[str]: ...
    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        config: GenerationConfig | None = None,
        *,
        stream: Literal[False] = False,
        **keywords: Unpack[OneTextKeywords],
    ) -> str: ...
    def chat(
        self,
        messages: str | Sequence[Message],
        config: GenerationConfig | None = None,
        *,
        stream: bool = False,
        **keywords: Unpack[GenerationKeywords],
    ) -> Any:
        """What the model says next in a conversation: [{"role": "user", "content": "..."}, ...]; a text is the user's.

        It takes the keywords of `generate`.
        """
        raise self._cannot("chat")

    @overload
    def translate(
        self,
        texts: str,
        config: GenerationConfig | None = None,
        *,
        num_return_sequences: int,
        **keywords: Unpack[OneTextKeywords],
    ) -> list[str]: ...
    @overload
    def translate(
        self, texts: str, config: GenerationConfig | None = None, **keywords: Unpack[OneTextKeywords]
    ) -> str: ...
    @overload
    def translate(
        self,
        texts: Many[str],
        config: GenerationConfig | None = None,
        *,
        num_return_sequences: int,
        **keywords: Unpack[OneTextKeywords],
    ) -> list[list[str]]: ...
    @overload
    def translate(
        self, texts: Many[str], config: GenerationConfig | None = None, **keywords: Unpack[OneTextKeywords]
    ) -> list[str]: ...
    def translate(
        self, texts: str | Many[str], config: GenerationConfig | None = None, **keywords: Unpack[GenerationKeywords]
    ) -> Any:
        """The best target of this source, or of each of several. It takes the keywords of `generate`."""
        raise self._cannot("translate")

    def _texts(
        self,
        verb: str,
        text: str | Many[str],
        config: GenerationConfig | None,
        keywords: Mapping[str, Any],
        *,
        stream: bool = False,
    ) -> Any:
        """What a verb generates for a text, or for each of several."""
        raise self._cannot(verb)

    # --- answers about texts, images and sounds ---

    def embed(self, texts: str | Many[str], *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        """The embedding of a text: [channels]; of a list, one for each: [texts, channels]."""
        raise self._cannot("embed")

    @overload
    def fill(self, text: str, top_k: int = 5) -> list[list[Prediction]]: ...
    @overload
    def fill(self, text: Many[str], top_k: int = 5) -> list[list[list[Prediction]]]: ...
    def fill(self, text: str | Many[str], top_k: int = 5) -> Any:
        """For each mask in the text: the most probable tokens; of a list, for each text."""
        raise self._cannot("fill")

    @overload
    def classify(self, given: Source | tuple[str, str], labels: Sequence[str] = ()) -> list[Prediction]: ...
    @overload
    def classify(self, given: list[Any], labels: Sequence[str] = ()) -> list[list[Prediction]]: ...
    def classify(self, given: Source | tuple[str, str] | list[Any], labels: Sequence[str] = ()) -> Any:
        """All classes of a text, of a pair of texts (a tuple) or of an image, the most probable first; of a list, of
        each.
        """
        raise self._cannot("classify")

    @overload
    def tag(self, texts: str) -> list[tuple[str, Prediction]]: ...
    @overload
    def tag(self, texts: Many[str]) -> list[list[tuple[str, Prediction]]]: ...
    @overload
    def tag(self, *, words: Many[str]) -> TaggedWords: ...
    @overload
    def tag(self, *, words: list[list[str]]) -> list[TaggedWords]: ...
    def tag(self, texts: Any = None, *, words: Any = None) -> Any:
        """The tokens of a text, each with its most probable class; of a list, of each text.

        A model that heed trained on labels of words gives words, and the `entities` they spell. `words`: a sentence
        that is split into words already, or a list of them; then every model gives words.
        """
        raise self._cannot("tag")

    @overload
    def answer(self, question: str, context: str) -> Answer: ...
    @overload
    def answer(self, question: Many[str], context: str | Many[str]) -> list[Answer]: ...
    def answer(self, question: str | Many[str], context: str | Many[str]) -> Any:
        """The part of the context that answers a question, where it stands and how probable it is; of a list of
        questions, of each.
        """
        raise self._cannot("answer")

    @overload
    def transcribe(self, sound: Path | str, *, language: str | None = None) -> str: ...
    @overload
    def transcribe(self, sound: Many[Path | str], *, language: str | None = None) -> list[str]: ...
    def transcribe(self, sound: Path | str | Many[Path | str], *, language: str | None = None) -> Any:
        """What is said in a sound file, or in each of several."""
        raise self._cannot("transcribe")
