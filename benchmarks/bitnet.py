"""What ternary weights cost: the recipe `characters` trained as it is, and the same steps with BitNet b1.58.

Half as many steps as the recipe has, so that the three trainings take some five minutes on two cores. HEED_DATA names
a folder with lm/tinyshakespeare.txt.gz; HEED_RUNS one for the trained models, without which they go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from benchmarks.measure import Figure
from benchmarks.quality import data_file, run_folder
from benchmarks.report import Row, Target
from heed.core.contract import Where
from heed.kernels import written_out
from heed.parts.layers.bitnet import PackedTernaryLinear, TernaryLinear
from heed.runs import Recipe, Run, find
from heed.runs.convert import edited
from heed.show.progress import Reporter
from heed.train import train
from heed.weights import edits

WORSE = 1.05  # of the loss, at most
STEPS = 900
KINDS = {"BitNet b1.58": "bitlinear", "BitNet (one bit)": "bitlinear_v1"}


def rows(rounds: int | None) -> Iterator[Row]:
    """Losses over the whole validation text at equal steps; then the packed run beside the one it was made of."""
    path = data_file("lm/tinyshakespeare.txt.gz")
    with run_folder() as folder:
        plain, peer = _trained(folder / "plain", [f"data.train={path}"])
        yield Row(f"float32: validation loss after {_steps(plain)} steps", Figure.exact(peer, ""))
        for name, kind in KINDS.items():
            run, loss = _trained(folder / kind, [f"data.train={path}", f"edits.kind={kind}"])
            ratio, target = Figure.exact(loss / peer, "×"), Target(WORSE) if kind == "bitlinear" else None
            what = f"{name}: validation loss after {_steps(run)} steps; peer: float32"
            yield Row(what, Figure.exact(loss, ""), Figure.exact(peer, ""), ratio, target)
        yield from _packed(Run.open(folder / "bitlinear"), folder / "packed")


def _trained(path: Path, changes: list[str]) -> tuple[Run, float]:
    settings = (f"training.{name}={STEPS}" for name in ("steps", "evaluate", "save"))
    outcome = train(Recipe.read(find("characters"), [*changes, *settings]), path, Reporter())
    if not outcome.finished:  # it was stopped: its loss would be that of a model half trained, or of none
        raise SystemExit(f"the training in {path} was stopped at step {outcome.progress.step} of {STEPS}")
    run = outcome.run
    pipeline = run.recipe.task.pipeline(run.model(), run.tokenizer)
    return run, float(run.recipe.task.evaluate(pipeline, run.recipe.data.split("valid", ("text",)))["loss"])


def _steps(run: Run) -> str:
    return f"{run.recipe.training.steps:,}"


def _packed(run: Run, path: Path) -> Iterator[Row]:
    """The same model in two bits: how large its ternary layers are, and how far its logits are off."""
    small, model = edited(run.path, path, edits.Packed()).model(), run.model()
    bytes_ = sum(layer.weight.nbytes for layer in model.modules() if isinstance(layer, TernaryLinear))
    held = sum(
        layer.codes.nbytes + layer.scale.nbytes for layer in small.modules() if isinstance(layer, PackedTernaryLinear)
    )
    what = "bytes of the ternary layers, packed; peer: float32"
    ratio = Figure.exact(held / bytes_, "×")
    yield Row(what, Figure.exact(held, "B"), Figure.exact(bytes_, "B"), ratio, Target(1 / 12))
    gap = Figure.exact(_apart(model, small, run.tokenizer.size), "")
    yield Row("largest difference of logits, packed and quantised in every call", gap, target=Target(0.0, of="heed"))


@torch.no_grad()
def _apart(model: nn.Module, other: nn.Module, vocabulary: int) -> float:
    tokens = torch.randint(vocabulary, (16, 128), generator=torch.Generator().manual_seed(0))
    where = Where.run(16, 128)
    with written_out():  # the same sums in the same order; a pass adds up in another one
        return float((model(tokens, where)[0] - other(tokens, where)[0]).abs().max())
