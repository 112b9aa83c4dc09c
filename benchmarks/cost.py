"""What a mechanism costs as texts grow: time, memory and remembered bytes for 1,024 to 32,768 tokens.

An exponent of 1 is linear growth, 2 quadratic. It is the slope of a line through the logarithms of what was measured
from 4,096 tokens on. Seconds are those of one processor, the quickest of some calls: so a busy machine changes little.
Every mechanism is measured in a process of its own. Curves are kept in `cost.json` beside this file, from which
docs/mechanisms is drawn.

    python -m benchmarks cost                 # all of them
    python -m benchmarks.cost local infini    # only these; the curves of the others stay
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import Tensor

from benchmarks.contenders import CONTENDERS, LONGEST, WIDTH, Contender
from benchmarks.measure import Figure, Runner, apart, growth
from benchmarks.report import Report, Row, Target, machine
from heed.core.atomic import replacing
from heed.core.contract import Mixer, Where
from heed.core.spec import price
from heed.core.state import nbytes
from heed.train.memory import keep

LENGTHS = (1024, 2048, 4096, 8192, 16_384, LONGEST)
FROM = 4096  # from here on growth is measured: below it, what is fixed still counts
QUADRATIC = 8192  # what grows with the square is measured up to here
PROMPT, STEPS = 5099, 20  # tokens after which a state is weighed, the last ones one by one: a segment is almost over
ROUNDS = 3
LINEAR = Target(1.15, of="heed")
RESULTS = Path(__file__).with_name("cost.json")


@dataclass(frozen=True)
class Curve:
    """What was measured of one mechanism, length by length."""

    tokens: list[int]
    forward: list[float]  # seconds of one processor
    backward: list[float]  # the same, forward included
    memory: list[int]  # bytes at the peak of forward and backward, beyond the inputs
    state: list[int]  # bytes that are remembered of one row; 0 if it cannot stream

    def exponent(self, what: Sequence[float]) -> float:
        """The power of the length with which this grows."""
        points = [(math.log(n), math.log(y)) for n, y in zip(self.tokens, what, strict=True) if n >= FROM]
        x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
        slope: float = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
        return slope


def rows(rounds: int | None) -> Iterator[Row]:
    """Exponents of all mechanisms, and whether they remember what they declare. Writes `cost.json`."""
    return _rows(list(CONTENDERS), rounds)


def _rows(names: Sequence[str], rounds: int | None) -> Iterator[Row]:
    told = Console(stderr=True)
    for place, name in enumerate(names, 1):
        told.print(f"  {place} of {len(names)}: {name}", style="dim")
        curve: Curve = apart(_measured, name, rounds or ROUNDS)
        record(name, curve)
        target = LINEAR if CONTENDERS[name].aim else None
        for what, values in (
            ("time, forward", curve.forward),
            ("time, forward and backward", curve.backward),
            ("memory", curve.memory),
        ):
            yield Row(f"{name}: {what}", Figure.exact(round(curve.exponent(values), 2), ""), target=target)
        yield from _remembers(name, CONTENDERS[name])


def record(name: str, curve: Curve) -> None:
    """Write a curve into `cost.json`, in the place of an older one."""
    found = {**recorded(), name: {"mixer": repr(CONTENDERS[name].long), **asdict(curve)}}
    listed = {each: found[each] for each in CONTENDERS if each in found}
    with replacing(RESULTS) as path:
        path.write_text(
            json.dumps({"machine": {**machine(), "threads": "1"}, "curves": listed}, indent=1) + "\n", encoding="utf-8"
        )


def recorded() -> dict[str, Any]:
    """The curves of `cost.json`."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))["curves"] if RESULTS.exists() else {}
    return found


def lengths(contender: Contender) -> list[int]:
    """The lengths at which a mechanism is measured."""
    return [n for n in LENGTHS if contender.growth != "square" or n <= QUADRATIC]


def _measured(name: str, rounds: int) -> Curve:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    mixer, known = CONTENDERS[name].long.build(WIDTH), lengths(CONTENDERS[name])
    texts = [torch.randn(1, n, WIDTH) for n in known]
    memory = [growth(partial(_backward, mixer, x)) for x in texts]
    keep()  # as trainings do: else what is beyond 32 MiB would be cleared by the system in every call
    forward, backward = ([math.inf] * len(known) for _ in range(2))
    for _ in range(rounds):  # all lengths in turns, so that a disturbance hits none of them every time
        for place, x in enumerate(texts):
            forward[place] = min(forward[place], _seconds(partial(_forward, mixer, x)))
            backward[place] = min(backward[place], _seconds(partial(_backward, mixer, x)))
    state = [price(mixer.spec(), n) if mixer.streams else 0 for n in known]
    return Curve(known, forward, backward, memory, state)


def _seconds(run: Runner) -> float:
    """Of one processor, for the second of two calls: the first finds the memory that the second has."""
    run()
    begun = process_time()
    run()
    return process_time() - begun


def _forward(mixer: Mixer[Any], x: Tensor) -> Tensor:
    with torch.no_grad():
        return mixer(x, Where.run(*x.shape[:2]))[0]


def _backward(mixer: Mixer[Any], x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    mixer.zero_grad()
    mixer(x, Where.run(*x.shape[:2]))[0].square().mean().backward()  # type: ignore[no-untyped-call]
    return x


def _remembers(name: str, contender: Contender) -> Iterator[Row]:
    """What is held after a long prompt and some tokens more, beside what is declared."""
    mixer = contender.long.build(WIDTH)
    if not mixer.streams:
        return
    torch.manual_seed(0)
    state, done = mixer.start(1), 0
    with torch.no_grad():
        for count in (PROMPT, *(1,) * STEPS):
            _, state = mixer(torch.randn(1, count, WIDTH), Where.run(1, count, start=done), state)
            done += count
    held, declared = Figure.exact(nbytes(state), "B"), Figure.exact(price(mixer.spec(), done), "B")
    share = Figure.exact(held.middle / declared.middle, "×")
    yield Row(f"{name}: remembered after {done:,} tokens; peer: its spec", held, declared, share, Target(1.0))


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Whom to measure; all if none is named.")] = None,
) -> None:
    """Measure the curves of some mechanisms; those of the others stay."""
    chosen = names or list(CONTENDERS)
    unknown = [name for name in chosen if name not in CONTENDERS]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is not measured; there is {', '.join(CONTENDERS)}")
    Report({"cost": list(_rows(chosen, None))}, machine()).show(Console())


if __name__ == "__main__":
    typer.run(main)
