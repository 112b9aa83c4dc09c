"""The command that explains settings: config; and `--set place=?` of train."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import complete
from .options import Json, Sets, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..core.config import Config
    from ..show.settings import Section, Setting

ASKED = "?"  # instead of a value
LONGEST = 60  # characters of a value in a table


def config(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe: a .toml file, the name of one of heed's, or a run.", autocompletion=complete.recipes
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Argument(help="Only what is at this place: training, model.mixer ...", autocompletion=complete.keys),
    ] = None,
    changes: Sets = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print the recipe as TOML with comments, to edit.")] = False,
    as_json: Json = False,
) -> None:
    """Explain every setting of a recipe: value, default, type, what it does. Without a recipe: list those there are.

    `heed config characters --toml > mine.toml` makes a recipe of your own: `heed train mine.toml`.
    """
    if recipe is None:
        _list_recipes(as_json=as_json)
        return
    tree = read(recipe, changes or [])
    if not toml:
        explain(tree, key, as_json=as_json)
        return
    from ..show.settings import commented

    if key is not None:
        raise typer.BadParameter(f"--toml prints the whole recipe; leave {key!r} out")
    print(commented(tree), end="")


def answered(recipe: str, changes: list[str]) -> bool:
    """Whether settings were asked about (`--set training=?`, `--set ?`) instead of set; if so they are explained."""
    places = [change for change in changes if change == ASKED or change.endswith(f"={ASKED}")]
    if places:
        tree = read(recipe, [change for change in changes if change not in places])
        for change in places:
            explain(tree, change.removesuffix(ASKED).removesuffix("=") or None)
    return bool(places)


def read(recipe: str, changes: list[str]) -> Config:
    """The recipe of that name, in that file, or of that run."""
    from ..runs import Recipe, Run, find

    folder = Path(recipe)
    if folder.is_dir():
        return Run.open(folder).recipe
    return Recipe.read(find(recipe), changes)


def explain(tree: Config, key: str | None, *, as_json: bool = False) -> None:
    """The settings at a place of the tree, and below it."""
    from rich.console import Console

    from ..show.settings import find, sections

    whole = None if key is None else find(tree, key)
    found = list(sections(tree)) if whole is None else whole.sections()
    if as_json:
        below = [setting for section in found for setting in section.settings()]
        print_json([setting.plain() for setting in [*([] if whole is None else [whole]), *below]])
        return
    console = Console()
    if whole is not None and (whole.choices or not found):
        _show(whole, console)
    for section in found:
        console.print(_heading(section), settings_table(section.settings()), "", sep="\n")


def _show(setting: Setting, console: Console) -> None:
    """One key, and the kinds to choose from."""
    from rich.markup import escape

    from ..show.settings import owner, summary

    console.print(f"[bold]{setting.place}[/]  {escape(setting.about)}")
    default = "required" if setting.required else f"default {_short(setting.default)}"
    console.print(escape(f"{setting.must}; {default}; here {_short(setting.value)}"), "", sep="\n")
    if not setting.choices:
        return
    table = grid()
    chosen = {section.kind for section in setting.sections()[:1]}
    for kind, choice in setting.choices.items():
        mark = "[green]•[/]" if kind in chosen else " "
        table.add_row(mark, f"[bold]{kind}[/]", escape(summary(owner(choice))))
    console.print(f"Choose one by --set {setting.place}.kind=NAME:", table, "", sep="\n")


def _heading(section: Section) -> str:
    from rich.markup import escape

    kind = f" = {section.kind}" if section.kind else ""
    return f"[bold]{escape(section.place or 'recipe')}{kind}[/]  [dim]{escape(section.about)}[/]"


def settings_table(settings: Iterable[Setting], *, values: bool = True) -> Table:
    """Name, value (unless all are the defaults), default, type and a line for each."""
    from rich.markup import escape

    table = grid(header=True)
    for name in ("setting", *(["value"] if values else []), "default", "type", "what it does"):
        table.add_column(name, header_style="dim", overflow="fold", no_wrap=name == "setting")
    for setting in settings:
        value, default = _short(setting.value), "required" if setting.required else _short(setting.default)
        shown = escape(value) if value == default else f"[bold cyan]{escape(value)}[/]"
        cells = (shown, escape(default)) if values else (escape(default),)
        table.add_row(f"  {setting.name}", *cells, escape(_brief(setting.must)), escape(setting.about))
    return table


def _brief(must: str) -> str:
    """A type in a table; all words to choose from are told where the key is asked for alone."""
    words = must.split(", ")
    return must if len(must) <= LONGEST else f"{', '.join(words[:3])} ... ({len(words) + 1} words)"


def grid(*, header: bool = False) -> Table:
    """A table without lines."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, show_header=header)


def _short(value: Any) -> str:
    """A value as it is written in TOML; of a node its kind."""
    from ..show.settings import plain

    data = plain(value)
    if isinstance(data, list) and data and all(isinstance(item, dict) for item in data):
        return ", ".join(map(_short, data))
    if isinstance(data, dict):
        return str(data.get("kind", "below" if data else "{}"))
    text = "unset" if data is None else json.dumps(data, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def list_recipes(*, as_json: bool) -> None:
    """What comes with heed: what each recipe learns, what it needs, what it reached."""
    from rich.console import Console
    from rich.markup import escape

    from ..runs.recipe import abouts

    found = abouts()
    if as_json:
        print_json([{"name": name, **about._asdict()} for name, about in found.items()])
        return
    table = grid()
    for name, about in found.items():
        table.add_row(f"[bold]{name}[/]", escape(about.what))
        table.add_row("", escape(f"needs {about.needs}"))
        table.add_row("", f"[dim]reached {escape(about.reached)}[/]")
    Console().print(table, "", "Settings of one: heed config NAME; train it: heed train NAME --data FILE", sep="\n")


def _list_recipes(*, as_json: bool) -> None:
    from rich.console import Console
    from rich.markup import escape

    from ..runs.recipe import descriptions

    found = descriptions()
    if as_json:
        print_json([{"name": name, "about": about} for name, about in found.items()])
        return
    table = grid()
    for name, about in found.items():
        table.add_row(f"[bold]{name}[/]", escape(about))
    Console().print(table, "", "Settings of one: heed config NAME; of a part: heed config NAME training", sep="\n")
