"""The command that opens the studio: a page in the browser that looks into a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import LoadOptions, spread
from .serve import say


@spread
def studio(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH|RUNS]",
            help="A run or checkpoint folder, a .gguf file, an id of the hub, or a folder of runs; default: runs.",
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="Of --html: the text to look at; without a tokenizer: ids.")] = None,
    pair: Annotated[
        str | None, typer.Option(help="Of --html: the second text, or the answer of an encoder-decoder.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page with one text to a file, and serve nothing.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    loading: LoadOptions = LoadOptions(),  # noqa: B008  # frozen; typer gives one made of what was given
) -> None:
    """Look into a model in the browser: attention maps, influence, steps of attention, next tokens, runs."""
    import webbrowser

    from ..core.errors import InputError
    from ..studio import Opening, must_be_there, record, serve, studio_of

    if html is None:
        must_be_there()
        if text is not None or pair is not None:
            raise InputError("--text and --pair are what --html writes; in the studio type them into the page")
    place = None if path is None else Path(path) if Path(path).is_dir() else loading.resolve(path)
    opened = studio_of(place, loading.load)
    if html is None:
        serve(opened, Opening(place, port), say, show=webbrowser.open if browser else lambda _: None)
        return
    from ..core.atomic import replacing
    from ..studio.scenes import Given

    if len(opened.sources) != 1:
        raise InputError(f"--html writes one model's page; name one of {', '.join(opened.sources) or 'them'}")
    written = record(opened, next(iter(opened.sources)), Given(text=text, pair=pair))
    with replacing(html) as fresh:
        fresh.write_text(written, encoding="utf-8")
