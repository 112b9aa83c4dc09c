"""Small files of labelled words and of questions, and tiny trainings on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heed.runs import Recipe, find
from heed.show.progress import Silent
from heed.train import train
from heed.train.start import Outcome

NAMES = {"Anna": "PER", "Bert": "PER", "Paris": "LOC", "Rome": "LOC"}
SMALL = (
    *(
        "model.width=24",
        "model.depth=1",
        "model.dropout=0.0",
        "model.mixer.0.dropout=0.0",
        "tokenizer.kind=bpe",
        "tokenizer.size=300",
    ),
    *("training.steps=6", "training.evaluate=3", "training.save=3", "training.log=1", "training.batch=200"),
    *("training.schedule.warmup=2", "data.held_out=0.2"),
)
ROOM = {"tag": (), "span": ("task.longest=40", "task.stride=8", "task.question=10")}


def tagged(place: Path, sentences: int = 40) -> Path:
    """Sentences in which names are entities, some of two words."""
    lines = []
    for number in range(sentences):
        one, other = (list(NAMES)[(number * step) % 4] for step in (1, 3))
        words = [(one, f"B-{NAMES[one]}"), ("met", "O"), (other, f"B-{NAMES[other]}"), ("Smith", f"I-{NAMES[other]}")]
        lines += [f"{word}\t{label}" for word, label in [*words, (".", "O")][: 3 + number % 3]] + [""]
    place.write_text("\n".join(lines), encoding="utf-8")
    return place


def asked(place: Path, questions: int = 40, **changes: Any) -> Path:
    """Who is where? Every fourth question, about a reason, has no answer."""
    rows = []
    for number in range(questions):
        who, where = list(NAMES)[number % 2], list(NAMES)[2 + number // 2 % 2]
        context = f"It was cold. {who} stayed in {where} for {number} days, and it rained."
        answers = [{"text": where, "answer_start": context.index(where)}]
        question = f"Where was {who}?"
        if number % 4 == 3:
            answers, question = [], f"Why was {who} there?"
        rows.append({"question": question, "context": context, "answers": answers, **changes})
    place.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return place


MADE: dict[str, tuple[Callable[[Path], Path], str]] = {"tag": (tagged, "data.conll"), "span": (asked, "data.jsonl")}


def recipe(kind: str, folder: Path, *changes: str) -> Recipe:
    make, name = MADE[kind]
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        make(path)
    return Recipe.read(find(kind), [*SMALL, *ROOM[kind], f"data.train={path}", *changes])


def trained(kind: str, out: Path, *changes: str) -> Outcome:
    """A tiny run, on data beside it."""
    return train(recipe(kind, out.parent, *changes), out, Silent())


def trained_by_two(kind: str, out: Path, *changes: str) -> None:
    """The same by two processes."""
    given = ", ".join(map(repr, [kind, *changes]))
    script = out.parent / "script.py"
    script.write_text(
        "import sys; from pathlib import Path; from tests.tasks.labels.words_and_answers import trained;"
        f"given = [{given}]; trained(given[0], Path(sys.argv[1]), *given[1:])"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    subprocess.run([*launch, str(out)], check=True, env=environment, capture_output=True, timeout=240)
