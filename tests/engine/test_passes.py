"""A stack's program gives what its plain calls give: for whole, ragged and long rows, with and without a state."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.utils.flop_counter import FlopCounterMode

from heed import engine
from heed.core.config import Config
from heed.core.contract import NOTHING, Given, Where
from heed.core.errors import StateConsumed
from heed.core.state import Cell, Log, Seen, fork, leaves, to
from heed.engine import passes
from heed.kernels import library
from heed.mixers import Attention, Cross, Mamba, Retention
from heed.models import RWKV, Decoder, Encoder, RetNet
from heed.models.stack import Stack
from heed.parts.feedforward import Gated
from heed.parts.layers.norms import RMSNorm
from heed.parts.look import look
from heed.parts.masks import Window
from heed.parts.positions import Alibi, Learned, Rope, Yarn
from heed.parts.residual.wiring import Parallel, PostNorm, Sandwich
from heed.weights.edits import BitLinear, Packed, Quantised, edit

SIZES: dict[str, Any] = {"vocabulary": 37, "width": 24, "depth": 2}
LONG = 1100  # more than two blocks of keys
LENGTHS = {"whole": (11, 11, 11), "ragged": (13, 2, 9, 0), "single": (45,), "long": (LONG, 700)}
DECODERS = {
    "gpt-2": Decoder.Config(**SIZES, position=Learned.Config(length=LONG)),
    "llama": Decoder.Config(
        **SIZES,
        mixer=Attention.Config(kv_heads=2, bias=False, position=Rope.Config()),
        feedforward=Gated.Config(hidden=40),
        norm=RMSNorm(),
    ),
    "windows": Decoder.Config(**SIZES, mixer=Attention.Config(heads=3, mask=Window(back=5)), wiring=Parallel()),
    "bloom": Decoder.Config(**SIZES, mixer=Attention.Config(position=Alibi.Config()), wiring=PostNorm()),
    "gemma": Decoder.Config(
        **SIZES, mixer=Attention.Config(heads=2, cap=3.0, head_norm=RMSNorm(), clip=2.0), wiring=Sandwich()
    ),
    "rwkv": RWKV(width=24, depth=3, hidden=19).sized(37),
    "retnet": RetNet(width=24, depth=2, heads=3, value_width=27).sized(37),
    "hybrid": Decoder.Config(**SIZES, mixer=(Retention.Config(heads=2), Attention.Config(heads=2))),
}
ENCODERS = {
    "bert": Encoder.Config(**SIZES, wiring=PostNorm(), position=Learned.Config(length=LONG)),
    "both ways": Encoder.Config(**SIZES, mixer=Attention.Config(mask=Window(back=4, ahead=4), position=Rope.Config())),
}
EDITS = {
    "float32": (),
    "int8": (Quantised(),),
    "w8a8": (Quantised(bits="w8a8"),),
    "ternary": (BitLinear(), Packed()),
}
# A float32 is off by 6e-8; numbers pass through some dozens of sums. What is rounded to whole numbers may be rounded to
# the next one, of 127 or of thousands.
CLOSE = {"float32": 2e-6, "int8": 2e-3, "w8a8": 0.05, "ternary": 0.05}


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if library() is None:
        pytest.skip("there are no kernels here")


def _where(lengths: tuple[int, ...]) -> Where:
    if len(set(lengths)) == 1:
        return Where.run(len(lengths), lengths[0])
    return Where.ragged(torch.tensor(lengths))


def _model(config: Config, edits: tuple[Any, ...] = ()) -> Any:
    torch.manual_seed(0)
    model: Any = config.build().eval()  # type: ignore[attr-defined]
    for weight in model.parameters():
        if weight.dim() < 2:
            nn.init.normal_(weight, 0.5, 0.5)
    edit(model, *edits)
    return model


def _stream(where: Where, width: int = 24) -> Tensor:
    return torch.randn(*where.order.shape, width, generator=torch.Generator().manual_seed(1))


def _goes(stack: Stack, where: Where, states: Any = None) -> bool:
    with torch.no_grad():
        return passes.passed(stack, _stream(where), where, states) is not None


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS])
@torch.no_grad()
def test_it_gives_what_plain_calls_give(name: str, lengths: tuple[int, ...]) -> None:
    stack, where = _model({**DECODERS, **ENCODERS}[name]).stack, _where(lengths)
    x = _stream(where)
    long = where.order.shape[1] > passes.SHORT
    assert _goes(stack, where) != (long and all(isinstance(block.mixer, Retention) for block in stack.layers))
    mine, _ = engine.compile(stack)(x, where)
    wanted, _ = stack(x, where)
    torch.testing.assert_close(mine[where.real], wanted[where.real], rtol=0, atol=2e-6 * float(wanted.abs().max()))


@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_what_is_remembered_goes_on(name: str, kind: str) -> None:
    """The same logs, and the same scores of what follows."""
    model, where = _model(DECODERS[name], EDITS[kind]), _where((13, 2, 9))
    tokens = torch.randint(37, (3, 14), generator=torch.Generator().manual_seed(2))
    made = []
    for plain in (False, True):
        state = model.start(3)
        if plain:
            _, state = model(tokens[:, :13], where, state)
        else:
            assert _goes(model.stack, where, model.stack.start(3))
            _, state = engine.compile(model)(tokens[:, :13], where, state)
        logs = [leaf.tensors() for leaf in leaves(state) if isinstance(leaf, Log)]
        held = [tensor[order >= 0] for order, *more in logs for tensor in (order, *more)]
        held += [tensor for leaf in leaves(state) if isinstance(leaf, Cell) for tensor in leaf.tensors()]
        stamps = torch.tensor([[13], [2], [9]])
        scores, _ = model(tokens[:, 13:], Where(stamps, stamps), state)
        made.append([*held, scores])
    for mine, wanted in zip(*made, strict=True):
        if wanted.dtype == torch.long:
            assert torch.equal(mine, wanted)
        else:
            size = max(1.0, float(wanted.abs().max()))
            torch.testing.assert_close(mine, wanted, rtol=0, atol=CLOSE[kind] * size)


@torch.no_grad()
def test_matrices_that_are_stored_the_other_way_round() -> None:
    """As GPT-2 has them, also as part of a larger one: nothing is moved."""
    stack, where = _model(DECODERS["gpt-2"]).stack, _where((13, 2, 9))
    x = _stream(where)
    wanted, _ = stack(x, where)
    for block in stack.layers:
        for layer in (layer for layer in block.modules() if isinstance(layer, nn.Linear)):
            turned = torch.zeros(layer.in_features, layer.out_features + 5)
            turned[:, 3:-2] = layer.weight.T
            layer.weight.data = turned[:, 3:-2].T
    mine, _ = engine.compile(stack)(x, where)
    assert all(not block.mixer.query.weight.is_contiguous() for block in stack.layers)
    torch.testing.assert_close(mine[where.real], wanted[where.real], rtol=0, atol=2e-6 * float(wanted.abs().max()))


@torch.no_grad()
def test_rows_go_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes through at once changes nothing, not even the last bit."""
    stack, where = _model(DECODERS["gpt-2"]).stack, _where((13, 2, 9, 30, 1))
    x = _stream(where)
    stack = engine.compile(stack)
    whole, _ = stack(x, where)
    for most in (1, 14, 40):
        monkeypatch.setattr(passes, "MOST", most)
        torch.testing.assert_close(stack(x, where)[0], whole, rtol=0, atol=2e-6 * float(whole.abs().max()))


