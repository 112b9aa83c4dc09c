"""Every position code against its equation, written as plain loops in float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heed.core.config import Config
from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.stamps import Stamps
from heed.parts.attention.attend import attend, written_out
from heed.parts.masks import Causal, Window
from heed.parts.positions import ADDED, POSITIONS, RELATIVE, AddedConfig, AnyAdded, AnyRelative, RelativeConfig
from heed.parts.positions.added import Binary, Integer, Learned, Sinusoid, Unit
from heed.parts.positions.base import NoPosition
from heed.parts.positions.rotary import Rope, XPos
from heed.parts.positions.scaling import Llama3, LongRope, Yarn
from heed.parts.positions.scored import Alibi, Buckets, Relative, slopes
from heed.parts.positions.shaw import Shaw
from tests.parts.positions.frequencies import rope_frequencies

HEADS, SIZE, WIDTH = 4, 6, 24
EXACT = 1e-12  # float64 against a loop in Python floats
GOLDEN = Path(__file__).parents[2] / "golden/xpos/decoder_subln"
ADDED_SAMPLES = [sample for config in ADDED for sample in config.samples()]
RELATIVE_SAMPLES = [sample for config in RELATIVE for sample in config.samples()]


def at(*rows: list[int]) -> Stamps:
    """Stamps at these positions, all real, revealed in the order given."""
    position = torch.tensor(rows)
    return Stamps(torch.arange(position.shape[1]).repeat(len(rows), 1), position)


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def near(got: Tensor, wanted: Tensor | list[Any], bound: float = EXACT) -> None:
    wanted = torch.as_tensor(wanted, dtype=torch.float64)
    assert got.shape == wanted.shape
    assert float((got.double() - wanted).abs().max()) <= bound


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize("spread", ["paper", "inclusive"])
def test_sinusoid_is_its_equation(layout: str, spread: str) -> None:
    config = Sinusoid.Config.load({"kind": "sinusoid", "layout": layout, "spread": spread, "base": 500, "offset": 2})
    places, half = [0, 1, 7, 1_000_000], WIDTH // 2
    wanted = []
    for p in places:
        power = [c / half if spread == "paper" else c / (half - 1) for c in range(half)]
        sin = [math.sin((p + 2) * 500**-e) for e in power]
        cos = [math.cos((p + 2) * 500**-e) for e in power]
        wanted.append([w for two in zip(sin, cos, strict=True) for w in two] if layout == "interleaved" else sin + cos)
    near(config.build(WIDTH).code(torch.tensor([places])), [wanted])


def test_sinusoid_is_right_far_out_in_a_small_dtype() -> None:
    code, position = Sinusoid.Config().build(WIDTH), torch.tensor([[10**6, 10**6 + 1]])
    exact = code.code(position)
    for dtype in (torch.float32, torch.bfloat16):  # a value of at most 1 is rounded once: half an eps
        near(code(torch.zeros(1, 2, WIDTH, dtype=dtype), position), exact, torch.finfo(dtype).eps / 2)


@pytest.mark.parametrize("offset", [0, 2])
def test_learned_reads_its_table(offset: int) -> None:
    code = Learned.Config(length=5, offset=offset).build(3).double()
    assert code.table.shape == (5 + offset, 3)
    assert torch.equal(code(draw(1, 2, 3), torch.tensor([[4, 0]])), draw(1, 2, 3) + code.table[[4 + offset, offset]])
    with pytest.raises(InputError, match=r"position 5 .* length 5 covers; give the config a greater length"):
        code(torch.ones(1, 1, 3), torch.tensor([[5]]))
    with pytest.raises(InputError, match=f"position {-offset - 1} is outside"):
        code(torch.ones(1, 1, 3), torch.tensor([[-offset - 1]]))


def test_codes_for_teaching() -> None:
    position = torch.tensor([[0, 1, 6, 10]])
    near(Unit.Config(length=11).build(2).code(position), [[[p / 10] * 2 for p in (0, 1, 6, 10)]])
    near(Integer.Config().build(2).code(position), [[[p] * 2 for p in (0, 1, 6, 10)]])
    for bits in (4, 70):
        near(Binary.Config().build(bits).code(position), [[[p >> c & 1 for c in range(bits)] for p in (0, 1, 6, 10)]])
    for code, says in ((Unit.Config(length=10), "to 9, .* greater length"), (Binary.Config(), "to 7, all that 3 bits")):
        with pytest.raises(InputError, match=f"position 10 is outside 0 {says}"):
            code.build(3).code(position)


@pytest.mark.parametrize("config", ADDED_SAMPLES, ids=repr)
def test_added_rows_are_alike_however_they_are_stored(config: AddedConfig) -> None:
    code, x = config.build(WIDTH).double(), draw(3, 5, WIDTH)
    shared = torch.arange(40, 45).expand(3, 5)
    assert torch.equal(code(x, shared.clone()), x + code.code(shared))
    assert code(x[:0], shared[:0]).shape == (0, 5, WIDTH)
    assert code(x[:, :0], shared[:, :0]).shape == (3, 0, WIDTH)


ROPES = [
    *((sample, SIZE) for sample in Rope.Config.samples()),
    (Rope.Config(scaling=Llama3(factor=8.0, low=1.0, high=4.0, original=8192), base=500000.0), 64),
    (Rope.Config(scaling=Yarn(factor=16.0, original=4096)), 64),
    (Rope.Config(scaling=Yarn(factor=16.0, original=4096, whole=False)), 64),
    (Rope.Config(scaling=Yarn(factor=4.0, original=4096, slow=1e-9, whole=False)), SIZE),  # ends beyond the channels
    (Rope.Config(scaling=Yarn(factor=4.0, original=512, fast=4.0, slow=4.0, whole=False)), 64),  # a ramp of no width
    (Rope.Config(scaling=Yarn(factor=4.0, original=6)), SIZE),  # likewise, at the first channel
    (
        Rope.Config(
            scaling=LongRope(short=(1.0, 2.0, 3.0), long=(2.0, 4.0, 8.0), factor=4.0, original=2048, length=2048)
        ),
        SIZE,
    ),
]


@pytest.mark.parametrize(("config", "size"), ROPES, ids=repr)
def test_rope_is_its_equation(config: Rope.Config, size: int) -> None:
    where, x = at([0, 3, 50], [7, 1000, 2]), draw(2, 3, 2, size)
    n = round(config.share * size)
    frequency, amplitude = rope_frequencies(config, n)
    wanted = x.clone()
    for b, t, h, c in ((b, t, h, c) for b in range(2) for t in range(3) for h in range(2) for c in range(n // 2)):
        one, two = (2 * c, 2 * c + 1) if config.layout == "pairs" else (c, c + n // 2)
        angle = int(where.position[b, t]) * frequency[c]
        a, o = float(x[b, t, h, one]), float(x[b, t, h, two])
        wanted[b, t, h, one] = amplitude * (a * math.cos(angle) - o * math.sin(angle))
        wanted[b, t, h, two] = amplitude * (o * math.cos(angle) + a * math.sin(angle))
    near(config.build(2, size).turn(x, where), wanted)


def test_rope_scaling_of_llama_keeps_blends_and_slows() -> None:
    plain, scaled = Rope.Config(base=500000.0), Rope.Config(base=500000.0, scaling=Llama3(factor=8.0))
    kept, slowed = (config.build(1, 64).rotation.frequency for config in (plain, scaled))
    ratio = [a / b for a, b in zip(kept, slowed, strict=True)]
    assert (ratio[0], ratio[-1], any(1.01 < r < 7.9 for r in ratio)) == (1.0, 8.0, True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ["pairs", "halves"])
def test_rope_sees_distances_only_even_a_million_tokens_out(dtype: torch.dtype, layout: str) -> None:
    code = Rope.Config.load({"kind": "rope", "layout": layout}).build(1, 64)
    x, u = draw(1, 1, 1, 64, dtype=dtype), torch.finfo(dtype).eps / 2

    def product(i: int, j: int) -> float:  # summed in float64: what is measured is the rotation
        return float((code.turn(x, at([i])).double() * code.turn(x, at([j])).double()).sum())

    # Cosine, product and sum are rounded, each by at most u: a channel is off by 3u times the length of its pair, a
    # turned vector by 3√2·u·|x|, a product of two of them by twice that, and two products differ by below 17u·|x|².
    far = at([10**6])
    near(code.turn(x, far), code.turn(x.double(), far), 3 * u * 2**0.5 * float(x.abs().max()))
    bound = 17 * u * float(x.double().square().sum())
    for shift in (1, 999, 10**6):
        assert abs(product(5 + shift, 2 + shift) - product(5, 2)) <= bound
    assert abs(product(5, 5) - product(5, 2)) > bound


def test_rope_layouts_are_one_another_with_channels_moved() -> None:
    x, where = draw(2, 5, 3, 8), Where.run(2, 5, start=11)
    move = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # from pairs to halves
    pairs = Rope.Config(layout="pairs").build(3, 8).turn(x, where)
    near(Rope.Config(layout="halves").build(3, 8).turn(x[..., move], where), pairs[..., move])
    near(Rope.Config(layout="pairs").build(3, 8).rotation.written_out(x, where.position), pairs)


def test_rope_leaves_the_rest_of_a_partial_head_alone() -> None:
    x, where = draw(1, 4, 2, 7), Where.run(1, 4, start=3)  # an odd head: pairs then lie across odd strides
    for layout in ("pairs", "halves"):
        y = Rope.Config.load({"kind": "rope", "layout": layout, "share": 4 / 7}).build(2, 7).turn(x, where)
        assert torch.equal(y[..., 4:], x[..., 4:])
        near(y[..., :4], Rope.Config.load({"kind": "rope", "layout": layout}).build(2, 4).turn(x[..., :4], where))


def test_rope_holds_no_weights_and_ignores_the_dtype_it_is_moved_to() -> None:
    code, x, where = Rope.Config().build(2, 8), draw(1, 1, 2, 8), at([10**6])
    assert not code.state_dict()
    assert torch.equal(code.turn(x, where), code.bfloat16().turn(x, where))


@pytest.mark.parametrize("inference", [False, True])
def test_rope_never_uses_the_waves_of_other_positions(inference: bool) -> None:
    code, x = Rope.Config().build(2, 8), draw(2, 3, 2, 8)
    with torch.inference_mode(inference):
        where = at([0, 1, 2], [5, 6, 7])
        for _ in range(3):
            fresh = Stamps(where.order, where.position.clone())
            assert torch.equal(code.turn(x, where), code.turn(x, fresh))
            assert code.turn(x.float(), where).dtype == torch.float32
            where.position.add_(100)  # written in place
    leaf = x.clone().requires_grad_()
    code.turn(leaf, where).sum().backward()  # waves first made in inference mode must not stand in training's way


@pytest.mark.parametrize("config", [sample for sample in RELATIVE_SAMPLES if sample.how == "rotates"], ids=repr)
def test_turning_is_differentiable_and_ignores_how_rows_are_stored(config: RelativeConfig) -> None:
    code, x, shared = config.build(1, SIZE), draw(2, 2, 1, SIZE).requires_grad_(), Where.run(2, 2, start=5)
    assert code.turn(x[:, :0], Where.run(2, 0)).shape == (2, 0, 1, SIZE)
    near(code.turn(x, shared).detach(), code.turn(x, Stamps(shared.order, shared.position.clone())).detach())
    assert torch.autograd.gradcheck(
        lambda x: code.meet(code.turn(x, shared), code.turn(x, shared), shared, shared), (x,)
    )


def test_xpos_up_and_down_are_those_of_its_authors() -> None:
    golden = load_file(GOLDEN / "outputs.safetensors")
    x, up, down = (golden[name][:, :, None] for name in ("xpos_in", "xpos_up", "xpos_down"))
    code, where = XPos.Config().build(1, 8), Where.run(2, 16)
    # Theirs are float32 throughout: an angle below 16 is off by 16 · 2^-24, and moves values that are below 4.
    bound = 4 * 16 * 2.0**-24
    near(code.up(x, where), up, bound)
    near(code.down(x, where), down, bound)


def xpos_score(config: XPos.Config, q: Tensor, k: Tensor, i: int, j: int) -> float:
    """One pair: every two channels as a complex number, turned by i - j and faded by ζ^((i-j)/scale_base)."""
    d, total = len(q), 0.0
    for c in range(d // 2):
        zeta = (2 * c + 0.4 * d) / (1.4 * d)
        angle = (i - j) * config.base ** (-2 * c / d)
        a, b = complex(q[2 * c], q[2 * c + 1]), complex(k[2 * c], k[2 * c + 1])
        turned = a * b.conjugate() * complex(math.cos(angle), math.sin(angle))
        total += zeta ** ((i - j) / config.scale_base) * turned.real
    return total


@pytest.mark.parametrize("config", XPos.Config.samples(), ids=repr)
def test_xpos_pairs_far_out_and_far_apart(config: XPos.Config) -> None:
    code, million = config.build(HEADS, SIZE), 10**6
    where, seen = (
        at([3, 40, 90], [million, million + 7, million + 9]),
        at([0, 39, 95, 2], [million - 900, 5, million, 0]),
    )
    q, k = draw(2, 3, HEADS, SIZE), draw(2, 4, 2, SIZE)
    query, key = code.meet(code.turn(q, where), code.turn(k, seen), where, seen)
    score = torch.einsum("bthd,bnhd->bhtn", query, key.repeat_interleave(2, 2))
    wanted = torch.empty_like(score)
    for b, h, t, n in ((b, h, t, n) for b in range(2) for h in range(HEADS) for t in range(3) for n in range(4)):
        i, j = int(where.position[b, t]), int(seen.position[b, n])
        wanted[b, h, t, n] = xpos_score(config, q[b, t, h], k[b, n, h // 2], i, j)
    assert key.isfinite().all()
    # Queries and keys are turned by angles of 10^6, which float64 rounds by 10^6 · 2^-53 each; the loop turns by i - j.
    near(score, wanted, 2 * million * 2.0**-53 * float(wanted.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_xpos_refuses_what_would_overflow_and_nothing_less(dtype: torch.dtype) -> None:
    code, one = XPos.Config().build(1, 8), torch.ones(1, 2, 1, 8, dtype=dtype)
    most = int(math.log(torch.finfo(dtype).max) / 2 / (math.log(1.4 / 0.4) / 512))
    assert torch.einsum("bthd,bnhd->bhtn", *code.meet(one, one, at([5, 5 + most]), at([5, 5 + most]))).isfinite().all()
    with pytest.raises(InputError, match=f"at most {most} without overflow. Cut the call"):
        code.meet(one, one, at([5, 6 + most]), at([5, 6 + most]))
    key = code.meet(one[:, :1], one, at([10**7]), at([0, 10**7]))[1]
    assert not key[0, 0].any()  # very far back: faded to nothing
    assert torch.equal(key[0, 1], one[0, 1])


def test_yarn_steps_where_its_ramp_has_no_width() -> None:
    """Channels that turn as often as both borders say: those before are kept, those after are interpolated."""
    plain, _ = rope_frequencies(Rope.Config(), 64)
    step = Yarn(factor=4.0, original=512, fast=4.0, slow=4.0, whole=False)
    ratios = [round(f / slow, 9) for f, slow in zip(plain, step.apply(tuple(plain), 10000.0), strict=True)]
    assert set(ratios) == {1.0, 4.0}
    turns = [512 * f / (2 * math.pi) for f in plain]
    assert ratios == [1.0 if often > 4.0 else 4.0 for often in turns]


def test_xpos_padding_is_finite_and_changes_nothing() -> None:
    code, q = XPos.Config().build(1, 8), draw(2, 3, 1, 8)
    padded = Stamps(torch.tensor([[0, 1, -1], [-1, -1, -1]]), torch.tensor([[10**8, 10**8 + 1, 0], [0, 0, 0]]))
    alone = Stamps(padded.order[:1, :2], padded.position[:1, :2])
    for got, wanted in zip(code.meet(q, q, padded, padded), code.meet(q[:1, :2], q[:1, :2], alone, alone), strict=True):
        assert got.isfinite().all()
        assert torch.equal(got[:1, :2], wanted)
    assert code.meet(q[:, :0], q, Where.run(2, 0), padded)[1] is q
    far = Stamps(padded.order, padded.position.masked_fill(padded.order < 0, 10**12))  # padding stands nowhere
    assert torch.equal(code.meet(q, q, far, far)[0][:1, :2], code.meet(q, q, padded, padded)[0][:1, :2])


TWELVE: tuple[float, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5)  # -log2 of each slope, by hand
SLOPES = {1: (8.0,), 2: (4, 8), 3: (4, 8, 2), 5: (2, 4, 6, 8, 1), 6: (2, 4, 6, 8, 1, 3), 8: TWELVE[:8], 12: TWELVE}


@pytest.mark.parametrize("heads", SLOPES)
def test_alibi_slopes_and_term(heads: int) -> None:
    where, seen = at([3, 10**6]), at([0, 5, 10**6])
    code = Alibi.Config().build(heads, 1)
    wanted = [[[-(2.0**-e) * abs(i - j) for j in (0, 5, 10**6)] for i in (3, 10**6)] for e in SLOPES[heads]]
    near(code.term(draw(1, 2, heads, 1), draw(1, 3, heads, 1), where, seen), [wanted])


@pytest.mark.parametrize("heads", range(1, 40))
def test_alibi_slopes_are_those_of_mpt(heads: int) -> None:
    above = 2 ** (heads - 1).bit_length()
    slope = [2.0 ** (-8 * (h + 1) / above) for h in range(above)]
    assert slopes(heads) == tuple(slope if above == heads else (slope[1::2] + slope[::2])[:heads])


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20), (12, 100), (64, 256), (64, 40)])
def test_buckets_of_every_distance(both_ways: bool, buckets: int, distance: int) -> None:
    code = Buckets.Config(buckets=buckets, distance=distance, both_ways=both_ways).build(2, 3).double()
    wanted, f = [], numpy.float32
    for gap in range(-300, 301):
        n = buckets // 2 if both_ways else buckets
        far, exact = abs(gap) if both_ways else max(-gap, 0), n // 2
        if far >= exact:
            share = numpy.log(f(far) / f(exact)) / f(math.log(distance / exact)) * f(n - exact)
            far = min(n - 1, exact + int(share))
        wanted.append(far + (n if both_ways and gap > 0 else 0))
    assert code.bucket(torch.arange(-300, 301)).tolist() == wanted
    term = code.term(draw(1, 1, 2, 3), draw(1, 601, 2, 3), at([300]), at([*range(601)]))
    assert torch.equal(term, code.table[wanted].T[None, :, None])


@pytest.mark.parametrize("config", Relative.Config.samples(), ids=repr)
@pytest.mark.parametrize("key_heads", [1, 2, HEADS])
@pytest.mark.parametrize("rows", [[[4, 9], [30, 31]], [[0, 7], [10**5, 3]]], ids=["dense", "sparse"])
def test_relative_is_its_equation(config: Relative.Config, key_heads: int, rows: list[list[int]]) -> None:
    code = config.build(HEADS, SIZE).double().requires_grad_(False)
    where, seen = at(*rows), at([0, 4, 12], [29, 31, 5])
    q, k, width = draw(2, 2, HEADS, SIZE), draw(2, 3, key_heads, SIZE), config.width or HEADS * SIZE
    wanted = torch.empty(2, HEADS, 2, 3, dtype=torch.float64)
    for b, h, t, n in ((b, h, t, n) for b in range(2) for h in range(HEADS) for t in range(2) for n in range(3)):
        gap = int(where.position[b, t] - seen.position[b, n])
        gap = gap if config.clamp is None else min(gap, config.clamp)
        gap = max(gap, -config.clamp) if config.clamp is not None and config.both_ways else gap
        angle = [gap * config.base ** (-2 * c / width) for c in range(width // 2)]
        waves = torch.tensor([*map(math.sin, angle), *map(math.cos, angle)], dtype=torch.float64)
        place = (code.distance.weight @ waves)[h * SIZE : (h + 1) * SIZE]
        key = k[b, n, h * key_heads // HEADS]
        wanted[b, h, t, n] = (code.u[h] @ key + (q[b, t, h] + code.v[h]) @ place) / SIZE**0.5
    got = code.term(q, k, where, seen)
    near(got, wanted)
    code.add_module("distance", torch.nn.Sequential(code.distance))  # edited from outside: then it is called
    near(code.term(q, k, where, seen), got)


@pytest.mark.parametrize("config", [sample for sample in RELATIVE_SAMPLES if sample.how == "scores"], ids=repr)
def test_terms_serve_attention_whole_banded_and_padded(config: RelativeConfig) -> None:
    code = config.build(HEADS, SIZE).double()
    for mask in (Causal(), Window(back=20)):  # the window is cut into blocks: positions differ from row to row
        for where in (Where.run(2, 130, start=40), Where.ragged([130, 77])):
            q, k = draw(2, 130, HEADS, SIZE).requires_grad_(), draw(2, 130, 2, SIZE)
            sight = mask(where, where)
            y, wanted = attend(q, k, k, sight, bias=code.bias), written_out(q, k, k, sight, bias=code.bias)[0]
            near(where.blank(y.detach()), where.blank(wanted.detach()))
            assert torch.autograd.grad(y.sum(), q)[0].isfinite().all()
    term, run, x = code.bias, Where.run(3, 5), draw(3, 5, HEADS, SIZE)
    assert term is not None
    assert term(x, x, run, run).shape == (3 if isinstance(code, Relative | Shaw) else 1, HEADS, 5, 5)


class Holder(Config):
    added: AnyAdded | None = None
    relative: AnyRelative | None = None


@pytest.mark.parametrize("config", [*ADDED_SAMPLES, *RELATIVE_SAMPLES], ids=repr)
def test_configs_survive_a_file(config: AddedConfig | RelativeConfig, tmp_path: Path) -> None:
    assert type(config) in POSITIONS
    assert type(config).load(config.dump()) == config
    tree = Holder(added=config) if isinstance(config, AddedConfig) else Holder(relative=config)
    for name in ("tree.toml", "tree.json"):
        tree.write(tmp_path / name)
        assert Holder.read(tmp_path / name) == tree


def test_no_position_does_nothing() -> None:
    code, x, where = NoPosition.Config().build(2, 3), draw(1, 2, 2, 3), Where.run(1, 2)
    assert (code.turn(x, where), *code.meet(x, x, where, where), code.bias) == (x, x, x, None)


def test_errors_teach() -> None:
    for build, says in (
        (lambda: Rope.Config(share=0.5).build(1, 6), "share 0.5 of a head of size 6 is 3 channels.*2/6, 4/6, 6/6"),
        (lambda: Rope.Config().build(1, 5), "channels turn two by two"),
        (lambda: Rope.Config(spread="inclusive", scaling=Yarn(factor=2.0, original=8)), "yarn is defined for"),
        (lambda: Rope.Config(base=1.0), "base is 1.0; it must be greater than 1"),
        (lambda: Rope.Config.load({"scaling": {"kind": "yarm"}}), "scaling.kind is 'yarm'; did you mean yarn"),
        (lambda: Llama3(factor=8.0, low=4.0, high=4.0), "low 4.0 must be less than high 4.0"),
        (lambda: Sinusoid.Config().build(7), "7 is odd; use a width of 6 or 8"),
        (lambda: Relative.Config().build(1, 3), "heads · size of 2 or 4"),
        (lambda: Buckets.Config(buckets=3, both_ways=True), "both ways needs at least 4 buckets"),
        (lambda: Buckets.Config(buckets=32, distance=16), "distance 16 must be greater than 16"),
    ):
        with pytest.raises(ConfigError, match=says):
            build()
