"""The laws over the table, and each mechanism against its equation written as loops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heed.core.config import Config, kind_of
from heed.core.contract import Given, MixerConfig, Where
from heed.core.errors import CannotStream, ConfigError, InputError, StateConsumed
from heed.core.laws import LAWS, Case, Law
from heed.core.spec import price, words
from heed.core.state import Log, Seen, fork, leaves
from heed.mixers import MIXERS, Attention, Cross
from heed.mixers.attention import SAMPLE_MASKS
from heed.parts.feedforward import FEEDFORWARDS
from heed.parts.layers.norms import LayerNorm, NormConfig, RMSNorm
from heed.parts.masks import Causal, Mask, Whole, Window
from heed.parts.positions import RELATIVE, RelativeConfig, Rope
from heed.verify.proof import STATEMENTS

WIDTH = 24
SAMPLES = [sample for kind in (*MIXERS, *FEEDFORWARDS) for sample in kind.samples()]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("sample", SAMPLES, ids=repr)
def test_law_holds(law: Law, sample: MixerConfig) -> None:
    finding = law(sample.build(WIDTH), Case.make(WIDTH))
    assert finding.holds, finding


@pytest.mark.parametrize("sample", SAMPLES, ids=repr)
@pytest.mark.parametrize("statement", [name for name in STATEMENTS if name not in {law.__name__ for law in LAWS}])
def test_statement_holds(statement: str, sample: Config) -> None:
    finding = STATEMENTS[statement](sample)
    assert finding.holds, finding


@pytest.mark.parametrize("kind", [*MIXERS, *FEEDFORWARDS], ids=kind_of)
def test_a_state_of_other_rows_is_refused(kind: type[MixerConfig]) -> None:
    """One row is not taken for all, and none is left over."""
    mixer, case = kind.samples()[0].build(WIDTH).double(), Case.make(WIDTH)
    if not mixer.streams:
        return
    for rows in (1, len(case.x) + 1):
        state = mixer.start(rows, case.rows([0] * rows).given)
        if next(leaves(state), None) is not None:
            with pytest.raises(InputError, match=f"the state remembers {rows} rows, this call has {len(case.x)}"):
                mixer(case.x[:, :2], case.where(0, 2), state)


CODES = [code for kind in RELATIVE for code in kind.samples()]
MASKS = st.sampled_from(SAMPLE_MASKS)


@settings(max_examples=25, deadline=None)
@given(
    mask=MASKS | st.builds(lambda a, b: a & b, MASKS, MASKS) | st.builds(lambda a, b: a | b, MASKS, MASKS),
    position=st.sampled_from(CODES),
    heads=st.sampled_from([(4, None), (4, 1), (4, 2), (2, 1)]),
    flags=st.tuples(st.booleans(), st.none() | st.booleans(), st.sampled_from([None, LayerNorm(), RMSNorm()])),
    sizes=st.tuples(st.integers(1, 3), st.integers(2, 12), st.integers(0, 99)),
)
def test_laws_hold_for_any_combination(
    mask: Mask,
    position: RelativeConfig,
    heads: tuple[int, int | None],
    flags: tuple[bool, bool | None, NormConfig | None],
    sizes: tuple[int, int, int],
) -> None:
    bias, out_bias, norm = flags
    config = Attention.Config(
        heads=heads[0],
        kv_heads=heads[1],
        head_size=6,
        mask=mask,
        position=position,
        bias=bias,
        out_bias=out_bias,
        norm=norm,
    )
    rows, tokens, seed = sizes
    for law in LAWS:
        finding = law(config.build(WIDTH), Case.make(WIDTH, rows=rows, tokens=tokens, seed=seed))
        assert finding.holds, finding


@pytest.mark.parametrize("seed", range(3))
def test_laws_hold_where_windows_go_block_by_block(seed: int) -> None:
    """At 150 tokens a window of 5 takes the banded road in one call and a ring when cut."""
    for config in (Attention.Config(mask=Window(back=5), kv_heads=2, position=Rope.Config()),):
        mixer, case = config.build(WIDTH), Case.make(WIDTH, rows=2, tokens=150, seed=seed)
        for law in LAWS[:3]:
            finding = law(mixer, case)
            assert finding.holds, finding


def test_attention_is_its_equation() -> None:
    mixer = Attention.Config(heads=4, kv_heads=2).build(WIDTH).double()
    x = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    y, _ = mixer(x, Where.run(2, 5))
    q, k, v = (linear(x).detach() for linear in (mixer.query, mixer.key, mixer.value))
    for b in range(2):
        for i in range(5):
            heads: list[Tensor] = []
            for h in range(4):
                one, g = slice(6 * h, 6 * h + 6), slice(6 * (h // 2), 6 * (h // 2) + 6)
                weight = [math.exp(float(q[b, i, one] @ k[b, j, g]) / math.sqrt(6)) for j in range(i + 1)]
                mean = torch.zeros(6, dtype=torch.float64)
                for j in range(i + 1):
                    mean += weight[j] / sum(weight) * v[b, j, g]
                heads.append(mean)
            assert torch.allclose(y[b, i], mixer.out(torch.cat(heads)), rtol=0, atol=1e-13)


def test_cross_attention_is_its_equation_and_depends_on_the_memory() -> None:
    mixer = Cross.Config(heads=1).build(8).double()
    x, m = torch.randn(1, 2, 8, dtype=torch.float64), torch.randn(1, 4, 8, dtype=torch.float64)
    memory = Seen.of(Where.run(1, 4), m)
    y, _ = mixer(x, Where.run(1, 2).give(encoder_output=memory))
    for i in range(2):
        q = mixer.query(x[0, i])
        weight = torch.stack([(q @ mixer.key(m[0, j])) / math.sqrt(8) for j in range(4)]).softmax(0)
        mean = sum(weight[j] * mixer.value(m[0, j]) for j in range(4))
        assert isinstance(mean, Tensor)
        assert torch.allclose(y[0, i], mixer.out(mean), rtol=0, atol=1e-13)


def test_cross_projects_the_source_once() -> None:
    mixer = Cross.Config().build(WIDTH)
    memory = Seen.of(Where.run(2, 4), torch.randn(2, 4, WIDTH))
    state = mixer.start(2, Given(encoder_output=memory))
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    mixer.key.register_forward_hook(count)
    for t in range(3):
        _, after = mixer(torch.randn(2, 1, WIDTH), Where.run(2, 1, start=t), state)
        assert after is not None
        state = after
    assert calls == 0


def test_decoding_a_window_needs_only_the_window() -> None:
    mixer = Attention.Config(heads=4, kv_heads=1, mask=Window(back=3)).build(WIDTH)
    assert words(mixer.spec()) == "2·kv_heads·head_size numbers per token, for the last window tokens"
    assert price(mixer.spec(), 10**6) == 3 * (2 * 6 * 4 + 16)


def test_a_state_used_twice_shows_wrong_and_right_code() -> None:
    mixer = Attention.Config().build(WIDTH)
    x, where = torch.randn(1, 1, WIDTH), Where.run(1, 1)
    state = mixer.start(1)
    mixer(x, where, fork(state))
    mixer(x, where, state)
    with pytest.raises(StateConsumed, match="wrong:"):
        mixer(x, where, state)


def test_what_looks_ahead_refuses_a_state() -> None:
    for mask in (Whole(), Window(back=1, ahead=2)):
        mixer = Attention.Config(mask=mask).build(WIDTH)
        with pytest.raises(CannotStream, match="tokens ahead, so it cannot continue from a state"):
            mixer.start(1)
        with pytest.raises(CannotStream):
            mixer(torch.randn(1, 1, WIDTH), Where.run(1, 1), Log.empty(Attention.Config().build(WIDTH).spec(), 1))  # type: ignore[arg-type]


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="width 30 does not divide into 4 heads; nearest widths: 28, 32; or set head_size"
    ):
        Attention.Config(heads=4).build(30)
    with pytest.raises(ConfigError, match="nearest widths: 4;"):
        Attention.Config(heads=4).build(3)
    with pytest.raises(ConfigError, match="6 heads cannot share kv_heads = 4 evenly"):
        Attention.Config(heads=6, kv_heads=4)
    with pytest.raises(InputError, match="needs the encoder's output"):
        Cross.Config().build(WIDTH)(torch.zeros(1, 1, WIDTH), Where.run(1, 1))
    memory = Seen.of(Where.run(2, 4), torch.zeros(2, 4, WIDTH))
    with pytest.raises(InputError, match="a state for 3 rows needs a memory of 3 rows, not 2"):
        Cross.Config().build(WIDTH).start(3, Given(encoder_output=memory))


def test_multi_query_is_grouped_query_with_one_group() -> None:
    """And all query heads equal to one another read the same."""
    mixer = Attention.Config(heads=4, kv_heads=1).build(WIDTH).double()
    many = Attention.Config(heads=4).build(WIDTH).double()
    for name in ("query", "out"):
        getattr(many, name).load_state_dict(getattr(mixer, name).state_dict())
    for name in ("key", "value"):
        one = getattr(mixer, name)
        getattr(many, name).weight.data = one.weight.data.repeat(4, 1)
        getattr(many, name).bias.data = one.bias.data.repeat(4)
    x, where = torch.randn(2, 6, WIDTH, dtype=torch.float64), Where.run(2, 6)
    assert torch.allclose(mixer(x, where)[0], many(x, where)[0], rtol=0, atol=1e-13)


def test_every_kind_has_a_name_and_says_what_it_is() -> None:
    for kind in MIXERS:
        assert kind_of(kind)
        assert kind.samples()
        assert kind.paper


def test_dropout_falls_in_training_only() -> None:
    mixer = Attention.Config(dropout=0.5, mask=Causal()).build(WIDTH)
    x, where = torch.randn(1, 6, WIDTH), Where.run(1, 6)
    assert not torch.equal(mixer(x, where)[0], mixer(x, where)[0])
    mixer.eval()
    assert torch.equal(mixer(x, where)[0], mixer(x, where)[0])
