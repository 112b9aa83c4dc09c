"""What a caller has made torch's default dtype or device is no business of the kernels: they are told addresses.

Memory of another dtype than a kernel writes would be too small for it; none of another device has an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import InputError
from heed.decode import Beam, Greedy, Sample, generate
from heed.engine import SamplingSettings, runner
from heed.engine.compiled import DecoderProgram
from heed.engine.execution import sample, topk_logprobs
from heed.engine.program import Uncompiled
from heed.kernels import entropy_, library, selective, wkv
from heed.mixers import Attention
from heed.models import RWKV, Decoder, RetNet
from heed.parts.layers.quantised import GroupedLinear, Int8Linear
from heed.parts.positions import Alibi, Learned, Rope, Sinusoid

SIZES: dict[str, Any] = {"vocabulary": 29, "width": 24, "depth": 2}
MODELS = {
    "rope": Decoder.Config(**SIZES, mixer=Attention.Config(heads=2, position=Rope.Config())),
    "alibi": Decoder.Config(**SIZES, mixer=Attention.Config(heads=2, position=Alibi.Config())),
    "learned": Decoder.Config(**SIZES, position=Learned.Config(length=64)),
    "sinusoid": Decoder.Config(**SIZES, position=Sinusoid.Config()),
    "retention": RetNet(width=24, depth=2, heads=3, value_width=27).sized(29),
    "rwkv": RWKV(width=24, depth=2, hidden=16).sized(29),
}
STRATEGIES = (Greedy(repetition=1.3), Sample(seed=3, top_p=0.9, repetition=1.2), Beam(beams=2, best=2))
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8], [9]]
DEFAULTS = [torch.bfloat16, torch.float16, torch.float64, "meta"]
defaults = pytest.mark.parametrize("default", DEFAULTS, ids=str)
pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiler")


@contextmanager
def defaulting(default: torch.dtype | str) -> Iterator[None]:
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    try:
        if isinstance(default, str):
            torch.set_default_device(default)
        else:
            torch.set_default_dtype(default)
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_default_device(None if device.type == "cpu" else device)


def _written(model: Decoder) -> list[tuple[tuple[int, ...], float]]:
    made = [generate(model, PROMPTS, strategy=strategy, max_new_tokens=12, end=None) for strategy in STRATEGIES]
    return [(tuple(one.tokens), one.score) for answers in made for several in answers for one in several]


@defaults
@pytest.mark.parametrize("name", MODELS)
def test_a_model_writes_the_same_under_any_default(name: str, default: torch.dtype | str) -> None:
    torch.manual_seed(0)
    model = Decoder(MODELS[name]).eval()
    wanted = _written(model)
    with defaulting(default):
        found = _written(model)
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in wanted]
    assert [score for _, score in found] == pytest.approx([score for _, score in wanted], abs=1e-4)


def _computed() -> list[Tensor]:
    """Every kernel that is called by itself, on numbers that are made under torch's own defaults."""
    draw = torch.Generator("cpu").manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float32, device="cpu")

    logits = some(4, 30)
    told = SamplingSettings(
        torch.ones(4, dtype=torch.bool, device="cpu"), 1, torch.empty(0, dtype=torch.int64, device="cpu")
    )
    labels = torch.tensor([1, 2, 3, 4], device="cpu")
    key, value, fade, bonus, start = some(2, 9, 5), some(2, 9, 5), -some(5).abs(), some(5), some(3, 2, 5)
    step, u, write, read = some(2, 9, 5).abs(), some(2, 9, 5), some(2, 9, 4), some(2, 9, 4)
    return [
        *sample(logits, told),
        *topk_logprobs(logits, 3),
        *entropy_(logits.clone(), labels, 0.1),
        *wkv(key, value, fade, bonus, start),
        *selective(step, u, write, read, -some(4, 5).abs(), some(2, 4, 5)),
    ]


@defaults
def test_a_kernel_gives_the_same_under_any_default(default: torch.dtype | str) -> None:
    wanted = _computed()
    with defaulting(default):
        found = _computed()
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@defaults
def test_a_quantised_layer_gives_the_same_under_any_default(default: torch.dtype | str) -> None:
    torch.manual_seed(0)
    layers = [Int8Linear(torch.nn.Linear(64, 10)), GroupedLinear(torch.nn.Linear(64, 10), bits=4)]
    x = torch.randn(3, 64)
    wanted = [layer(x) for layer in layers]
    with defaulting(default):
        found = [layer(x) for layer in layers]
    assert all(map(torch.equal, found, wanted))


def test_one_layer_of_another_dtype_has_no_program() -> None:
    """Its weights are half as many bytes as the kernel would read."""
    model = Decoder(MODELS["rope"]).eval()
    layer = next(part for part in model.stack.modules() if isinstance(part, torch.nn.Linear))
    layer.bfloat16()
    with pytest.raises(Uncompiled, match="not float32"):
        DecoderProgram(model)


@pytest.mark.parametrize(
    ("tokens", "order"),
    [
        (torch.zeros(2, dtype=torch.int32), torch.zeros(2, 1, dtype=torch.int64)),
        (torch.zeros(1, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int64)),
        (torch.zeros(2, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int32)),
        (torch.zeros(2, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.int64)),
    ],
)
def test_a_step_of_another_size_or_dtype_is_refused(tokens: Tensor, order: Tensor) -> None:
    torch.manual_seed(0)
    model = Decoder(MODELS["rope"]).eval()
    running = runner(model)
    running.start(2)
    running.prefill(torch.ones(2, 3, dtype=torch.int64), Where.run(2, 3))
    assert running.prepare()
    with pytest.raises(InputError, match="the kernel was given (tokens|order) as"):
        running.step(tokens, Where(order, order))
