"""Who can recall how much: each mechanism learns two puzzles in at most two minutes, with two layers of width 64.

- recall: 16 keys, each followed by its value; then the keys in another order, each followed by a gap: which value?
- copy: 24 random symbols; then as many gaps: which symbols, in order?

Gaps hold a token of their own, so that mechanisms which look both ways are asked the same as those which look back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from heed.core.contract import Where
from heed.core.state import price
from heed.models import Decoder
from heed.parts.positions import Learned

from .contenders import CONTENDERS, PUZZLE, SMALL
from .measure import Figure
from .report import Row, Target, machine

SECONDS = 120.0  # to learn a puzzle
ENOUGH = 0.995  # who answers so many rightly need not go on
ROWS, LOOK = 64, 50  # examples per step, steps between two looks
SYMBOLS, PAIRS, COPIED = 32, 16, 24
GAP = 2 * SYMBOLS  # the token of a gap; a vocabulary of keys, values and gaps
VOCABULARY = GAP + 1
FULL = Target(0.99, of="heed", floor=True)
RESULTS = Path(__file__).with_name("recall.json")

Puzzle: TypeAlias = "Callable[[int, torch.Generator], tuple[Tensor, Tensor]]"  # rows -> tokens, labels (-100 elsewhere)


def recall(rows: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """k v k v ... k _ k _ ...: the value that stood after the key."""
    keys = torch.rand(rows, SYMBOLS, generator=draw).argsort(1)[:, :PAIRS]
    values = torch.randint(SYMBOLS, (rows, PAIRS), generator=draw)
    asked = torch.rand(rows, PAIRS, generator=draw).argsort(1)
    shown = torch.stack((keys, SYMBOLS + values), 2).flatten(1)
    gaps = torch.full_like(keys, GAP)
    questions = torch.stack((keys.gather(1, asked), gaps), 2).flatten(1)
    answers = torch.stack((gaps - GAP - 100, SYMBOLS + values.gather(1, asked)), 2).flatten(1)
    return torch.cat((shown, questions), 1), torch.cat((torch.full_like(shown, -100), answers), 1)


def copy(rows: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """s s s ... _ _ _ ...: the same once more."""
    symbols = torch.randint(SYMBOLS, (rows, COPIED), generator=draw)
    return (
        torch.cat((symbols, torch.full_like(symbols, GAP)), 1),
        torch.cat((torch.full_like(symbols, -100), symbols), 1),
    )


PUZZLES: dict[str, Puzzle] = {"recall": recall, "copy": copy}


@dataclass(frozen=True)
class Outcome:
    """How many gaps were filled rightly, after how long, with how many bytes remembered at the end of a puzzle."""

    right: float
    seconds: float
    steps: int
    state: int  # 0: it cannot stream


def learn(name: str, puzzle: str, seconds: float = SECONDS) -> Outcome:
    """A fresh model learns a puzzle."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = Decoder.Config(
        vocabulary=VOCABULARY,
        width=SMALL,
        depth=2,
        mixer=CONTENDERS[name].short,
        position=Learned.Config(length=PUZZLE),
    )
    model, make = config.build(), PUZZLES[puzzle]
    draw, test = torch.Generator().manual_seed(1), make(256, torch.Generator().manual_seed(2))
    where = Where.run(ROWS, test[0].shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    begun, step, right = perf_counter(), 0, 0.0
    while perf_counter() - begun < seconds and right < ENOUGH:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1.0, step / 100)
        tokens, labels = make(ROWS, draw)
        scores, _ = model(tokens, where)
        F.cross_entropy(scores.flatten(0, 1), labels.flatten()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % LOOK == 0:
            right = _right(model, *test)
    state = price(model.spec(), test[0].shape[1]) if model.streams else 0
    return Outcome(_right(model, *test), perf_counter() - begun, step, state)


@torch.no_grad()
def _right(model: Decoder, tokens: Tensor, labels: Tensor) -> float:
    model.eval()
    scores, _ = model(tokens, Where.run(*tokens.shape))
    model.train()
    gaps = labels >= 0
    return float((scores.argmax(-1) == labels)[gaps].double().mean())


def rows(rounds: int | None) -> Iterator[Row]:
    """Both puzzles for all mechanisms, two at a time. Writes `recall.json`."""
    jobs = [(name, puzzle) for name in CONTENDERS for puzzle in PUZZLES]
    found: dict[str, dict[str, object]] = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for (name, puzzle), outcome in zip(jobs, pool.map(learn, *zip(*jobs, strict=True)), strict=True):
            found.setdefault(name, {})[puzzle] = asdict(outcome)
            remembers = "cannot stream" if not outcome.state else f"remembers {outcome.state:,} bytes"
            what = f"{name}: {puzzle} ({outcome.steps:,} steps in {outcome.seconds:.0f} s, {remembers})"
            target = FULL if name.startswith("full") else None
            yield Row(what, Figure.exact(round(outcome.right, 4), ""), target=target)
    RESULTS.write_text(json.dumps({"machine": machine(), "outcomes": found}, indent=1) + "\n", encoding="utf-8")
