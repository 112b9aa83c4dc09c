"""Every score against its equation written as loops, and the promises of pooling."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from heed.core.config import Config, kind_of
from heed.core.errors import ConfigError, InputError
from heed.parts import scores
from heed.parts.scores import SCORES, AnyScore, Pooling, Score, ScoreConfig, max_pool, pool, valid_lengths

EXACT = 1e-14  # float64 rounding of sums of a few terms of size one
ROWS, QUERIES, KEYS, SIZE, VALUE = 2, 5, 7, 3, 4

CONFIGS: tuple[ScoreConfig, ...] = (
    scores.Dot.Config(),
    scores.ScaledDot.Config(),
    scores.General.Config(),
    scores.Additive.Config(hidden=6),
    scores.Cosine.Config(),
    scores.Cosine.Config(sharpness=4.0),
    scores.Cosine.Config(sharpness=4.0, learned=True),
    scores.Location.Config(length=9),
    scores.Gaussian.Config(),
    scores.Gaussian.Config(width=0.3, learned=True),
    scores.Boxcar.Config(width=2.0),
    scores.Triangular.Config(width=3.0),
    scores.Triangular.Config(width=3.0, learned=True),
    scores.Epanechnikov.Config(width=2.5),
    scores.Epanechnikov.Config(width=2.5, learned=True),
    scores.Constant.Config(),
)
every_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: "-".join(map(str, config.dump().values())))


def built(config: ScoreConfig, query_size: int = SIZE, key_size: int = SIZE) -> Score:
    torch.manual_seed(0)
    return config.build(query_size, key_size).double()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def batch() -> tuple[Tensor, Tensor, Tensor]:
    return drawn(ROWS, QUERIES, SIZE), drawn(ROWS, KEYS, SIZE, seed=2), drawn(ROWS, KEYS, VALUE, seed=3)


def dot(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def times(matrix: Tensor, vector: list[float]) -> list[float]:
    return [dot(row, vector) for row in matrix.tolist()]


def distance(a: list[float], b: list[float]) -> float:
    return math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def held(score: Score, config: ScoreConfig) -> float:
    """The width or sharpness in use; a learned one went through the logarithm in float32, and comes back rounded."""
    asked = config.sharpness if isinstance(config, scores.Cosine.Config) else config.dump()["width"]
    log = next((part for name, part in score.named_parameters() if name.endswith(".log")), None)
    assert log is None or abs(log.exp().item() / asked - 1) < 4 * torch.finfo(torch.float32).eps
    return asked if log is None else log.exp().item()


def equation(score: Score, config: ScoreConfig) -> Callable[[list[float], list[float], int], float]:
    """The logarithm-free number of one pair: exp(s) of a score, K(u) of a kernel."""
    part = dict(score.named_parameters())
    match config:
        case scores.Dot.Config():
            return lambda q, k, j: math.exp(dot(q, k))
        case scores.ScaledDot.Config():
            return lambda q, k, j: math.exp(dot(q, k) / math.sqrt(len(k)))
        case scores.General.Config():
            return lambda q, k, j: math.exp(dot(q, times(part["key.weight"], k)))
        case scores.Additive.Config():
            return lambda q, k, j: math.exp(
                dot(
                    part["out.weight"].tolist()[0],
                    [
                        math.tanh(a + b)
                        for a, b in zip(times(part["query.weight"], q), times(part["key.weight"], k), strict=True)
                    ],
                )
            )
        case scores.Cosine.Config():
            return lambda q, k, j: math.exp(held(score, config) * dot(q, k) / math.sqrt(dot(q, q) * dot(k, k)))
        case scores.Location.Config():
            return lambda q, k, j: math.exp(times(part["place.weight"], q)[j])
        case scores.Gaussian.Config():
            return lambda q, k, j: math.exp(-((distance(q, k) / held(score, config)) ** 2) / 2)
        case scores.Boxcar.Config():
            return lambda q, k, j: 1.0 if distance(q, k) < held(score, config) else 0.0
        case scores.Triangular.Config():
            return lambda q, k, j: max(0.0, 1 - distance(q, k) / held(score, config))
        case scores.Epanechnikov.Config():
            return lambda q, k, j: max(0.0, 1 - (distance(q, k) / held(score, config)) ** 2)
        case _:
            return lambda q, k, j: 1.0


def by_loops(score: Score, config: ScoreConfig, parts: tuple[Tensor, Tensor, Tensor], visible: Tensor) -> Tensor:
    """Weights and outputs beside one another. [B, T, N + e]"""
    query, key, value = (part.tolist() for part in parts)
    number, rows = equation(score, config), []
    for b in range(len(query)):
        for t, q in enumerate(query[b]):
            raw = [number(q, k, j) if visible[b, t, j] else 0.0 for j, k in enumerate(key[b])]
            total = math.fsum(raw) or 1.0
            weight = [x / total for x in raw]
            rows.append(weight + [dot(weight, [v[e] for v in value[b]]) for e in range(len(value[b][0]))])
    return torch.tensor(rows, dtype=torch.float64).reshape(len(query), len(query[0]), -1)


@every_config
def test_equals_its_equation(config: ScoreConfig) -> None:
    score, parts = built(config), batch()
    visible = valid_lengths(torch.tensor([[0, 1, 3, 7, 7], [2, 0, 5, 6, 7]]), QUERIES, KEYS)
    output, weight = pool(score, *parts, visible)
    assert (torch.cat([weight, output], -1) - by_loops(score, config, parts, visible)).abs().max() < EXACT


@every_config
def test_rows_sum_to_one_or_are_empty(config: ScoreConfig) -> None:
    query, key, value = batch()
    output, weight = Pooling(built(config))(query, key, value)
    total = weight.sum(-1)
    assert (weight >= 0).all()
    assert torch.where(total == 0, 0.0, (total - 1).abs()).max() < EXACT
    assert (output[total == 0] == 0).all()


@every_config
def test_without_a_mask_everything_is_visible(config: ScoreConfig) -> None:
    score, parts = built(config), batch()
    everything = torch.ones(ROWS, 1, KEYS, dtype=torch.bool)
    for free, masked in zip(pool(score, *parts), pool(score, *parts, everything), strict=True):
        assert torch.equal(free, masked)


@every_config
def test_empty_rows_give_zeros_and_finite_gradients(config: ScoreConfig) -> None:
    score = built(config)
    query, key, value = (part.requires_grad_() for part in batch())
    visible = valid_lengths(torch.tensor([[0, 0, 3, 7, 7], [0, 0, 0, 0, 0]]), QUERIES, KEYS)
    output, weight = pool(score, query, key, value, visible)
    assert (output[1] == 0).all()
    assert (weight[1] == 0).all()
    assert (output[0, :2] == 0).all()
    output.square().sum().backward()
    for tensor in (query, key, value, *score.parameters()):
        assert tensor.grad is None or tensor.grad.isfinite().all()
    assert value.grad is not None
    assert (value.grad[1] == 0).all()


@every_config
def test_same_points_and_zero_vectors_have_finite_gradients(config: ScoreConfig) -> None:
    score = built(config)
    query, key = (torch.zeros(2, SIZE, dtype=torch.float64, requires_grad=True) for _ in range(2))
    output, _ = pool(score, query, key, drawn(2, VALUE))
    if output.requires_grad:
        output.sum().backward()
    for tensor in (query, key, *score.parameters()):
        assert tensor.grad is None or tensor.grad.abs().max() < 100  # tame, not merely finite


@every_config
def test_hidden_keys_and_values_are_not_read(config: ScoreConfig) -> None:
    score, (query, key, value) = built(config), batch()
    query.requires_grad_()
    visible = valid_lengths(torch.tensor([4, 4]), QUERIES, KEYS)
    clean, _ = pool(score, query, key, value, visible)
    key[:, 4:], value[:, 4:] = float("nan"), float("inf")
    output, weight = pool(score, query, key, value, visible)
    assert torch.equal(output, clean)
    assert (weight[..., 4:] == 0).all()
    if output.requires_grad:
        output.sum().backward()
        assert query.grad is None or query.grad.isfinite().all()


@pytest.mark.parametrize(
    "config", [scores.General.Config(), scores.Additive.Config(hidden=4), scores.Location.Config(length=7)]
)
def test_learned_comparisons_take_different_sizes(config: ScoreConfig) -> None:
    output, _ = pool(built(config, 2, 5), drawn(QUERIES, 2), drawn(KEYS, 5), drawn(KEYS, VALUE))
    assert output.shape == (QUERIES, VALUE)


def test_more_axes_are_rows() -> None:
    score, (query, key, value) = built(scores.Additive.Config(hidden=4)), batch()
    many = pool(score, *(torch.stack([part, 2 * part]) for part in (query, key, value)))
    for both, alone in zip(many, pool(score, 2 * query, 2 * key, 2 * value), strict=True):
        assert (both[1] - alone).abs().max() < EXACT


def test_gaussian_is_a_softmax_of_minus_half_the_square() -> None:
    query, key, value = batch()
    _, weight = pool(built(scores.Gaussian.Config(width=0.7)), query, key, value)
    assert (weight - (-(torch.cdist(query, key) ** 2) / (2 * 0.7**2)).softmax(-1)).abs().max() < EXACT


def test_gaussian_of_a_far_query_does_not_underflow() -> None:
    key = torch.tensor([[0.0], [1.0]])
    _, weight = pool(scores.Gaussian.Config().build(1, 1), torch.tensor([[500.0]]), key, key)
    assert weight.tolist() == [[0.0, 1.0]]
    assert scores.Gaussian(1, 1).profile(torch.tensor(500.0)) == 0


def test_zero_vector_has_no_direction() -> None:
    assert (built(scores.Cosine.Config())(torch.zeros(1, SIZE).double(), drawn(KEYS, SIZE)) == 0).all()


@pytest.mark.parametrize("kernel", [scores.Gaussian, scores.Triangular, scores.Epanechnikov])
def test_learned_width_finds_the_true_one(kernel: type[scores.Gaussian]) -> None:
    """Data made with width 0.4 are fitted from width 1: the logarithm must arrive where the data came from."""
    key = torch.linspace(-2, 2, 41, dtype=torch.float64)[:, None]
    value, query = torch.sin(3 * key), torch.linspace(-1.5, 1.5, 30, dtype=torch.float64)[:, None]
    wanted, _ = pool(kernel(1, 1, 0.4), query, key, value)
    score = kernel.Config(width=1.0, learned=True).build(1, 1).double()
    (log,) = score.parameters()
    step, before = 0.2, 0.0
    for _ in range(60):  # downhill; a step that crosses the valley is halved, so 60 of them settle to far below 1e-6
        (slope,) = torch.autograd.grad((pool(score, query, key, value)[0] - wanted).square().mean(), log)
        assert slope.isfinite()
        sign = math.copysign(1.0, slope.item())
        step, before = (step / 2 if sign * before < 0 else step), sign
        with torch.no_grad():
            log.sub_(step * sign)
    assert abs(log.exp().item() / 0.4 - 1) < 1e-6


def test_learned_sharpness_has_a_gradient() -> None:
    score, parts = built(scores.Cosine.Config(sharpness=2.0, learned=True)), batch()
    pool(score, *parts)[0].square().sum().backward()
    (log,) = score.parameters()
    assert log.grad is not None
    assert log.grad != 0


class Holder(Config):
    """Something with a score in it, as a file would hold it."""

    score: AnyScore


@every_config
def test_round_trip(config: ScoreConfig) -> None:
    holder = Holder(score=config)
    assert Holder.load(holder.dump()) == holder


def test_every_score_of_the_table_is_tested() -> None:
    assert {type(config) for config in CONFIGS} == set(SCORES)
    assert len({kind_of(config) for config in SCORES}) == len(SCORES)


@pytest.mark.parametrize("kind", ["dot", "scaled_dot", "cosine", "gaussian", "constant"])
def test_one_size_is_needed(kind: str) -> None:
    config = Holder.load({"score": {"kind": kind}}).score
    with pytest.raises(ConfigError, match="of one size, got 3 and 4; use general or additive"):
        config.build(3, 4)


def test_errors_teach() -> None:
    query, key, value = batch()
    with pytest.raises(ConfigError, match=r"width of a boxcar has no gradient.*use epanechnikov"):
        scores.Boxcar.Config(learned=True)
    with pytest.raises(ConfigError, match="greater than 0"):
        scores.Gaussian.Config(width=0.0)
    with pytest.raises(ConfigError, match="did you mean gaussian"):
        Holder.load({"score": {"kind": "gausian"}})
    with pytest.raises(InputError, match=r"7 keys were given, but this score knows 6 places.*length=7"):
        built(scores.Location.Config(length=6))(query, key)
    with pytest.raises(InputError, match="Dot was built for queries of size 3, got shape"):
        built(scores.Dot.Config())(query[..., :2], key)
    with pytest.raises(InputError, match="built for keys of size 3"):
        built(scores.Dot.Config())(query, key[0, 0])
    with pytest.raises(InputError, match="must agree in their last but one axis"):
        pool(built(scores.Dot.Config()), query, key, value[:, 1:])
    for wrong in (
        torch.ones(ROWS, QUERIES, KEYS),
        torch.ones(KEYS, dtype=torch.bool),
        torch.ones(3, KEYS, dtype=torch.bool),
    ):
        with pytest.raises(InputError, match=r"needed is a boolean tensor.*\[..., 5 or 1, 7\]"):
            pool(built(scores.Dot.Config()), query, key, value, wrong)


def test_valid_lengths() -> None:
    per_row = valid_lengths(torch.tensor([0, 2]), 3, 4)
    assert per_row.dtype == torch.bool
    assert per_row.int().tolist() == [[[0] * 4] * 3, [[1, 1, 0, 0]] * 3]
    per_query = valid_lengths(torch.tensor([[0, 1, 4]], dtype=torch.int32), 3, 4)
    assert per_query.int().tolist() == [[[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([1, -1]), r"0 to 4, the number of keys; got \[1, -1\]"),
        (torch.tensor([1, 5]), "0 to 4"),
        (torch.tensor(3), r"shape \(\); give one number per row"),
        (torch.tensor([[1, 2]]), r"shape \(1, 2\); give .* \[B, 3\]"),
        (torch.ones(1, 3, 1, dtype=torch.int64), "give one number per row"),
        (torch.tensor([1.0]), "whole numbers, not torch.float32"),
        (torch.tensor([True]), "whole numbers, not torch.bool"),
    ],
)
def test_valid_lengths_errors(lengths: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        valid_lengths(lengths, 3, 4)


def test_a_key_at_the_border_of_a_kernel_is_outside() -> None:
    """K(1) = 0, for the boxcar as for those that fall to zero there: a key at exactly the width has no weight."""
    query, key = torch.tensor([[0.0]]), torch.tensor([[0.5], [2.0], [-1.0]])
    for config in (
        scores.Boxcar.Config(width=2.0),
        scores.Triangular.Config(width=2.0),
        scores.Epanechnikov.Config(width=2.0),
    ):
        _, weight = scores.pool(config.build(1, 1), query, key, key)
        assert weight[0, 1] == 0
        assert (weight[0, [0, 2]] > 0).all()


def test_max_pooling_is_its_loops() -> None:
    value, visible = drawn(ROWS, KEYS, VALUE), valid_lengths(torch.tensor([KEYS, 3]), QUERIES, KEYS)
    value[1, 3:] = math.nan  # what nobody may look at
    found, share = max_pool(value, visible)
    for row, keys in enumerate((KEYS, 3)):
        for channel in range(VALUE):
            wanted = max(float(value[row, j, channel]) for j in range(keys))
            assert (found[row, :, channel] == wanted).all()
        for j in range(KEYS):
            won = sum(float(value[row, j, c] == found[row, 0, c]) for c in range(VALUE)) / VALUE
            assert torch.allclose(share[row, :, j], torch.tensor(won, dtype=torch.float64))
    everything, _ = max_pool(value[:1])
    assert torch.equal(everything[0, 0], value[0].amax(0))


def test_max_pooling_of_nothing_is_zeros() -> None:
    value = drawn(1, KEYS, VALUE).requires_grad_()
    found, share = max_pool(value, torch.zeros(1, 1, KEYS, dtype=torch.bool))
    found.sum().backward()
    assert not found.any()
    assert not share.any()
    assert value.grad is not None
    assert value.grad.isfinite().all()
    with pytest.raises(InputError, match="needed is a boolean tensor"):
        max_pool(value, torch.ones(1, 1, 3, dtype=torch.bool))
