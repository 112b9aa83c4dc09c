"""How much of writing goes into Python: all of `generate` that is not spent inside the compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch

from benchmarks.measure import Figure
from benchmarks.report import Row, Target
from heed.decode import generate
from heed.kernels import library
from heed.models import Decoder
from heed.parts.positions import Learned

KERNELS = ("heed_step", "heed_write", "heed_linear", "heed_topk_logprobs", "heed_huge_pages")
WIDTH, DEPTH, VOCABULARY, READ, WRITTEN = 128, 4, 512, 8, 256
BATCHES = (1, 8)


def rows(rounds: int | None) -> Iterator[Row]:
    """A tiny model, for which Python weighs most: prompts are read and all is set up within what is measured."""
    torch.manual_seed(0)
    config = Decoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH, position=Learned.Config(length=512))
    model = config.build().eval()
    draw = torch.Generator().manual_seed(1)
    for batch in BATCHES:
        prompts = torch.randint(VOCABULARY, (batch, READ), generator=draw).tolist()
        found = [_taken(model, prompts) for _ in range((rounds or 40) + 2)][2:]
        what = f"{batch} × {READ} tokens of prompt, {WRITTEN} generated, {DEPTH} layers of {WIDTH}"
        yield Row(f"{what}: all of it", Figure.of([whole for whole, _ in found]))
        shares = Figure.of([1 - inside / whole for whole, inside in found], "×")
        yield Row(f"{what}: share outside kernels", shares, target=Target(0.1, of="heed"))


def _taken(model: Decoder, prompts: list[list[int]]) -> tuple[float, float]:
    """Seconds of one call, and those of them that were spent inside kernels."""
    with _clocked() as inside:
        begun = perf_counter()
        generate(model, prompts, max_new_tokens=WRITTEN, end=None)
        return perf_counter() - begun, sum(inside)


@contextmanager
def _clocked() -> Iterator[list[float]]:
    """Collects what every call of a kernel takes."""
    compiled, taken = library(), list[float]()
    if compiled is None:
        raise RuntimeError("there are no kernels here, so all time is Python's and torch's")
    before = {name: getattr(compiled, name) for name in KERNELS}
    for name, kernel in before.items():
        setattr(compiled, name, _timed(kernel, taken))
    try:
        yield taken
    finally:
        for name, kernel in before.items():
            setattr(compiled, name, kernel)


def _timed(kernel: Callable[..., Any], taken: list[float]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        begun = perf_counter()
        try:
            return kernel(*given)
        finally:
            taken.append(perf_counter() - begun)

    return call
