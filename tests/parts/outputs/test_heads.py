"""Heads against their equations, on rows of different lengths."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.models import Encoder
from heed.parts.layers.norms import LayerNorm
from heed.parts.outputs.heads import HEADS, LMHead, Masked, Pool, Pooled, Replaced, Spans, Tagged, heads_of

WIDTH = 6


def stream(rows: int = 2, tokens: int = 5) -> torch.Tensor:
    return torch.randn(rows, tokens, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("scale", [1.0, WIDTH**-0.5])
@pytest.mark.parametrize("cap", [None, 0.7])
def test_logits_are_scaled_before_and_capped_after(scale: float, cap: float | None) -> None:
    head = LMHead(WIDTH, 11, bias=True, scale=scale, cap=cap).double()
    x = 3 * stream()
    bare = scale * x @ head.weight.T + head.bias
    wanted = bare if cap is None else cap * torch.tanh(bare / cap)
    assert torch.allclose(head(x), wanted, rtol=0, atol=1e-13)
    assert cap is None or (bare.abs() > cap).any()


def test_the_masked_head_scores_every_token_by_its_embedding() -> None:
    table = nn.Embedding(11, 4).double()
    head = Masked.Config(vocabulary=11, activation="gelu", norm=LayerNorm()).build(WIDTH, table).double()
    assert head.transform is not None
    assert head.norm is not None
    assert head.scores.weight is table.weight
    x = stream()
    hidden = head.norm(F.gelu(head.transform(x)))
    assert torch.allclose(head(x, Where.run(2, 5)), hidden @ table.weight.T + head.scores.bias, rtol=0, atol=1e-13)


def test_the_masked_head_may_stand_for_itself_and_may_be_bare() -> None:
    table = nn.Embedding(11, WIDTH).double()
    own = Masked.Config(vocabulary=11, tied=False, bias=False).build(WIDTH, table).double()
    assert own.scores.weight is not table.weight
    x = stream()
    assert torch.equal(own(x, Where.run(2, 5)), x @ own.scores.weight.T)


@pytest.mark.parametrize("pool", ["first", "last", "mean", "max"])
@pytest.mark.parametrize("labels", [None, 3])
def test_the_pooled_head_reads_the_tokens_of_a_row_and_no_others(pool: Pool, labels: int | None) -> None:
    head = Pooled.Config(pool=pool, activation="tanh", labels=labels).build(WIDTH, None).double()
    x = stream()
    x[1, 3:] = float("nan")  # padding may hold anything
    answer = head(x, Where.ragged([5, 3]))
    assert head.transform is not None
    for row, length in enumerate((5, 3)):
        real = x[row, :length]
        vector = {"first": real[0], "last": real[-1], "mean": real.mean(0), "max": real.amax(0)}[pool]
        vector = head.transform(vector).tanh()
        wanted = vector if head.scores is None else head.scores(vector)
        assert torch.allclose(answer[row], wanted, rtol=0, atol=1e-14)
    assert answer.shape == (2, labels or WIDTH)


def test_heads_of_tokens() -> None:
    x, where = stream(), Where.run(2, 5)
    tagged = Tagged.Config(labels=4).build(WIDTH, None).double()
    assert torch.equal(tagged(x, where), tagged.scores(x))
    spans = Spans.Config().build(WIDTH, None).double()
    assert spans(x, where).shape == (2, 5, 2)
    assert torch.equal(spans(x, where), spans.scores(x))
    replaced = Replaced.Config(activation="relu").build(WIDTH, None).double()
    hidden = replaced.transform(x).relu()
    wanted = (hidden * replaced.scores.weight[0]).sum(-1) + replaced.scores.bias
    assert torch.allclose(replaced(x, where), wanted, rtol=0, atol=1e-14)


def test_a_model_calls_its_heads_by_kind() -> None:
    heads = (Masked.Config(vocabulary=11), Pooled.Config(), Tagged.Config(labels=2), Spans.Config(), Replaced.Config())
    config = Encoder.Config(vocabulary=11, width=12, depth=1, heads=heads)
    model = config.build()
    assert list(model.heads) == ["masked", "pooled", "tagged", "spans", "replaced"]
    assert Encoder.Config.load(config.dump()) == config
    assert {type(head) for head in heads} == set(HEADS)
    assert len(heads_of(None, 12)) == 0


def test_heads_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most one head of each kind"):
        heads_of((Tagged.Config(labels=2), Tagged.Config(labels=3)), 12)
    with pytest.raises(
        ConfigError, match="a masked head for 12 tokens of 4 channels cannot use a table of 11 tokens of 4"
    ):
        Masked.Config(vocabulary=12).build(WIDTH, nn.Embedding(11, 4))
    with pytest.raises(ConfigError, match="a masked head for 11 tokens of 5 channels"):
        Masked.Config(vocabulary=11, size=5).build(WIDTH, nn.Embedding(11, 4))
