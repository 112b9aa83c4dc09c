"""Embeddings of tokens: only tokens are scaled, every further field is added as it is, padding may hold anything."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import InputError
from heed.parts.inputs.tokens import Narrow, Place, TokenEmbeddings, embedding
from heed.parts.layers.norms import LayerNorm
from heed.parts.positions import Learned

WIDTH, TOKENS = 6, 4


def built(scale: float, *, segments: int | None = None, boxes: int | None = None) -> TokenEmbeddings:
    return TokenEmbeddings(embedding(9, WIDTH), scale, None, None, 0.0, segments=segments, boxes=boxes).double()


@pytest.mark.parametrize("scale", [1.0, WIDTH**0.5])
def test_only_the_token_is_scaled(scale: float) -> None:
    """Segment and box are added to the scaled embedding, as BERT and LayoutLM have them beside it."""
    made = built(scale, segments=3, boxes=10)
    assert made.segment is not None
    assert made.box is not None
    tokens = torch.tensor([[[5, 2, 1, 2, 4, 8], [0, 0, 3, 3, 3, 3], [8, 1, 0, 0, 9, 9]]])
    y = made(tokens, Where.run(1, 3))
    for t, (token, segment, left, top, right, bottom) in enumerate(tokens[0].tolist()):
        wanted = scale * made.table.weight[token] + made.segment.weight[segment]
        wanted = wanted + made.box.x.weight[left] + made.box.y.weight[top]
        wanted = wanted + made.box.x.weight[right] + made.box.y.weight[bottom]
        wanted = wanted + made.box.height.weight[bottom - top] + made.box.width.weight[right - left]
        assert torch.allclose(y[0, t], wanted, rtol=0, atol=1e-13)


def test_fields_that_are_not_named_are_those_of_zero() -> None:
    made = built(1.0, segments=2)
    bare, named = torch.tensor([[3, 4]]), torch.tensor([[[3, 0], [4, 0]]])
    assert torch.equal(made(bare, Where.run(1, 2)), made(named, Where.run(1, 2)))
    with pytest.raises(InputError, match="a token brings 3 ids, this model knows 2"):
        made(torch.zeros(1, 2, 3, dtype=torch.long), Where.run(1, 2))


def placed(after: Place) -> tuple[TokenEmbeddings, Tensor]:
    narrow = Narrow(size=3, after=after)
    position, norm = Narrow.widths(narrow, WIDTH)
    made = TokenEmbeddings(
        *(embedding(9, 3), 2.0, Learned.Config(length=8).build(position), LayerNorm().build(norm), 0.0),
        narrow=narrow.build(WIDTH),
    )
    return made.double(), torch.tensor([[1, 8, 3, 2]])


def test_few_channels_are_widened_after_the_token_the_sum_or_the_norm() -> None:
    for after in ("token", "sum", "norm"):
        made, tokens = placed(after)
        assert made.narrow is not None
        assert made.norm is not None
        assert isinstance(made.position, Learned)
        x, place = 2.0 * made.table(tokens), made.position.table[:TOKENS]
        match after:
            case "token":
                wanted = made.norm(made.narrow(x) + place)
            case "sum":
                wanted = made.norm(made.narrow(x + place))
            case _:
                wanted = made.narrow(made.norm(x + place))
        assert torch.allclose(made(tokens, Where.run(1, TOKENS)), wanted, rtol=0, atol=1e-13)


def test_padding_may_hold_unknown_ids_and_tokens_may_not() -> None:
    made = built(1.0)
    tokens = torch.tensor([[1, 2, 3], [4, -1, 10**6]])
    y = made(tokens, Where.ragged([3, 1]))
    assert torch.equal(y[1, 0], made.table.weight[4])
    with pytest.raises(InputError, match="ids from 1 to 9 were given, but the vocabulary has 9"):
        made(torch.tensor([[1, 9]]), Where.run(1, 2))
    with pytest.raises(InputError, match="tokens must be integer ids"):
        made(torch.zeros(1, 2), Where.run(1, 2))
