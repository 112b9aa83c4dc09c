"""Score functions side by side: the same recurrent encoder-decoder on dates, attending by each of them.

The recipe `luong` with the scores general, dot, location, cosine and scaled dot, and `bahdanau` with its additive one:
exact match on formats of training and on formats kept out of it, and what each decoder looks at while it writes a date.

    python -m benchmarks.scores FOLDER [--only general --only location]

Runs that are in FOLDER already are measured as they are; others are trained there, minutes each. FOLDER/scores.md is
the table, FOLDER/scores.html has the heat maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import torch
import typer

import heed
from heed.models import Seq2seq
from heed.runs import Recipe, find
from heed.runs.evaluate import evaluate
from heed.show.heatmap import Figure, text_map, write_page
from heed.show.progress import Reporter
from heed.train import train

SCORE = "model.decoder.cross.score"
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {  # a recipe, and what is set in it
    "additive": ("bahdanau", ()),
    "general": ("luong", ()),
    "dot": ("luong", (f"{SCORE}.kind=dot",)),
    "location": ("luong", (f"{SCORE}.kind=location", f"{SCORE}.length=96")),
    "scaled_dot": ("luong", (f"{SCORE}.kind=scaled_dot",)),
    "cosine": ("luong", (f"{SCORE}.kind=cosine", f"{SCORE}.sharpness=8.0", f"{SCORE}.learned=true")),
}
SHOWN = "le 3 mai 2024"  # what is looked at


@dataclass(frozen=True)
class Outcome:
    """What a score reaches."""

    score: str
    parameters: int
    seen: float  # exact matches in percent, of formats of training
    unseen: float
    figure: Figure


def outcome(score: str, folder: Path) -> Outcome:
    """Trained if it is not there yet, measured and looked at."""
    path = folder / score
    if not path.exists():
        recipe, settings = RUNS[score]
        train(Recipe.read(find(recipe), list(settings)), path, Reporter())
    found = evaluate(path, quiet=True)
    pipeline = heed.load(path)
    parameters = sum(weight.numel() for weight in pipeline.model.parameters())
    exact = [float(found[split]["exact"]) for split in ("valid", "test")]
    return Outcome(score, parameters, exact[0], exact[1], looked(score, pipeline))


@torch.no_grad()
def looked(score: str, pipeline: heed.Pipeline) -> Figure:
    """Where the last layer looks while it writes: a row is a character that is written, a column one that is read."""
    model, tokenizer = cast(Seq2seq, pipeline.model.eval()), pipeline.tokenizer
    written = pipeline.translate(SHOWN)
    source = torch.tensor([[*tokenizer.encode(SHOWN), tokenizer.need("end")]])
    target = torch.tensor([[tokenizer.need("begin"), *tokenizer.encode(written)]])
    last = len(model.decoder.stack.layers) - 1
    with heed.look(model, f"decoder.stack.blocks.{last}.cross.weights") as seen:
        where = heed.Where.run(1, target.shape[1])
        model(target, where.give(encoder_output=model.encode(source)))
    weights = seen[f"decoder.stack.blocks.{last}.cross.weights"][0][0, 0]
    columns = [*(tokenizer.decode([token]) or "·" for token in source[0, :-1].tolist()), "end"]
    return Figure(f"{score}: {SHOWN} → {written}", weights.tolist(), [*written, "end"], columns)


def table(found: list[Outcome]) -> str:
    """As Markdown."""
    rows = [f"| {each.score} | {each.parameters:,} | {each.seen:.1f} | {each.unseen:.1f} |" for each in found]
    return (
        "\n".join(("| score | parameters | formats of training | formats kept out |", "|---|---|---|---|", *rows))
        + "\n"
    )


def main(folder: Path, only: Annotated[list[str] | None, typer.Option(help="These scores.")] = None) -> None:
    """Train what is missing, then write the table and the maps."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [outcome(score, folder) for score in only or RUNS]
    (folder / "scores.md").write_text(table(found))
    write_page(
        folder / "scores.html",
        "Scores of attention",
        "What a recurrent decoder looks at while it writes a date.",
        [each.figure for each in found],
    )
    print(table(found))
    from rich.console import Console

    for each in found:
        Console().print(
            each.figure.title, text_map(each.figure.weights, each.figure.rows, each.figure.columns), "", sep="\n"
        )


if __name__ == "__main__":
    typer.run(main)
