"""Commands that show and prove: list, verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import counted
from . import complete
from .options import Json, Quiet, print_json

if TYPE_CHECKING:
    from ..catalogue import Entry


def list_(
    name: Annotated[
        str | None,
        typer.Argument(help="One entry, told in full; or a table, such as mixers.", autocompletion=complete.entries),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Only this table.", autocompletion=complete.tables)] = None,
    search: Annotated[str | None, typer.Option(help="Only entries that say this, in any letters.")] = None,
    as_json: Json = False,
) -> None:
    """What there is: mixers and parts, models, checkpoints, tokenizers, data, tasks, decoding; and all about one."""
    from ..catalogue import TABLES, entries, named

    if name is not None and (table is not None or search is not None):
        raise typer.BadParameter(f"{name!r} is told in full; leave it out to see what --table and --search find")
    if name is not None and name not in TABLES:
        _tell(named(name), as_json=as_json)
        return
    wanted = [each for each in (name, table) if each is not None]
    found = [entry for entry in entries(*wanted) if search is None or _says(entry, search)]
    if not found:
        raise typer.BadParameter(f"no entry says {search!r}; heed list shows all there are")
    if as_json:
        print_json([entry.plain() for entry in found])
    else:
        _tabulate(found)
    if not (wanted or search or as_json):
        from ..kernels import described

        print(f"kernels: {described()}")


def _says(entry: Entry, words: str) -> bool:
    return words.casefold() in " ".join(entry.plain().values()).casefold()


def _tabulate(found: list[Entry]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    for name in dict.fromkeys(entry.table for entry in found):
        rows = [entry for entry in found if entry.table == name]
        noted = any(entry.note for entry in rows)
        table = Table(title=name, title_justify="left", box=None, pad_edge=False, title_style="bold")
        for heading in ("name", "what it is", *(["note"] if noted else [])):
            table.add_column(heading, overflow="fold")
        for entry in rows:
            table.add_row(f"[bold]{entry.name}[/]", escape(entry.summary), *([entry.note] if noted else []))
        Console().print(table, "")


def _tell(found: list[Entry], *, as_json: bool) -> None:
    """Entries in full."""
    if as_json:
        print_json([entry.whole() for entry in found])
        return
    from rich.console import Console
    from rich.markup import escape

    from .settings import grid, settings_table

    console = Console()
    for entry in found:
        console.print(f"[bold]{entry.name}[/] [dim]({entry.table})[/]", "", escape(entry.text), "", sep="\n")
        facts = {"paper": entry.paper, "note": entry.note, "code": entry.code, "page": entry.page}
        if entry.samples:
            facts["samples"] = f"{len(entry.samples)} that the laws are tried on: heed verify {entry.name}"
        if entry.table == "mixers":
            facts["use"] = f"heed train RECIPE --set model.mixer.kind={entry.name}"
        table = grid()
        for fact, text in facts.items():
            if text:
                table.add_row(f"[dim]{fact}[/]", escape(text))
        console.print(table)
        if entry.settings:
            console.print("", settings_table(entry.settings, values=False), sep="\n")
        console.print()


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="What to verify: names, or run folders; everything if nothing is named.", autocompletion=complete.kinds
        ),
    ] = None,
    golden: Annotated[
        list[Path] | None, typer.Option(help="A golden folder, or a folder of them, to compute again. May be repeated.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prove in this install that every fast, cached or cut form equals the plain one; exit code 1 if not.

    What cannot be tried here (kernels on a machine without any) is told; asked for by name, that is exit code 1, too.
    """
    from rich.console import Console
    from rich.progress import track

    from ..verify import proofs, recorded, show

    # `--golden A B` means both, though an option takes one: with it, folders are golden ones.
    also = [name for name in names or () if golden and Path(name).is_dir()]
    others = [name for name in names or () if name not in also]
    folders = [*(golden or ()), *map(Path, also)]
    checks = [*(proofs(others) if others or not folders else []), *recorded(folders)]
    errors, shown = Console(stderr=True), []
    for number, check in enumerate(track(checks, "verifying", console=errors, disable=quiet or not errors.is_terminal)):
        if number % 10 == 0 and not errors.is_terminal and not quiet:
            errors.print(f"verifying: {number} of {counted(len(checks), 'statement')} done")
        shown.append(check())
    if as_json:
        print_json({"holds": all(p.holds or p.left_out for p in shown), "proofs": [proof.plain() for proof in shown]})
    else:
        show(shown, Console())
    # What was asked for by name must be shown; among everything, what cannot be tried here is told and does not fail.
    raise typer.Exit(any(proof.fails or (names and proof.missing) for proof in shown))