def test_somebody_who_looks_sees_plain_calls() -> None:
    model, where = _model(ENCODERS["bert"]), _where((11, 11))
    stack = model.stack
    assert _goes(stack, where)
    with look(model, "*weights") as seen, torch.no_grad():
        engine.compile(stack)(_stream(where), where)
        assert not _goes(stack, where)
    assert seen
    assert all(seen.values())
    called: list[nn.Module] = []
    handle = stack.blocks[0].register_forward_hook(lambda module, given, made: called.append(module))
    with torch.no_grad():
        engine.compile(stack)(_stream(where), where)
    handle.remove()
    assert called == [stack.blocks[0]]


def test_gradients_training_and_other_precisions_take_plain_calls() -> None:
    stack, where = _model(ENCODERS["bert"]).stack, _where((11, 11))
    assert passes.passed(stack, _stream(where), where, None) is None  # gradients are on
    assert not _goes(stack.train(), where)
    with torch.no_grad():
        assert passes.passed(stack.eval().double(), _stream(where).double(), where, None) is None
        assert passes.passed(stack.float(), _stream(where), Where.run(2, 11), None) is not None
        shuffled = Where(where.order.flip(1), where.position)
        assert passes.passed(stack, _stream(where), shuffled, None) is None
    x = _stream(where).requires_grad_()
    engine.compile(stack)(x, where)[0].sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().sum()) > 0


