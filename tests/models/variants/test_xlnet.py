"""XLNet: what is asked about a place does not know it, whatever the order; and a text is read segment by segment."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import CannotStream, ConfigError, InputError
from heed.mixers import Attention, Cross, TwoStream
from heed.models import XLNet, XLNetEncoder
from heed.models.variants.xlnet import Memory
from heed.parts.feedforward import Absent, ChannelMix, FeedForward
from heed.parts.masks import Causal, Whole, Window
from heed.parts.outputs.heads import Pooled

VOCABULARY, WIDTH, ROWS, TOKENS = 13, 24, 2, 8
BOUND = 1e-12


def writer(**changes: Any) -> XLNet:
    torch.manual_seed(0)
    config = XLNet.Config(vocabulary=VOCABULARY, width=WIDTH, depth=2, **changes)
    return config.build().double().eval()


def reader(**changes: Any) -> XLNetEncoder:
    torch.manual_seed(0)
    config = XLNetEncoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=2, **changes)
    return config.build().double().eval()


def ids(seed: int = 0, tokens: int = TOKENS) -> Tensor:
    return torch.randint(VOCABULARY, (ROWS, tokens), generator=torch.Generator().manual_seed(seed))


def permuted(seed: int = 0) -> Where:
    dice = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(TOKENS, generator=dice) for _ in range(ROWS)])
    return Where(order, torch.arange(TOKENS).expand(ROWS, -1))


@pytest.mark.parametrize("mask", [Causal(), Window(back=3)], ids=repr)
@torch.no_grad()
def test_no_score_knows_a_token_that_is_revealed_later_or_there(mask: Causal | Window) -> None:
    """Changing one token changes just the scores of places that come after it in the order, and all of those."""
    model, tokens, where = writer(mixer=TwoStream.Config(mask=mask)), ids(), permuted()
    before = model.predict(tokens, where, where)
    assert before.shape == (ROWS, TOKENS, VOCABULARY)
    for column in range(TOKENS):
        other = tokens.clone()
        other[:, column] = (other[:, column] + 1) % VOCABULARY
        changed = (model.predict(other, where, where) - before).abs().amax(-1) > BOUND
        later = where.order > where.order[:, column : column + 1]
        assert not bool((changed & ~later).any())
        assert torch.equal(changed, later) or not isinstance(mask, Causal)


@torch.no_grad()
def test_writing_asks_for_the_next_place() -> None:
    model, tokens, where = writer(), ids(), Where.run(ROWS, TOKENS)
    scores, _ = model(tokens, where)
    asked = model.predict(tokens, where, where)  # token t is predicted from those before it
    assert torch.allclose(scores[:, :-1], asked[:, 1:], rtol=0, atol=BOUND)
    for known in range(1, TOKENS):  # without tokens that are not known yet, it is the same
        short = Where.run(ROWS, known)
        here = Where.run(ROWS, 1, start=known)
        assert torch.allclose(model.predict(tokens[:, :known], short, here)[:, 0], asked[:, known], rtol=0, atol=BOUND)
    (stream, _), head = model.hidden_states(tokens, where), model.lm_head
    assert torch.allclose(head(stream), scores, rtol=0, atol=BOUND)


@pytest.mark.parametrize("feedforward", [FeedForward.Config(), Absent.Config()], ids=repr)
@torch.no_grad()
def test_segments_are_remembered(feedforward: FeedForward.Config | Absent.Config) -> None:
    model = writer(mixer=TwoStream.Config(segments=True), feedforward=feedforward)
    tokens = torch.stack((ids(), (ids(1) > 6).long()), -1)
    whole, _ = model(tokens, Where.run(ROWS, TOKENS))
    assert not torch.allclose(whole, model(tokens[..., 0], Where.run(ROWS, TOKENS))[0], rtol=0, atol=1e-6)
    state, made = model.start(ROWS), list[Tensor]()
    for begin, end in ((0, 3), (3, 4), (4, TOKENS)):
        y, after = model(tokens[:, begin:end], Where.run(ROWS, end - begin, start=begin), state)
        assert after is not None
        state = after
        made.append(y)
    assert torch.allclose(torch.cat(made, 1), whole, rtol=0, atol=BOUND)


def test_every_weight_learns() -> None:
    model, where = writer(mixer=TwoStream.Config(segments=True)), permuted()
    tokens = torch.stack((ids(), (ids(1) > 6).long()), -1)
    segments = where.give(segment=tokens[..., 1])
    model.predict(tokens, where, segments).square().sum().backward()
    still = [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert still == []


@torch.no_grad()
def test_a_text_is_read_segment_by_segment() -> None:
    """Every token sees its segment both ways, and what is kept of the stream before."""
    model, tokens = reader(), ids()
    first, memory = model.read_on(tokens[:, :5], Where.run(ROWS, 5), keep=4)
    assert torch.allclose(first, model.encode(tokens[:, :5], Where.run(ROWS, 5)).parts[0], rtol=0, atol=BOUND)
    assert [seen.position.tolist()[0] for seen in memory] == [[1, 2, 3, 4]] * 2
    second, after = model.read_on(tokens[:, 5:], Where.run(ROWS, 3, start=5), memory, keep=4)
    assert [seen.position.tolist()[0] for seen in after] == [[4, 5, 6, 7]] * 2

    where, x = Where.run(ROWS, 3, start=5), model.embeddings(tokens[:, 5:], Where.run(ROWS, 3, start=5))
    for block, seen in zip(model.stack.layers, memory, strict=True):
        longer = torch.cat((seen.parts[0], x), 1)  # in one call, of which the last three are new
        y, _ = block(longer, Where.run(ROWS, 7, start=1))
        x = y[:, 4:]
    assert torch.allclose(second, x, rtol=0, atol=BOUND)
    assert not torch.allclose(second, model.encode(tokens[:, 5:], where).parts[0], rtol=0, atol=1e-6)


@torch.no_grad()
def test_rows_of_any_length_remember_their_own_tokens() -> None:
    """What a row is given of the segments before does not depend on the rows beside it."""
    model, tokens = reader(), ids()
    memory: Memory | None = None
    alone, begins = dict[int, Memory](), [0, 0]
    for pair in ((5, 2), (1, 3)):
        longest = max(pair)
        here = torch.stack([tokens[row, begins[row] :][:longest].clone() for row in range(ROWS)])
        where = Where.ragged(pair, start=torch.tensor(begins))
        stream, memory = model.read_on(here, where, memory, keep=3)
        for row, length in enumerate(pair):
            part = Where.run(1, length, start=begins[row])
            by_itself, alone[row] = model.read_on(here[row : row + 1, :length], part, alone.get(row), keep=3)
            assert torch.allclose(stream[row : row + 1, :length], by_itself, rtol=0, atol=BOUND)
            begins[row] += length
    assert memory is not None
    assert [seen.order[1].tolist() for seen in memory] == [[2, 3, 4]] * 2


@torch.no_grad()
def test_a_memory_is_detached_and_of_segment_nought() -> None:
    model = reader()
    tokens = torch.stack((ids(), torch.ones(ROWS, TOKENS, dtype=torch.long)), -1)
    with torch.enable_grad():
        _, memory = model.read_on(tokens[:, :5], Where.run(ROWS, 5), keep=9)
    assert not any(seen.parts[0].requires_grad for seen in memory)
    here = Where.run(ROWS, 3, start=5)
    ones, _ = model.read_on(tokens[:, 5:], here, memory, keep=9)
    plain, _ = model.read_on(tokens[:, 5:, 0], here, memory, keep=9)  # of segment 0, like what is remembered
    assert not torch.allclose(ones, plain, rtol=0, atol=1e-6)


def test_what_looks_both_ways_has_no_state() -> None:
    with pytest.raises(CannotStream):
        reader().start(1)
    assert writer().streams


def test_heads_are_asked() -> None:
    model = reader(heads=Pooled.Config(pool="last", activation="tanh", labels=3))
    seen = model.encode(torch.stack((ids(), ids(1) % 2), -1), Where.ragged([TOKENS, 5]))
    assert model.heads["pooled"](seen.parts[0], seen).shape == (ROWS, 3)
    assert model.embeddings.fields == 2


def goes_on(tokens: Tensor, start: int) -> None:
    """Read beside the memory of one row of four tokens."""
    model = reader()
    _, memory = model.read_on(ids()[:1, :4], Where.run(1, 4), keep=9)
    model.read_on(tokens, Where.run(*tokens.shape, start=start), memory, keep=9)


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "mixer": (lambda: writer(mixer=Attention.Config()), ConfigError, "mixers of kind two_stream, not attention"),
    "ahead": (
        lambda: writer(mixer=TwoStream.Config(mask=Whole())),
        ConfigError,
        "a model that predicts must not look ahead",
    ),
    "cross": (lambda: writer(cross=Cross.Config()), ConfigError, "neither cross nor convolution"),
    "segments": (lambda: reader(segments=2), ConfigError, "segments are compared by the mixers, not embedded"),
    "reader": (lambda: reader(mixer=Attention.Config(mask=Whole())), ConfigError, "mixers of kind two_stream"),
    "feed-forward": (lambda: writer(feedforward=ChannelMix.Config()), ConfigError, "must look at one token alone; use"),
    "fields": (
        lambda: writer()(torch.zeros(1, 2, 3, dtype=torch.long), Where.run(1, 2)),
        InputError,
        "a token brings 3 ids, this model knows 2 of each",
    ),
    "memory": (
        lambda: reader().read_on(ids(), Where.run(ROWS, TOKENS), (), keep=3),
        InputError,
        "a memory of 0 layers was given, the model has 2",
    ),
    "rows": (
        lambda: goes_on(ids(), start=TOKENS),
        InputError,
        "a memory of 1 rows and width 24 was given beside 2 rows",
    ),
    "again": (lambda: goes_on(ids()[:1], start=0), InputError, "a token of order 0 was encoded already.*goes up to 3"),
    "keep": (lambda: reader().read_on(ids(), Where.run(ROWS, TOKENS), keep=-1), InputError, "keep is -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()
