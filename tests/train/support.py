"""A tiny training, and what is left of it on the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heed.runs import Recipe, find
from heed.show.progress import Silent
from heed.train import resume, train
from heed.train.start import Outcome

TINY = (
    "data.held=12",
    "data.round=64",
    "data.variety=0.0",
    "model.width=16",
    "model.depth=1",
    "model.heads=2",
    "model.hidden=24",
    "model.dropout=0.2",
    "training.batch=200",
    "training.steps=6",
    "training.evaluate=3",
    "training.save=3",
    "training.log=1",
    "training.schedule.warmup=2",
)


def recipe(*changes: str) -> Recipe:
    """The recipe for dates, made tiny."""
    return Recipe.read(find("dates"), [*TINY, *changes])


def language_model(*changes: str) -> Recipe:
    """The standard library, a little of it, and a tiny decoder."""
    settings = (
        *("data.kind=stdlib", "data.bytes=20000", "tokenizer.kind=byte", "task.kind=causal", "task.context=24"),
        *("model.kind=decoder", "model.width=16", "model.depth=1"),
        *(change for change in TINY if change.startswith("training")),
    )
    return Recipe.read(find("dates"), [*settings, *changes])


def trained(out: Path, *changes: str) -> Outcome:
    return train(recipe(*changes), out, Silent())


def resumed(out: Path, *changes: str) -> Outcome:
    return resume(out, changes, Silent())


def metrics(run: Path, *names: str) -> list[tuple[Any, ...]]:
    """These numbers of every line that has them, with its step."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], *(line[name] for name in names)) for line in lines if all(name in line for name in names)]


def same_run(one: Path, other: Path, skip: Sequence[str] = ("seconds",)) -> bool:
    """Whether two runs left the same weights, the same optimizer, the same losses: to the last bit."""
    files = [file.relative_to(one) for file in one.rglob("*.safetensors")]
    assert files
    bits = all((one / file).read_bytes() == (other / file).read_bytes() for file in files)
    far = [_progress(run, skip) for run in (one, other)]
    return bits and far[0] == far[1] and metrics(one, "loss", "lr") == metrics(other, "loss", "lr")


def _progress(run: Path, skip: Sequence[str]) -> list[dict[str, Any]]:
    found = [json.loads(file.read_text()) for file in sorted(run.glob("state/*/progress.json"))]
    return [{name: value for name, value in data.items() if name not in skip} for data in found]


def launched(folder: Path, code: str, *arguments: object, processes: int = 2) -> str:
    """Python code in several processes, as torchrun starts them. Gives what they said."""
    script = folder / "script.py"
    script.write_text(f"import sys\nfrom pathlib import Path\n{code}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*launch, str(script), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
