"""Ragged rows without their padding give what padded rows give, and learn the same, for the price of real tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from heed import engine
from heed.core.contract import Where
from heed.engine import varlen
from heed.mixers import Attention, Fourier
from heed.models import Decoder, Encoder
from heed.parts.look import look
from heed.parts.masks import Whole, Window
from heed.parts.positions import Alibi, Buckets, Rope
from heed.parts.residual.wiring import ResiDual

SIZES: dict[str, Any] = {"vocabulary": 13, "width": 24, "depth": 2}
PLANS = {
    "bert": Encoder.Config(**SIZES),
    "window": Encoder.Config(**SIZES, mixer=Attention.Config(kv_heads=2, mask=Window(back=2, ahead=1))),
    "rope": Decoder.Config(**SIZES, mixer=Attention.Config(position=Rope.Config(values=True)), wiring=ResiDual()),
    "alibi": Encoder.Config(**SIZES, mixer=Attention.Config(mask=Whole(), position=Alibi.Config())),
    "buckets": Encoder.Config(
        **SIZES, mixer=Attention.Config(mask=Whole(), position=Buckets.Config()), one_position=True
    ),
}
LENGTHS = torch.tensor([9, 2, 0, 5])


def _both(model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch, long: int) -> list[tuple[Tensor, list[Tensor]]]:
    tokens, where = torch.randint(13, (4, 9), generator=torch.Generator().manual_seed(0)), Where.ragged(LENGTHS)
    found = []
    for packs in (True, False):
        with monkeypatch.context() as patched:
            patched.setattr(varlen, "LONG", long)
            if not packs:
                patched.setattr("heed.engine.shadow.pays", lambda stack, where: False)
            y = engine.compile(model)(tokens, where)[0][where.real]
            slope = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
            found.append((y, list(torch.autograd.grad(y, list(model.parameters()), slope))))
    return found


@pytest.mark.parametrize("long", [1, 1000])  # row by row, and side by side
@pytest.mark.parametrize("name", PLANS)
def test_varlen_rows_are_padded_rows(name: str, long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = PLANS[name].build().double()
    (y, slopes), (wanted, theirs) = _both(model, monkeypatch, long)
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-12)
    for mine, other in zip(slopes, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-11)


def test_only_real_tokens_are_computed() -> None:
    model = Encoder.Config(**SIZES).build()
    counted: list[int] = []
    block = model.stack.layers[0]
    for layer in (block.mixer.query, block.mixer.out, block.feedforward.up):
        layer.register_forward_hook(lambda layer, given, made: counted.append(made.shape[:-1].numel()))  # type: ignore[union-attr]
    engine.compile(model)(torch.ones(4, 9, dtype=torch.long), Where.ragged(LENGTHS))
    assert counted == [int(LENGTHS.sum())] * 3


def test_when_it_does_not_pay_or_cannot_be_done() -> None:
    stack = Encoder.Config(**SIZES).build().stack
    assert varlen.pays(stack, Where.ragged(LENGTHS))
    assert not varlen.pays(stack, Where.run(4, 9))
    assert not varlen.pays(stack, Where.ragged(torch.tensor([9, 9, 8, 9])))  # hardly any padding
    with look(stack, "blocks.0.mixer.weights"):
        assert not varlen.pays(stack, Where.ragged(LENGTHS))
    other = Encoder.Config(**SIZES, mixer=Fourier.Config()).build().stack
    assert not varlen.pays(other, Where.ragged(LENGTHS))


@pytest.mark.parametrize("gradients", [True, False])
def test_with_a_state_padding_stays_and_what_is_remembered_with_it(gradients: bool) -> None:
    torch.manual_seed(0)
    model = Decoder.Config(**SIZES).build().double()
    tokens = torch.randint(13, (2, 9))
    with torch.set_grad_enabled(gradients):
        first, state = engine.compile(model)(tokens[:, :8], Where.ragged([8, 1]), model.start(2))
        assert state is not None
        here = Where.ragged([1, 1], start=torch.tensor([8, 1]))
        second, _ = engine.compile(model)(torch.stack((tokens[0, 8:], tokens[1, 1:2])), here, state)
    for row, length in ((0, 9), (1, 2)):
        alone, _ = model(tokens[row : row + 1, :length], Where.run(1, length))
        made = torch.cat((first[row, : length - 1], second[row]))
        torch.testing.assert_close(made, alone[0], rtol=0, atol=1e-12)
