"""Whatever a step is cut into: padding, accumulation and processes change no loss, for every task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from heed.runs import Recipe, find
from heed.show.progress import Silent
from heed.tasks import Batch
from heed.train import train
from heed.train.start import Outcome
from tests.train.support import metrics

STEPS = (
    *("training.steps=4", "training.evaluate=2", "training.save=4", "training.log=1", "training.batch=160"),
    *("training.schedule.warmup=2", "data.held_out=0.2", "tokenizer.kind=bpe", "tokenizer.size=300"),
)
ENCODER = ("model.width=24", "model.depth=1", "model.dropout=0.0", "model.mixer.0.dropout=0.0", "task.drop=0.0")
KINDS: dict[str, tuple[str, ...]] = {
    "classify": (*STEPS, *ENCODER),
    "several": (*STEPS, *ENCODER, "task.several=true", "task.separator=+"),
    "match": (*STEPS, *ENCODER),
    "together": (*STEPS, *ENCODER, "task.how=together"),
    "rewrite": (*STEPS, "model.width=24", "model.depth=1", "model.heads=2", "model.hidden=24", "model.dropout=0.0"),
    "recall": (
        *("training.steps=4", "training.evaluate=2", "training.save=4", "training.log=1", "training.batch=160"),
        *("training.schedule.warmup=2", "data.held=20", "model.width=24", "model.depth=1", "model.dropout=0.0"),
    ),
}
RECIPES = {"several": "classify", "together": "match"}
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def rows(kind: str) -> Iterator[dict[str, Any]]:
    """Texts of several lengths, each with what is to be learnt about it."""
    for number in range(60):
        text = " ".join(WORDS[(number * step) % 10] for step in range(1, 3 + number % 7))
        if kind in ("match", "together"):
            yield {"text": text, "pair": " ".join(reversed(text.split())), "score": number % 6}
        elif kind == "rewrite":
            yield {"source": text, "target": " ".join(sorted(text.split()))}
        else:
            yield {"text": text, "label": "odd" if number % 2 else ["even", "even+late"][kind == "several"]}


def trained(kind: str, out: Path, *changes: str) -> Outcome:
    """A tiny run, on data beside it."""
    files = []
    if kind != "recall":
        out.parent.mkdir(parents=True, exist_ok=True)
        path = out.parent / f"{kind}.jsonl"
        if not path.exists():
            path.write_text("\n".join(map(json.dumps, rows(kind))), encoding="utf-8")
        files = [f"data.train={path}"]
    name = RECIPES.get(kind, kind)
    return train(Recipe.read(find(name), [*KINDS[kind], *files, *changes]), out, Silent())


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", KINDS)
def test_splitting_a_batch_changes_nothing(kind: str, tmp_path: Path) -> None:
    for name, count in (("one", 1), ("cut", 3)):
        trained(kind, tmp_path / name, f"training.accumulate={count}")
    one, cut = (load_file(tmp_path / name / "state" / "00000004" / "model.safetensors") for name in ("one", "cut"))
    assert max(float((one[name] - cut[name]).abs().max()) for name in one) < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_like_one(kind: str, tmp_path: Path) -> None:
    trained(kind, tmp_path / "one")
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; from pathlib import Path; from tests.tasks.test_balance import trained;"
        f"trained({kind!r}, Path(sys.argv[1]))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    subprocess.run([*launch, str(tmp_path / "two")], check=True, env=environment, capture_output=True, timeout=240)
    for what in ("loss", "valid_loss"):
        one, two = metrics(tmp_path / "one", what), metrics(tmp_path / "two", what)
        assert one
        assert [loss for _, loss in one] == pytest.approx([loss for _, loss in two], rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_no_loss(kind: str, tmp_path: Path) -> None:
    """A batch costs what its items cost one by one, though some are padded, whatever stands in the padding."""
    run = trained(kind, tmp_path / "run", "training.steps=1").run
    task, model = run.recipe.task, run.model().double().eval()
    items = task.corpus(run.recipe.data.split("valid", task.columns), run.tokenizer).once()[:12]
    with torch.no_grad():
        each = [float(task.loss(model, task.batch([item])).total) for item in items]
        batch = task.batch(items)
        assert float(task.loss(model, batch).total) == pytest.approx(sum(each), rel=1e-12)
        assert batch.tokens == sum(task.batch([item]).tokens for item in items)
        wild: Any = batch.inputs.tokens.clone()
        wild[~batch.inputs.where.real] = 1
        other = Batch(type(batch.inputs)(wild, batch.inputs.where), batch.labels, batch.source, batch.tokens)
        assert float(task.loss(model, other).total) == pytest.approx(sum(each), rel=1e-12)
        assert float(task.loss(model, batch.silent()).total) == 0.0
