"""Commands that show and prove: list, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Json, print_json


def list_(as_json: Json = False) -> None:
    """What there is: mixers and parts, models, tokenizers, data, tasks, decoding strategies."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ..catalogue import entries
    from ..kernels import described

    found = list(entries())
    if as_json:
        print_json([entry.plain() for entry in found])
        return
    for name in dict.fromkeys(entry.table for entry in found):
        rows = [entry for entry in found if entry.table == name]
        noted = any(entry.note for entry in rows)
        table = Table(title=name, title_justify="left", box=None, pad_edge=False, title_style="bold")
        for heading in ("name", "what it is", *(["note"] if noted else [])):
            table.add_column(heading, overflow="fold")
        for entry in rows:
            table.add_row(f"[bold]{entry.name}[/]", escape(entry.summary), *([entry.note] if noted else []))
        Console().print(table, "")
    print(f"kernels: {described()}")


def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="What to verify: names, or run folders; everything if nothing is named.")
    ] = None,
    golden: Annotated[
        list[Path] | None, typer.Option(help="A golden folder, or a folder of them, to compute again. May be repeated.")
    ] = None,
    as_json: Json = False,
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
    for number, check in enumerate(track(checks, "verifying", console=errors, disable=not errors.is_terminal)):
        if number % 10 == 0 and not errors.is_terminal:
            errors.print(f"verifying: {number} of {len(checks)} statements done")
        shown.append(check())
    if as_json:
        print_json({"holds": all(p.holds for p in shown), "proofs": [proof.plain() for proof in shown]})
    else:
        show(shown, Console())
    # What was asked for by name must be shown; among everything, what cannot be tried here is told and does not fail.
    raise typer.Exit(any(proof.fails or (names and proof.missing) for proof in shown))
