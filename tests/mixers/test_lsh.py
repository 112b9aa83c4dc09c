"""Attention within hash buckets: against its equation as loops, sorted and one by one, whole and in chunks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import CannotStream, ConfigError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.mixers import Attention, Local, Lsh
from heed.parts.attention.lsh import BLOCK, Asking, _tiles, drawn, hashed
from heed.parts.look import look
from heed.parts.masks import Causal, Segments
from heed.parts.segments.chunks import Chunks

WIDTH = 24
DOUBLE = torch.float64


def bucket_of(vector: Tensor, rotation: Tensor) -> int:
    turned = [float(vector @ column) for column in rotation.double().T]
    both = [*turned, *(-x for x in turned)]
    return both.index(max(both))


def heads_of(mixer: Lsh, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys of length one and values of one row. [T, H, d]"""
    query, value = (project(x).view(len(x), 4, 6).detach() for project in (mixer.query, mixer.value))
    return query, query / (query.square().sum(-1, keepdim=True) + 6e-6).sqrt(), value


def attended(query: Tensor, key: Tensor, value: Tensor, seen: list[int], own: int) -> Tensor:
    """One query over some keys, each counted as often as it is named; itself where there is no other."""
    seen = [j for j in seen if j != own] or [own]
    weight = [math.exp(float(query @ key[j])) for j in seen]
    return sum((w / sum(weight) * value[j] for w, j in zip(weight, seen, strict=True)), torch.zeros(6, dtype=DOUBLE))


def test_rotations_do_not_depend_on_the_default_dtype_of_the_first_call() -> None:
    """They are kept for the process: drawn in float64 once, all later models would have hashed by other rotations."""
    shape = (2, 3, 1, 4)
    drawn.cache_clear()
    torch.set_default_dtype(DOUBLE)  # a fixture sets it back
    made = drawn(5, *shape)
    torch.set_default_dtype(torch.float32)
    assert torch.equal(made, torch.randn(shape, generator=torch.Generator().manual_seed(5)))


@pytest.mark.parametrize("tokens", [7, 75])
@pytest.mark.parametrize("causal", [True, False])
def test_it_is_its_equation(tokens: int, *, causal: bool) -> None:
    """Who shares a bucket in some round counts once; 75 tokens are several blocks and tiles."""
    mixer = Lsh.Config(buckets=6, rounds=2, seed=3, causal=causal).build(WIDTH).double()
    x = torch.randn(1, tokens, WIDTH, dtype=DOUBLE, generator=torch.Generator().manual_seed(tokens))
    y = mixer(x, Where.run(1, tokens))[0]
    query, key, value = heads_of(mixer, x[0])
    rotation = torch.randn(4, 6, 2, 3, generator=torch.Generator().manual_seed(3))
    bucket = [[[bucket_of(query[i, h], rotation[h, :, r]) for r in range(2)] for h in range(4)] for i in range(tokens)]
    for i in range(tokens):
        seen = [
            [j for j in range(i if causal else tokens) if any(bucket[i][h][r] == bucket[j][h][r] for r in range(2))]
            for h in range(4)
        ]
        mixed = torch.cat([attended(query[i, h], key[:, h], value[:, h], seen[h], i) for h in range(4)])
        assert torch.allclose(y[0, i], mixer.out(mixed), rtol=0, atol=1e-12), i


def test_laws_hold_over_many_blocks_and_tiles() -> None:
    """Whole it is sorted and tiled; cut, most calls compare one by one and others sort beside a memory."""
    mixer = Lsh.Config(buckets=4, rounds=2).build(WIDTH)
    for law in LAWS[:4]:
        finding = law(mixer, Case.make(WIDTH, rows=2, tokens=90))
        assert finding.holds, finding


