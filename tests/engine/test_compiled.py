"""A decoder's program writes what its plain calls write: every wiring, mask, code and layer that it knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from heed.core.contract import Given, Where
from heed.core.errors import InputError
from heed.core.state import leaves, nbytes, to
from heed.decode import Beam, generate, loop, stream
from heed.decode.rows import Rows
from heed.engine import SamplingSettings, adaptive
from heed.engine.compiled import CompiledRunner, DecoderProgram, compiled_runner, is_compiled
from heed.engine.program import Uncompiled
from heed.kernels import library, written_out
from heed.mixers import Attention, Cross, Retention
from heed.models import RWKV, Decoder, Encoder, RetNet, Seq2seq
from heed.models.block import States
from heed.parts.feedforward import FeedForward, Gated
from heed.parts.layers.norms import LayerNorm, RMSNorm
from heed.parts.masks import Causal, Sparse, Window
from heed.parts.positions import Alibi, Learned, Rope, Sinusoid
from heed.parts.positions.scaling import Llama3
from heed.parts.recurrence.divisors import Rooted
from heed.parts.residual.wiring import DeepNorm, Normed, Parallel, PostNorm, Rescaled, Sandwich
from heed.verify.samples import samples
from heed.weights.edits import BitLinear, Packed, Quantised, edit

SIZES: dict[str, Any] = {"vocabulary": 37, "width": 24, "depth": 2}
WINDOWED = (Attention.Config(heads=2), Attention.Config(heads=2, mask=Window(back=3)))
PLANS = {
    "gpt-2": Decoder.Config(
        **SIZES, position=Learned.Config(length=64), feedforward=FeedForward.Config(activation="gelu_tanh")
    ),
    "llama": Decoder.Config(
        **SIZES,
        mixer=Attention.Config(kv_heads=2, bias=False, position=Rope.Config(scaling=Llama3(factor=8.0, original=32))),
        feedforward=Gated.Config(hidden=40),
        norm=RMSNorm(),
        tied=False,
    ),
    "mistral": Decoder.Config(
        **SIZES,
        mixer=Attention.Config(kv_heads=2, mask=Window(back=5), position=Rope.Config(layout="pairs", share=2 / 3)),
        feedforward=Gated.Config(hidden=31),
        norm=RMSNorm(),
    ),
    "bloom": Decoder.Config(**SIZES, mixer=Attention.Config(position=Alibi.Config()), embedding_norm=LayerNorm()),
    "falcon": Decoder.Config(
        **SIZES, mixer=Attention.Config(kv_heads=1, position=Alibi.Config(scaled=True)), wiring=Normed()
    ),
    "gpt-neox": Decoder.Config(
        **SIZES,
        mixer=Attention.Config(heads=3, position=Rope.Config(share=0.5)),
        wiring=Parallel(own_norms=True),
        feedforward=FeedForward.Config(activation="gelu"),
    ),
    "gpt-j": Decoder.Config(**SIZES, wiring=Parallel(), mixer=Attention.Config(position=Rope.Config(layout="pairs"))),
    "gemma 2": Decoder.Config(
        **SIZES, mixer=WINDOWED, wiring=Sandwich(), norm=RMSNorm(from_one=True), cap=3.0, head_scale=0.5, scaled=True
    ),
    "qwen 3": Decoder.Config(**SIZES, mixer=Attention.Config(head_norm=RMSNorm(), clip=0.5, cap=1.0)),
    "original": Decoder.Config(**SIZES, wiring=PostNorm(), position=Sinusoid.Config(), scaled=True, head_bias=True),
    "deepnorm": Decoder.Config(**SIZES, wiring=DeepNorm.alone(2), mixer=Attention.Config(norm=LayerNorm())),
    "rescaled": Decoder.Config(**SIZES, wiring=Rescaled(every=1), feedforward=FeedForward.Config(norm=LayerNorm())),
    "rwkv": RWKV(width=24, depth=3, hidden=16).sized(37),
    "retnet": RetNet(width=24, depth=2, heads=3, value_width=27).sized(37),
    "hybrid": Decoder.Config(**SIZES, mixer=(Retention.Config(heads=2), Attention.Config(heads=2))),
    "shared": Decoder.Config(**{**SIZES, "depth": 3}, order=(0, 0, 0)),
}
PROMPTS = {"even": (6, 6, 6), "ragged": (3, 7, 1)}
EDITS = {"float32": (), "int8": (Quantised(),), "int4": (Quantised(bits="int4"),), "ternary": (BitLinear(), Packed())}


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if library() is None:
        pytest.skip("this machine has no C++ compiler; that heed does without is shown by all other tests")


def _built(config: Decoder.Config, *edits: object) -> Decoder:
    torch.manual_seed(0)
    return edit(config.build().eval(), *edits)  # type: ignore[arg-type]


def _compiled_runner(model: Any, state: Any) -> CompiledRunner | None:
    """The runner that goes on from this state, if there is one."""
    made = compiled_runner(model, state)
    return None if isinstance(made, Uncompiled) else made


def _likeliest(rows: int) -> SamplingSettings:
    return SamplingSettings(torch.ones(rows, dtype=torch.bool), enough=1, ends=torch.empty(0, dtype=torch.long))


def _written(model: Decoder, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, *, quick: bool) -> Tensor:
    """Scores of some steps, by a program or by plain calls of torch; in the middle rows are dropped and doubled."""
    used: list[object] = []
    form = compiled_runner

    def choose(model: Decoder, state: Any, given: Given) -> object:
        made = form(model, state, given) if quick else Uncompiled(model, "not wanted")
        used.append(made)
        return made

    draw = torch.Generator().manual_seed(1)
    prompts = [torch.randint(37, (length,), generator=draw).tolist() for length in lengths]
    with monkeypatch.context() as patched, nullcontext() if quick else written_out():
        patched.setattr(adaptive, "compiled_runner", choose)
        rows = Rows(model, prompts)
        made = [rows.prefill()]
        for step in range(14):
            tokens = torch.randint(37, (3,), generator=draw)
            made.append(rows.step(tokens).clone())
            if step == 6:
                rows.select(torch.tensor([2, 0, 0]), [2, 0, 0])
    assert len(used) > 0
    assert all(isinstance(one, CompiledRunner) == quick for one in used)
    return torch.cat(made)


@pytest.mark.parametrize("lengths", PROMPTS)
@pytest.mark.parametrize("name", PLANS)
def test_the_program_is_the_model(name: str, lengths: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _built(PLANS[name])
    quick = _written(model, PROMPTS[lengths], monkeypatch, quick=True)
    assert is_compiled(model)  # from now on the program reads prompts, too
    again, plain = (_written(model, PROMPTS[lengths], monkeypatch, quick=quick) for quick in (True, False))
    # Float32, and sums in another order: some hundred roundings of numbers of about this size.
    most = 2e-6 * max(1.0, float(plain.abs().max())) * 10
    assert float((quick - plain).abs().max()) <= most
    assert float((again - plain).abs().max()) <= most


@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("name", ["gpt-2", "llama"])
def test_layers_of_few_bits(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = PLANS[name].model_copy(update={"width": 64})
    model = _built(wide, *EDITS[kind])
    quick, plain = (_written(model, (6, 6, 6), monkeypatch, quick=quick) for quick in (True, False))
    # What is rounded may fall to the other side of a half: one step of 127 (ternary) or 32,767, in few of 64 channels.
    apart = (quick - plain).abs()
    assert float(apart.max()) <= (0.1 if kind == "ternary" else 1e-3)
    assert float(apart.median()) <= 1e-4


def _samples() -> list[Decoder.Config]:
    return [config for config in samples(Decoder.Config) if isinstance(config, Decoder.Config) and config.cross is None]


@pytest.mark.parametrize("config", _samples(), ids=repr)
def test_every_sample_or_none(config: Decoder.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is written by a program that is right, or by none."""
    model = _built(config.model_copy(update={"vocabulary": 37}))
    try:
        DecoderProgram(model)
    except Uncompiled:
        _written(model, (3, 7, 1), monkeypatch, quick=False)
        return
    quick, plain = (_written(model, (3, 7, 1), monkeypatch, quick=quick) for quick in (True, False))
    assert float((quick - plain).abs().max()) <= 1e-4 * max(1.0, float(plain.abs().max()))


