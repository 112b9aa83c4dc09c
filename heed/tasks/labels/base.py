"""Tasks whose answer is read off a text that was read whole: one head on top of a stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
from torch import Tensor, nn

from ...core.config import Share, Size, kind_of
from ...core.errors import ConfigError, InputError, counted
from ...core.interfaces import Asked
from ...parts.outputs.heads import HeadConfig
from ...pipelines.base import AnyModel, Ids
from ...pipelines.settings import GenerationConfig
from ...pipelines.streams import stream_of
from ...text import Framed
from ...text.batch import shortened
from ...text.kinds import framing
from ..base import Batch, Corpus, Item, Task, places, some

if TYPE_CHECKING:
    from ...core.state import Seen
    from ...text import Tokenizer

H = TypeVar("H", bound=nn.Module)


class LabelTask(Task):
    """A text is read whole, and a head tells something about it."""

    longest: Size = 128  # tokens of a text, its frame included; longer texts are cut, and counted
    drop: Share = 0.0  # share of tokens that are read as unknown, others in every round of a training (word dropout)

    @abstractmethod
    def head(self) -> HeadConfig: ...

    def equip(self, tokenizer: Tokenizer) -> Tokenizer:
        return framing(tokenizer)

    def must_fit(self, model: AnyModel) -> None:
        asked = kind_of(type(self.head()))
        if not (isinstance(model, Asked) and asked in model.heads):
            raise ConfigError(
                f"a {kind_of(type(self))} task asks a model by its head {asked!r}, which {type(model).__name__} does "
                "not have; use model.kind=bert, encoder or decoder"
            )
        if (longest := places(model)) is not None and longest < self.longest:
            raise ConfigError(
                f"task.longest is {self.longest} tokens, the model has places for {longest}; set task.longest={longest}"
            )

    def cost(self, item: Item) -> int:
        return len(item[0])

    def stream(self, model: AnyModel, batch: Batch) -> Seen:
        """What the model made of the texts of a batch."""
        return stream_of(model, batch.inputs.tokens, batch.inputs.where)

    def logits(self, model: AnyModel, batch: Batch) -> Tensor:
        """What the head says about them."""
        if not isinstance(model, Asked):
            raise InputError(f"{type(model).__name__} cannot be asked")
        seen, head = self.stream(model, batch), model.heads[kind_of(type(self.head()))]
        found: Tensor = head(seen.parts[0], seen)
        return found

    @staticmethod
    def no_generation(config: GenerationConfig | None) -> None:
        """Nothing is generated here, so nothing can be said about how."""
        if config is not None:
            raise InputError("nothing is generated to evaluate this: leave --beam, --temperature ... out")


class LabelledTexts(Corpus):
    """Texts in their frames, each with what is to be told about it; shuffled anew in every round."""

    _dropped: TokenDropout | None = None

    def __init__(self, items: Sequence[Item], cut: int = 0, longest: int = 0) -> None:
        self._cut, self._longest, self._items = cut, longest, list(items)
        some(self._items, self.report())

    def dropping(self, share: float, tokenizer: Tokenizer) -> Self:
        """The same texts, of which some tokens cannot be read; others in every round, and none in evaluations."""
        self._dropped = TokenDropout.of(share, tokenizer) if share else None
        return self

    def round(self, number: int, seed: int) -> list[Item]:
        order = np.random.default_rng((seed, number, 0)).permutation(len(self._items))
        items = [self._items[place] for place in order]
        return items if self._dropped is None else self._dropped(items, np.random.default_rng((seed, number, 2)))

    def once(self) -> list[Item]:
        return self._items

    def report(self) -> str:
        told = f", {self._cut:,} cut to {self._longest} tokens (task.longest)" if self._cut else ""
        return counted(len(self._items), "text") + told


@dataclass(frozen=True)
class TokenDropout:
    """Some tokens are read as unknown, so that none is relied upon alone (Iyyer et al. 2015, word dropout)."""

    share: float
    unknown: int  # what is read instead
    frame: tuple[int, ...]  # ids that stand around a text, and are always read

    @classmethod
    def of(cls, share: float, tokenizer: Tokenizer) -> Self:
        framed = tokenizer.framed("", "").ids
        return cls(share, tokenizer.need("unknown"), tuple(sorted(set(framed))))

    def __call__(self, items: Sequence[Item], draw: np.random.Generator) -> list[Item]:
        return [tuple(self._read(part, draw) if part.ndim == 2 else part for part in item) for item in items]

    def _read(self, tokens: Ids, draw: np.random.Generator) -> Ids:
        """Ids, each with which text it is of. [T, 2]"""
        read = tokens.copy()
        read[(draw.random(len(read)) < self.share) & ~np.isin(read[:, 0], self.frame), 0] = self.unknown
        return read


def framed_texts(
    tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None, longest: int
) -> tuple[list[Framed], int]:
    """Texts, or pairs of them, as a model reads them; how many had to be cut."""
    found, cut = tokenizer.framed_all(texts, pairs), 0
    for place, framed in enumerate(found):
        if len(framed.ids) > longest:
            parts = [texts[place]] if pairs is None else [texts[place], pairs[place]]
            found[place] = shortened(framed, tokenizer.encode_all(parts), longest)
            cut += 1
    return found, cut


def fields(framed: Framed) -> Ids:
    """The ids of a text, each with which of two texts it is of. [T, 2]"""
    return np.stack([np.array(framed.ids, np.int32), np.array(framed.segments, np.int32)], -1)


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Names of classes: numbers by size, others by the alphabet."""
    names = set(labels)
    try:
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    except ValueError:
        return tuple(sorted(names))
