"""From a file of yours to a model that answers: here, plurals of a few words, learnt by heart."""

from __future__ import annotations

import tempfile
from pathlib import Path

import heed
from heed.data import Files
from heed.models import Transformer
from heed.runs import Recipe, Training
from heed.runs.training import AdamW, Cosine
from heed.show.progress import Silent
from heed.tasks import Translate
from heed.text import Char
from heed.train import train

PAIRS = {"cat": "cats", "box": "boxes", "city": "cities", "leaf": "leaves", "mouse": "mice", "day": "days"}

folder = Path(tempfile.mkdtemp())
(folder / "plurals.tsv").write_text("".join(f"{one}\t{many}\n" for one, many in PAIRS.items()))
recipe = Recipe(
    data=Files(train=str(folder / "plurals.tsv"), valid=str(folder / "plurals.tsv")),
    tokenizer=Char(),
    task=Translate(smoothing=0.0),
    model=Transformer(width=32, depth=1, heads=2, hidden=64, dropout=0.0),
    training=Training(
        steps=80, batch=64, evaluate=80, optimizer=AdamW(lr=1e-2), schedule=Cosine(warmup=10), keep="last"
    ),
)
outcome = train(recipe, folder / "run", Silent())
model = heed.load(outcome.run.path)
print(dict(zip(PAIRS, model.translate(list(PAIRS)), strict=True)))
print(sorted(path.name for path in outcome.run.path.iterdir()))
