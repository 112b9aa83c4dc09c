"""The runner protocol: plain and compiled runners give the same logits, tokens and state."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from heed import engine
from heed.core.contract import NOTHING, Given, Where
from heed.core.errors import InputError
from heed.core.state import Cell, Log, Seen, State, leaves
from heed.engine import SamplingSettings
from heed.engine.adaptive import AdaptiveRunner
from heed.engine.compiled import CompiledRunner, compiled_runner
from heed.engine.program import Uncompiled
from heed.engine.runners import PlainRunner, Runner
from heed.kernels import library, written_out
from heed.mixers import Attention, Cross, Retention
from heed.models import RWKV, Decoder, Encoder, RetNet, Seq2seq
from heed.parts.feedforward import Gated
from heed.parts.layers.norms import RMSNorm
from heed.parts.masks import Window
from heed.parts.positions import Alibi, Dynamic, Learned, Rope, Sinusoid
from heed.parts.residual.wiring import Parallel, PostNorm, Sandwich
from heed.weights.edits import BitLinear, Packed, Quantised, edit
from tests.decode.support import Recurrent

SIZES: dict[str, Any] = {"vocabulary": 37, "width": 24, "depth": 2}
PLANS: dict[str, Any] = {
    "gpt-2": Decoder.Config(**SIZES, position=Learned.Config(length=64)),
    "llama": Decoder.Config(
        **SIZES, mixer=Attention.Config(kv_heads=2, position=Rope.Config()), feedforward=Gated.Config(), norm=RMSNorm()
    ),
    "windows": Decoder.Config(**SIZES, mixer=Attention.Config(mask=Window(back=3)), wiring=Parallel()),
    "bloom": Decoder.Config(**SIZES, mixer=Attention.Config(position=Alibi.Config()), wiring=PostNorm()),
    "falcon": Decoder.Config(**SIZES, mixer=Attention.Config(kv_heads=1, position=Alibi.Config(scaled=True))),
    "opt": Decoder.Config(**SIZES, position=Learned.Config(length=64, offset=2)),
    "gemma": Decoder.Config(**SIZES, mixer=Attention.Config(cap=3.0), wiring=Sandwich(), cap=3.0),
    "rwkv": RWKV(width=24, depth=2, hidden=16).sized(37),
    "retnet": RetNet(width=24, depth=2, heads=3, value_width=27).sized(37),
    "hybrid": Decoder.Config(**SIZES, mixer=(Retention.Config(heads=2), Attention.Config(heads=2))),
    "translator": Seq2seq.Config(
        encoder=Encoder.Config(**SIZES), decoder=Decoder.Config(**SIZES, cross=Cross.Config()), shared=True
    ),
}


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if library() is None:
        pytest.skip("there are no kernels here")


def _model(name: str) -> Any:
    torch.manual_seed(0)
    return PLANS[name].build().eval()


def _runner(model: Any, kind: str, given: Given) -> Runner:
    """Of one kind, which has begun."""
    if kind == "compiled":
        with torch.no_grad():
            made = compiled_runner(model, model.start(3, given), given)
        assert isinstance(made, CompiledRunner)
        return made
    runner = PlainRunner(model) if kind == "plain" else engine.runner(model)
    runner.start(3, given)
    return runner


def _ran(name: str, kind: str) -> tuple[list[Tensor], State, Runner]:
    model = _model(name)
    draw = torch.Generator().manual_seed(1)
    lengths, given = torch.tensor([5, 2, 4]), NOTHING
    if isinstance(model, Seq2seq):
        given = engine.runner(model).encode(torch.randint(37, (3, 6), generator=draw), Where.ragged([6, 3, 1]))
    runner = _runner(model, kind, given)
    made = [runner.prefill(torch.randint(37, (3, 5), generator=draw), Where.ragged(lengths)).clone()]
    for step in range(8):
        order = (lengths + step)[:, None]
        made.append(runner.step(torch.randint(37, (3,), generator=draw), Where(order, order)).clone())
        if step == 3:
            runner.select(torch.tensor([2, 0, 0]))
            lengths = lengths[[2, 0, 0]]
    return made, runner.state(), runner


@pytest.mark.parametrize("name", PLANS)
def test_runners_of_all_kinds_agree(name: str) -> None:
    (wanted, state, plain), *others = (_ran(name, kind) for kind in ("plain", "compiled", "adaptive"))
    assert not plain.compiled
    for made, held, runner in others:
        assert runner.compiled, runner.reason
        for one, other in zip(made, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=3e-5 * max(1.0, float(other.abs().max())))
        for mine, theirs in zip(_entries(held), _entries(state), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=3e-5 * max(1.0, float(theirs.abs().max())))


def _entries(state: State) -> list[Tensor]:
    """What is remembered, entry by entry: holes and the order within a log are left out."""
    found: list[Tensor] = []
    for leaf in leaves(state):
        if isinstance(leaf, Cell):
            found += leaf.tensors()
        elif isinstance(leaf, Log):
            order, _, *held = leaf.tensors()
            found += [
                part[row][order[row].argsort()][(order[row] < 0).sum() :] for part in held for row in range(len(order))
            ]
    return found


def test_a_burst_samples_what_steps_sample() -> None:
    model = _model("llama")
    sampling = SamplingSettings(torch.ones(3, dtype=torch.bool), enough=1, ends=torch.empty(0, dtype=torch.long))
    one, two = (_runner(model, "compiled", NOTHING) for _ in range(2))
    tokens = torch.tensor([1, 2, 3])
    made = one.burst(tokens, Where.run(3, 1), 9, sampling)
    assert made is not None
    for step in range(9):
        tokens = two.step(tokens, Where.run(3, 1, start=step)).argmax(1)
        assert torch.equal(tokens, made[0][step])
    found = two.topk_logprobs(5)
    assert found is not None
    assert torch.equal(found[1][:, 0], tokens)
    plain = PlainRunner(model)
    plain.start(3)
    assert plain.burst(tokens, Where.run(3, 1), 9, sampling) is None
    assert plain.topk_logprobs(5) is None


def test_a_prompt_alone_compiles_nothing_and_steps_do() -> None:
    model = _model("llama")
    runner = engine.runner(model)
    assert isinstance(runner, AdaptiveRunner)
    runner.start(1)
    runner.prefill(torch.tensor([[1, 2, 3]]), Where.run(1, 3))
    before = runner.compiled
    runner.step(torch.tensor([4]), Where.run(1, 1, start=3))
    assert (before, runner.compiled) == (False, True)
    again = engine.runner(model)
    again.start(1)
    again.prefill(torch.tensor([[1, 2, 3]]), Where.run(1, 3))
    assert again.compiled  # from now on the program reads prompts, too


def test_it_says_why_it_is_plain() -> None:
    model = Decoder.Config(**SIZES, mixer=Retention.Config(heads=2)).build().eval()

    class Mine(Decoder):
        """A subclass may compute something else."""

    model.__class__ = Mine
    runner = engine.runner(model, model.start(1))
    assert not runner.prepare()
    assert runner.reason == "Mine: Mine, a subclass of Decoder, has no emitter: it may compute something else"
    with written_out():
        runner = engine.runner(_model("llama"), _model("llama").start(1))
        assert not runner.prepare()
        assert "no kernels" in runner.reason


def test_a_subclass_with_another_call_is_asked_itself() -> None:
    class Loud(Decoder):
        def mix(self, x: Tensor, where: Where, state: Any = None) -> Any:
            logits, state = super().mix(x, where, state)
            return 2 * logits, state

        def forward(self, x: Tensor, where: Where, state: Any = None) -> Any:
            return self.mix(self.embeddings.embed(x, where), where, state)

    torch.manual_seed(0)
    model = Loud(Decoder.Config(**SIZES)).eval()
    runner, tokens = engine.runner(model), torch.tensor([[1, 2, 3]])
    runner.start(1)
    with torch.no_grad():
        wanted = model(tokens, Where.run(1, 3))[0][:, -1]
    torch.testing.assert_close(runner.prefill(tokens, Where.run(1, 3)), wanted, rtol=0, atol=1e-5)


def test_training_mode_is_left_as_it_was() -> None:
    model = Decoder.Config(**SIZES, dropout=0.5).build().train()
    runner = engine.runner(model)
    runner.start(1)
    first = runner.prefill(torch.tensor([[1, 2, 3]]), Where.run(1, 3)).clone()
    runner.step(torch.tensor([4]), Where.run(1, 1, start=3))
    assert runner.compiled
    assert all(module.training for module in model.modules())
    runner.start(1)
    torch.testing.assert_close(runner.prefill(torch.tensor([[1, 2, 3]]), Where.run(1, 3)), first, rtol=0, atol=1e-5)
    with torch.no_grad():
        assert isinstance(compiled_runner(model, model.start(1)), CompiledRunner | Uncompiled)


@torch.no_grad()
def test_a_runner_that_begins_anew_is_compiled_again() -> None:
    made = engine.runner(_model("llama"))
    for _ in range(2):
        made.start(2)
        made.prefill(torch.ones(2, 3, dtype=torch.long), Where.run(2, 3))
        made.step(torch.ones(2, dtype=torch.long), Where.run(2, 1, start=3))
        assert made.compiled


@torch.no_grad()
def test_rows_are_given_their_own_source_however_often_they_are_selected() -> None:
    """A recurrence that reads its source at every call: rows are repeated, dropped and put into another order."""
    model = Recurrent(13).double()
    source = torch.randn(3, 4, 8, dtype=torch.float64)
    seen = Seen.of(Where.ragged([4, 2, 3]), source)
    given = Given(encoder_output=seen)
    made, tokens = PlainRunner(model, given=given), torch.tensor([[1, 2], [3, 4], [5, 6]])
    made.start(3, given)
    made.prefill(tokens, Where.run(3, 2))
    owner = torch.arange(3)
    for step, rows in enumerate(([2, 0, 0, 1], [3, 0, 1], [2, 2, 0])):
        made.select(torch.tensor(rows))
        owner, tokens = owner[rows], tokens[rows]
        tokens = torch.cat((tokens, torch.full((len(rows), 1), 7 + step)), 1)
        logits = made.step(tokens[:, -1], Where.run(len(rows), 1, start=2 + step))
        near = Seen(*(part[owner] for part in (seen.order, seen.position, source)))
        wanted, _ = model(tokens, Where.run(*tokens.shape).give(encoder_output=near))
        assert torch.allclose(logits, wanted[:, -1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_logits_of_half_precision_are_given_as_float32(dtype: torch.dtype) -> None:
    """Sums of many log p need it, and so does whoever compares them."""
    made = engine.runner(_model("llama").to(dtype))
    made.start(2)
    assert made.prefill(torch.ones(2, 3, dtype=torch.long), Where.run(2, 3)).dtype == torch.float32
    assert made.step(torch.ones(2, dtype=torch.long), Where.run(2, 1, start=3)).dtype == torch.float32


@torch.no_grad()
def test_codes_are_ready_for_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Step by step beyond as many places as are made at first, and twice as many as those."""
    monkeypatch.setattr("heed.engine.compiled.FIRST", 4)
    torch.manual_seed(0)
    model = Decoder.Config(**SIZES, position=Sinusoid.Config()).build().eval()
    made, tokens = engine.runner(model), torch.randint(37, (1, 30))
    made.start(1)
    made.prefill(tokens[:, :1], Where.run(1, 1))
    wanted, _ = model(tokens, Where.run(1, 30))
    for place in range(1, 30):
        logits = made.step(tokens[:, place], Where.run(1, 1, start=place))
        torch.testing.assert_close(logits, wanted[:, place], rtol=0, atol=1e-5)
    assert made.compiled