def test_work_grows_with_the_buckets_not_with_all_pairs() -> None:
    """Twice the tokens in twice the buckets need about twice the tiles."""

    def tiles(tokens: int, buckets: int) -> int:
        x = torch.randn(1, tokens, 1, 16, generator=torch.Generator().manual_seed(0))
        bucket = hashed(x, drawn(0, 1, 16, 1, buckets // 2), (buckets,))
        where = Where.run(1, tokens)
        ask = Asking(x, x, x, bucket, bucket, where, where, causal=True, buckets=buckets)
        return len(_tiles(ask).row)

    few, many = tiles(2048, 16), tiles(4096, 32)
    assert many < 2.5 * few
    assert many < (4096 / BLOCK) ** 2 / 8


def test_it_remembers_vectors_and_buckets() -> None:
    spec = Lsh.Config(rounds=3).build(WIDTH).spec()
    assert words(spec) == "2·heads·head_size numbers per token; heads·rounds numbers per token"
    assert price(spec, 10) == 10 * (2 * 24 * 4 + 16 + 4 * 3 * 8 + 16)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("chunks", [Chunks(), Chunks(length=3, before=2, after=1, multiple=6), Chunks(filled=20)])
def test_chunks_are_those_of_the_sorted_rounds(chunks: Chunks, *, causal: bool) -> None:
    """Rounds one after the other, sorted by bucket, cut, in a ring; a token met twice counts twice."""
    rounds, tokens = 2, 10
    mixer = Lsh.Config(buckets=4, rounds=rounds, causal=causal, chunks=chunks).build(WIDTH).double()
    x = torch.randn(1, tokens, WIDTH, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    y = mixer(x, Where.run(1, tokens))[0]
    query, key, value = heads_of(mixer, x[0])
    rotation = torch.randn(4, 6, rounds, 2, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
    step = chunks.multiple or chunks.length
    places = -(-max(tokens, chunks.filled) // step) * step
    made = []
    for h in range(4):
        line: list[tuple[int, int | None]] = []
        for r in range(rounds):
            order = sorted(range(tokens), key=lambda i: (bucket_of(query[i, h], rotation[h, :, r]), i))
            line += [(r, i) for i in order] + [(r, None)] * (places - tokens)
        cut = [line[a : a + chunks.length] for a in range(0, len(line), chunks.length)]
        scores: dict[int, list[tuple[float, int]]] = {i: [] for i in range(tokens)}
        for a, chunk in enumerate(cut):
            steps = [s if abs(s) < len(cut) else 0 for s in range(-chunks.before, chunks.after + 1)]
            near = [j for s in steps for _, j in cut[(a + s) % len(cut)] if j is not None]
            for _, i in chunk:
                if i is not None:
                    seen = [j for j in near if j != i and (not causal or j < i)]
                    scores[i] += [(math.exp(float(query[i, h] @ key[j, h])), j) for j in seen]
        rows = []
        for i in range(tokens):
            total = sum(w for w, _ in scores[i])
            rows.append(sum((w / total * value[j, h] for w, j in scores[i]), torch.zeros(6, dtype=DOUBLE)))
            rows[-1] = rows[-1] if scores[i] else value[i, h]
        made.append(torch.stack(rows))
    assert torch.allclose(y[0], mixer.out(torch.cat(made, -1)), rtol=0, atol=1e-12)


def test_a_chunked_form_needs_the_whole_even_if_causal() -> None:
    """It depends on later tokens: which chunk a token is in."""
    mixer = Lsh.Config(chunks=Chunks(length=2), rounds=1).build(WIDTH).double().eval()
    with pytest.raises(CannotStream):
        mixer.start(1)
    x = torch.randn(1, 12, WIDTH, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    whole, part = mixer(x, Where.run(1, 12))[0], mixer(x[:, :8], Where.run(1, 8))[0]
    assert (whole[:, :8] - part).abs().max() > 1e-3


@pytest.mark.parametrize("chunks", [None, Chunks(length=3)])
def test_weights_are_what_is_mixed(chunks: Chunks | None) -> None:
    mixer = Lsh.Config(chunks=chunks).build(WIDTH).double().eval()
    x, where = torch.randn(2, 13, WIDTH, dtype=DOUBLE), Where.ragged([13, 6])
    with look(mixer) as seen:
        y = mixer(x, where)[0]
    (weight,) = seen["weights"]
    value = mixer.value(x).view(2, 13, 4, 6)
    mixed = torch.einsum("bhtn,bnhe->bthe", weight, value).flatten(2)
    assert torch.allclose(mixer.out(mixed)[where.real], y[where.real], rtol=0, atol=1e-12)
    assert torch.allclose(weight.sum(-1).transpose(1, 2)[where.real], torch.ones((), dtype=DOUBLE))


def test_the_order_of_columns_does_not_matter() -> None:
    mixer = Lsh.Config(chunks=Chunks(length=3)).build(WIDTH).double().eval()
    x, mixed = torch.randn(1, 7, WIDTH, dtype=DOUBLE), torch.tensor([3, 0, 6, 1, 5, 2, 4])
    moved = mixer(x[:, mixed], Where(mixed[None], mixed[None]))[0]
    assert torch.allclose(moved, mixer(x, Where.run(1, 7))[0][:, mixed], rtol=0, atol=1e-12)


def test_rotations_are_told_by_the_seed() -> None:
    x, where = torch.randn(1, 20, WIDTH), Where.run(1, 20)
    torch.manual_seed(0)
    one = Lsh.Config(buckets=(2, 4)).build(WIDTH)
    other = Lsh.Config(buckets=(2, 4), seed=1).build(WIDTH)
    other.load_state_dict(one.state_dict())
    assert not torch.allclose(one(x, where)[0], other(x, where)[0])
    other.seed = 0
    assert torch.equal(one(x, where)[0], other(x, where)[0])


def test_dropout_falls_in_training_only() -> None:
    for chunks in (None, Chunks()):
        mixer, x, where = (
            Lsh.Config(dropout=0.5, chunks=chunks).build(WIDTH),
            torch.randn(1, 9, WIDTH),
            Where.run(1, 9),
        )
        assert not torch.equal(mixer(x, where)[0], mixer(x, where)[0])
        mixer.eval()
        assert torch.equal(mixer(x, where)[0], mixer(x, where)[0])


def test_a_ring_without_ends_is_local_attention() -> None:
    """Where the chunks before the first one are hidden, it is the mask that streams."""
    ring = Local.Config(causal=True, chunks=Chunks(length=3, before=1)).build(WIDTH).double().eval()
    local = Attention.Config(mask=Causal() & Segments(length=3, memory=3)).build(WIDTH).double().eval()
    local.load_state_dict(ring.state_dict())
    x, where = torch.randn(2, 11, WIDTH, dtype=DOUBLE), Where.ragged([11, 8])
    one, other = (mixer(x, where)[0][where.real] for mixer in (ring, local))
    assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test_a_ring_is_its_equation() -> None:
    mixer = Local.Config(heads=1, chunks=Chunks(length=2, before=1, after=1)).build(6).double().eval()
    x = torch.randn(1, 7, 6, dtype=DOUBLE)
    with look(mixer) as seen:
        y = mixer(x, Where.run(1, 7))[0]
    q, k, v = (linear(x[0]) for linear in (mixer.query, mixer.key, mixer.value))
    for i in range(7):
        near = [j for s in (-1, 0, 1) for j in range(7) if j // 2 == (i // 2 + s) % 4]
        weight = torch.stack([q[i] @ k[j] / math.sqrt(6) for j in near]).softmax(0)
        assert torch.allclose(y[0, i], mixer.out(weight @ v[near]), rtol=0, atol=1e-12)
        assert torch.allclose(seen["weights"][0][0, 0, i, near], weight, rtol=0, atol=1e-12)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="buckets come in pairs"):
        Lsh.Config(buckets=3)
    with pytest.raises(ConfigError, match="buckets come in pairs"):
        Lsh.Config(buckets=(4, 3))
    with pytest.raises(ConfigError, match="width 30 does not divide into 4 heads"):
        Lsh.Config().build(30)
    with pytest.raises(ConfigError, match="multiple is 5, which 3 does not divide"):
        Chunks(length=3, multiple=5)
    for chunks in ({"length": 0}, {"length": -2}, {"before": -1}, {"after": -1}, {"filled": -1}):
        with pytest.raises(ConfigError, match=next(iter(chunks))):
            Chunks(**chunks)
    for wrong in ({"rounds": 0}, {"buckets": 0}, {"heads": -1}):
        with pytest.raises(ConfigError):
            Lsh.Config.load(wrong)
