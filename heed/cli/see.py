"""The commands that show what is inside of a model: see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

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
    *,
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
    """Attention maps of a run or checkpoint on a text: self, cross, encoder, decoder; with --pair what changes."""
    from ..views import see as seen

    known: dict[str | None, Literal["probes", "exact"] | None] = {None: None, "probes": "probes", "exact": "exact"}
    if influence not in known:
        raise typer.BadParameter(f"--influence is probes or exact, not {influence}")
    pipeline, asked = loading.load(loading.resolve(path)), known[influence]
    found = seen(pipeline, text, pair=pair, source=source, layer=layer, head=head, influence=asked, of=of)
    found = replace(found, model=path)
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


Subject = Annotated[
    str,
    typer.Argument(metavar="CONFIG|PATH", help="A recipe, a .toml or .json file, a run, a checkpoint, a .gguf file."),
]
Vocabulary = Annotated[int, typer.Option(help="Tokens of a recipe whose tokenizer is not learnt yet.")]


def cost(
    config: Subject,
    lengths: Annotated[str, typer.Option(help="Lengths of a text, with commas: 1k,8k,128k.")] = "1k,8k,128k",
    rows: Annotated[int, typer.Option(help="Texts at once, which multiply the state.")] = 1,
    vocabulary: Vocabulary = 32_000,
    time: Annotated[bool, typer.Option("--time", help="Measure the time of a forward pass here, too.")] = False,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """What a model costs: weights, FLOPs per token, sequential steps, bytes of state; beside other mixers."""
    from ..views import cost as costed

    found = costed(config, lengths=lengths.split(","), rows=rows, vocabulary=vocabulary, time=time)
    tell(found, html, as_json=as_json)


def summary(
    config: Subject,
    tokens: Annotated[int, typer.Option(help="Tokens of the text whose shapes are shown.")] = 16,
    rows: Annotated[int, typer.Option(help="Texts at once.")] = 1,
    depth: Annotated[int, typer.Option(help="Levels of the tree that are shown.")] = 5,
    vocabulary: Vocabulary = 32_000,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """The tree of a model's modules: the shape of what each gives, its weights and their share."""
    from ..views import summary as summed

    tell(summed(config, tokens=tokens, rows=rows, depth=depth, vocabulary=vocabulary), html, as_json=as_json)


def plot(
    what: Annotated[str, typer.Argument(help="position, mask, kernel, scores, norm or schedule.")],
    config: Annotated[
        str | None, typer.Argument(help="Its kind (sinusoid, window ...), or a .toml or .json file that describes it.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: name=value. May be repeated.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="How many tokens, or steps of a schedule.")] = None,
    text: Annotated[str | None, typer.Option(help="Words of a text, which name the tokens of a mask.")] = None,
    token: Annotated[str | None, typer.Option(help="Of a mask: who sees this token, and whom does it see?")] = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Draw a mechanism: a position code, a mask, kernels, scores against √d, norms, a learning-rate schedule."""
    from ..views import plot as drawn

    found = drawn(what, config, changes=changes or (), tokens=tokens, text=text, token=token)
    tell(found, html, as_json=as_json)
