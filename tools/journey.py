"""The newcomer's journey, replayed: `python -m tools.journey [--keep FOLDER]`, or `make journey`.

heed is built, installed from its wheel into a new environment outside the project, and used as its README says, on
files that a newcomer would have: a csv with a header, an attention module with a bug, a checkpoint from a hub. Each
step looks at what was printed and written.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tools.dist import Environment, StepFailed, build, run

PAIRS = 60  # rows of the csv of pairs, the header not counted
SMALL = ("width=32", "depth=1", "heads=2", "hidden=32")  # of the model that learns to translate

ATTENTION = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5
        hidden = torch.ones(t, t, dtype=torch.bool).triu({diagonal})
        y = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, d))
"""

CHECKPOINT = """\
import sys
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

torch.manual_seed(0)
learnt = ByteLevelBPETokenizer()
learnt.train_from_iterator(open("sayings.csv", encoding="utf-8"), 300, special_tokens=["<s>", "</s>"])
learnt.save("vocabulary.json")
tokenizer = PreTrainedTokenizerFast(tokenizer_file="vocabulary.json", bos_token="<s>", eos_token="</s>")
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 128}
heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
config = LlamaConfig(vocab_size=len(tokenizer), **sizes, **heads, bos_token_id=0, eos_token_id=1)
LlamaForCausalLM(config).save_pretrained("tiny-llama")
tokenizer.save_pretrained("tiny-llama")
"""

EQUAL = """\
import torch
import heed
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer, theirs = AutoTokenizer.from_pretrained("home"), AutoModelForCausalLM.from_pretrained("home").eval()
ids = tokenizer("the dog runs to the river", return_tensors="pt").input_ids
run = heed.load("runs/tuned")
with torch.no_grad():
    logits, _ = run.model(ids, heed.Where.run(*ids.shape))
    print("differ by", (logits - theirs(ids).logits).abs().max().item())
    before = AutoModelForCausalLM.from_pretrained("tiny-llama")(ids).logits
    print("learnt", (logits - before).abs().max().item())
"""


