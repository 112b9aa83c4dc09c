"""Chunked cross-attention against its equation, and the rules by which neighbours arrive."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import Case, padding, split
from heed.core.spec import price, words
from heed.core.state import Log, Seen, nbytes
from heed.mixers import ChunkedCross
from heed.parts.look import look
from heed.parts.positions import Rope

WIDTH = 24


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def built(**options: object) -> ChunkedCross:
    torch.manual_seed(1)
    return ChunkedCross.Config.load({"chunk": 4, "neighbours": 2, "length": 3, **options}).build(WIDTH).double().eval()


def found(chunks: range, length: int = 3, each: int = 2, rows: int = 1) -> Seen:
    """Random neighbours of these chunks."""
    order = torch.tensor([u for u in chunks for _ in range(each * length)]).expand(rows, -1)
    place = torch.arange(length).repeat(each * len(chunks)).expand(rows, -1)
    return Seen(order, place, draw(rows, 40, WIDTH)[:, order[0] * 4 + place[0]])


def turned(x: Tensor, place: int) -> Tensor:
    """Channels c and c + 3 of a head of six by the angle place · 10000^(-c/3)."""
    made = x.clone()
    for c in range(3):
        angle = place * 10000 ** (-c / 3)
        made[c] = x[c] * math.cos(angle) - x[c + 3] * math.sin(angle)
        made[c + 3] = x[c + 3] * math.cos(angle) + x[c] * math.sin(angle)
    return made


@pytest.mark.parametrize("null", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_it_is_its_equation(null: bool, first: bool) -> None:
    mixer = built(null=null, turned_first=first, kv_heads=2)
    x, seen = draw(1, 11, WIDTH), found(range(2))
    seen.position[0, 4] = -1  # padding, which is masked
    y, _ = mixer(x, Where.run(1, 11).give(neighbours=seen))
    for i in range(11):
        chunk = (i + 1) // 4 - 1
        if chunk < 0:
            assert not y[0, i].any()
            continue
        rank = (i + 1) % 4
        place = (6 if rank == 0 else 0) if first else rank + 3
        query = mixer.query(x[0, i]).view(4, 6)
        heads = []
        for h in range(4):
            q = turned(query[h], place)
            score, value = [], []
            if mixer.null_key is not None and mixer.null_value is not None:
                score, value = [q @ mixer.null_key[h // 2]], [mixer.null_value[h // 2]]
            for j in range(12):
                if seen.order[0, j] == chunk and seen.position[0, j] >= 0:
                    key = turned(mixer.key(seen.parts[0][0, j]).view(2, 6)[h // 2], int(seen.position[0, j]))
                    score.append(q @ key)
                    value.append(mixer.value(seen.parts[0][0, j]).view(2, 6)[h // 2])
            weight = (torch.stack(score) / math.sqrt(6)).softmax(0)
            heads.append(weight @ torch.stack(value))
        assert torch.allclose(y[0, i], mixer.out(torch.cat(heads)), rtol=0, atol=1e-12)


def test_only_new_neighbours_are_given_and_the_last_are_remembered() -> None:
    mixer, x = built(), draw(1, 14, WIDTH)
    seen = found(range(3))
    whole, _ = mixer(x, Where.run(1, 14).give(neighbours=seen))
    state, made = mixer.start(1), []
    for begin, end in ((0, 3), (3, 4), (4, 6), (6, 9), (9, 10), (10, 14)):
        new = [u for u in range(3) if begin <= 4 * u + 3 < end]
        where = Where.run(1, end - begin, start=begin)
        if new:
            columns = slice(6 * new[0], 6 * new[-1] + 6)
            here = Seen(seen.order[:, columns], seen.position[:, columns], seen.parts[0][:, columns])
            where = where.give(neighbours=here)
        y, after = mixer(x[:, begin:end], where, state)
        assert after is not None
        state = after
        made.append(y)
        assert nbytes(state) <= price(mixer.spec(), end)
    assert torch.allclose(torch.cat(made, 1), whole, rtol=0, atol=1e-13)
    assert isinstance(state, Log)
    assert state.tensors()[0].tolist() == [[2]]
    assert words(mixer.spec()).startswith("2·entries·kv_heads·head_size + entries numbers per chunk tokens")
    assert price(mixer.spec(), 10**6) == 6 * (2 * 24 + 1) * 8 + 16


def test_the_laws_find_a_mixer_that_forgets() -> None:
    """They really bring neighbours: one that keeps none breaks the split law, one that shows padding another."""

    class Forgets(ChunkedCross):
        def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
            y, state = super().forward(x, where, state)
            return y, None if state is None else Log(*(t[:, :0] for t in state.tensors()), cap=1)

    config = ChunkedCross.Config(chunk=4, neighbours=2, length=3)
    assert not split(Forgets(config, WIDTH), Case.make(WIDTH)).holds
    assert split(ChunkedCross(config, WIDTH), Case.make(WIDTH)).holds
    longer = ChunkedCross.Config(chunk=4, neighbours=2, length=3, head_size=4)
    assert padding(longer.build(WIDTH), Case.make(WIDTH, rows=4, tokens=23)).holds
    assert split(longer.build(WIDTH), Case.make(WIDTH, rows=2, tokens=23)).holds


def test_one_token_costs_one_query() -> None:
    """However large the chunk: queries that are not there are not computed."""
    mixer, rows = built(chunk=64, neighbours=1, length=2), list[int]()
    mixer.query.register_forward_hook(lambda module, given, made: rows.append(made.shape[1]))
    mixer.out.register_forward_hook(lambda module, given, made: rows.append(made.shape[1]))
    with torch.no_grad():
        _, state = mixer(draw(1, 64, WIDTH), Where.run(1, 64).give(neighbours=found(range(1), 2, 1)), mixer.start(1))
        mixer(draw(1, 1, WIDTH), Where.run(1, 1, start=64), state)
    assert rows == [64, 64, 1, 1]


def test_without_neighbours_it_says_nothing() -> None:
    mixer, x = built(), draw(2, 9, WIDTH)
    y, state = mixer(x, Where.run(2, 9))
    assert state is None
    assert not y.any()
    y, _ = mixer(x, Where.run(2, 9), mixer.start(2))
    assert not y.any()


def test_looking_shows_the_own_chunk() -> None:
    mixer = built()
    with look(mixer) as seen:
        mixer(draw(1, 9, WIDTH), Where.run(1, 9).give(neighbours=found(range(2))))
    (weights,) = seen["weights"]
    assert weights.shape == (1, 4, 9, 7)  # nothing, and six entries
    assert torch.allclose(weights.sum(-1)[0, 0], (torch.arange(9) >= 3).double())


def test_neighbours_that_do_not_fit_are_refused() -> None:
    mixer, x = built(), draw(1, 7, WIDTH)
    here = Where.run(1, 7)
    with pytest.raises(InputError, match="neighbours of chunk 1 arrived before its last token"):
        mixer(x, here.give(neighbours=found(range(2))))
    with pytest.raises(InputError, match="7 entries of neighbours arrived; they come in groups of 6"):
        mixer(x, here.give(neighbours=found(range(1), length=7, each=1)))
    seen = found(range(1))
    seen = Seen(torch.tensor([[0, 0, 0, 0, -1, 1]]), seen.position, *seen.parts)
    with pytest.raises(InputError, match="must be of one chunk"):
        mixer(draw(1, 8, WIDTH), Where.run(1, 8).give(neighbours=seen))
    narrow = Seen(found(range(1)).order, found(range(1)).position, draw(1, 6, 5))
    with pytest.raises(InputError, match=r"\(1, 6, 5\) were given to 1 rows of width 24"):
        mixer(x, here.give(neighbours=narrow))
    with pytest.raises(InputError, match=r"\(2, 6, 24\) were given to 1 rows"):
        mixer(
            x,
            here.give(
                neighbours=Seen(
                    *(t.repeat(2, *(1,) * (t.dim() - 1)) for t in (narrow.order, narrow.position, draw(1, 6, 24)))
                )
            ),
        )
    twice = Seen(torch.zeros(1, 12).long(), torch.arange(3).repeat(1, 4), draw(1, 12, 24))
    with pytest.raises(InputError, match="several groups of 6 entries of neighbours are of one chunk"):
        mixer(x, here.give(neighbours=twice))
    with pytest.raises(InputError, match="at places 0 to 2; one arrived for place 5"):
        mixer(x, here.give(neighbours=Seen(narrow.order, torch.arange(6)[None], draw(1, 6, 24))))
    with pytest.raises(ConfigError, match="chunk is 0"):
        ChunkedCross.Config(chunk=0)
    with pytest.raises(ConfigError, match="channels turn two by two"):
        ChunkedCross.Config(position=Rope.Config(share=0.5)).build(WIDTH)