@pytest.mark.parametrize("name", ["rwkv", "retnet"])
@torch.no_grad()
def test_recurrences_go_on_from_their_cells(name: str) -> None:
    model = _model(DECODERS[name])
    tokens = torch.arange(30)[None]
    whole, _ = model(tokens, Where.run(1, 30))
    state, made, quick = model.start(1), [], engine.compile(model)
    for begin, end in ((0, 9), (9, 19), (19, 30)):
        assert _goes(model.stack, Where.run(1, end - begin, start=begin), fork(state))
        scores, state = quick(tokens[:, begin:end], Where.run(1, end - begin, start=begin), state)
        made.append(scores)
    torch.testing.assert_close(torch.cat(made, 1), whole, rtol=0, atol=4e-6 * float(whole.abs().max()))


@pytest.mark.filterwarnings("ignore::Warning")  # torch's, about vmap and trace
@torch.no_grad()
def test_calls_that_are_mapped_or_recorded_are_plain() -> None:
    config, where = ENCODERS["bert"], _where((11, 11))
    models = [_model(config).stack.requires_grad_(False) for _ in range(2)]
    for weight in models[1].parameters():
        weight.mul_(0.5)
    x = _stream(where)
    weights, buffers = stack_module_state(models)
    quick = engine.compile(models[0])
    several = vmap(lambda w, b: functional_call(quick, (w, b), (x, where))[0])(weights, buffers)
    for one, stack in zip(several, models, strict=True):
        torch.testing.assert_close(one, stack(x, where)[0], rtol=0, atol=2e-6 * float(one.abs().max()))
    traced = torch.jit.trace(lambda given: quick(given, where)[0], x.detach(), check_trace=False)
    torch.testing.assert_close(traced(2 * x), models[0](2 * x, where)[0], rtol=0, atol=1e-5)
    with FlopCounterMode(display=False) as counted:
        quick(x, where)
    assert counted.get_total_flops() > 0


def _calls(stack: Stack, calls: list[Where], given: Given = NOTHING) -> list[Tensor]:
    """The stream of real tokens, call by call, and at last what is remembered, entry by entry."""
    rows = len(calls[0].order)
    draw = torch.Generator().manual_seed(3)
    state, made = stack.start(rows, given), list[Tensor]()
    for where in calls:
        x = torch.randn(*where.shape, 24, generator=draw)
        y, state = stack(x, where, state)  # type: ignore[assignment]
        made.append(y[where.real])
    for leaf in leaves(state):
        order, *held = leaf.tensors()
        if isinstance(leaf, Log):
            held = [t[b][order[b].argsort()][(order[b] < 0).sum() :] for t in held for b in range(rows)]
        made += held
    return made


CALLS = {
    "one row": [Where.run(1, 9), Where.run(1, 2, start=9), Where.run(1, 13, start=11), Where.run(1, 40, start=24)],
    "rows": [Where.run(3, 4), Where.run(3, 5, start=4), Where.run(3, 3, start=9)],
    "ragged": [
        Where.ragged([5, 0, 3]),
        Where.ragged([4, 7, 1], start=torch.tensor([5, 0, 3])),
        Where.ragged([2, 2, 2], start=torch.tensor([9, 7, 4])),
        Where.ragged([0, 3, 8], start=torch.tensor([11, 9, 6])),
    ],
    "first ragged, then apart": [Where.ragged([6, 2]), Where.run(2, 5, start=6)],
    "with a gap": [Where.run(2, 6), Where.run(2, 4, start=8)],
    "long": [Where.run(2, 60), *(Where.run(2, 50, start=begin) for begin in (60, 110)), Where.run(2, 3, start=160)],
}


