"""What there is: every table, with a sentence for each entry. `heed list` prints it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any

from .core.config import Config, kind_of, nearest
from .core.contract import MixerConfig
from .core.errors import InputError
from .core.spec import words
from .core.tables import Table
from .data import SOURCES
from .decode import STRATEGIES
from .engine import has_emitter
from .media.augment import AUGMENTS
from .mixers import MIXERS
from .models import ARCHITECTURES, MODELS, MULTIMODAL
from .models.plan import Published
from .parts.convolution.images import CONVOLUTIONS
from .parts.feedforward import FEEDFORWARDS
from .parts.layers.norms import STACK_NORMS
from .parts.masks import MASKS
from .parts.outputs.heads import HEADS
from .parts.positions import POSITIONS
from .parts.positions.base import PositionConfig
from .parts.residual.wiring import WIRINGS
from .parts.scores import SCORES
from .show.settings import Setting, declared, owner, paragraphs, summary
from .tasks import TASKS
from .text import TOKENIZERS
from .weights import FAMILIES, Family
from .weights.edits import EDITS
from .weights.families.proven import proven

WIDTH = 24  # of the sample stream that a mixer's spec is read from
TABLES: Mapping[str, Sequence[type[Config]]] = {
    "mixers": MIXERS,
    "feed-forwards": FEEDFORWARDS,
    "positions": POSITIONS,
    "masks": MASKS,
    "scores": SCORES,
    "image convolutions": CONVOLUTIONS,
    "norms": STACK_NORMS,
    "wirings": WIRINGS,
    "heads": HEADS,
    "models": MODELS,
    "images and sounds": MULTIMODAL,
    "augmentations": AUGMENTS,
    "architectures": ARCHITECTURES,
    "edits": EDITS,
    "checkpoints": FAMILIES,
    "tokenizers": TOKENIZERS,
    "data": SOURCES,
    "tasks": TASKS,
    "decoding": STRATEGIES,
}
PAGES = {  # which document tells more; {} is the name
    "mixers": "docs/mechanisms/{}.md",
    "masks": "docs/mechanisms/masks.md",
    **dict.fromkeys(("models", "images and sounds", "architectures"), "docs/mechanisms/models.md"),
    **dict.fromkeys(("checkpoints", "edits"), "docs/checkpoints.md"),
    **dict.fromkeys(("tokenizers", "data", "tasks", "augmentations"), "docs/training.md"),
}


@dataclass(frozen=True)
class Entry:
    """One thing heed offers: which table it is in, its name, a sentence, what is special about it, and whence it is."""

    table: str
    name: str
    summary: str
    note: str = ""
    paper: str = ""
    config: type[Config] = field(default=Config, repr=False)

    def plain(self) -> dict[str, str]:
        """For machines."""
        return {name: value for name, value in asdict(self).items() if name != "config"}

    def whole(self) -> dict[str, Any]:
        """For machines, with all there is to say."""
        return {
            **self.plain(),
            "text": self.text,
            "settings": [setting.plain() for setting in self.settings],
            "samples": list(map(repr, self.samples)),
            "code": self.code,
            "page": self.page,
        }

    @property
    def text(self) -> str:
        """The docstring: what it is, its equation, what it costs."""
        return paragraphs(inspect.getdoc(owner(self.config)) or "")

    @property
    def settings(self) -> list[Setting]:
        """The keys of its configuration; those of a checkpoint are its authors', and are read from its files."""
        return [] if self.table == "checkpoints" else list(declared(self.config))

    @property
    def samples(self) -> tuple[Config, ...]:
        """Small configurations that together use every option: what the laws are run over."""
        return self.config.samples() if issubclass(self.config, MixerConfig | PositionConfig) else ()

    @property
    def code(self) -> str:
        """The module and the class."""
        return f"{self.config.__module__}:{owner(self.config).__qualname__}"

    @property
    def page(self) -> str:
        """The document that tells more, if there is one."""
        own = self.config.__module__.startswith("heed.")
        return PAGES.get(self.table, "").format(self.name) if own else ""


def entries(*tables: str) -> Iterator[Entry]:
    """Everything, or these tables."""
    for table in tables or TABLES:
        for name in names(table):
            yield _entry(table, name)


def names(table: str) -> list[str]:
    """The names of a table; classes that can be left alone are not imported."""
    if table not in TABLES:
        raise InputError(f"there is no table called {table!r}{nearest(table, TABLES)}")
    held = TABLES[table]
    return list(held.named) if isinstance(held, Table) else list(map(kind_of, held))


def named(name: str) -> list[Entry]:
    """The entries of that name: the same may be a mixer and an architecture."""
    known = {table: names(table) for table in TABLES}
    found = [_entry(table, name) for table, held in known.items() if name in held]
    if not found:
        every = {*known, *(each for held in known.values() for each in held)}
        near = get_close_matches(name, sorted(every), 1)
        meant = f"did you mean {near[0]}?" if near else f"heed list shows all there is, heed list --search {name} some"
        raise InputError(f"there is nothing called {name!r}; {meant}")
    return found


def _entry(table: str, name: str) -> Entry:
    held = TABLES[table]
    config: type[Config] = (
        held.named[name] if isinstance(held, Table) else next(each for each in held if kind_of(each) == name)
    )
    told = summary(owner(config))
    if issubclass(config, Family):
        return Entry(table, name, told, proven(name), config.paper, config)
    if issubclass(config, MixerConfig) and table in ("mixers", "feed-forwards"):
        return Entry(table, name, told, _note(config), config.paper, config)
    if issubclass(config, PositionConfig):
        return Entry(table, name, told, config.how, config.paper, config)
    if issubclass(config, Published):
        return Entry(table, name, told, _weighed(config), config.paper, config)
    return Entry(table, name, told, config=config)


def _weighed(config: type[Published]) -> str:
    """The parameters of each published size, in millions."""
    return "parameters: " + ", ".join(f"{size} {count / 1e6:,.0f}M" for size, count in config.weights().items())


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
