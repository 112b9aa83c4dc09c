"""Tasks on text, from scratch: what shipped recipes reach beside their floors; what masked pre-training is worth.

text         the recipes question-type, sentiment and tags on TREC-6, SST-2, ChnSentiCorp and UD-EWT, official tests;
             one of them alone: text-trec, text-sst2, text-chnsenticorp, text-ewt
pretrained   the error on TREC-6 after 500 labelled questions, with and without masked pre-training on 17,000
             questions without labels (TREC's, SQuAD's, Natural Questions'); one pre-training, five seeds of the rest;
             Student-t intervals of the means and of the difference, seed by seed

They need HEED_DATA, a folder with cls/trec, cls/sst2, cls/chnsenticorp_hotel, tag/ud_ewt (.train.tsv.gz and so on),
qa/squad11_dev.questions.jsonl.gz and qa/nq_open.dev.jsonl.gz.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import heed
from benchmarks.measure import Figure
from benchmarks.quality import data_file, run_folder
from benchmarks.report import Row, Target

MINUTES = 30
SEEDS = 5
T_975 = {4: 2.776}  # Student's t for 95 %, two-sided, by degrees of freedom
FEW = 500  # labelled questions


class Subject(NamedTuple):
    """One set of data, what it is learnt by, and what is to be reached."""

    name: str
    short: str
    recipe: str
    files: str
    splits: tuple[str, ...]
    columns: list[int]
    goal: float
    settings: dict[str, object]


SUBJECTS = (
    Subject("TREC-6", "trec", "question-type", "cls/trec", ("train", "test"), [2, 0], 91.5, {}),
    Subject("SST-2", "sst2", "sentiment", "cls/sst2", ("train", "valid", "test"), [1, 0], 83.5, {}),
    Subject(
        "ChnSentiCorp",
        "chnsenticorp",
        "sentiment",
        "cls/chnsenticorp_hotel",
        ("train", "valid", "test"),
        [1, 0],
        90.0,
        {"tokenizer": {"kind": "char"}, "task.longest": 256},
    ),
    Subject("UD-EWT, UPOS", "ewt", "tags", "tag/ud_ewt", ("train", "valid", "test"), [0, 1], 95.0, {}),
)


def rows(rounds: int | None, subjects: Sequence[Subject] = SUBJECTS) -> Iterator[Row]:
    """Each recipe, trained once; the peer is the best of its floors."""
    with run_folder() as folder:
        for number, subject in enumerate(subjects):
            files = {split: data_file(f"{subject.files}.{split}.tsv.gz") for split in subject.splits}
            settings = {"data.columns": subject.columns, **subject.settings}
            out = folder / str(number)
            outcome = heed.train(subject.recipe, data=files, settings=settings, out=out, quiet=True)
            found = heed.eval(out, split="test", quiet=True)
            floor = max(float(one["accuracy"]) for one in found.floors["test"].values())
            accuracy = Figure.exact(float(found["test"]["accuracy"]), "")
            target = Target(subject.goal, of="heed", floor=True)
            yield Row(f"{subject.name}: accuracy; peer: its floor", accuracy, Figure.exact(floor, ""), target=target)
            minutes = Figure.exact(outcome.progress.seconds / 60, "")
            yield Row(f"{subject.name}: minutes of training", minutes, target=Target(MINUTES, of="heed"))


EACH: dict[str, Callable[[int | None], Iterator[Row]]] = {
    f"text-{subject.short}": partial(rows, subjects=(subject,)) for subject in SUBJECTS
}


def pretrained(rounds: int | None) -> Iterator[Row]:
    """Few labels and much text: the same training from random weights, and from masked pre-training."""
    with run_folder() as folder:
        few, text = _few(folder)
        data = {"train": few, "test": data_file("cls/trec.test.tsv.gz")}
        first, errors = folder / "masked", dict[bool, list[float]]({False: [], True: []})
        heed.train("masked", data=text, settings=OBJECTIVE, out=first, quiet=True)
        for seed in range(rounds or SEEDS):
            for begun, found in errors.items():
                out, base = folder / f"{seed}-{begun}", {"base": str(first)} if begun else {}
                heed.train("classify", data=data, settings={**_classifier(seed, first), **base}, out=out, quiet=True)
                found.append(100 - float(heed.eval(out, split="test", quiet=True)["test"]["accuracy"]))
    gained = [without - after for without, after in zip(errors[False], errors[True], strict=True)]
    yield Row(
        f"error in percent on TREC-6 after {FEW:,} labels, pre-trained; peer: not",
        _interval(errors[True]),
        _interval(errors[False]),
    )
    yield Row("error less by", _interval(gained), target=Target(0.0, of="heed", floor=True))


def _few(folder: Path) -> tuple[Path, Path]:
    """Some questions with their labels; and many without."""
    with gzip.open(data_file("cls/trec.train.tsv.gz"), "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    few, text, step = folder / "few.tsv", folder / "text.txt", len(lines) // FEW
    few.write_text("".join("\t".join(line) + "\n" for line in lines[::step][:FEW]), encoding="utf-8")
    questions = [line[2] for line in lines]
    for name in ("qa/squad11_dev.questions.jsonl.gz", "qa/nq_open.dev.jsonl.gz"):
        with gzip.open(data_file(name), "rt", encoding="utf-8") as file:
            questions += [str(json.loads(line)["question"]) for line in file]
    text.write_text("\n".join(questions) + "\n", encoding="utf-8")
    return few, text


MODEL: dict[str, object] = {
    "kind": "encoder",
    "width": 128,
    "depth": 2,
    "dropout": 0.1,
    "scaled": True,
    "norm": {"kind": "layernorm"},
    "mixer": [{"kind": "attention", "heads": 4, "mask": {"kind": "whole"}, "position": {"kind": "rope"}}],
    "feedforward": {"kind": "feedforward", "hidden": 256, "activation": "gelu"},
}


OBJECTIVE: dict[str, object] = {
    "model": MODEL,
    "data.lines": True,
    "tokenizer.size": 3000,
    "task.context": 48,
    "training.steps": 1500,
    "training.batch": 2048,
    "training.evaluate": 500,
}


def _classifier(seed: int, first: Path) -> dict[str, object]:
    """250 steps; the tokenizer is the same with and without pre-training."""
    short = {"training.steps": 250, "training.batch": 1024, "training.keep": "last", "training.evaluate": 250}
    known = {"data.columns": [2, 0], "data.held_out": 0.05, "task.longest": 48, "training.seed": seed}
    same = {"tokenizer": {"kind": "file", "path": str(first / "tokenizer.json")}}
    return {"model": MODEL, **short, **known, **same}


def _interval(samples: Sequence[float]) -> Figure:
    """The mean and its 95 % interval by Student's t."""
    middle, degrees = mean(samples), len(samples) - 1
    if degrees not in T_975:
        raise SystemExit(f"intervals are known for {SEEDS} seeds, not for {len(samples)}; leave --rounds out")
    half = T_975[degrees] * stdev(samples) / sqrt(len(samples))
    return Figure(middle - half, middle, middle + half, "")
