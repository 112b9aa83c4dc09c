"""A shadow is the model with compiled stacks: it shares all parameters, follows edits, and leaves the model alone."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heed import engine
from heed.core.contract import Where
from heed.engine import execution, passes
from heed.engine.shadow import CompiledStack
from heed.kernels import library
from heed.mixers import Attention, Cross, Fourier
from heed.models import Decoder, Encoder, Seq2seq
from heed.models.stack import Stack
from heed.parts.masks import Whole
from heed.weights.edits import LoRA, Quantised, edit

SIZES: dict[str, Any] = {"vocabulary": 37, "width": 32, "depth": 3}


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if library() is None:
        pytest.skip("there are no kernels here")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many blocks' instructions every program that runs has."""
    seen: list[int] = []
    form = execution.Execution.prefill

    def prefill(one: Any, *given: Any) -> bool:
        seen.append(len(one._instructions))
        return form(one, *given)

    monkeypatch.setattr(execution.Execution, "prefill", prefill)
    return seen


def _seq2seq() -> Seq2seq:
    torch.manual_seed(0)
    decoder = Decoder.Config(**SIZES, cross=Cross.Config())
    return Seq2seq.Config(encoder=Encoder.Config(**SIZES), decoder=decoder, shared=True).build().eval()


@torch.no_grad()
def test_a_plain_models_call_runs_no_program(calls: list[int]) -> None:
    model = Decoder.Config(**SIZES).build().eval()
    tokens, where = torch.arange(8)[None], Where.run(1, 8)
    plain, _ = model(tokens, where)
    assert calls == []
    quick, _ = engine.compile(model)(tokens, where)
    assert len(calls) == 1
    torch.testing.assert_close(quick, plain, rtol=0, atol=1e-5)
    model(tokens, where)
    assert len(calls) == 1


@torch.no_grad()
def test_it_has_the_class_the_methods_and_the_parameters_of_the_model(calls: list[int]) -> None:
    model = _seq2seq()
    quick = engine.compile(model)
    assert type(quick) is Seq2seq
    assert quick is engine.compile(model) is engine.compile(quick)
    assert isinstance(quick.encoder.stack, CompiledStack)
    assert isinstance(quick.decoder.stack, CompiledStack)
    assert type(model.encoder.stack) is type(model.decoder.stack) is Stack
    mine, theirs = dict(quick.named_parameters()), dict(model.named_parameters())
    assert mine.keys() == theirs.keys()
    assert all(mine[name] is theirs[name] for name in mine)
    source, where = torch.randint(37, (2, 9)), Where.ragged([9, 4])
    encoded = quick.encode(source, where)
    assert len(calls) == 1
    wanted = model.encode(source, where)
    torch.testing.assert_close(encoded.parts[0][where.real], wanted.parts[0][where.real], rtol=0, atol=1e-5)
    target = Where.run(2, 5).give(encoder_output=encoded)
    torch.testing.assert_close(quick(source[:, :5], target)[0], model(source[:, :5], target)[0], rtol=0, atol=1e-4)


CHANGES = {
    "a head": lambda model: setattr(model, "head", nn.Linear(32, 37)),
    "a stack": lambda model: setattr(model, "stack", Decoder.Config(**SIZES).build().eval().stack),
    "the order of blocks": lambda model: setattr(model.stack, "order", (2, 0, 0)),
    "an adapter": lambda model: [nn.init.normal_(w) for w in edit(model, LoRA(rank=2)).parameters() if w.dim() > 1],
    "few bits": lambda model: edit(model, Quantised()),
    "in place": lambda model: model.head.weight.data.mul_(2),
    "a buffer of the root": lambda model: model.register_buffer("more", torch.ones(1)),
}


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_it_follows_edits(name: str) -> None:
    torch.manual_seed(0)
    model = Decoder.Config(**SIZES, tied=False).build().eval()
    tokens, where = torch.arange(8)[None], Where.run(1, 8)
    before = engine.compile(model)(tokens, where)[0]
    CHANGES[name](model)
    after = engine.compile(model)(tokens, where)[0]
    torch.testing.assert_close(after, model(tokens, where)[0], rtol=0, atol=1e-3 * float(before.abs().max()))
    assert name == "a buffer of the root" or not torch.equal(before, after)


def test_gradients_reach_the_model_through_it() -> None:
    model = _seq2seq().train()
    source, where = torch.randint(37, (3, 9)), Where.ragged([9, 2, 3])
    found = []
    for one in (model, engine.compile(model)):
        model.zero_grad()
        one.encode(source, where).parts[0][where.real].square().sum().backward()
        found.append([weight.grad.clone() for weight in model.encoder.parameters() if weight.grad is not None])
    assert found[0]
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-4)


def test_modes_are_followed() -> None:
    model = Decoder.Config(**SIZES, dropout=0.5).build().eval()
    quick = engine.compile(model)
    model.train()
    assert engine.compile(model).training
    assert engine.compile(model).stack.training
    quick.eval()
    assert not model.stack.training


def test_neither_holds_the_other_for_ever() -> None:
    for build in (_seq2seq, lambda: Encoder.Config(**SIZES).build().eval().stack):
        model: Any = build()
        quick: Any = engine.compile(model)
        gone = weakref.ref(model), weakref.ref(quick)
        del model, quick
        gc.collect()
        assert [one() for one in gone] == [None, None]


def test_copies_and_state_are_those_of_a_model() -> None:
    model = _seq2seq()
    quick = engine.compile(model)
    assert quick.state_dict().keys() == model.state_dict().keys()
    twin = copy.deepcopy(model)
    assert type(twin.encoder.stack) is Stack
    assert engine.compile(twin) is not quick


class Doubled(Attention):
    """A subclass that computes something else."""

    def forward(self, x: Tensor, where: Where, state: Any = None) -> Any:
        y, state = super().forward(x, where, state)
        return 2 * y, state


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("lengths", [(9, 9), (9, 4)])
@torch.no_grad()
def test_a_block_without_emitters_is_a_plain_call_between_programs(
    calls: list[int], lengths: tuple[int, ...], keeps: bool
) -> None:
    torch.manual_seed(0)
    model = Decoder.Config(**{**SIZES, "depth": 5}).build().eval()
    model.stack.layers[2].mixer.__class__ = Doubled
    where, x = Where.ragged(lengths), torch.randn(2, 9, 32)
    mine, held = engine.compile(model.stack)(x, where, model.stack.start(2) if keeps else None)
    assert len(calls) == 2
    wanted, state = model.stack(x, where, model.stack.start(2) if keeps else None)
    torch.testing.assert_close(mine[where.real], wanted[where.real], rtol=0, atol=1e-5)
    if keeps:
        assert state is not None
        assert held is not None
        later = Where.ragged([2, 2], start=torch.tensor(lengths))
        more = torch.randn(2, 2, 32)
        mine, wanted = engine.compile(model.stack)(more, later, held)[0], model.stack(more, later, state)[0]
        torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_stack_of_strangers_is_plain(calls: list[int]) -> None:
    model = Encoder.Config(**SIZES, mixer=(Fourier.Config(), Attention.Config(mask=Whole()))).build().eval()
    x, where = torch.randn(1, 9, 32), Where.run(1, 9)
    torch.testing.assert_close(engine.compile(model.stack)(x, where)[0], model.stack(x, where)[0], rtol=0, atol=1e-5)
    assert len(calls) == 1  # of three blocks the second has a program
    strange = Encoder.Config(**SIZES, mixer=Fourier.Config()).build().eval().stack
    assert passes.passed(strange, x, where, None) is None
