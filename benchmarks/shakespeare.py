"""One decoder with many mixers learns tinyshakespeare, character by character, at equal parameters and equal time.

Four layers of width 96 over 128 characters. Feed-forwards are made wider or narrower until all models have as many
parameters as the one with full attention, and each learns for 40 seconds of one processor, so that a busy machine
changes no outcome: who is quicker sees more text. All have the same rate of learning, that of the recipe `characters`.
The loss is over the whole last tenth of the text, in windows of 128 characters. Outcomes are kept in `shakespeare.json`
beside this file; whose outcome stands there, of the very model that would be measured, is not measured again.

HEED_DATA names a folder with lm/tinyshakespeare.txt.gz.

    python -m benchmarks shakespeare                   # who is missing, then all in one table
    python -m benchmarks.shakespeare mamba lstm        # these anew, and the table as Markdown
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from benchmarks.measure import Figure
from benchmarks.quality import data_file
from benchmarks.report import Row, machine
from heed.core.atomic import replacing
from heed.core.contract import MixerConfig, Where
from heed.core.spec import price
from heed.mixers import (
    S4,
    Attention,
    Branches,
    GatedRetention,
    GatedUnit,
    Gru,
    LightConv,
    LinearAttention,
    Lstm,
    Mamba,
    Retention,
    Rwkv,
)
from heed.models import Decoder
from heed.parts.feedforward import FeedForward
from heed.parts.layers.norms import RMSNorm
from heed.parts.masks import Window
from heed.parts.outputs.loss import headed_cross_entropy
from heed.parts.positions import Rope, Sinusoid
from heed.weights.edits import BitLinear, Edit, edit

SECONDS = 40.0  # of one processor
LETTERS, WIDTH, DEPTH, HEADS, HIDDEN = 65, 96, 4, 4, 384  # HIDDEN: of the model with full attention
CONTEXT, ROWS = 128, 8
RATE, WARMUP, DECAY = 6e-3, 100, 0.1
LONG = 4096  # tokens at which what a model remembers is told, beside the context
RESULTS = Path(__file__).with_name("shakespeare.json")

ROPE = Rope.Config()
FULL = Attention.Config(heads=HEADS, bias=False, position=ROPE)
MIXERS: dict[str, MixerConfig] = {
    "full attention": FULL,
    "local window": Attention.Config(heads=HEADS, bias=False, position=ROPE, mask=Window(back=31)),
    "linear attention": LinearAttention.Config(heads=HEADS, bias=False),
    "retention": Retention.Config(heads=HEADS),
    "gated retention": GatedRetention.Config(heads=HEADS),
    "rwkv": Rwkv.Config(),
    "mamba": Mamba.Config(),
    "s4": S4.Config(),
    "lstm": Lstm.Config(),
    "gru": Gru.Config(),
    "gated attention unit": GatedUnit.Config(size=48, chunk=32),
    "light convolution": LightConv.Config(heads=HEADS, kernel=31),
    "long-short range": Branches.Config(
        mixers=(Attention.Config(heads=2, bias=False, position=ROPE), LightConv.Config(heads=2, kernel=15))
    ),
}


@dataclass(frozen=True)
class Entrant:
    """A model, and what is changed in it once it is built."""

    config: Decoder.Config
    edits: tuple[Edit, ...] = ()

    def build(self) -> Decoder:
        return edit(self.config.build(), *self.edits)


def _decoder(mixer: MixerConfig, hidden: int) -> Decoder.Config:
    placed: dict[str, Any] = {"position": Sinusoid.Config(), "scaled": True}  # who else does not know an order
    return Decoder.Config(
        vocabulary=LETTERS,
        width=WIDTH,
        depth=DEPTH,
        norm=RMSNorm(),
        mixer=mixer,
        feedforward=FeedForward.Config(hidden=hidden, activation="relu_squared", bias=False),
        **(placed if isinstance(mixer, LinearAttention.Config) else {}),
    )


def parameters(config: Decoder.Config) -> int:
    """How many numbers it learns."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in config.build().parameters())


def matched(mixer: MixerConfig) -> Decoder.Config:
    """The decoder with this mixer that has as many parameters as the one with full attention."""
    spare = parameters(_decoder(FULL, HIDDEN)) - parameters(_decoder(mixer, HIDDEN))
    return _decoder(mixer, max(1, HIDDEN + round(spare / (2 * WIDTH * DEPTH))))


@cache
def entrants() -> dict[str, Entrant]:
    """All that are measured, by name."""
    found = {name: Entrant(matched(mixer)) for name, mixer in MIXERS.items()}
    return {**found, "full attention, b1.58": Entrant(matched(FULL), (BitLinear(),))}


@dataclass(frozen=True)
class Outcome:
    """What a model has learnt in its time."""

    loss: float  # nats per character
    parameters: int
    steps: int
    tokens: int
    state: int  # bytes remembered after CONTEXT tokens
    long: int  # and after LONG

    @property
    def bits(self) -> float:
        """Per character."""
        return self.loss / math.log(2)