EDITED: dict[str, tuple[Any, ...]] = {
    "16 bits by 8": (Quantised(),),
    "8 bits by 8": (Quantised(bits="w8a8"),),
    "ternary": (BitLinear(), Packed()),
    "ternary, normed": (BitLinear(norm=RMSNorm()), Packed()),
}


@pytest.mark.parametrize("name", EDITED)
@torch.no_grad()
def test_steps_of_quantised_layers_are_those_of_their_plain_calls(name: str) -> None:
    """Whole numbers are multiplied exactly: but for a code that falls to its neighbour the logits are the same."""
    torch.manual_seed(0)
    model: Any = edit(Decoder.Config(**SIZES, tied=False).build().eval(), *EDITED[name])
    for module in model.modules():
        if isinstance(module, torch.nn.RMSNorm):
            torch.nn.init.uniform_(module.weight, 0.2, 5.0)
    tokens, ends = torch.randint(37, (2, 4)), []
    for kind in ("plain", "compiled"):
        made = PlainRunner(model) if kind == "plain" else compiled_runner(model, model.start(2), NOTHING)
        assert isinstance(made, Runner)
        if kind == "plain":
            made.start(2)
        with written_out() if kind == "plain" else nullcontext():
            steps = [made.step(tokens[:, place], Where.run(2, 1, start=place)).clone() for place in range(4)]
        ends.append(torch.stack(steps))
    gap = (ends[0] - ends[1]).abs().median() / ends[0].std()
    assert gap < 1e-5, float(gap)


TURNED = {
    "values turn, too": Rope.Config(values=True),
    "only so many positions": Rope.Config(scaling=Dynamic(factor=2.0, original=6)),
}


@pytest.mark.parametrize("name", TURNED)
@torch.no_grad()
def test_a_rotation_without_an_instruction_is_left_to_plain_calls(name: str) -> None:
    torch.manual_seed(0)
    model = Decoder.Config(**SIZES, mixer=Attention.Config(position=TURNED[name])).build().eval()
    made = engine.runner(model)
    made.start(1)
    tokens = torch.arange(6)[None]
    logits = made.prefill(tokens[:, :3], Where.run(1, 3))
    for place in range(3, 6):
        logits = made.step(tokens[:, place], Where.run(1, 1, start=place))
    torch.testing.assert_close(logits, model(tokens, Where.run(1, 6))[0][:, -1], rtol=0, atol=1e-5)
    assert not made.compiled
    assert "values are turned, or the code changes with the length" in made.reason
    if "positions" in name:
        with pytest.raises(InputError, match="position 6 is outside 0 to 5"):
            made.step(tokens[:, 0], Where.run(1, 1, start=6))
