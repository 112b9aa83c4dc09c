"""What a training takes in each process: all of a model in two of them (DDP), and a model that they share (FSDP2).

GPT-2 small's twelve blocks of 768 channels over the letters of a text (85 million weights), trained for three steps
with AdamW through `heed train`, checkpoint and last weights included. Peaks are those of the resident set, less what
the process had before the data were read: libraries are the same in all three.

    python -m benchmarks.shard measure FOLDER     # a minute or two on two cores; FOLDER needs 6 GB
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from heed.runs import Recipe, find
from heed.show.progress import Silent
from heed.train import train

WAYS = {"one process": (1, ""), "two, replicate": (2, "replicate"), "two, shard": (2, "shard")}
SETTINGS = (
    *("model.width=768", "model.depth=12", "model.mixer.0.heads=12", "model.feedforward.hidden=3072"),
    *("task.context=64", "training.batch=128", "training.steps=3", "training.evaluate=3", "training.save=3"),
    *("training.log=1", "training.optimizer.lr=1e-4", "training.schedule.warmup=1", "training.keep=last"),
)
TEXT = "the quick brown fox jumps over the lazy dog. " * 400
app = typer.Typer(add_completion=False)


def resident() -> int:
    """Bytes that this process has in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@app.command()
def work(folder: Path, way: str) -> None:
    """One process of a training, which torchrun starts."""
    import torch.distributed.fsdp  # noqa: F401  # before the count begins: it is no part of the model

    before = resident()
    parallel = WAYS[way][1]
    settings = (*SETTINGS, *([f"training.parallel.kind={parallel}"] if parallel else []))
    recipe = Recipe.read(find("characters"), [f"data.train={folder / 'text.txt'}", *settings])
    train(recipe, folder / way.replace(", ", "-").replace(" ", "-"), Silent())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {"way": way, "rank": int(os.environ["RANK"]), "before": before, "peak": peak}
    (folder / f"{way}-{told['rank']}.json").write_text(json.dumps(told))


@app.command()
def measure(folder: Path, only: Annotated[list[str] | None, typer.Option(help="These ways.")] = None) -> None:
    """Each way in turn, then the table."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text(TEXT)
    print("| | process | peak (MB) | of one process |\n|---|---|---|---|")
    whole = 0.0
    for way in only or WAYS:
        count = WAYS[way][0]
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        subprocess.run([*launch, "-m", "benchmarks.shard", "work", str(folder), way], check=True)
        for rank in range(count):
            told = json.loads((folder / f"{way}-{rank}.json").read_text())
            peak = (told["peak"] - told["before"]) / 1e6
            whole = whole or peak
            print(f"| {way} | {rank} | {peak:,.0f} | {peak / whole:.2f} |", flush=True)


if __name__ == "__main__":
    app()
