"""RETRO: neighbours that arrive while a text is written give what they give to the whole text."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.spec import price
from heed.core.state import Seen, nbytes, select
from heed.mixers import ChunkedCross
from heed.models import Retro
from heed.models.variants.retro import NeighbourEncoder, neighbours
from heed.parts.inputs.tokens import Narrow
from heed.parts.layers.norms import LayerNorm
from heed.parts.residual.wiring import DeepNorm, Parallel

CHUNK, EACH, LENGTH = 4, 2, 5
TINY = Retro.Config(
    vocabulary=19,
    width=24,
    depth=3,
    crossed=(1, 2),
    chunked=ChunkedCross.Config(chunk=CHUNK, neighbours=EACH, length=LENGTH),
    narrow=Narrow(size=16, after="sum"),
    tied=False,
)
DEEP = TINY.model_copy(
    update={"wiring": DeepNorm.decoder(3), "norm": LayerNorm(), "encoder": NeighbourEncoder.Config(depth=1, crossed=())}
)


def built(config: Retro.Config = TINY) -> Retro:
    torch.manual_seed(0)
    return config.build().double().eval()


def texts(rows: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Tokens and retrieved ids; the id 0 is padding."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 19, (rows, tokens // CHUNK, EACH, LENGTH), generator=draw)
    return torch.randint(19, (rows, tokens), generator=draw), ids


@pytest.mark.parametrize("config", [TINY, DEEP], ids=["pre-norm", "deepnorm"])
@pytest.mark.parametrize("cuts", [[1] * 18, [3, 1, 4, 2, 8], [5, 5, 5, 3], [16, 2]], ids=str)
def test_token_by_token_with_neighbours_at_chunk_ends_is_the_whole_text(config: Retro.Config, cuts: list[int]) -> None:
    model, (tokens, ids) = built(config), texts(2, 18)
    with torch.no_grad():
        whole, _ = model(tokens, Where.run(2, 18).give(neighbours=neighbours(ids, padding=0)))
        state, made, begin = model.start(2), [], 0
        for length in cuts:
            end = begin + length
            where = Where.run(2, length, start=begin)
            first, last = begin // CHUNK, end // CHUNK
            if last > first:
                where = where.give(neighbours=neighbours(ids[:, first:last], first, padding=0))
            scores, after = model(tokens[:, begin:end], where, state)
            assert after is not None
            state, begin = after, end
            made.append(scores)
            assert nbytes(state) <= 2 * price(model.spec(), end)
    assert torch.allclose(torch.cat(made, 1), whole, rtol=0, atol=1e-12)


def test_rows_may_stand_at_different_tokens() -> None:
    """A beam is chosen, and rows go on at their own pace: each gets what it gets alone."""
    model, (tokens, ids) = built(), texts(3, 12)
    lengths = torch.tensor([7, 5, 9])
    with torch.no_grad():
        found = neighbours(ids, padding=0)
        late = found.order >= (lengths // CHUNK)[:, None]
        order, place = found.order.masked_fill(late, -1), found.position
        given = type(found)(order, place, *found.parts)
        _, state = model(tokens[:, :9], Where.ragged(lengths).give(neighbours=given), model.start(3))
        assert state is not None
        state = select(state, [2, 0])
        assert isinstance(state, tuple)
        columns = lengths[[2, 0], None] + torch.arange(3)
        number = lengths[[2, 0]] // CHUNK
        new = ids[[2, 0]].take_along_dim(number[:, None, None, None], 1)
        where = Where.ragged([3, 3], start=lengths[[2, 0]]).give(neighbours=neighbours(new, number, padding=0))
        scores, _ = model(tokens[[2, 0]].take_along_dim(columns, 1), where, state)
        for row, origin in enumerate((2, 0)):
            end = int(lengths[origin]) + 3
            alone = neighbours(ids[[origin], : end // CHUNK], padding=0)
            wanted, _ = model(tokens[[origin], :end], Where.run(1, end).give(neighbours=alone))
            assert torch.allclose(scores[row], wanted[0, -3:], rtol=0, atol=1e-12)


def test_neighbours_are_first_seen_by_the_last_token_of_their_chunk() -> None:
    model, (tokens, ids) = built(), texts(1, 16)
    other = ids.clone()
    other[:, 1] = (ids[:, 1] + 5) % 18 + 1
    with torch.no_grad():
        a, b = (model(tokens, Where.run(1, 16).give(neighbours=neighbours(x, padding=0)))[0] for x in (ids, other))
    changed = (a - b).abs().amax(-1)[0] > 1e-9
    assert changed.tolist() == [False] * 7 + [True] * 9


def test_the_encoder_is_told_what_the_decoder_thinks_of_the_chunk() -> None:
    """Encoded neighbours depend on the tokens of their chunk and on no later ones; uncrossed ones on neither."""
    crossed = NeighbourEncoder.Config(depth=1)
    for encoder, told in ((crossed, True), (crossed.model_copy(update={"crossed": ()}), False)):
        model = built(TINY.model_copy(update={"encoder": encoder}))
        tokens, ids = texts(1, 8)
        seen: list[Tensor] = []
        model.encoder.register_forward_hook(lambda module, given, made: seen.append(made))  # noqa: B023
        x = model.embeddings.embed(tokens, Where.run(1, 8)).detach().requires_grad_()
        model.mix(x, model._embedded(Where.run(1, 8).give(neighbours=neighbours(ids))))
        (slope,) = torch.autograd.grad(seen[0][:EACH].sum(), x, allow_unused=True, materialize_grads=True)
        assert bool(slope[0, :CHUNK].abs().amax(-1).all()) is told
        assert not slope[0, CHUNK:].any()


def test_unaided_is_a_plain_decoder() -> None:
    tokens, _ = texts(1, 9)
    for config, same in ((TINY, True), (DEEP, False)):  # norms around nothing are something
        model = built(config)
        with torch.no_grad():
            plain, _ = model(tokens, Where.run(1, 9))
            assert torch.allclose(model.unaided(tokens, Where.run(1, 9)), plain, rtol=0, atol=1e-12) is same


def test_it_learns_from_neighbours() -> None:
    model, (tokens, ids) = built(), texts(2, 12)
    (stream, _), head = (
        model.hidden_states(tokens, Where.run(2, 12).give(neighbours=neighbours(ids, padding=0))),
        model.lm_head,
    )
    scores, _ = model(tokens, Where.run(2, 12).give(neighbours=neighbours(ids, padding=0)))
    assert torch.allclose(head(stream), scores, rtol=0, atol=1e-12)
    scores.square().sum().backward()
    assert all(weight.grad is not None and bool(weight.grad.isfinite().all()) for weight in model.parameters())


def test_what_does_not_fit_is_refused() -> None:
    model, (tokens, ids) = built(), texts(1, 8)
    with pytest.raises(InputError, match="neighbours of chunk 1 arrived before its last token"):
        model(tokens[:, :6], Where.run(1, 6).give(neighbours=neighbours(ids)))
    _, state = model(tokens[:, :4], Where.run(1, 4).give(neighbours=neighbours(ids[:, :1])), model.start(1))
    with pytest.raises(InputError, match="which is 3; this call holds 4 to 7"):
        model(tokens[:, 4:], Where.run(1, 4, start=4).give(neighbours=neighbours(ids)), state)
    here = Where.run(1, 8)
    with pytest.raises(InputError, match="for each chunk 2 neighbours of 5"):
        model(tokens, here.give(neighbours=neighbours(ids[:, :1, :, :4])))
    with pytest.raises(InputError, match=r"shape \(2, 20, 16\) were given to 1 rows"):
        model(tokens, here.give(neighbours=neighbours(ids.repeat(2, 1, 1, 1))))
    with pytest.raises(InputError, match="several groups of 10 entries of neighbours are of one chunk"):
        model(tokens, here.give(neighbours=neighbours(ids.repeat(1, 1, 2, 1))))
    with pytest.raises(InputError, match="at places 0 to 4; one arrived for place 9"):
        model(tokens, here.give(neighbours=neighbours(ids.flatten(2)[:, :, None])))
    swapped = neighbours(ids)
    with pytest.raises(InputError, match="stand at its places 0 to 4 in order"):
        model(tokens, here.give(neighbours=Seen(swapped.order, swapped.position.flip(1), *swapped.parts)))
    with pytest.raises(InputError, match=r"\[rows, chunks, neighbours, length\]"):
        neighbours(ids[0])
    with pytest.raises(InputError, match="the vocabulary has 19"):
        model(tokens, Where.run(1, 8).give(neighbours=neighbours(ids + 19)))
    with pytest.raises(ConfigError, match="crossed names layer 3 of 3"):
        Retro.Config(vocabulary=9, width=24, depth=3, crossed=(3,))
    with pytest.raises(ConfigError, match="must take one part after the other"):
        Retro.Config(vocabulary=9, width=24, depth=3, wiring=Parallel())
    with pytest.raises(ConfigError, match="crossed names layer 2 of an encoder of 2"):
        TINY.model_copy(update={"encoder": NeighbourEncoder.Config(crossed=(2,))}).build()
