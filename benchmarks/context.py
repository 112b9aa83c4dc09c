"""What a token costs after a long past: time that does not grow where the state does not, and memory as declared."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import torch

from benchmarks.measure import Figure, apart, ratio
from benchmarks.report import Row, Target
from heed import engine
from heed.core.contract import Where
from heed.core.state import State, fork, nbytes
from heed.models import RWKV, Decoder, RetNet

WIDTH, DEPTH, VOCABULARY = 512, 6, 8_000
PASTS = (1, 1_000, 20_000)
WRITTEN = 64
ROUNDS = 7
LONG, PIECE = 16_384, 512  # of what attention remembers: tokens that are read, so many at a time
MORE = 512  # generated after them


def rows(rounds: int | None) -> Iterator[Row]:
    """Recurrent models after a short and after a long past; then the memory of attention after a long one."""
    torch.manual_seed(0)
    for name, plan in {"RWKV-4": RWKV(width=WIDTH, depth=DEPTH), "RetNet": RetNet(width=WIDTH, depth=DEPTH)}.items():
        model = plan.sized(VOCABULARY).build().eval()
        assert isinstance(model, Decoder)
        yield from _flat(name, model, rounds or ROUNDS)
    grown, needed = apart(_memory)
    both = Figure.exact(grown, "B"), Figure.exact(needed, "B"), Figure.exact(grown / needed, "×")
    what = f"attention, {LONG:,} tokens remembered, {MORE} generated: memory; peer: weights and declared state"
    yield Row(what, *both, Target(1.1))


def _flat(name: str, model: Decoder, rounds: int) -> Iterator[Row]:
    states = {past: _read(model, past) for past in PASTS}
    samples: dict[int, list[float]] = {past: [] for past in PASTS}
    for _ in range(rounds):
        for past in PASTS:
            samples[past].append(_written(model, fork(states[past]), past, WRITTEN))
    for past in PASTS[1:]:
        beside = ratio(samples[past], samples[PASTS[0]])
        what = f"{name}, a token after {past:,}; peer: after 1"
        yield Row(what, Figure.of(samples[past]), Figure.of(samples[PASTS[0]]), beside, Target(1.05))


@torch.no_grad()
def _read(model: Decoder, past: int) -> State:
    """The state after so many tokens, read piece by piece."""
    runner = engine.runner(model, model.start(1))
    for begin in range(0, past, PIECE):
        count = min(PIECE, past - begin)
        tokens, where = torch.randint(VOCABULARY, (1, count)), Where.run(1, count, start=begin)
        runner.prefill(tokens, where)
    return runner.state()


@torch.no_grad()
def _written(model: Decoder, state: State, past: int, count: int) -> float:
    """Seconds per token."""
    runner = engine.runner(model, state)
    assert runner.prepare(), runner.reason
    token = torch.zeros(1, dtype=torch.long)
    runner.step(token, Where.run(1, 1, start=past))
    begin = perf_counter()
    for place in range(past + 1, past + count):
        token = runner.step(token, Where.run(1, 1, start=place)).argmax(1)
    return (perf_counter() - begin) / (count - 1)


@torch.no_grad()
def _memory() -> tuple[float, float]:
    """Bytes beyond those of the bare libraries while tokens are generated, and bytes of weights and state."""
    torch.manual_seed(0)
    small = Decoder.Config(vocabulary=VOCABULARY, width=8, depth=1).build().eval()
    _written(small, _read(small, 1), 1, 2)  # everything is imported and compiled
    gc.collect()
    bare = _resident("VmRSS")
    model = Decoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH).build().eval()
    state = _read(model, LONG)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what reading took and gave back is not what writing takes
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    runner = engine.runner(model, state)
    assert runner.prepare(), runner.reason
    token = torch.zeros(1, dtype=torch.long)
    for place in range(LONG, LONG + MORE):
        token = runner.step(token, Where.run(1, 1, start=place)).argmax(1)
    grown = _resident("VmHWM") - bare
    weights = sum(weight.nbytes for weight in {id(weight): weight for weight in model.parameters()}.values())
    return grown, weights + nbytes(runner.state())


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
