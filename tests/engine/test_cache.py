"""A program that was written before is used again only as long as it says what the model says."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import pytest
import torch
from pydantic import BaseModel
from torch import Tensor, nn

from heed import engine
from heed.core.contract import Where
from heed.core.state import Cell, leaves
from heed.decode import generate
from heed.engine import cache, passes
from heed.engine.compiled import DecoderProgram, compiled_runner
from heed.engine.program import Uncompiled
from heed.kernels import library, written_out
from heed.mixers import Attention, Retention
from heed.models import RWKV, Decoder, RetNet
from heed.parts.feedforward import Gated
from heed.parts.layers.norms import RMSNorm
from heed.parts.layers.quantised import Int8Linear
from heed.parts.look import Look, look
from heed.parts.masks import Causal, Window
from heed.parts.positions import Alibi, Learned, Rope
from heed.parts.residual.wiring import Rescaled, Sandwich
from heed.weights.edits import LoRA, Quantised, edit

SIZES: dict[str, Any] = {"vocabulary": 37, "width": 32, "depth": 2}
PLANS = {
    "gpt-2": Decoder.Config(**SIZES, position=Learned.Config(length=64)),
    "gemma": Decoder.Config(
        **SIZES,
        mixer=Attention.Config(position=Rope.Config(), head_norm=RMSNorm(), cap=5.0),
        feedforward=Gated.Config(hidden=40),
        norm=RMSNorm(from_one=True),
        wiring=Sandwich(),
        tied=False,
    ),
    "bloom": Decoder.Config(**SIZES, mixer=Attention.Config(position=Alibi.Config(), mask=Window(back=30))),
    "rwkv": RWKV(width=32, depth=2, hidden=32).sized(37),
    "retnet": RetNet(width=32, depth=2, heads=2, value_width=32).sized(37),
    "hybrid": Decoder.Config(
        **SIZES, mixer=(Retention.Config(heads=2), Attention.Config(heads=2)), wiring=Rescaled(every=1)
    ),
}


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if library() is None:
        pytest.skip("there are no kernels here")


def _built(name: str) -> Decoder:
    torch.manual_seed(0)
    model: Decoder = PLANS[name].build().eval()
    for weight in model.parameters():
        if weight.dim() < 2:
            nn.init.normal_(weight, 0.5, 0.5)
    return model


@torch.no_grad()
def _scores(model: Decoder) -> Tensor:
    """Of ten tokens that are read, and of one more that is written: by programs, where there are any."""
    tokens = torch.arange(1, 12)[None]
    quick = engine.compile(model)
    read, state = quick(tokens[:, :10], Where.run(1, 10), model.start(1))
    assert state is not None
    where, made = Where.run(1, 1, start=10), compiled_runner(model, state)
    if isinstance(made, Uncompiled):
        written = quick(tokens[:, 10:], where, state)[0][:, 0]
    else:
        written = made.step(tokens[:, 10], where)
    return torch.cat((read[0], written))


def _right(model: Decoder) -> Tensor:
    """What programs give, which is what plain calls give: in float32, or with channels rounded to 16 bits."""
    mine = _scores(model)
    with written_out():
        wanted = _scores(model)
    close = 1e-3 if any(isinstance(layer, Int8Linear) for layer in model.modules()) else 1e-5
    torch.testing.assert_close(mine, wanted, rtol=0, atol=close * max(1.0, float(wanted.abs().max())))
    return mine


def _halve(weight: Tensor) -> None:
    weight.data = weight.data / 2


def _turn(weight: Tensor) -> None:
    weight.data = weight.data.T


def _swap_norms(model: Decoder) -> None:
    fresh = nn.LayerNorm(32)
    nn.init.normal_(fresh.weight)
    model.stack.layers[1].wiring.norms[0] = fresh


def _add_adapters(model: Decoder) -> None:
    edit(model, LoRA(rank=2))
    for name, weight in model.named_parameters():
        if "up" in name or "down" in name:
            nn.init.normal_(weight)


def _no_grad(change: Callable[[Decoder], object]) -> Callable[[Decoder], None]:
    def call(model: Decoder) -> None:
        with torch.no_grad():
            change(model)

    return call


def _mixer(model: Decoder, block: int = 0) -> Any:
    return model.stack.layers[block].mixer


CHANGES: dict[str, tuple[str, Callable[[Decoder], object]]] = {
    "other numbers": ("gpt-2", lambda m: _halve(_mixer(m).query.weight)),
    "read the other way round": ("gpt-2", lambda m: _turn(_mixer(m).query.weight)),
    "another parameter": ("gpt-2", lambda m: setattr(_mixer(m).value, "weight", nn.Parameter(torch.randn(32, 32)))),
    "no bias any more": ("gpt-2", lambda m: setattr(m.stack.layers[0].feedforward.up, "bias", None)),
    "in place": ("gpt-2", _no_grad(lambda m: _mixer(m).out.weight.mul_(2))),
    "in place, unnoticed by torch": ("gpt-2", lambda m: _mixer(m).out.weight.data.mul_(2)),
    "a table of places": ("gpt-2", lambda m: m.get_parameter("embeddings.position.table").data.mul_(3)),
    "embeddings": ("gpt-2", lambda m: m.embeddings.table.weight.data.mul_(3)),
    "a gain from one": ("gemma", lambda m: m.get_parameter("stack.blocks.0.wiring.norms.0.weight").data.neg_()),
    "rates of decay": ("rwkv", lambda m: _mixer(m).decay.data.add_(1)),
    "a bonus": ("rwkv", lambda m: _mixer(m).bonus.data.add_(1)),
    "how fast it fades": ("retnet", lambda m: setattr(_mixer(m), "fade", (-0.5, -0.7))),
    "weights of a retention": ("retnet", lambda m: _mixer(m, 1).gate.weight.data.mul_(2)),
    "a norm swapped": ("gpt-2", _swap_norms),
    "blocks swapped": ("gpt-2", lambda m: setattr(m.stack, "order", (1, 0))),
    "adapters": ("gpt-2", _add_adapters),
    "few bits": ("gpt-2", lambda m: edit(m, Quantised())),
    "a mask": ("bloom", lambda m: setattr(_mixer(m), "mask", Window(back=2))),
    "a code": ("gemma", lambda m: setattr(_mixer(m), "position", Rope.Config(base=50.0).build(4, 8))),
    "a scale": ("gemma", lambda m: setattr(_mixer(m), "scale", 0.9)),
    "a cap": ("gemma", lambda m: setattr(_mixer(m), "cap", 0.1)),
    "eps": ("gemma", lambda m: setattr(m.stack.layers[0].wiring.norms[0], "eps", 1.0)),
    "an activation": ("gpt-2", lambda m: setattr(m.stack.layers[0].feedforward, "activation", "silu")),
    "half of a residual": ("hybrid", lambda m: setattr(m.stack.layers[0].wiring, "share", 0.1)),
    "somebody who answers": ("gpt-2", lambda m: setattr(_mixer(m).out, "forward", lambda x: 3 * x)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(name: str) -> None:
    plan, change = CHANGES[name]
    model = _built(plan)
    before = _right(model)
    change(model)
    after = _right(model)
    assert float((after - before).abs().max()) > 1e-4


def test_other_precisions_are_plain_calls_again_and_let_go_of_memory() -> None:
    model = _built("gpt-2")
    _scores(model)  # lets go of passes that point to what was moved for steps
    before = _scores(model)
    assert all(known.holds(key) for known, key in _keys(model))
    model.double()
    torch.testing.assert_close(_scores(model).float(), before, rtol=0, atol=1e-5)
    assert all(not known.holds(key) for known, key in _keys(model))  # seen at the next call
    assert _right(model.float()).dtype == torch.float32
    engine.forget(model)
    assert all(not known.holds(key) for known, key in _keys(model))


def _keys(model: Decoder) -> list[tuple[cache.ProgramCache, object]]:
    kind = passes.Kind(width=32, short=True, keeps=True)
    return [(cache.programs(model), DecoderProgram), (cache.programs(model.stack), kind)]


def test_a_model_that_is_let_go_of_takes_its_programs_along() -> None:
    for name in PLANS:
        model = _built(name)
        _scores(model)
        gone = [weakref.ref(module) for module in (model, model.stack)]
        del model
        gc.collect()
        assert [one() for one in gone] == [None, None], name


def test_training_is_noticed() -> None:
    model, where = _built("gpt-2"), Where.run(1, 9)
    with torch.no_grad():
        assert passes.passed(model.stack, torch.randn(1, 9, 32), where, None) is not None
        assert passes.passed(model.stack.train(), torch.randn(1, 9, 32), where, None) is None


def test_who_looks_and_who_is_told_see_every_call() -> None:
    model = _built("gpt-2")
    _scores(model)
    with look(model, "*weights") as seen:
        _scores(model)
    assert all(len(shown) == 2 for shown in seen.values())
    called: list[nn.Module] = []
    block = model.stack.blocks[1]
    handle = block.register_forward_pre_hook(lambda module, given: called.append(module))
    _scores(model)
    handle.remove()
    assert called == [block, block]
    _scores(model)
    assert len(called) == 2


def test_it_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Decoder] = []
    form = DecoderProgram.__init__

    def write(program: DecoderProgram, model: Decoder) -> None:
        written.append(model)
        form(program, model)

    monkeypatch.setattr(DecoderProgram, "__init__", write)
    model = _built("gpt-2")
    prompts = [[1, 2, 3, 4, 5, 6, 7, 8]]
    first = generate(model, prompts, max_new_tokens=9, end=None)
    for _ in range(3):
        assert generate(model, prompts, max_new_tokens=9, end=None)[0][0].tokens == first[0][0].tokens
    assert written == [model]


def test_copies_begin_without() -> None:
    model = _built("gpt-2")
    before = _scores(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not cache.programs(other).holds(DecoderProgram)
        with torch.no_grad():
            _mixer(other).query.weight.mul_(2)
        assert not torch.equal(_right(other), before)
    assert torch.equal(_scores(model), before)


def test_threads_share_programs() -> None:
    """Each has registers and memories of its own."""
    model = _built("gemma")
    prompts = [[[seed, 2, 3, 4, 5, 6, 7, 8 + seed]] for seed in range(4)]
    wanted = [generate(model, prompt, max_new_tokens=100, end=None) for prompt in prompts]
    found: list[list[Any]] = [[] for _ in prompts]

    def work(place: int) -> None:
        for _ in range(5):
            found[place].append(generate(model, prompts[place], max_new_tokens=100, end=None))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine, once in zip(found, wanted, strict=True):
        assert len(mine) == 5
        assert all(one[0][0].tokens == once[0][0].tokens for one in mine)


def _values(thing: object) -> Iterator[object]:
    if isinstance(thing, tuple):
        for part in thing:
            yield from _values(part)
    else:
        yield thing


@pytest.mark.parametrize("name", PLANS)
def test_nothing_that_it_is_written_from_can_change_in_place(name: str) -> None:
    """Attributes are compared by identity: that says all of numbers, names, frozen configs and tuples of these."""
    model = _built(name)
    plain = set(nn.Module().__dict__)
    for module in (module for module in model.modules() if not isinstance(module, Look)):
        for key in module.__dict__.keys() - plain:
            for value in _values(module.__dict__[key]):
                frozen = isinstance(value, BaseModel) and value.model_config.get("frozen")
                simple = value is None or isinstance(value, int | float | str | Enum | torch.dtype)
                assert frozen or simple, f"{key} of {type(module).__name__} is a {type(value).__name__}"


def test_cells_are_not_those_of_the_call_before() -> None:
    model = _built("rwkv")
    before = [t.clone() for leaf in leaves(model.start(1)) if isinstance(leaf, Cell) for t in leaf.tensors()]
    first, second = _scores(model), _scores(model)
    assert torch.equal(first, second)
    after = [t for leaf in leaves(model.start(1)) if isinstance(leaf, Cell) for t in leaf.tensors()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_masks_are_still_masks() -> None:
    """A mask that there is no instruction for, put in later and taken out again."""
    model = _built("gpt-2")
    before = _right(model)
    own = _mixer(model).mask
    _mixer(model).mask = Causal() - Window(back=0) | Window(back=0)
    torch.testing.assert_close(_right(model), before, rtol=0, atol=1e-5)
    _mixer(model).mask = own
    assert torch.equal(_right(model), before)
