"""Fine-tuning with LoRA: a small language model, then adapters that teach it another text; its own weights stay."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F

import heed
from heed.data import Files
from heed.models import GPT2
from heed.runs import Recipe, Training
from heed.runs.training import AdamW, Cosine
from heed.show.progress import Silent
from heed.tasks import Causal
from heed.text import Word
from heed.train import train
from heed.weights.edits import LoRA

TEXTS = {
    "first": "the dog runs. the cat sleeps. the bird sings. the fish swims. " * 20,
    "second": "the cat runs. the dog sleeps. the fish sings. the bird swims. " * 20,
}
folder = Path(tempfile.mkdtemp())
for name, text in TEXTS.items():
    (folder / f"{name}.txt").write_text(text)


def losses(run: Path) -> dict[str, str]:
    """Nats per word of each text."""
    loaded, found = heed.load(run), {}
    for name, text in TEXTS.items():
        ids = torch.tensor([loaded.tokenizer.encode(text)[:33]])
        with torch.no_grad():
            logits = loaded(ids[:, :-1]).logits
        found[name] = f"{F.cross_entropy(logits[0], ids[0, 1:]).item():.2f}"
    return found


base = Recipe(
    data=Files(train=str(folder / "first.txt"), valid=str(folder / "first.txt")),
    tokenizer=Word(),
    task=Causal(context=32),
    model=GPT2(width=32, depth=2, heads=2, length=64, dropout=0.0),
    training=Training(steps=30, batch=256, evaluate=30, optimizer=AdamW(lr=1e-2), schedule=Cosine(warmup=5)),
)
first = train(base, folder / "base", Silent()).run
print("base     ", losses(first.path))

second_data = Files(train=str(folder / "second.txt"), valid=str(folder / "second.txt"))
changes = {"base": str(first.path), "data": second_data, "edits": (LoRA(rank=8, on="*blocks.*"),)}
second = train(base.model_copy(update=changes), folder / "adapted", Silent()).run
print("with LoRA", losses(second.path))
adapted = heed.load(second.path).model
learnt = sum(p.numel() for name, p in adapted.named_parameters() if name.endswith((".a", ".b")))
print(f"{learnt:,} of {sum(p.numel() for p in adapted.parameters()):,} numbers were learnt")
