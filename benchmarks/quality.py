"""What the shipped recipes reach: trained here and now, each beside what it is measured by.

dates         `heed demo`: exact match on formats of training and on formats kept out of it, and the time it takes
characters    tinyshakespeare beside a nanoGPT-style model, the same wall-clock time for both
translation   Multi30k English to German

The last two need data that heed does not ship: HEED_DATA names a folder with lm/tinyshakespeare.txt.gz and
mt/multi30k.{train,valid,test2016}.en-de-fr.tsv.gz. HEED_RUNS names a folder for the trained models; without it they go.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import cos, pi
from pathlib import Path
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import Figure
from benchmarks.report import Row, Target
from heed.demo import demo
from heed.demo.report import GOALS
from heed.runs import Recipe, find
from heed.runs.evaluate import evaluate
from heed.runs.folder import METRICS
from heed.show.progress import Reporter
from heed.train import train

STEPS, CONTEXT, ROWS, WIDTH, DEPTH, HEADS = 2000, 64, 12, 128, 4, 4  # nanoGPT's settings for a CPU
MINUTES = 60
COMPUTING = 0.92  # the share of heed's time that goes into steps; the rest goes into evaluation, which counts too


def dates(rounds: int | None) -> Iterator[Row]:
    """The demo, from beginning to end."""
    begun = perf_counter()
    with run_folder() as folder:
        report = demo(folder / "dates", Reporter())
    seconds = perf_counter() - begun
    yield Row("heed demo, all of it", Figure.exact(seconds, "s"), target=Target(240, of="heed"))
    for goal in GOALS:
        exact = Figure.exact(report.exact(goal.split), "")
        yield Row(f"exact match in percent, {goal.asks}", exact, target=Target(goal.exact, of="heed", floor=True))


def translation(rounds: int | None) -> Iterator[Row]:
    """Multi30k, English to German: the recipe as it is shipped."""
    files = [f"data.{name}={data_file(f'mt/multi30k.{file}.en-de-fr.tsv.gz')}" for name, file in SPLITS.items()]
    with run_folder() as folder:
        outcome = train(Recipe.read(find("translation"), files), folder / "translation", Reporter())
        metrics = evaluate(outcome.run, split="test")["test"]
    minutes = outcome.progress.seconds / 60
    yield Row("minutes of training", Figure.exact(minutes, ""), target=Target(MINUTES, of="heed"))
    bleu = Figure.exact(float(metrics["bleu"]), "")
    yield Row(f"BLEU on test2016 ({metrics['signature']})", bleu, target=Target(36, of="heed", floor=True))
    yield Row("chrF on test2016", Figure.exact(float(metrics["chrf"]), ""))


SPLITS = {"train": "train", "valid": "valid", "test": "test2016"}


def characters(rounds: int | None) -> Iterator[Row]:
    """The peer runs its 2,000 steps; then the recipe gets as many steps as fit into the same time."""
    path = data_file("lm/tinyshakespeare.txt.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        text = file.read()
    seconds, peer = nano(text)
    changes = [f"data.train={path}"]
    with run_folder() as folder:
        probe = train(Recipe.read(find("characters"), [*changes, "training.steps=200"]), folder / "probe", Reporter())
        steps = int(COMPUTING * seconds * _speed(probe.run.path) / probe.run.recipe.training.batch)
        recipe = Recipe.read(find("characters"), [*changes, f"training.steps={steps}"])
        outcome = train(recipe, folder / "characters", Reporter())
        run = outcome.run
        pipeline = recipe.task.pipeline(run.model(), run.tokenizer)
        loss = float(recipe.task.evaluate(pipeline, recipe.data.split("valid", ("text",)))["loss"])
    mine = outcome.progress.seconds
    yield Row(
        f"seconds of training, {steps} steps; peer: {STEPS:,} steps",
        Figure.exact(mine, "s"),
        Figure.exact(seconds, "s"),
        Figure.exact(mine / seconds, "×"),
        Target(1.03),
    )
    target = Target(1.75, of="heed")
    yield Row("validation loss; peer: nanoGPT-style", Figure.exact(loss, ""), Figure.exact(peer, ""), target=target)


def _speed(run: Path) -> float:
    """Tokens per second when a training was last asked, evaluation not counted."""
    lines = [json.loads(line) for line in (run / METRICS).read_text(encoding="utf-8").splitlines()]
    return float([line for line in lines if "tokens_per_second" in line][-1]["tokens_per_second"])


@contextmanager
def run_folder() -> Iterator[Path]:
    """Where trained models go."""
    kept = os.environ.get("HEED_RUNS")
    with tempfile.TemporaryDirectory() as folder:
        yield Path(tempfile.mkdtemp(dir=kept) if kept else folder)


def data_file(name: str) -> Path:
    folder = os.environ.get("HEED_DATA")
    if folder is None or not (Path(folder) / name).is_file():
        raise SystemExit(f"set HEED_DATA to a folder that holds {name}")
    return (Path(folder) / name).resolve()


class Nano(nn.Module):
    """A GPT as in nanoGPT's settings for a CPU: learned positions, pre-norm, GELU, no biases, a tied head."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(NanoBlock() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * DEPTH) ** 0.5 if last else 0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


class NanoBlock(nn.Module):
    """Attention and a feed-forward, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y: Tensor = x + self.down(F.gelu(self.up(self.second(x))))
        return y


def nano(text: str) -> tuple[float, float]:
    """Seconds of training, evaluation not counted, and the loss over the whole validation text, the last tenth."""
    torch.manual_seed(1337)
    letters = {letter: index for index, letter in enumerate(sorted(set(text)))}
    data = torch.tensor([letters[letter] for letter in text])
    cut = int(0.9 * len(data))
    seen, unseen = data[:cut], data[cut:]
    model = Nano(len(letters))
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    rest = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
    begun = perf_counter()
    for step in range(STEPS):
        rate = step / 100 if step < 100 else 0.1 + 0.9 * 0.5 * (1 + cos(pi * (step - 100) / (STEPS - 100)))
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * rate
        starts = torch.randint(len(seen) - CONTEXT, (ROWS,)).tolist()
        x = torch.stack([seen[start : start + CONTEXT] for start in starts])
        y = torch.stack([seen[start + 1 : start + 1 + CONTEXT] for start in starts])
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = perf_counter() - begun
    with torch.no_grad():
        count = (len(unseen) - 1) // CONTEXT
        x, y = (unseen[shift : shift + count * CONTEXT].view(count, CONTEXT) for shift in (0, 1))
        pairs = zip(torch.split(x, 256), torch.split(y, 256), strict=True)
        losses = [F.cross_entropy(model(a).flatten(0, 1), b.flatten(), reduction="sum") for a, b in pairs]
    return seconds, float(sum(losses)) / (count * CONTEXT)
