"""What runs as a program, what as plain calls and why is told; and every emitter writes what its class computes."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest
import torch
from torch import nn

from heed import engine
from heed.catalogue import entries
from heed.core.contract import Where
from heed.engine.emit import EMIT
from heed.kernels import library, written_out
from heed.mixers import Attention, Cross, Fourier, Retention, Rwkv
from heed.models import Decoder, Encoder, RetNet, Seq2seq
from heed.parts.feedforward import ChannelMix, FeedForward, Gated
from heed.parts.layers.norms import LayerNorm, RMSNorm
from heed.parts.look import look
from heed.parts.masks import Causal, Sparse, Whole, Window
from heed.parts.positions import Alibi, Axial, Learned, NoPosition, Rope, Sinusoid
from heed.parts.positions.added import Binary, Integer, Unit
from heed.parts.residual.wiring import Normed, Parallel, PostNorm, PreNorm, Rescaled, Sandwich
from heed.weights.edits import BitLinear, Packed, Quantised, edit

SIZES: dict[str, Any] = {"vocabulary": 37, "width": 32, "depth": 2}


def _decoder(*edits: Any, **more: Any) -> Any:
    torch.manual_seed(0)
    return edit(Decoder.Config(**{**SIZES, **more}).build().eval(), *edits)


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if library() is None:
        pytest.skip("there are no kernels here")


def test_all_of_a_model_is_compiled() -> None:
    report = engine.explain(_decoder())
    assert report.compiled
    assert str(report) == "stack (Stack): compiled\nmodel (steps): compiled"


class Mine(Attention):
    """A subclass may compute something else."""


def _subclass() -> Any:
    model = _decoder()
    model.stack.layers[1].mixer.__class__ = Mine
    return model


REASONS = {
    "a subclass": (_subclass, "Mine, a subclass of Attention, has no emitter"),
    "a mask": (lambda: _decoder(mixer=Attention.Config(mask=Causal() & Sparse(step=2))), "has no emitter"),
    "a mixer": (lambda: Encoder.Config(**SIZES, mixer=Fourier.Config()).build(), "Fourier has no emitter"),
    "a precision": (lambda: _decoder().double(), "float64 on cpu; float32 on the CPU is compiled"),
    "an activation": (
        lambda: _decoder(feedforward=FeedForward.Config(activation="mish")),
        "the activation mish has no instruction",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_reasons_are_told(name: str) -> None:
    build, why = REASONS[name]
    report = engine.explain(build())
    assert not report.compiled
    assert why in str(report)
    assert any(why in line["why"] for line in report.plain())


def test_only_the_block_that_is_plain_is_said_to_be() -> None:
    first, second, steps = engine.explain(_subclass()).lines
    assert first.compiled
    assert not second.compiled
    assert second.name == "stack.blocks.1"
    assert not steps.compiled


def test_someone_who_looks_and_missing_kernels_are_told() -> None:
    model = _decoder()
    with look(model, "*weights"):
        assert "someone looks" in str(engine.explain(model))
    with written_out():
        assert "there are no kernels" in str(engine.explain(model))
    handle = model.stack.register_forward_hook(lambda *_: None)
    assert "a hook is registered" in str(engine.explain(model))
    handle.remove()
    assert engine.explain(model).compiled


def test_explaining_moves_nothing() -> None:
    model = _decoder()
    weight = model.stack.layers[0].mixer.query.weight
    weight.data = weight.data.t().contiguous().t()
    assert engine.explain(model).compiled
    assert not weight.is_contiguous()


def test_a_model_without_a_stack_is_not_called_compiled() -> None:
    report = engine.explain(torch.nn.Linear(2, 2))
    assert not report.compiled
    assert str(report) == "plain: it has no stack that could be compiled"


def test_the_list_says_what_is_compiled() -> None:
    notes = {entry.name: entry.note for entry in entries() if entry.table in ("mixers", "feed-forwards")}
    assert notes["attention"].endswith("; compiled")
    assert notes["lsh"].endswith("; plain calls: no emitter")
    assert notes["gated"].endswith("; compiled")


# A model for each class that has an emitter: what it is made of, and it runs as a program.
MADE: dict[str, Any] = {
    "mixers.attention:Attention": {},
    "mixers.cross:Cross": None,
    "mixers.retention:Retention": {"mixer": Retention.Config(heads=2)},
    "mixers.rwkv:Rwkv": {"mixer": Rwkv.Config(hidden=32)},
    "parts.feedforward.channel_mix:ChannelMix": {"feedforward": ChannelMix.Config()},
    "parts.feedforward.mlp:FeedForward": {},
    "parts.feedforward.mlp:Gated": {"feedforward": Gated.Config()},
    "torch.nn.modules.normalization:LayerNorm": {"norm": LayerNorm()},
    "torch.nn.modules.normalization:RMSNorm": {"norm": RMSNorm()},
    "parts.layers.norms:FromOne": {"norm": RMSNorm(from_one=True)},
    "parts.positions.base:NoPosition": {"mixer": Attention.Config(position=NoPosition.Config())},
    "parts.positions.rotary:Rope": {"mixer": Attention.Config(position=Rope.Config())},
    "parts.positions.scored:Alibi": {"mixer": Attention.Config(position=Alibi.Config())},
    "parts.masks.base:Causal": {},
    "parts.masks.base:Whole": {"mixer": Attention.Config(mask=Whole())},
    "parts.masks.plain:Window": {"mixer": Attention.Config(mask=Window(back=3))},
    "parts.positions.added:Learned": {"position": Learned.Config(length=64)},
    "parts.positions.added:Sinusoid": {"position": Sinusoid.Config()},
    "parts.positions.added:Unit": {"position": Unit.Config(length=64)},
    "parts.positions.added:Integer": {"position": Integer.Config()},
    "parts.positions.added:Binary": {"position": Binary.Config()},
    "parts.positions.axial:Axial": {"position": Axial.Config(shape=(8, 8), sizes=(16, 16))},
    "torch.nn.modules.linear:Linear": {},
    "parts.outputs.heads:LMHead": {"cap": 3.0, "head_scale": 0.5},
    "parts.layers.quantised:Int8Linear": (Quantised(),),
    "parts.layers.quantised:GroupedLinear": (Quantised(bits="int4"),),
    "parts.layers.bitnet:PackedTernaryLinear": (BitLinear(), Packed()),
    "parts.inputs.tokens:TokenEmbeddings": {},
    "torch.nn.modules.sparse:Embedding": {},
    "parts.layers.embeddings:QuantisedEmbedding": (Quantised(),),
    "parts.residual.wired:PostWired": {"wiring": PostNorm()},
    "parts.residual.wired:PreWired": {"wiring": PreNorm()},
    "parts.residual.wired:NormedWired": {"wiring": Normed()},
    "parts.residual.wired:SandwichWired": {"wiring": Sandwich()},
    "parts.residual.wired:ParallelWired": {"wiring": Parallel(own_norms=True)},
    "parts.residual.wired:RescaledWired": {"wiring": Rescaled(every=1)},
}


def _named(name: str) -> str:
    return name if name.startswith("torch.") else f"heed.{name}"


def test_every_emitter_has_a_model() -> None:
    assert {_named(name) for name in MADE} == set(EMIT)


@pytest.mark.parametrize("name", MADE)
@torch.no_grad()
def test_every_emitter_writes_what_its_class_computes(name: str) -> None:
    module, _, path = _named(name).partition(":")
    kind, told = attrgetter(path)(import_module(module)), MADE[name]
    if told is None:
        parts = Encoder.Config(**SIZES), Decoder.Config(**SIZES, cross=Cross.Config())
        model: Any = Seq2seq.Config(encoder=parts[0], decoder=parts[1]).build().eval()
    else:
        model = _decoder(*told) if isinstance(told, tuple) else _decoder(**told)
    used = [*model.modules(), *(one.mask for one in model.modules() if isinstance(one, Attention))]
    assert any(type(one) is kind for one in used)
    tokens, where = torch.randint(37, (2, 9), generator=torch.Generator().manual_seed(1)), Where.run(2, 9)
    if isinstance(model, Seq2seq):
        where = where.give(encoder_output=model.encode(tokens, where))
    report = engine.explain(model)
    assert report.compiled or not model.streams, str(report)
    wanted, _ = model(tokens, where)
    close = 0.05 if isinstance(told, tuple) else 1e-5
    quick, _ = engine.compile(model)(tokens, where)
    torch.testing.assert_close(quick, wanted, rtol=0, atol=close * max(1.0, float(wanted.abs().max())))
    if not model.streams:
        return
    runner = engine.runner(model, model.start(2, where.given))
    assert runner.prepare(), runner.reason
    for place in range(9):
        made = runner.step(tokens[:, place], Where.run(2, 1, start=place))
        torch.testing.assert_close(made, wanted[:, place], rtol=0, atol=close * max(1.0, float(wanted.abs().max())))


def test_norms_that_are_no_emitters_are_no_surprise() -> None:
    model = RetNet(width=32, depth=2, heads=2, value_width=32).sized(37).build().eval()
    assert engine.explain(model).compiled
    model.stack.ends.final = nn.Identity()
    report = engine.explain(model)
    assert not report.compiled
    assert "Identity has no emitter" in str(report)
