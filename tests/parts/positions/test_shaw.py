"""Shaw's relative positions against the paper's two equations, written as loops."""

from __future__ import annotations

import pytest
import torch

from heed.core.contract import Where
from heed.mixers import Attention
from heed.parts.masks import Whole
from heed.parts.positions import Shaw, ShawValues
from heed.parts.positions.shaw import ShawConfig

WIDTH, HEADS, TOKENS, FAR = 8, 2, 7, 2
SIZE = WIDTH // HEADS


@pytest.mark.parametrize("code", [Shaw.Config(distance=FAR), ShawValues.Config(distance=FAR)])
@torch.no_grad()
def test_attention_with_shaw_is_its_equations(code: ShawConfig) -> None:
    torch.manual_seed(0)
    mixer = Attention.Config(heads=HEADS, mask=Whole(), position=code).build(WIDTH).double()
    x = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)
    y, _ = mixer(x, Where.run(1, TOKENS))
    position = mixer.position
    assert isinstance(position, Shaw)
    for i in range(TOKENS):
        heads = []
        for h in range(HEADS):
            own = slice(h * SIZE, (h + 1) * SIZE)
            query = mixer.query(x[0, i])[own]
            scores, values = [], []
            for j in range(TOKENS):
                place = max(-FAR, min(FAR, j - i)) + FAR
                scores.append(query @ (mixer.key(x[0, j])[own] + position.table[place]) / SIZE**0.5)
                value = mixer.value(x[0, j])[own]
                values.append(value + position.values[place] if isinstance(position, ShawValues) else value)
            heads.append(torch.stack(scores).softmax(0) @ torch.stack(values))
        assert torch.allclose(y[0, i], mixer.out(torch.cat(heads)), rtol=0, atol=1e-13)
