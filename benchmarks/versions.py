"""This heed beside another checkout of heed, in turns, in one run: `python -m benchmarks.versions PATH`.

Both do the same work in processes of their own (`heed bench`), so that a change of code is judged by its neighbour and
not by what the machine did an hour ago.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from rich.console import Console

from heed.bench.base import Contestant
from heed.bench.cases import Size, contests
from heed.bench.contest import Process, run
from heed.bench.ours import Heed
from heed.bench.report import Report, machine
from heed.bench.work import Precision, Work

CONTESTS: tuple[tuple[str, str], ...] = (
    *(("decode", model) for model in ("gpt2", "llama", "rwkv", "retnet", "bitnet")),
    *(("prefill", model) for model in ("gpt2", "llama", "rwkv")),
    ("encode", "bert"),
    ("translate", "transformer"),
    ("train", "gpt-50k"),
    ("train", "transformer"),
    ("load", "gpt2"),
)


class Other(Heed):
    """The other checkout."""

    name: ClassVar[str] = "heed-other"


def main(
    other: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The folder that holds the other heed/.")],
    subjects: Annotated[
        str, typer.Option(help="Subjects, or subject:model, with commas between them; default: all.")
    ] = "",
    precision: Annotated[Precision, typer.Option(help="Of the weights.")] = "fp32",
    rounds: Annotated[int, typer.Option(min=1)] = 9,
    threads: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Measure this heed beside another checkout of it."""
    here = Path(__file__).resolve().parents[1]
    places = {Heed.name: here, Other.name: other.resolve()}
    if not (places[Other.name] / "heed").is_dir():
        raise typer.BadParameter(f"{other} holds no folder heed")

    def start(contestant: Contestant, work: Work) -> Process:
        place = places.get(contestant.name, here)
        name = Heed.name if contestant.name == Other.name else contestant.name
        python = ["env", f"PYTHONPATH={place}", sys.executable, "-m", "heed.bench.worker"]
        return Process([*python, name, work.subject, work.dump()], work.threads)

    named = set(subjects.split(",")) if subjects else {subject for subject, _ in CONTESTS}
    wanted = [pair for pair in CONTESTS if pair[0] in named or ":".join(pair) in named]
    errors, size = Console(stderr=True), Size(threads=threads)
    outcomes = []
    for subject, model in wanted:
        for work in contests(subject, model, precision, size):  # type: ignore[arg-type]  # names of the table above
            outcomes.append(run(work, Heed(), [Other()], rounds, errors.print, start))
    Report(outcomes, machine(threads)).show(Console(width=140))


if __name__ == "__main__":
    typer.run(main)