@pytest.mark.parametrize(
    "config",
    [
        Decoder.Config(**SIZES, mixer=Retention.Config(heads=2, divisor=Rooted())),
        Decoder.Config(**SIZES, mixer=Attention.Config(mask=Causal() & Sparse(step=2))),
        Decoder.Config(**SIZES, feedforward=FeedForward.Config(activation="mish")),
    ],
)
def test_what_it_does_not_know_it_leaves_alone(config: Decoder.Config) -> None:
    model = _built(config)
    with torch.no_grad():
        _, state = model(torch.tensor([[1, 2, 3]]), Where.run(1, 3), model.start(1))
        assert state is not None
        assert _compiled_runner(model, state) is None
    assert not any(leaf.spent for leaf in leaves(state))


@pytest.mark.parametrize("part", ["head.weight", "stack.blocks.0.wiring.norms.0.weight", "state"])
def test_other_precisions_are_left_alone(part: str) -> None:
    model = _built(PLANS["llama"])
    with torch.no_grad():
        _, state = model(torch.tensor([[1, 2, 3]]), Where.run(1, 3), model.start(1))
        assert state is not None
        if part == "state":
            state = to(state, dtype=torch.float16)
        else:
            weight = model.get_parameter(part)
            weight.data = weight.data.double()
        assert _compiled_runner(model, state) is None
    assert not any(leaf.spent for leaf in leaves(state))


