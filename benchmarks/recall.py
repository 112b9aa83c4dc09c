"""Who can recall how much: each mechanism learns two puzzles, with two layers of width 64, in 25 seconds at most.

Recurrent ones get 100: theirs are small steps, one after the other, of which they need many.

- recall: 32 values, each under a key of its own; then the keys in another order: which value stood under each?
- copy: 32 values without keys; then as many gaps: which values, in order?

A token is a value and a key, so that nothing but remembering is asked for: no token need be joined to the one before
it. No answer is among the tokens: mechanisms which look both ways are asked the same as those which look back. Seconds
are those of one processor, so that a busy machine changes no outcome. Outcomes are kept in `recall.json` beside this
file; whose outcomes stand there, of the very model that would be measured, is not measured again.

    python -m benchmarks recall                 # who is missing, then all in one table
    python -m benchmarks.recall local infini    # these anew
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Annotated, Any, TypeAlias

import torch
import typer
from torch import Tensor
from torch.nn import functional as F

from benchmarks.contenders import CONTENDERS, FEW, PUZZLE, SMALL
from benchmarks.measure import Figure
from benchmarks.report import Row, Target, machine
from heed.core.atomic import replacing
from heed.core.contract import Where
from heed.core.spec import price
from heed.mixers import Attention
from heed.models import RMT, Decoder
from heed.parts.outputs.loss import NO_LABEL
from heed.parts.positions import Learned

SECONDS = 25.0  # of one processor, to learn a puzzle: full attention needs 7 for recall, 16 to copy
LONGER = dict.fromkeys(("retention", "gated retention", "rwkv", "mamba", "lstm", "gru"), 100.0)
ENOUGH = 0.995  # who answers so many rightly need not go on
ROWS, LOOK = 64, 50  # examples per step, steps between two looks
RATE, WARMUP, FALLING = 2e-3, 100, 0.25  # of learning: steps in which it rises, and share of the time in which it falls
VALUES, SHOWN = 16, 32  # values to tell apart; tokens to remember, and so many keys
GAP, KEYLESS = VALUES, SHOWN  # what stands where there is no value, and no key
FULL = Target(0.99, of="heed", floor=True)
RESULTS = Path(__file__).with_name("recall.json")

Puzzle: TypeAlias = "Callable[[int, torch.Generator], tuple[Tensor, Tensor]]"  # rows -> tokens and labels


def recall(rows: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """(v, k) (v, k) ... (_, k) (_, k) ...: the value that stood under the key."""
    keys, order = (torch.rand(rows, SHOWN, generator=draw).argsort(1) for _ in range(2))
    values = torch.randint(VALUES, (rows, SHOWN), generator=draw)
    return _puzzle(values, keys, keys.gather(1, order), values.gather(1, order))


def copy(rows: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """(v, _) (v, _) ... (_, _) (_, _) ...: the same once more."""
    values = torch.randint(VALUES, (rows, SHOWN), generator=draw)
    keyless = torch.full_like(values, KEYLESS)
    return _puzzle(values, keyless, keyless, values)


def _puzzle(values: Tensor, keys: Tensor, asked: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens [rows, 2·SHOWN, 2], each a value and a key, and labels [rows, 2·SHOWN]."""
    gaps, nothing = torch.full_like(values, GAP), torch.full_like(values, NO_LABEL)
    tokens = torch.stack((torch.cat((values, gaps), 1), torch.cat((keys, asked), 1)), 2)
    return tokens, torch.cat((nothing, answers), 1)


def _small(shape: type[Decoder.Config], **more: Any) -> Decoder.Config:
    return shape(
        vocabulary=GAP + 1,
        segments=KEYLESS + 1,  # the second field of a token, here its key
        width=SMALL,
        depth=2,
        position=Learned.Config(length=PUZZLE),
        **more,
    )


