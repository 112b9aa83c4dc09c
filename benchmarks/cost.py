"""What a mechanism costs as texts grow: time, memory and remembered bytes for 1,024 to 32,768 tokens.

An exponent of 1 is linear growth, 2 quadratic. It is the slope of a line through the logarithms of what was measured
from 4,096 tokens on. All curves go to `cost.json` beside this file, from which docs/mechanisms is drawn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from heed.core.contract import Mixer, Where
from heed.core.state import nbytes, price

from .contenders import CONTENDERS, LONGEST, WIDTH, Contender
from .measure import Figure, Runner, peak, race
from .report import Row, Target, machine

LENGTHS = (1024, 2048, 4096, 8192, 16_384, LONGEST)
FROM = 4096  # from here on growth is measured: below it, what is fixed still counts
QUADRATIC = 8192  # what grows with the square is measured up to here
LINEAR = Target(1.15, of="heed")
RESULTS = Path(__file__).with_name("cost.json")


@dataclass
class Curve:
    """What was measured of one mechanism, length by length."""

    tokens: list[int] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)  # seconds
    backward: list[float] = field(default_factory=list)  # seconds, forward included
    memory: list[float] = field(default_factory=list)  # bytes at the peak of forward and backward, beyond the inputs
    state: list[int] = field(default_factory=list)  # bytes that are remembered of one row; 0 if it cannot stream

    def exponent(self, what: Sequence[float]) -> float:
        """The power of the length with which this grows."""
        points = [(math.log(n), math.log(y)) for n, y in zip(self.tokens, what, strict=True) if n >= FROM]
        x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
        return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def rows(rounds: int | None) -> Iterator[Row]:
    """Exponents of all mechanisms, and whether they remember what they declare. Writes `cost.json`."""
    curves, told = {}, Console(stderr=True)
    for name, contender in CONTENDERS.items():
        told.print(f"  {name}", style="dim")
        curves[name] = curve = _measured(name, contender, rounds or 3)
        target = LINEAR if contender.aim else None
        for what, values in (("forward", curve.forward), ("forward and backward", curve.backward)):
            yield Row(f"{name}: time, {what}", Figure.exact(curve.exponent(values), ""), target=target)
        yield Row(f"{name}: memory", Figure.exact(curve.exponent(curve.memory), ""), target=target)
        yield from _remembers(name, contender)
    found = {"machine": machine(), "curves": {name: asdict(curve) for name, curve in curves.items()}}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def lengths(contender: Contender) -> list[int]:
    """The lengths at which a mechanism is measured."""
    return [n for n in LENGTHS if contender.growth != "square" or n <= QUADRATIC]


def _measured(name: str, contender: Contender, rounds: int) -> Curve:
    torch.manual_seed(0)
    mixer, curve = contender.long.build(WIDTH), Curve()
    for n in lengths(contender):
        x = torch.randn(1, n, WIDTH)
        runners: dict[str, Runner] = {
            "forward": lambda x=x: _forward(mixer, x),  # type: ignore[misc]
            "backward": lambda x=x: _backward(mixer, x),  # type: ignore[misc]
        }
        samples = race(runners, rounds)
        curve.tokens.append(n)
        curve.forward.append(Figure.of(samples["forward"]).middle)
        curve.backward.append(Figure.of(samples["backward"]).middle)
        curve.memory.append(peak(prepare, name, n).middle)
        curve.state.append(price(mixer.spec(), n) if mixer.streams else 0)
    return curve


def prepare(name: str, length: int) -> Runner:
    """For `peak`: a mixer and its input; a short call loads what torch loads late."""
    torch.manual_seed(0)
    mixer = CONTENDERS[name].long.build(WIDTH)
    _backward(mixer, torch.randn(1, 512, WIDTH))
    x = torch.randn(1, length, WIDTH)
    return lambda: _backward(mixer, x)


def _forward(mixer: Mixer[object], x: Tensor) -> Tensor:  # type: ignore[type-var]
    with torch.no_grad():
        return mixer(x, Where.run(*x.shape[:2]))[0]


def _backward(mixer: Mixer[object], x: Tensor) -> Tensor:  # type: ignore[type-var]
    x = x.detach().requires_grad_()
    mixer.zero_grad()
    mixer(x, Where.run(*x.shape[:2]))[0].square().mean().backward()
    return x


def _remembers(name: str, contender: Contender) -> Iterator[Row]:
    """What is held after a long prompt and some tokens more, beside what is declared."""
    mixer = contender.long.build(WIDTH)
    if not mixer.streams:
        return
    torch.manual_seed(0)
    state, done = mixer.start(1), 0
    with torch.no_grad():
        for count in (5000, *(1,) * 20):
            _, state = mixer(torch.randn(1, count, WIDTH), Where.run(1, count, start=done), state)
            done += count
    held, declared = Figure.exact(nbytes(state), "B"), Figure.exact(price(mixer.spec(), done), "B")
    share = Figure.exact(held.middle / declared.middle, "×")
    yield Row(f"{name}: remembered after {done:,} tokens; peer: its spec", held, declared, share, Target(1.0))
