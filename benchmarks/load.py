"""Loading a checkpoint of 500 MB: heed beside transformers, from the start of the process to the first token.

The checkpoint is GPT-2 small in the Hugging Face layout, with random weights, written on the spot. Each side runs in a
fresh process that reads it from the disk cache, says the time after each stage and how large it has been. transformers
imports only what the model needs (the model class, not the pipeline) and loads with its defaults in float32.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.measure import Figure
from benchmarks.report import Row, Target, compared
from heed import weights
from heed.weights.families.gpt2 import GPT2
from heed.weights.formats.safetensors import Held

CONFIG = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "vocab_size": 50257,
    "n_positions": 1024,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
}
PROMPT = 16  # tokens

HEED = """
from heed import weights, Where
imported = now()
model = weights.load(path).model
loaded = now()
import torch
with torch.no_grad():
    logits, _ = model(torch.arange({prompt})[None], Where.run(1, {prompt}))
int(logits[0, -1].argmax())
first = now()
"""

PEER = """
from transformers import GPT2LMHeadModel
imported = now()
model = GPT2LMHeadModel.from_pretrained(path).eval()
loaded = now()
import torch
with torch.no_grad():
    logits = model(torch.arange({prompt})[None]).logits
int(logits[0, -1].argmax())
first = now()
"""

BEGIN = "import time, json; begin = {begin}; now = lambda: time.time() - begin; path = {path!r}\n"
END = """
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
print(json.dumps({"load": loaded - imported, "first": first, "peak": peak}))
"""


def rows(rounds: int | None) -> Iterator[Row]:
    """Load time, time to the first token, and peak memory."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "gpt2")
        size = _write(path)
        sides: Mapping[str, str] = {"heed": HEED, "peer": PEER}
        found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for number in range((rounds or 9) + 1):
            for side in random.sample([*sides], len(sides)):
                told = _run(sides[side], path)
                if number:  # the first round fills the disk cache
                    found[side].append(told)
        mine, peer = found["heed"], found["peer"]

        def both(what: str) -> tuple[list[float], list[float]]:
            return [one[what] for one in mine], [one[what] for one in peer]

        yield compared("GPT-2 small, 498 MB: loading; peer: transformers", *both("load"), Target(1.0))
        yield compared("the same: from starting Python to the first token", *both("first"), Target(1.0))
        (ours, theirs), exact = both("peak"), Figure.of
        yield Row("the same: peak memory of the process", exact(ours, "B"), exact(theirs, "B"), *_ratio(ours, theirs))
        yield Row("the same: size of the file", Figure.exact(size, "B"))


def _ratio(ours: list[float], theirs: list[float]) -> tuple[Figure, Target]:
    row = compared("", ours, theirs)
    assert row.ratio is not None
    return row.ratio, Target(1.0)


def _write(path: Path) -> int:
    """The checkpoint with random weights, as transformers writes it."""
    family = GPT2.load(CONFIG)
    torch.manual_seed(0)
    names = Held({"transformer.wte.weight": torch.empty(0)})
    shape = family.ours(names)
    weights.write(weights.Opened(family, shape.build(), family.names(names), CONFIG, {}, shape), path)
    return (path / "model.safetensors").stat().st_size


def _run(script: str, path: Path) -> dict[str, float]:
    text = BEGIN.format(begin=time.time(), path=str(path)) + script.format(prompt=PROMPT) + END
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told
