"""The commands that show what is inside of a model: see."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from .options import Json, LoadOptions, Model, print_json, spread

if TYPE_CHECKING:
    from rich.console import RenderableType

Html = Annotated[Path | None, typer.Option(help="Write one HTML file, which opens without a network.")]


class View(Protocol):
    """What is told in three ways."""

    def plain(self) -> dict[str, Any]: ...
    def text_figure(self) -> RenderableType: ...
    def html(self) -> str: ...


@spread
def see(
    path: Model,
    text: Annotated[str, typer.Argument(help="A text, or the file of an image or a sound.")],
    loading: LoadOptions,
    pair: Annotated[str | None, typer.Option(help="Another text: which heads change?")] = None,
    of: Annotated[str | None, typer.Option(help="With --pair: a token; only what it looks at counts.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Of an encoder-decoder: the source, TEXT is then its target.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="One layer, counted from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="One head, counted from 0.")] = None,
    influence: Annotated[
        str | None,
        typer.Option(help="What each output depends on, too: probes (quick), exact. Without weights: always."),
    ] = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Attention maps of a run or checkpoint on a text: self, cross, encoder, decoder; with --pair the heads that change."""
    from ..views import see as seen

    if influence not in (None, "probes", "exact"):
        raise typer.BadParameter(f"--influence is probes or exact, not {influence}")
    pipeline = loading.load(loading.resolve(path))
    found = seen(pipeline, text, pair=pair, source=source, layer=layer, head=head, influence=influence, of=of)
    tell(found, html, as_json=as_json)


def tell(view: View, html: Path | None, *, as_json: bool) -> None:
    """As JSON, as a page and, unless one of them was asked for, as a picture in the terminal."""
    if html is not None:
        from ..core.atomic import replacing

        with replacing(html) as fresh:
            fresh.write_text(view.html(), encoding="utf-8")
    if as_json:
        print_json(view.plain())
    elif html is not None:
        print(f"written to {html} ({html.stat().st_size / 1e6:.1f} MB)")
    else:
        from rich.console import Console

        Console().print(view.text_figure(), highlight=False)
