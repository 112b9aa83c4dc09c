"""heed's training loop beside a plain one written by hand: the same model, the same batches, eager, two cores.

The plain loop is what one writes without heed, over the same batches: mean cross-entropy, clipping, fused AdamW. Each
side runs in a process of its own, as a user would run it, in turns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import Figure
from benchmarks.report import Row, Target, compared
from heed import Where
from heed.parts.outputs.loss import NO_LABEL
from heed.runs import Recipe, Run, find
from heed.show.progress import Silent
from heed.tasks import Batch, Corpus, Feed, Translate
from heed.train import memory
from heed.train.loop import Trainer
from heed.train.parallel import Group

WARM = 5
# A recipe, changes, and steps: of dates more than a round, so that drawing and encoding the next one counts.
RECIPES: dict[str, tuple[str, tuple[str, ...], int]] = {
    "dates (encoder-decoder, 1,536 tokens a step)": ("dates", (), 150),
    "stdlib (decoder, 2,048 tokens a step)": ("stdlib", ("data.bytes=2000000",), 40),
}


def rows(rounds: int | None) -> Iterator[Row]:
    """For each recipe: time per token beside the plain loop, and the share of it that goes into data."""
    for title, recipe in RECIPES.items():
        found: dict[Callable[..., tuple[float, float]], list[tuple[float, float]]] = {ours: [], plain: []}
        for _ in range(rounds or 7):
            for side in random.sample([*found], len(found)):
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                    found[side].append(fresh.submit(side, *recipe).result())
        mine, peer = ([seconds for seconds, _ in times] for times in found.values())
        yield compared(f"{title}: seconds per token; peer: a plain loop", mine, peer, Target(1.0))
        shares = Figure.of([share for _, share in found[ours]], "")
        yield Row(f"{title}: share of the time that goes into data", shares, target=Target(0.05, of="heed"))


def ours(name: str, changes: tuple[str, ...], steps: int) -> tuple[float, float]:
    """Seconds per token of heed's loop, and how much of them is data."""
    memory.keep()
    with TemporaryDirectory() as folder:
        run, corpus = _prepared(name, changes, Path(folder))
        trainer = Trainer(run, corpus, None, Group(torch.device("cpu")), Silent())
        for _ in range(WARM):
            trainer.step()
        trainer.watch.seconds.clear()
        begun = perf_counter()
        tokens = sum(trainer.step() for _ in range(steps))
        return (perf_counter() - begun) / tokens, trainer.watch.seconds["data"] / trainer.watch.total


def plain(name: str, changes: tuple[str, ...], steps: int) -> tuple[float, float]:
    """Seconds per token of a loop written by hand."""
    with TemporaryDirectory() as folder:
        run, corpus = _prepared(name, changes, Path(folder))
        recipe, model = run.recipe, run.shape.build().train()
    feed = Feed(corpus, recipe.task.cost, recipe.training.batch, recipe.training.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    smoothing = recipe.task.smoothing if isinstance(recipe.task, Translate) else 0.0

    def step() -> int:
        batch = recipe.task.batch(next(feed))
        _plain_step(model, optimizer, batch, smoothing=smoothing)
        return batch.tokens

    for _ in range(WARM):
        step()
    begun = perf_counter()
    tokens = sum(step() for _ in range(steps))
    return (perf_counter() - begun) / tokens, 0.0


def _plain_step(model: Any, optimizer: torch.optim.Optimizer, batch: Batch, *, smoothing: float) -> float:
    where: Where = batch.inputs.where
    if batch.source is not None:
        where = where.give(encoder_output=model.encode(batch.source.tokens, batch.source.where))
    logits: Tensor = model(batch.inputs.tokens, where)[0]
    loss = F.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=NO_LABEL, label_smoothing=smoothing
    )
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def _prepared(name: str, changes: tuple[str, ...], folder: Path) -> tuple[Run, Corpus]:
    recipe = Recipe.read(find(name), changes)
    examples = recipe.data.split("train", recipe.task.columns)
    texts = (examples[index] for index in range(min(len(examples), 2000)))
    tokenizer = recipe.tokenizer.train(text for example in texts for text in example)
    run = Run.create(folder / "run", recipe.sized(tokenizer.size), tokenizer)
    return run, recipe.task.corpus(examples, tokenizer)
