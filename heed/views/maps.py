"""`heed.see`: attention of any model on one text, or two; as numbers, as a picture in a terminal, as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..core.contract import Mixer
from ..core.errors import InputError
from ..pipelines.attentions import Inspected
from ..pipelines.base import Pipeline
from ..show.viewer import Grid, Panel, Table, viewer
from .collect import Layer, chosen, layers_of, mixers_of, shows, weights_of
from .influence import PREFIX, correlation, influences_of
from .pairs import Change, Pair, changes, strongest, word

if TYPE_CHECKING:
    from rich.console import RenderableType

Influence = Literal["probes", "exact"]
BROAD = 24  # tokens of a map in a terminal, at most; a page shows all


@dataclass(frozen=True, repr=False)
class Maps:
    """The maps of a model on a text, and on a second one: a layer each, with all heads or the one asked for."""

    model: str
    text: str
    layers: tuple[Layer, ...]
    pair: str | None = None
    others: tuple[Layer, ...] = ()  # of the second text
    of: str | None = None  # the token whose changes count
    agreement: dict[int, float] = field(default_factory=dict)  # by layer: correlation of weights and influence

    @property
    def parts(self) -> tuple[str, ...]:
        """self, or encoder, decoder and cross; and what influence was asked for."""
        return tuple(dict.fromkeys(layer.part for layer in self.layers))

    def weights(self, layer: int, part: str | None = None) -> Any:
        """The weights of one layer, [heads, rows, columns]."""
        found = [one for one in self.layers if one.number == layer and part in (None, one.part)]
        if not found:
            raise InputError(f"there is no layer {layer} in {part or 'these maps'}; there are {self.parts}")
        return found[0].weights

    def strongest(self, count: int = 10) -> tuple[Pair, ...]:
        """The strongest weights between two tokens, markers and tokens that look at themselves left out."""
        return strongest(_weighed(self.layers), count)

    def changes(self, count: int = 10) -> tuple[Change, ...]:
        """The heads that change most from the first text to the second."""
        if self.pair is None:
            raise InputError("two texts are compared; give the other one as well: pair=... (--pair)")
        return changes(_weighed(self.layers), _weighed(self.others), self.of, count)

    def plain(self) -> dict[str, Any]:
        """For machines."""
        told: dict[str, Any] = {"model": self.model, "text": self.text, "pair": self.pair}
        told["strongest"] = [asdict(pair) for pair in self.strongest()]
        told["changes"] = [] if self.pair is None else [asdict(change) for change in self.changes()]
        told["agreement"] = {str(layer): value for layer, value in self.agreement.items()}
        told["maps"] = [_plain(layer, 0) for layer in self.layers] + [_plain(layer, 1) for layer in self.others]
        return told

    def text_figure(self) -> RenderableType:
        """What is strongest and what changes in words, and the map of the head that has it."""
        from rich.console import Group

        return Group(*self._told())

    def _told(self) -> Iterator[RenderableType]:
        from rich.markup import escape

        from ..show.heatmap import text_map
        from ..show.signed import signed_map

        yield f"[bold]{escape(self.model)}[/]: {self._sizes()}"
        pairs, moved = self.strongest(), self.changes() if self.pair is not None else ()
        yield _table(_PAIRS, [_pair_cells(pair) for pair in pairs], "strongest pairs")
        if self.pair is not None:
            yield _table(_CHANGES, [_change_cells(change) for change in moved], f"what changes in: {self.pair}")
        for depth, value in self.agreement.items():
            yield f"layer {depth}: correlation of weights and influence {value:.2f}"
        first = moved[0] if moved else pairs[0] if pairs else None
        for which, layers in enumerate((self.layers, self.others)):
            layer = next(
                (one for one in layers if first and (one.part, one.number) == (first.part, first.layer)),
                layers[0] if layers else None,
            )
            if layer is None:
                continue
            head = layer.heads.index(first.head) if first and first.head in layer.heads else 0
            weights = layer.weights[head, :BROAD, :BROAD]
            rows, columns = (list(map(word, names[:BROAD])) for names in (layer.rows, layer.columns))
            cut = f", the first {BROAD} tokens (--html shows all)" if max(layer.weights.shape[1:]) > BROAD else ""
            yield escape(f"{layer.part}, layer {layer.number}, head {layer.heads[head]}, text {which + 1}{cut}")
            draw = signed_map if bool((weights < 0).any()) else text_map
            yield draw(weights.tolist(), rows, columns)

    def html(self) -> str:
        """One file that opens without a network: maps with hover, a choice of layer and head, and both tables."""
        tables = [Table("Strongest pairs", _PAIRS, [_pair_cells(pair) for pair in self.strongest(20)])]
        if self.pair is not None:
            tables.append(Table("What changes", _CHANGES, [_change_cells(change) for change in self.changes(20)]))
        about = [f"Text: {self.text}", *([] if self.pair is None else [f"Other text: {self.pair}"])]
        about += [
            f"Layer {at}: correlation of weights and influence {value:.2f}" for at, value in self.agreement.items()
        ]
        panels = [*_panels(self.layers, "" if self.pair is None else ", text 1"), *_panels(self.others, ", text 2")]
        return viewer(f"Attention of {self.model}", about, panels, tables)

    def _sizes(self) -> str:
        told = []
        for part in self.parts:
            some = [layer for layer in self.layers if layer.part == part]
            heads = "/".join(str(count) for count in sorted({len(layer.heads) for layer in some}))
            sizes = "×".join(map(str, some[0].weights.shape[1:]))
            told.append(f"{part} {len(some)} layers × {heads} heads × {sizes}")
        return "; ".join(told)

    def __repr__(self) -> str:
        return f"Maps({self.model}: {self._sizes()})"


def see(
    model: Pipeline | Mixer[Any] | Path | str,
    text: Any,
    *,
    pair: Any = None,
    source: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    influence: Influence | None = None,
    of: str | None = None,
) -> Maps:
    """The attention maps of a model on a text: self, encoder, decoder and cross, of all layers and heads or of one.

    `model` is a pipeline, a model of heed's or what `heed.load` takes. `text` is a text, ids, the file of an image or a
    sound, or for a model without a tokenizer an `Inspected` of tensors. With `source` it is the target that belongs to
    that source; without one, an encoder-decoder writes its own. `pair` is a
    second text, to be compared with it; `of` names the token whose changes count. Mixers that have no matrix of weights
    (LSTM, RWKV, Mamba) show their influence, which `influence` asks of all: "probes" is quick, "exact" is exact.
    """
    pipeline = _loaded(model)
    named = str(model) if isinstance(model, str | Path) else pipeline.family or type(pipeline.model).__name__
    given = _inspected(pipeline, text, source)
    layers = _layers(pipeline, given, layer, head, influence)
    if pair is None:
        if of is not None:
            raise InputError("of=... (--of) names a token whose changes count; give the other text: pair=... (--pair)")
        return Maps(named, _shown(text), layers, agreement=_agreement(layers))
    others = _layers(pipeline, _inspected(pipeline, pair, source), layer, head, influence)
    return Maps(named, _shown(text), layers, _shown(pair), others, of, _agreement(layers))


def _loaded(model: Pipeline | Mixer[Any] | Path | str) -> Pipeline:
    from ..pipelines.checkpoint import Bare
    from ..runs import load

    if isinstance(model, Pipeline):
        return model
    return Bare(model) if isinstance(model, Mixer) else load(model)


def _inspected(pipeline: Pipeline, text: Any, source: str | None) -> Inspected:
    if isinstance(text, Inspected):
        return text
    if isinstance(text, str) and not text.strip():
        raise InputError("the text is empty; there is nothing to look at. Write a sentence")
    given = pipeline.inspect(text) if source is None else pipeline.inspect(source, text)
    longest = _longest(pipeline)
    if given.ids is not None and longest is not None and given.ids.shape[1] > longest:
        raise InputError(
            f"the text has {given.ids.shape[1]:,} tokens, the model has places for {longest:,}; cut it into parts"
        )
    return given


def _longest(pipeline: Pipeline) -> int | None:
    """How many tokens there are places for; None = any number, or it is not known."""
    from ..core.interfaces import LanguageModel

    return pipeline.model.longest if isinstance(pipeline.model, LanguageModel) else None


def _layers(
    pipeline: Pipeline, given: Inspected, layer: int | None, head: int | None, influence: Influence | None
) -> tuple[Layer, ...]:
    """Weights where there are any; influence where there are none, or where it is asked for."""
    known, mixers = weights_of(pipeline.model), mixers_of(pipeline.model)
    bare = [name for name, (mixer, _) in mixers.items() if influence is not None or not shows(mixer)]
    if not known and not bare:
        raise InputError(
            f"{type(pipeline.model).__name__} shows no attention weights, and is made of no blocks that could be asked "
            "for their influence; heed.look(m.model) sees what else it computes"
        )
    if layer is not None:
        chosen(known | {name: mixers[name][1] for name in bare}, layer)
    found: list[Layer] = []
    if any(layer is None or layer in place.calls for place in known.values()):
        found += layers_of(pipeline.model, given, layer, head)
    bare = [name for name in bare if layer is None or layer in mixers[name][1].calls]
    if bare:
        if not found and head is not None:
            raise InputError("influence is that of a whole mixer, not of one head; leave head out")
        found += influences_of(pipeline.model, given, bare, layer=layer, exact=influence == "exact")
    return tuple(found)


def _weighed(layers: Sequence[Layer]) -> Sequence[Layer]:
    """Those that show weights; where none does, all of them."""
    return [layer for layer in layers if not layer.part.startswith(PREFIX)] or layers


def _agreement(layers: Sequence[Layer]) -> dict[int, float]:
    """How alike weights and influence are, where both are there of the same tokens."""
    found = {}
    for one in layers:
        for other in layers:
            part = PREFIX if one.part == "self" else f"{PREFIX}, {one.part}"
            if (other.part, other.number) == (part, one.number) and one.weights.shape[1:] == other.weights.shape[1:]:
                found[one.number] = correlation(one.weights.abs().mean(0), other.weights[0])
    return found


def _panels(layers: Sequence[Layer], which: str) -> list[Panel]:
    parts = dict.fromkeys(layer.part for layer in layers)
    return [
        Panel(
            part + which,
            [
                Grid(
                    f"layer {layer.number}",
                    list(layer.rows),
                    list(layer.columns),
                    list(layer.heads),
                    layer.weights.numpy(),
                )
                for layer in layers
                if layer.part == part
            ],
        )
        for part in parts
    ]


def _plain(layer: Layer, text: int) -> dict[str, Any]:
    return {
        "text": text,
        "part": layer.part,
        "layer": layer.number,
        "point": layer.point,
        "heads": list(layer.heads),
        "rows": list(layer.rows),
        "columns": list(layer.columns),
        "weights": layer.weights.tolist(),
    }


_PAIRS = ("weight", "token", "looks at", "where")
_CHANGES = ("moved", "token", "from", "to", "where")


def _pair_cells(pair: Pair) -> tuple[str, ...]:
    where = _where(pair)
    return f"{pair.weight:.3f}", f"{word(pair.looks)} ({pair.row})", f"{word(pair.at)} ({pair.column})", where


def _change_cells(change: Change) -> tuple[str, ...]:
    where = _where(change)
    lost = f"{word(change.lost)} ({change.lost_from:.2f} → {change.lost_to:.2f})"
    won = f"{word(change.won)} ({change.won_from:.2f} → {change.won_to:.2f})"
    return f"{change.moved:.3f}", f"{word(change.looks)} ({change.row})", lost, won, where


def _where(found: Pair | Change) -> str:
    head = "" if found.part.startswith(PREFIX) else f", head {found.head}"
    return f"{found.part}, layer {found.layer}{head}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table as Drawn

    table = Drawn(title=escape(title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in heads:
        table.add_column(name, justify="right" if name in ("weight", "moved") else "left", no_wrap=name == "where")
    for cells in rows:
        table.add_row(*map(escape, cells))
    return table


def _shown(text: Any) -> str:
    return " ".join(map(word, text.tokens)) if isinstance(text, Inspected) else str(text)
