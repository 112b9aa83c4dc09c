"""YOCO: one memory for many layers, counted once, and the fraction of a plain decoder's that it declares."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.spec import price, words
from heed.core.state import Log, leaves, nbytes
from heed.mixers import Attention, GatedRetention, Retention
from heed.models import Decoder, Yoco
from heed.models.variants.yoco import SharedKVAttention
from heed.parts.look import look
from heed.parts.masks import Window
from heed.parts.positions import NoPosition
from heed.parts.residual.wiring import ResiDual

WIDTH, DEPTH, HEADS = 64, 8, 4


def shape(**options: object) -> Yoco.Config:
    return Yoco.Config.load({"vocabulary": 13, "width": 24, "depth": 4, **options})


@pytest.mark.parametrize("kv_heads", [4, 1])
def test_its_memory_is_the_declared_fraction_of_a_plain_decoders(kv_heads: int) -> None:
    """Of n layers one n-th, but for the matrices of the lower half, which do not grow."""
    reader = SharedKVAttention.Config(heads=HEADS, kv_heads=kv_heads)
    model = Yoco.Config(vocabulary=13, width=WIDTH, depth=DEPTH, reader=reader).build()
    plain = Decoder.Config(
        vocabulary=13, width=WIDTH, depth=DEPTH, mixer=Attention.Config(heads=HEADS, kv_heads=kv_heads)
    ).build()
    matrices = DEPTH // 2 * 4 * HEADS * 16 * 16
    for tokens in (1, 100, 32_768, 10**6):
        assert price(model.spec(), tokens) == price(plain.spec(), tokens) // DEPTH + matrices
    share = price(model.spec(), 32_768) / price(plain.spec(), 32_768)
    assert 1 / DEPTH < share < 1.01 / DEPTH


@pytest.mark.parametrize("mixer", [GatedRetention.Config(), Attention.Config(mask=Window(back=3))], ids=repr)
def test_what_is_held_is_what_is_declared_and_one_log_serves_all(mixer: GatedRetention.Config) -> None:
    model, state = shape(mixer=mixer.dump(), upper=3).build(), None
    state = model.start(2)
    with torch.no_grad():
        for begin, end in ((0, 7), (7, 8), (8, 20)):
            tokens = torch.randint(13, (2, end - begin))
            _, after = model(tokens, Where.run(2, end - begin, start=begin), state)
            assert after is not None
            state = after
            assert nbytes(state) == 2 * price(model.spec(), end)
    logs = [leaf for leaf in leaves(state) if isinstance(leaf, Log) and leaf.cap is None]
    assert len(logs) == 1
    assert words(model.spec()).endswith("2·kv_heads·head_size numbers per token")


def test_upper_layers_look_at_what_the_lower_half_made() -> None:
    """The layer as it is written: q of its own stream, k and v of the stream in the middle."""
    torch.manual_seed(0)
    model = shape(reader=SharedKVAttention.Config(position=NoPosition.Config()).dump()).build().double().eval()
    tokens, where = torch.randint(13, (1, 6)), Where.run(1, 6)
    with torch.no_grad():
        x = model.embeddings(tokens, where)
        for block in model.stack.layers[:2]:
            x, _ = block(x, where)
        middle = model.shared.norm(x)
        key, value = model.shared.key(middle).view(6, 4, 6), model.shared.value(middle).view(6, 4, 6)
        for block in model.stack.layers[2:]:
            assert isinstance(block.mixer, SharedKVAttention)
            x = x + by_hand(block.mixer, block.wiring.norms[0](x[0]), key, value)
            x = x + block.feedforward(block.wiring.norms[1](x), where)[0]
        scores, _ = model(tokens, where)
        assert torch.allclose(model.head(model.stack.ends.leave(x)), scores, rtol=0, atol=1e-12)


def by_hand(reader: SharedKVAttention, x: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, rows = reader.query(x).view(6, 4, 6), []
    for i in range(6):
        weight = [(key[: i + 1, h] @ query[i, h] / 6**0.5).softmax(0) for h in range(4)]
        rows.append(torch.cat([weight[h] @ value[: i + 1, h] for h in range(4)]))
    made: Tensor = reader.out(torch.stack(rows))
    return made


def test_halves_may_be_of_any_size_and_the_lower_one_a_hybrid() -> None:
    near = Attention.Config(mask=Window(back=1))
    config = Yoco.Config(vocabulary=13, width=24, depth=5, upper=2, mixer=(near, Retention.Config()))
    kinds = [type(block.mixer).__name__ for block in config.build().stack.layers]
    assert kinds == ["Attention", "Retention", "Attention", "SharedKVAttention", "SharedKVAttention"]
    assert (shape(depth=5).readers, shape(depth=5).lower) == (2, 3)


def test_looking_at_a_reader() -> None:
    model = shape().build().eval()
    with torch.no_grad(), look(model, "stack.blocks.3.mixer.weights") as seen:
        model(torch.zeros(2, 5, dtype=torch.long), Where.run(2, 5))
    (weights,) = seen["stack.blocks.3.mixer.weights"]
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 5))


def test_it_learns_to_look_back() -> None:
    """The token that followed the last time: the upper half must find it in the one memory."""
    torch.manual_seed(0)
    model = Yoco.Config(vocabulary=9, width=32, depth=2, scaled=True).build()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(100):
        half = torch.stack([torch.randperm(9) for _ in range(32)])
        tokens = torch.cat((half, half), 1)
        scores, _ = model(tokens[:, :-1], Where.run(32, 17))
        loss = torch.nn.functional.cross_entropy(scores[:, 8:].mT, tokens[:, 9:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] > 2.0
    assert losses[-1] < 1.0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="4 of 4 layers cannot be the upper half; leave one below"):
        shape(upper=4)
    with pytest.raises(ConfigError, match="use a wiring that has no second one"):
        shape(wiring=ResiDual().dump())
    with pytest.raises(ConfigError, match="YOCO has no cross, order"):
        shape(order=[0, 1, 0, 1])
    with pytest.raises(ConfigError, match="4 heads cannot share kv_heads = 3 evenly"):
        shape(reader={"kv_heads": 3})
    with pytest.raises(
        ConfigError, match="width 24 does not divide into 5 heads; nearest widths: 20, 25; or set reader"
    ):
        shape(reader={"heads": 5}).build()
    with pytest.raises(InputError, match="attention to a shared KV cache needs its keys"):
        SharedKVAttention.Config().build(24)(torch.zeros(1, 1, 24), Where.run(1, 1))