@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_a_call_sees_what_earlier_ones_left(name: str, calls: list[Where]) -> None:
    """The law of the split, whatever the logs are: growing, full, wrapped, with holes.

    What a call is off by is remembered, and the next one adds its own: some calls are off by a few times as much.
    """
    model = _model(DECODERS[name])
    mine, wanted = _calls(engine.compile(model.stack), calls), _calls(model.stack, calls)
    for one, other in zip(mine, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("name", ["gpt-2", "llama", "windows", "bloom", "gemma"])
@torch.no_grad()
def test_a_past_of_many_blocks(name: str) -> None:
    """As one call of all tokens; and such calls do go."""
    stack, cuts = _model(DECODERS[name]).stack, (0, 530, 1050, LONG)
    x, state, made = _stream(_where((LONG, LONG))), stack.start(2), []
    wanted, _ = stack(x, _where((LONG, LONG)))
    for begin, end in itertools.pairwise(cuts):
        where = Where.run(2, end - begin, start=begin)
        assert _goes(stack, where, fork(state))
        y, state = engine.compile(stack)(x[:, begin:end], where, state)
        made.append(y)
    torch.testing.assert_close(torch.cat(made, 1), wanted, rtol=0, atol=4e-6 * float(wanted.abs().max()))


@pytest.mark.parametrize("lengths", [(7, 7, 7), (7, 1, 4)])
@torch.no_grad()
def test_many_tokens_ask_a_source(lengths: tuple[int, ...]) -> None:
    """Without a state, as a target is scored; and call by call."""
    config = Decoder.Config(**SIZES, cross=Cross.Config(kv_heads=2), wiring=PostNorm())
    model, source = _model(config), Where.ragged(torch.tensor([9, 4, 6]))
    given = Given(encoder_output=Seen.of(source, _stream(source)))
    where = _where(lengths).beside(given)
    assert _goes(model.stack, where)
    later = Where.ragged([2, 3, 2], start=torch.tensor(lengths))
    found = []
    for stack in (engine.compile(model.stack), model.stack):
        found.append([stack(_stream(where), where)[0][where.real], *_calls(stack, [where, later], given)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=4e-6 * max(1.0, float(other.abs().max())))


@torch.no_grad()
def test_a_state_that_was_used_up_or_is_of_another_model_is_refused() -> None:
    model, where = engine.compile(_model(DECODERS["gpt-2"])), Where.run(1, 5, start=9)
    _, state = model.stack(_stream(Where.run(1, 9)), Where.run(1, 9), model.stack.start(1))
    assert not _goes(_model(DECODERS["llama"]).stack, where, fork(state))
    assert not _goes(model.stack.plain, where, to(fork(state), dtype=torch.float64))
    model.stack(_stream(where), where, state)
    with pytest.raises(StateConsumed):
        model.stack(_stream(where), where, state)


APART = {
    "a window that sees farther back": Encoder.Config(**SIZES, mixer=Attention.Config(mask=Window(back=4, ahead=1))),
    "a window that sees farther ahead": Encoder.Config(**SIZES, mixer=Attention.Config(mask=Window(back=1, ahead=4))),
    "a last block without a program": Decoder.Config(**SIZES, mixer=(Attention.Config(), Mamba.Config())),
    "a first block without a program": Decoder.Config(**SIZES, mixer=(Mamba.Config(), Attention.Config())),
    "rotations of two amplitudes": Decoder.Config(
        **SIZES,
        mixer=tuple(
            Attention.Config(position=Rope.Config(scaling=Yarn(factor=4.0, original=64, attention=amplitude)))
            for amplitude in (1.0, 1.5)
        ),
    ),
}


@pytest.mark.parametrize("lengths", [(11, 11), (13, 2, 9)], ids=["whole", "ragged"])
@pytest.mark.parametrize("name", APART)
@torch.no_grad()
def test_what_no_program_can_do_as_it_stands_is_done_all_the_same(name: str, lengths: tuple[int, ...]) -> None:
    """Masks without an instruction, blocks without one at either end, and what one layer has otherwise than another."""
    stack, where = _model(APART[name]).stack, _where(lengths)
    x = _stream(where)
    mine, wanted = engine.compile(stack)(x, where)[0], stack(x, where)[0]
    torch.testing.assert_close(mine[where.real], wanted[where.real], rtol=0, atol=2e-6 * float(wanted.abs().max()))


@pytest.mark.parametrize("name", ["windows", "bloom", "rwkv"])
@torch.no_grad()
def test_tokens_with_a_hole_between_them_are_as_far_apart_as_they_say(name: str) -> None:
    """Programs count places: what is 4 orders away and next to a token is outside of a window of 3."""
    stack = _model(DECODERS[name]).stack
    order = torch.tensor([[0, 1, 2, 3, 9, 10, 11, 18], [0, 4, 8, 12, 16, -1, -1, -1]])
    where = Where(order, order.clamp(min=0))
    x = _stream(where)
    mine, wanted = engine.compile(stack)(x, where)[0], stack(x, where)[0]
    torch.testing.assert_close(mine[where.real], wanted[where.real], rtol=0, atol=2e-6 * float(wanted.abs().max()))


@pytest.mark.parametrize("name", ["llama", "rwkv", "hybrid"])
@torch.no_grad()
def test_a_state_is_used_once_by_programs_too(name: str) -> None:
    stack = _model(DECODERS[name]).stack
    x, state = _stream(Where.run(2, 5)), stack.start(2)
    engine.compile(stack)(x, Where.run(2, 5), state)
    with pytest.raises(StateConsumed):
        engine.compile(stack)(x, Where.run(2, 5), state)