def _seq2seq() -> Iterator[Seq2seq]:
    torch.manual_seed(0)
    encoder = Encoder.Config(**SIZES, position=Sinusoid.Config())
    for wiring in (PostNorm(), PostNorm(final=True)):
        cross = Cross.Config(kv_heads=2)
        decoder = Decoder.Config(**SIZES, cross=cross, position=Sinusoid.Config(), wiring=wiring)
        yield Seq2seq.Config(encoder=encoder, decoder=decoder, shared=True).build().eval()


@pytest.mark.parametrize("model", list(_seq2seq()))
def test_a_beam_search_over_a_source(model: Seq2seq, monkeypatch: pytest.MonkeyPatch) -> None:
    source = torch.randint(37, (3, 8))
    where = Where.ragged(torch.tensor([8, 3, 5]))
    memory = model.encode(source, where)
    found = []
    for quick in (True, False):
        with monkeypatch.context() as patched:
            if not quick:
                patched.setattr(adaptive, "compiled_runner", lambda model, *_: Uncompiled(model, "not wanted"))
            how = Beam(beams=4, best=4)
            found.append(
                generate(
                    model, [[1], [1], [1]], max_new_tokens=9, end=0, strategy=how, given=Given(encoder_output=memory)
                )
            )
    for mine, theirs in zip(*found, strict=True):
        assert [one.tokens for one in mine] == [one.tokens for one in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert abs(one.score - other.score) < 1e-4


def test_the_state_that_it_gives_back_is_that_of_plain_calls() -> None:
    model = _built(PLANS["gemma 2"])
    tokens = torch.randint(37, (2, 12))
    with torch.no_grad():
        _, state = model(tokens[:, :2], Where.run(2, 2), model.start(2))
        assert state is not None
        quick = _compiled_runner(model, state)
        assert quick is not None
        for at in range(2, 12):
            quick.step(tokens[:, at], Where.run(2, 1, start=at))
        mine = cast(States, quick.state())
        _, theirs = model(tokens, Where.run(2, 12), model.start(2))
        assert nbytes(mine) == nbytes(theirs)
        for one, other in zip(leaves(mine), leaves(theirs), strict=True):
            places = [held.tensors()[0].argsort(1) for held in (one, other)]  # rings lie in another order
            for a, b in zip(one.tensors(), other.tensors(), strict=True):
                first, second = (
                    t.gather(1, p.reshape(*p.shape, *(1,) * (t.dim() - 2)).expand_as(t))
                    for t, p in zip((a, b), places, strict=True)
                )
                torch.testing.assert_close(first, second, rtol=0, atol=1e-5)
        after = [model(tokens[:, :1], Where.run(2, 1, start=12), kept)[0] for kept in (mine, theirs)]
    torch.testing.assert_close(*after, rtol=0, atol=1e-5)


@pytest.mark.parametrize("lengths", PROMPTS)
@pytest.mark.parametrize("name", ["gpt-2", "mistral", "retnet", "gemma 2"])
def test_many_tokens_at_once_are_one_after_the_other(name: str, lengths: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _built(PLANS[name])
    prompts = [torch.arange(1, length + 1).tolist() for length in PROMPTS[lengths]]
    found = []
    for burst in (16, 1):
        monkeypatch.setattr(loop, "MANY", burst)
        found.append(generate(model, prompts, max_new_tokens=40, end={5, 7}))
    for (mine,), (theirs,) in zip(*found, strict=True):
        assert (mine.tokens, mine.why) == (theirs.tokens, theirs.why)
        assert abs(mine.score - theirs.score) < 1e-3


def test_a_burst_ends_where_places_do() -> None:
    model = _built(PLANS["gpt-2"])
    seen = stream(model, [[1, 2]], max_new_tokens=100, end=None)
    for _ in range(63):
        next(seen)  # all that had a place: 62 are written, one more is chosen
    with pytest.raises(InputError, match="64"):
        next(seen)


def test_scores_that_are_no_numbers_are_reported_in_a_burst() -> None:
    model = _built(PLANS["llama"])
    with torch.no_grad():
        model.head.weight[3] = torch.nan
    with pytest.raises(InputError, match="hold NaN or infinity at step 1"):
        generate(model, [[1, 2]], max_new_tokens=9, end=None)
    with torch.no_grad():
        state = model(torch.tensor([[1, 2]]), Where.run(1, 2), model.start(1))[1]
        assert state is not None
        walk = _compiled_runner(model, state)
        assert walk is not None
        made = walk.burst(torch.tensor([1]), Where.run(1, 1, start=2), 5, _likeliest(1))
    assert made is not None
    assert made[1].isnan().all()


def test_gradients_are_not_written_over() -> None:
    model = _built(PLANS["llama"])
    _, state = model(torch.tensor([[1, 2, 3]]), Where.run(1, 3), model.start(1))
    assert state is not None
    assert _compiled_runner(model, state) is None
    with torch.no_grad():
        assert _compiled_runner(model, state) is not None


@pytest.mark.parametrize("burst", [False, True])
@pytest.mark.parametrize("back", [150, None])  # a window that fills while tokens are written, and none
def test_memories_have_room_for_all_that_is_written(back: int | None, burst: bool) -> None:
    mask = Causal() if back is None else Window(back=back)
    model = _built(Decoder.Config(**SIZES, mixer=Attention.Config(mask=mask)))
    tokens = torch.randint(37, (2, 260), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        _, state = model(tokens[:, :4], Where.run(2, 4), model.start(2))
        assert state is not None
        walk = _compiled_runner(model, state)
        assert walk is not None
        if burst:
            written, last = [tokens[:, :4]], tokens[:, 4]
            for at in range(4, 244, 16):
                made = walk.burst(last, Where.run(2, 1, start=at), 16, _likeliest(2))
                assert made is not None
                assert len(made[0]) == 16
                written += [last[:, None], made[0][:-1].T]
                last = made[0][-1]
            whole, _ = model(torch.cat(written, 1), Where.run(2, 244))
            assert torch.equal(whole[:, -1].argmax(1), last)
        else:
            whole, _ = model(tokens, Where.run(2, 260))
            for at in range(4, 260):
                scores = walk.step(tokens[:, at], Where.run(2, 1, start=at))
                torch.testing.assert_close(scores, whole[:, at], rtol=0, atol=1e-5)
        for leaf in leaves(walk.state()):
            assert leaf.tensors()[0].shape[1] == (back or (244 if burst else 260))


def test_errors_are_those_of_the_model() -> None:
    model = _built(PLANS["gpt-2"])
    with torch.no_grad():
        _, state = model(torch.tensor([[1]]), Where.run(1, 1), model.start(1))
        assert state is not None
        quick = _compiled_runner(model, state)
        assert quick is not None
        with pytest.raises(InputError, match="not in the vocabulary"):
            quick.step(torch.tensor([37]), Where.run(1, 1, start=1))
        quick.step(torch.tensor([3]), Where.run(1, 1, start=1))  # nothing was done before
        with pytest.raises(InputError, match="64"):
            quick.step(torch.tensor([3]), Where.run(1, 1, start=64))


def test_only_the_scores_that_are_wanted_are_computed() -> None:
    model = _built(PLANS["llama"])
    counted: list[int] = []
    model.head.register_forward_hook(lambda layer, given, made: counted.append(made.shape[:-1].numel()))
    scores = Rows(model, [[1, 2, 3, 4], [5, 6]]).prefill()
    assert counted == [2]
    with torch.no_grad():
        alone = model(torch.tensor([[5, 6]]), Where.run(1, 2))[0][:, -1]
    torch.testing.assert_close(scores[1:], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", EDITS)
def test_weights_that_are_stored_the_other_way_round(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As GPT-2's are: a matrix is the transpose of what its file holds."""
    model = PLANS["gpt-2"].model_copy(update={"width": 64}).build().eval()
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear) and layer is not model.head:
            layer.weight.data = layer.weight.data.t().contiguous().t()
    edit(model, *EDITS[kind])
    quick, plain = (_written(model, (6, 6, 6), monkeypatch, quick=quick) for quick in (True, False))
    assert float((quick - plain).abs().max()) <= (0.1 if kind == "ternary" else 1e-3)
