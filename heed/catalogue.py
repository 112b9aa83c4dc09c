"""What there is: every table, with a sentence for each entry. `heed list` prints it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from .core.config import Config, kind_of
from .core.contract import MixerConfig
from .core.spec import words
from .data import SOURCES
from .decode import STRATEGIES
from .engine import has_emitter
from .mixers import MIXERS
from .models import ARCHITECTURES, MODELS, MULTIMODAL
from .parts.feedforward import FEEDFORWARDS
from .parts.layers.norms import NORMS
from .parts.masks import MASKS
from .parts.outputs.heads import HEADS
from .parts.positions import POSITIONS
from .parts.residual.wiring import WIRINGS
from .parts.scores import SCORES
from .tasks import TASKS
from .text import TOKENIZERS
from .weights import FAMILIES
from .weights.edits import EDITS
from .weights.families.proven import proven

WIDTH = 24  # of the sample stream that a mixer's spec is read from


@dataclass(frozen=True)
class Entry:
    """One thing heed offers: which table it is in, its name, a sentence, what is special about it, and whence it is."""

    table: str
    name: str
    summary: str
    note: str = ""
    paper: str = ""

    def plain(self) -> dict[str, str]:
        """For machines."""
        return asdict(self)


def entries() -> Iterator[Entry]:
    """Everything, table by table."""
    for config in (*MIXERS, *FEEDFORWARDS):
        table = "mixers" if config in MIXERS else "feed-forwards"
        yield Entry(table, kind_of(config), _summary(owner(config)), _note(config), config.paper)
    for code in POSITIONS:
        yield Entry("positions", kind_of(code), _summary(owner(code)), code.how, code.paper)
    yield from _plain("masks", MASKS)
    yield from _plain("scores", SCORES)
    yield from _plain("norms", NORMS)
    yield from _plain("wirings", WIRINGS)
    yield from _plain("heads", HEADS)
    yield from _plain("models", MODELS)
    yield from _plain("images and sounds", MULTIMODAL)
    yield from _plain("architectures", ARCHITECTURES)
    yield from _plain("edits", EDITS)
    for family in FAMILIES:
        for name in family.types:
            yield Entry("checkpoints", name, _summary(family), proven(name), family.paper)
    yield from _plain("tokenizers", TOKENIZERS)
    yield from _plain("data", SOURCES)
    yield from _plain("tasks", TASKS)
    yield from _plain("decoding", STRATEGIES)


def _plain(table: str, configs: Iterable[type[Config]]) -> Iterator[Entry]:
    for config in configs:
        yield Entry(table, kind_of(config), _summary(owner(config)))


def _note(config: type[MixerConfig]) -> str:
    """What it remembers, whether the engine has an emitter for it, and which package brings it if heed does not."""
    outside = MIXERS.named.outside
    origin = None if outside is None else outside.origin(kind_of(config))
    brought = "" if origin is None else f"from {origin}; "
    compiled = "compiled" if has_emitter(config) else "plain calls: no emitter"
    return f"{brought}remembers {_growth(config)}; {compiled}"


def _growth(config: type[MixerConfig]) -> str:
    """The law of growth of a sample that streams, in words."""
    return words(config.samples()[0].build(WIDTH).spec())


def owner(config: type[Config]) -> type:
    """The class a nested `Config` belongs to; a configuration that stands alone is its own."""
    outer = config.__qualname__.rpartition(".")[0]
    if not outer or "<locals>" in outer:  # a class of a function's has no place to be found at
        return config
    found: type = attrgetter(outer)(inspect.getmodule(config))
    return found


def _summary(thing: Any) -> str:
    """The first sentence of the docstring."""
    text = inspect.getdoc(thing) or ""
    return " ".join(text.split("\n\n")[0].split())
