"""Threads share a program, and help one another with products: what is written does not depend on their number."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from heed import engine
from heed.core.contract import Where
from heed.decode import generate
from heed.kernels import library
from heed.mixers import Attention
from heed.models import Decoder
from heed.parts.feedforward import FeedForward, Gated
from heed.parts.layers.norms import RMSNorm
from heed.parts.positions import Rope
from heed.weights.edits import BitLinear, Packed, Quantised, edit

SIZES: dict[str, Any] = {"vocabulary": 1001, "width": 192, "depth": 3}  # matrices of several blocks, and a rest
PLANS = {
    "gpt": Decoder.Config(**SIZES, feedforward=FeedForward.Config(hidden=1500, activation="gelu")),
    # Two products of the same numbers, one of which is multiplied with the other.
    "llama": Decoder.Config(
        **SIZES,
        mixer=Attention.Config(kv_heads=2, position=Rope.Config()),
        feedforward=Gated.Config(hidden=1500),
        norm=RMSNorm(),
    ),
}


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("kind", ["float32", "int8", "w8a8", "int4", "ternary"])
@pytest.mark.parametrize("name", PLANS)
def test_tokens_do_not_depend_on_threads(name: str, kind: str, rows: int) -> None:
    if library() is None:
        pytest.skip("there are no kernels here")
    model = _model(PLANS[name], kind)
    prompts = [[3 + row, 1, 4, 1, 5, 9, 2, 6, 5] for row in range(rows)]
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append([hits[0] for hits in generate(model, prompts, max_new_tokens=12, end=None)])
    assert all([hit.tokens for hit in hits] == [hit.tokens for hit in found[0]] for hits in found)
    scores = torch.tensor([[hit.score for hit in hits] for hits in found], dtype=torch.float64)
    torch.testing.assert_close(scores, scores[:1].expand_as(scores), rtol=1e-7, atol=0)  # the first token's are torch's


def _model(config: Decoder.Config, kind: str) -> Decoder:
    model = config.build().eval()
    match kind:
        case "int8" | "w8a8" | "int4":
            edit(model, Quantised(bits=kind))
        case "ternary":
            edit(model, BitLinear(), Packed())
    return model


@pytest.mark.parametrize("kind", ["float32", "int8", "w8a8", "int4", "ternary"])
@pytest.mark.parametrize("name", PLANS)
def test_no_bit_of_a_kernel_depends_on_threads(name: str, kind: str) -> None:
    """So a call may take as many threads as there are cores to be had."""
    if library() is None:
        pytest.skip("there are no kernels here")
    model, tokens, found = _model(PLANS[name], kind), torch.randint(0, 20, (3, 40)), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        runner = engine.runner(model)
        runner.start(rows=3)
        assert runner.prepare()
        logits = [runner.prefill(tokens[:, :30], Where.run(3, 30)).clone()]
        logits += [runner.step(tokens[:, t], Where.run(3, 1, start=t)).clone() for t in range(30, 40)]
        found.append(torch.stack(logits))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