@dataclass(frozen=True)
class Journey:
    """One newcomer: a folder outside the project, and heed installed in an environment of its own."""

    folder: Path
    environment: Environment

    def heed(self, *words: str, code: int = 0) -> str:
        """The command, in the newcomer's folder."""
        return run([self.environment.heed, *words], self.folder, code=code, HF_HUB_OFFLINE="1")

    def python(self, text: str) -> str:
        """A script of the newcomer's."""
        return run([self.environment.python, "-c", text], self.folder, HF_HUB_OFFLINE="1")

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    # --- the steps, in their order ---

    def install(self) -> None:
        """What is imported is the wheel, and it says its version."""
        place, version = self.python("import heed; print(heed.__file__, heed.__version__)").split()
        _need(Path(place).is_relative_to(self.environment.folder.resolve()), f"heed was imported from {place}")
        _need(self.heed("--version").strip() == version, "the command has another version")
        _need("train" in self.heed("--help"), "the command does not name its commands")

    def list(self) -> None:
        """The catalogue."""
        names = {entry["name"] for entry in json.loads(self.heed("list", "--json"))}
        _need({"attention", "mamba", "rope", "window"} <= names, "the catalogue lacks entries")
        _need("attention" in self.heed("list"), "the table lacks attention")

    def check(self) -> None:
        """An attention module whose mask lets each token see the next one is caught; mended, it passes."""
        self.write("broken.py", ATTENTION.format(diagonal=2))
        self.write("right.py", ATTENTION.format(diagonal=1))
        _need("future" in self.heed("check", "broken.py:Attention", "--causal", code=1), "the bug was not named")
        _need("nothing wrong" in self.heed("check", "right.py:Attention", "--causal"), "a right module was accused")

    def kernels(self) -> None:
        """The kernels are there, and equal what is written out."""
        told = re.search(r"(\d+) of (\d+) statements hold", self.heed("verify", "kernels"))
        _need(told is not None and told[1] == told[2] and int(told[1]) >= 10, "too few statements about kernels")

    def train(self) -> None:
        """Five steps on a csv with a header, which is no example."""
        rows = "".join(f"{i} dogs run,{i} Hunde laufen\n" for i in range(PAIRS))
        self.write("pairs.csv", f"source,target\n{rows}")
        settings = [word for size in SMALL for word in ("--set", f"model.{size}")]
        told = self.heed("train", "translation", "--data", "pairs.csv", "--set", "training.steps=5", *settings)
        _need("runs/translation" in told, "it does not say where the run is")
        counts = [int(count) for count in re.findall(r"pairs\.csv: (\d+) examples", told)]
        _need(sum(counts) == PAIRS, f"{sum(counts)} examples of {PAIRS} rows: is the header one of them?\n{told}")
        _need("the first line names the columns" in told, f"it does not say that it saw a header:\n{told}")

    def evaluate(self) -> None:
        """Metrics of the run, on its own data and on the card."""
        told = self.heed("eval", "runs/translation")
        _need("loss" in told and "bleu" in told, f"metrics are missing:\n{told}")
        _need("loss" in (self.folder / "runs/translation/README.md").read_text(encoding="utf-8"), "the card lacks them")

    def run(self) -> None:
        """An answer."""
        _need(bool(self.heed("run", "runs/translation", "3 dogs run").strip()), "there is no answer")

    def tune(self) -> None:
        """A checkpoint in the layout of Hugging Face learns from a csv with a header, and generates."""
        sayings = "".join(f"the dog number {i} runs to the river and back again\n" for i in range(200))
        self.write("sayings.csv", f"text\n{sayings}")
        self.python(CHECKPOINT)
        sizes = ("training.steps=5", "training.batch=128", "task.context=32", "base=tiny-llama")
        settings = [word for size in sizes for word in ("--set", size)]
        self.heed("train", "characters", "--data", "sayings.csv", "--out", "runs/tuned", *settings)
        _need("perplexity" in self.heed("eval", "runs/tuned"), "the run has no perplexity")
        told = self.heed("run", "runs/tuned", "the dog", "--max-new-tokens", "8")
        _need(len(told.strip()) > 0, f"nothing was generated: {told}")

    def convert(self) -> None:
        """The run goes home: the layout of Hugging Face, with its tokenizer."""
        self.heed("convert", "runs/tuned", "home")
        there = {path.name for path in (self.folder / "home").iterdir()}
        _need({"config.json", "model.safetensors", "tokenizer.json"} <= there, f"home holds {sorted(there)}")

    def transformers(self) -> None:
        """transformers loads it and computes the same logits, which are no longer those of the checkpoint."""
        found = dict(re.findall(r"(differ by|learnt) (\S+)", self.python(EQUAL)))
        _need(float(found["differ by"]) < 1e-5, f"logits differ by {found['differ by']}")
        _need(float(found["learnt"]) > 1e-4, "what was learnt has been lost")


# In this order: later ones use what earlier ones made.
STEPS: tuple[Callable[[Journey], None], ...] = (
    Journey.install,
    Journey.list,
    Journey.check,
    Journey.kernels,
    Journey.train,
    Journey.evaluate,
    Journey.run,
    Journey.tune,
    Journey.convert,
    Journey.transformers,
)


def begin(folder: Path) -> Journey:
    """Build heed, install it, and stand in an empty folder."""
    _, wheel = build(folder / "built")
    home = folder / "newcomer"
    home.mkdir()
    return Journey(home, Environment.make(folder / "environment", wheel))


def _taken(step: Callable[[Journey], None], journey: Journey) -> bool:
    """Take a step and tell of it."""
    clock, problem = time.perf_counter(), ""
    try:
        step(journey)
    except StepFailed as error:
        problem = str(error)
    print(
        f"{'✗' if problem else '✓'} {step.__name__:13}{time.perf_counter() - clock:5.1f} s  {problem or step.__doc__}"
    )
    return not problem


def _need(true: bool, message: str) -> None:
    if not true:
        raise StepFailed(message)


def main(
    keep: Annotated[
        Path | None, typer.Option(help="A new folder to work in, which stays; default: one that goes.")
    ] = None,
) -> None:
    """Replay the newcomer's journey. Exit code 1 if a step fails; those that do not need it are still tried."""
    folder = keep.resolve() if keep else Path(tempfile.mkdtemp(prefix="heed-journey-"))
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    try:
        clock = time.perf_counter()
        journey = begin(folder)
        print(f"✓ {'build':13}{time.perf_counter() - clock:5.1f} s")
        for step in STEPS:
            failed += not _taken(step, journey)
    finally:
        if keep is None:
            shutil.rmtree(folder)
    sys.exit(failed > 0)


if __name__ == "__main__":
    typer.run(main)