def letters(text: str) -> Tensor:
    """Every character as its place among those that occur."""
    places = {letter: place for place, letter in enumerate(sorted(set(text)))}
    return torch.tensor([places[letter] for letter in text])


def learn(name: str, seconds: float = SECONDS, text: Tensor | None = None) -> Outcome:
    """A fresh model learns until its time is up; nine tenths of the text are for that."""
    text = _play() if text is None else text
    held = len(text) * 9 // 10
    torch.manual_seed(0)
    model, draw = entrants()[name].build(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=DECAY, fused=True)
    begun, share, step = process_time(), 0.0, 0
    while share < 1:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(step / WARMUP, 1 - share)
        starts = torch.randint(held - CONTEXT - 1, (ROWS,), generator=draw)
        torch.autograd.backward(_nats(model, windows(text, starts)) / (ROWS * CONTEXT))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        share = (process_time() - begun) / seconds
    state, long = (price(model.spec(), tokens) for tokens in (CONTEXT, LONG))
    count = sum(weight.numel() for weight in model.parameters())
    return Outcome(score(model, text[held:]), count, step, step * ROWS * CONTEXT, state, long)


@torch.no_grad()
def score(model: Decoder, text: Tensor) -> float:
    """Nats per character over a whole text, window by window."""
    model.eval()
    cut = windows(text, torch.arange(0, len(text) - CONTEXT, CONTEXT))
    total = sum((float(_nats(model, some)) for some in torch.split(cut, 64)), 0.0)
    model.train()
    return total / cut[:, 1:].numel()


def windows(text: Tensor, starts: Tensor) -> Tensor:
    """[rows, CONTEXT + 1]"""
    return text[starts[:, None] + torch.arange(CONTEXT + 1)]


def _nats(model: Decoder, tokens: Tensor) -> Tensor:
    (stream, _), head = model.hidden_states(tokens[:, :-1], Where.run(len(tokens), CONTEXT)), model.lm_head
    return headed_cross_entropy(stream, head, tokens[:, 1:]).total


def _play() -> Tensor:
    with gzip.open(data_file("lm/tinyshakespeare.txt.gz"), "rt", encoding="utf-8") as file:
        return letters(file.read())


def rows(rounds: int | None) -> Iterator[Row]:
    """All models: those that `shakespeare.json` lacks are measured, two at a time, and added to it."""
    measure([name for name in entrants() if not known(name)])
    for name, outcome in outcomes().items():
        what = (
            f"{name}: nats per character ({outcome.bits:.3f} bits; {outcome.parameters:,} parameters, "
            f"{outcome.steps:,} steps, {outcome.tokens:,} tokens)"
        )
        yield Row(what, Figure.exact(round(outcome.loss, 4), ""))


def table() -> str:
    """The outcomes as Markdown, best first."""
    lines = [
        "| mixer | nats | bits | steps | tokens seen | parameters | bytes remembered at 128 | at 4,096 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in sorted(outcomes().items(), key=lambda item: item[1].loss):
        numbers = (found.steps, found.tokens, found.parameters, found.state, found.long)
        cells = (name, f"{found.loss:.3f}", f"{found.bits:.3f}", *(f"{number:,}" for number in numbers))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def measure(names: Sequence[str]) -> None:
    """Let these learn; every outcome is recorded as soon as it is there."""
    if names:
        data_file("lm/tinyshakespeare.txt.gz")
    with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        jobs = {pool.submit(learn, name): name for name in names}
        for job in as_completed(jobs):
            record(jobs[job], job.result())


def record(name: str, outcome: Outcome) -> None:
    """Write an outcome into `shakespeare.json`, in the place of an older one."""
    found = {**_recorded(), name: {"model": repr(entrants()[name]), **asdict(outcome)}}
    listed = {each: found[each] for each in entrants() if each in found}
    with replacing(RESULTS) as path:
        path.write_text(json.dumps({"machine": machine(), "outcomes": listed}, indent=1) + "\n", encoding="utf-8")


def known(name: str) -> bool:
    """Whether the outcome of this very model is recorded."""
    return bool(_recorded().get(name, {}).get("model") == repr(entrants()[name]))


def outcomes() -> dict[str, Outcome]:
    """What is recorded."""
    return {
        name: Outcome(**{field: value for field, value in found.items() if field != "model"})
        for name, found in _recorded().items()
    }


def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))["outcomes"] if RESULTS.exists() else {}
    return found


def main(names: Annotated[list[str] | None, typer.Argument(help="Whom to measure anew.")] = None) -> None:
    """Let models learn, whether they are recorded or not; then print all outcomes."""
    unknown = [name for name in names or () if name not in entrants()]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is not measured; there is {', '.join(entrants())}")
    measure(names or ())
    print(table())


if __name__ == "__main__":
    typer.run(main)
