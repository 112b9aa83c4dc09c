"""Attention by every score, against the score's own loops; what is compiled of it, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed import engine
from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.state import Seen
from heed.mixers import Attention, Cross
from heed.models import Decoder
from heed.parts.positions import Shaw
from heed.parts.scores import Additive, Cosine, Dot, General, Location, ScaledDot, ScoreConfig

WIDTH, HEADS, TOKENS, SOURCE = 12, 2, 4, 6
SIZE = WIDTH // HEADS
SCORES: tuple[ScoreConfig, ...] = (
    Dot.Config(),
    ScaledDot.Config(),
    General.Config(),
    Additive.Config(hidden=5),
    Cosine.Config(sharpness=3.0, learned=True),
    Location.Config(length=9),
)


def compared(cross: Cross, config: ScoreConfig, query: Tensor, key: Tensor, place: int) -> float:
    """The score of one query and one key of a head, as the papers write it."""
    part = dict(cross.named_parameters())
    match config:
        case Dot.Config():
            return float(query @ key)
        case ScaledDot.Config():
            return float(query @ key) / math.sqrt(SIZE)
        case General.Config():
            return float(query @ part["score.key.weight"] @ key)
        case Additive.Config():
            hidden = torch.tanh(part["score.query.weight"] @ query + part["score.key.weight"] @ key)
            return float(part["score.out.weight"][0] @ hidden)
        case Cosine.Config():
            return float(part["score.sharpness.log"].exp() * (query @ key) / (query.norm() * key.norm()))
        case _:
            return float(part["score.place.weight"][place] @ query)


@pytest.mark.parametrize("config", SCORES, ids=repr)
@torch.no_grad()
def test_cross_attention_is_its_score(config: ScoreConfig) -> None:
    torch.manual_seed(0)
    cross = Cross.Config(heads=HEADS, score=config).build(WIDTH).double()
    x, source = torch.randn(1, TOKENS, WIDTH).double(), torch.randn(1, SOURCE, WIDTH).double()
    given = Seen.of(Where.run(1, SOURCE), source)
    y, _ = cross(x, Where.run(1, TOKENS).give(encoder_output=given))
    for i in range(TOKENS):
        heads = []
        for h in range(HEADS):
            rows = slice(h * SIZE, (h + 1) * SIZE)
            query = cross.query(x[0, i])[rows]
            keys, values = cross.key(source[0])[:, rows], cross.value(source[0])[:, rows]
            score = [compared(cross, config, query, keys[j], j) for j in range(SOURCE)]
            heads.append(torch.tensor(score, dtype=torch.float64).softmax(0) @ values)
        assert torch.allclose(y[0, i], cross.out(torch.cat(heads)), rtol=0, atol=1e-13)


@torch.no_grad()
def test_a_place_is_a_position_and_not_a_column() -> None:
    """Tokens that stand elsewhere are weighed by where they stand."""
    torch.manual_seed(0)
    cross = Cross.Config(heads=1, score=Location.Config(length=9)).build(WIDTH).double()
    x, source = torch.randn(1, 1, WIDTH).double(), torch.randn(1, 3, WIDTH).double()
    order, place = torch.arange(3)[None], torch.tensor([[7, 0, 4]])
    y, _ = cross(x, Where.run(1, 1).give(encoder_output=Seen(order, place, source)))
    weight = cross.score.place(cross.query(x[0, 0]))[place[0]].softmax(0)  # type: ignore[union-attr, operator]
    assert torch.allclose(y[0, 0], cross.out(weight @ cross.value(source[0])), rtol=0, atol=1e-13)
    with pytest.raises(InputError, match="position 9 is outside 0 to 8, all that this score covers"):
        cross(x, Where.run(1, 1).give(encoder_output=Seen(order, place + 2, source)))


def test_plain_scores_have_no_module_and_the_fused_scale() -> None:
    plain, dot = Attention.Config().build(WIDTH), Attention.Config(score=Dot.Config()).build(WIDTH)
    assert plain.score is None
    assert dot.score is None
    assert (plain.scale, dot.scale) == ((WIDTH // 4) ** -0.5, 1.0)
    assert list(plain.state_dict()) == list(dot.state_dict())


@pytest.mark.parametrize("score", SCORES, ids=repr)
@torch.no_grad()
def test_a_model_runs_alike_compiled_or_not_whatever_its_score(score: ScoreConfig) -> None:
    torch.manual_seed(0)
    model = (
        Decoder.Config(vocabulary=11, width=16, depth=2, mixer=Attention.Config(heads=2, score=score)).build().eval()
    )
    tokens = torch.randint(11, (2, 7))
    wanted, _ = model(tokens)
    plain = isinstance(score, Dot.Config | ScaledDot.Config)
    assert ("no plain dot product" in str(engine.explain(model))) is not plain
    runner = engine.runner(model, model.start(2))
    made = [runner.prefill(tokens[:, :3], Where.run(2, 3)).clone()]
    made += [runner.step(tokens[:, place], Where.run(2, 1, start=place)).clone() for place in range(3, 7)]
    for place, logits in enumerate(made, 2):
        assert torch.allclose(logits, wanted[:, place], rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="score is general; leave scale or score out"):
        Attention.Config(scale=0.5, score=General.Config())
    with pytest.raises(ConfigError, match="shaw scales its term"):
        Attention.Config(score=Additive.Config(), position=Shaw.Config())