PUZZLES: dict[str, Puzzle] = {"recall": recall, "copy": copy}
WHO: dict[str, Decoder.Config] = {
    **{name: _small(Decoder.Config, mixer=contender.short) for name, contender in CONTENDERS.items()},
    "memory tokens": _small(RMT.Config, mixer=Attention.Config(heads=FEW), segment=16, memory=8),
}


@dataclass(frozen=True)
class Outcome:
    """How many answers were right, after how long, with how many bytes remembered at the end of a puzzle."""

    right: float
    seconds: float  # of one processor
    steps: int
    state: int  # 0: it cannot stream


def learn(name: str, puzzle: str, seconds: float | None = None, enough: float = ENOUGH) -> Outcome:
    """A fresh model learns a puzzle until it knows enough, or until its time is up."""
    seconds = LONGER.get(name, SECONDS) if seconds is None else seconds
    torch.manual_seed(0)
    model, make = WHO[name].build(), PUZZLES[puzzle]
    draw, test = torch.Generator().manual_seed(1), make(256, torch.Generator().manual_seed(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    begun, step, right, share = process_time(), 0, 0.0, 0.0
    while share < 1 and right < enough:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, step / WARMUP, (1 - share) / FALLING)
        tokens, labels = make(ROWS, draw)
        logits, _ = model(tokens, Where.run(*labels.shape))
        F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % LOOK == 0:
            right = _right(model, *test)
        share = (process_time() - begun) / seconds
    state = price(model.spec(), 2 * SHOWN) if model.streams else 0
    return Outcome(_right(model, *test), share * seconds, step, state)


@torch.no_grad()
def _right(model: Decoder, tokens: Tensor, labels: Tensor) -> float:
    model.eval()
    logits, _ = model(tokens, Where.run(*labels.shape))
    model.train()
    asked = labels != NO_LABEL
    return float((logits.argmax(-1) == labels)[asked].double().mean())


def rows(rounds: int | None) -> Iterator[Row]:
    """Both puzzles for all mechanisms: those that `recall.json` lacks are measured, two at a time, and added to it."""
    measure([name for name in WHO if not known(name)])
    found = _recorded()
    for name in WHO:
        for puzzle in PUZZLES:
            outcome = Outcome(**found[name][puzzle])
            remembers = "cannot stream" if not outcome.state else f"remembers {outcome.state:,} bytes"
            what = f"{name}: {puzzle} ({outcome.steps:,} steps in {outcome.seconds:.0f} s, {remembers})"
            target = FULL if name.startswith("full") else None
            yield Row(what, Figure.exact(round(outcome.right, 4), ""), target=target)


def measure(names: Sequence[str]) -> None:
    """Let these learn both puzzles; every outcome is recorded as soon as it is there."""
    with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        jobs = {pool.submit(learn, name, puzzle): (name, puzzle) for name in names for puzzle in PUZZLES}
        for job in as_completed(jobs):
            record(*jobs[job], job.result())


def record(name: str, puzzle: str, outcome: Outcome) -> None:
    """Write an outcome into `recall.json`, in the place of an older one."""
    found, model = _recorded(), repr(WHO[name])
    before = found.get(name, {})
    found[name] = {**(before if before.get("model") == model else {"model": model}), puzzle: asdict(outcome)}
    listed = {each: found[each] for each in WHO if each in found}
    with replacing(RESULTS) as path:
        path.write_text(json.dumps({"machine": machine(), "outcomes": listed}, indent=1) + "\n", encoding="utf-8")


def known(name: str) -> bool:
    """Whether both outcomes of this very model are recorded."""
    before = _recorded().get(name, {})
    return before.get("model") == repr(WHO[name]) and all(puzzle in before for puzzle in PUZZLES)


def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))["outcomes"] if RESULTS.exists() else {}
    return found


def main(names: Annotated[list[str], typer.Argument(help="Whom to measure anew.")]) -> None:
    """Let mechanisms learn both puzzles, whether they are recorded or not."""
    unknown = [name for name in names if name not in WHO]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is not measured; there is {', '.join(WHO)}")
    measure(names)


if __name__ == "__main__":
    typer.run(main)
