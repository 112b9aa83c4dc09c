"""Segment-level recurrence against its equation, values and gradients; its two forms; what it costs and remembers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import nbytes
from heed.mixers import Attention, TransformerXLAttention
from heed.models import Decoder
from heed.parts.look import look
from heed.parts.positions import Relative

WIDTH = 24
OPTIONS = {
    "memory shorter than a segment": {"length": 4, "memory": 2},
    "memory longer than a segment": {"length": 3, "memory": 7},
    "no memory": {"length": 4, "memory": 0},
    "token by token": {"length": 1, "memory": 3},
    "one segment": {"length": 20, "memory": 3},
    "the gradient flows": {"length": 3, "memory": 5, "stopped": False},
    "the same length": {"length": 4, "memory": 5, "same_length": True},
    "zeros at first": {"length": 3, "memory": 4, "begins": "zeros"},
    "learned at first": {"length": 3, "memory": 4, "begins": "learned"},
    "other sizes": {"length": 3, "memory": 4, "heads": 3, "head_size": 5, "position": {"clamp": 4, "width": 14}},
}


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def built(**options: object) -> TransformerXLAttention:
    torch.manual_seed(1)
    return TransformerXLAttention.Config.load(options).build(WIDTH).double().eval()


def equation(mixer: TransformerXLAttention, x: Tensor) -> Tensor:
    """Token by token and head by head, from the paper. [T, D] -> [T, D]"""
    code, size, made = mixer.position, mixer.head_size, []
    width = code.distance.in_features

    def split(net: torch.nn.Linear, state: Tensor) -> Tensor:
        return (net.weight @ state).view(mixer.heads, size)

    for i in range(len(x)):
        begin = i // mixer.length * mixer.length
        first = begin - mixer.memory
        if mixer.same_length:
            first = i - mixer.memory + 1
        states = dict[int, Tensor]()
        for j in range(first, i + 1):
            if j >= 0:
                states[j] = x[j].detach() if mixer.stopped and j < begin else x[j]
            elif mixer.begins != "empty":
                states[j] = torch.zeros(WIDTH, dtype=x.dtype) if mixer.before is None else mixer.before
        query, heads = split(mixer.query, x[i]), []
        for h in range(mixer.heads):
            scores = []
            for j, state in states.items():
                gap = i - j if code.clamp is None else min(i - j, code.clamp)
                turns = [gap * 10000 ** (-2 * c / width) for c in range(width // 2)]
                waves = torch.tensor([math.sin(t) for t in turns] + [math.cos(t) for t in turns], dtype=x.dtype)
                place = (code.distance.weight @ waves).view(mixer.heads, size)[h]
                key = split(mixer.key, state)[h]
                scores.append(((query[h] + code.u[h]) @ key + (query[h] + code.v[h]) @ place) / math.sqrt(size))
            weight = torch.stack(scores).softmax(0)
            values = torch.stack([split(mixer.value, state)[h] for state in states.values()])
            heads.append(weight @ values)
        made.append(mixer.out(torch.cat(heads)))
    return torch.stack(made)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_it_is_its_equation_and_so_are_its_gradients(options: dict[str, object]) -> None:
    mixer, x = built(**options), draw(1, 11, WIDTH).requires_grad_()
    learnt = [x, *mixer.parameters()]
    target = draw(11, WIDTH).flip(0)
    y, _ = mixer(x, Where.run(1, 11))
    truth = equation(mixer, x[0])
    assert torch.allclose(y[0], truth, rtol=0, atol=1e-13)
    ours, theirs = (torch.autograd.grad((out * target).sum(), learnt) for out in (y[0], truth))
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-11)


def test_what_came_before_a_segment_is_read_but_not_taught() -> None:
    x = draw(1, 8, WIDTH).requires_grad_()
    for stopped in (True, False):
        mixer = built(length=4, memory=4, stopped=stopped)
        y, _ = mixer(x, Where.run(1, 8))
        (gradient,) = torch.autograd.grad(y[:, 4:].square().sum(), x)
        assert bool((gradient[:, :4] == 0).all()) == stopped
        assert bool((gradient[:, 4:] != 0).any())
        changed = x.detach().clone()
        changed[:, 1] += 1
        assert not torch.allclose(mixer(changed, Where.run(1, 8))[0][:, 4:], y[:, 4:])


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(0, 9)),
    case=st.tuples(st.integers(1, 3), st.integers(4, 26), st.integers(0, 99)),
    begins=st.sampled_from(["empty", "zeros", "learned"]),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_laws_hold_for_any_segments(
    sizes: tuple[int, int], case: tuple[int, int, int], begins: str, flags: tuple[bool, bool]
) -> None:
    length, memory = sizes
    begins, same = (begins, flags[0]) if memory else ("empty", False)
    mixer = built(length=length, memory=memory, begins=begins, same_length=same, stopped=flags[1])
    rows, tokens, seed = case
    for law in LAWS:
        finding = law(mixer, Case.make(WIDTH, rows=rows, tokens=tokens, seed=seed))
        assert finding.holds, finding


@pytest.mark.parametrize("lengths", [[1, 1], [3, 3], [1, 0], [3, 2]])
def test_the_absorbed_form_is_the_expanded_one(lengths: list[int]) -> None:
    """Values and gradients, for one token and for several, whole and ragged."""
    mixer = built(length=4, memory=6)
    states, seen = draw(2, 9, WIDTH).requires_grad_(), Where.run(2, 9)
    here = Where.ragged(lengths, start=torch.tensor([8 - lengths[0] + 1, 9 - lengths[1]]), width=max(lengths))
    query = here.blank(draw(2, max(lengths), 4, 6)).requires_grad_()
    slow, fast = (form(query, states, here, seen) for form in (mixer.expanded, mixer.absorbed))
    assert torch.allclose(fast, slow, rtol=0, atol=1e-13)
    learnt = [query, states, *(p for name, p in mixer.named_parameters() if name.split(".")[0] in ("key", "value"))]
    target = torch.linspace(-1, 1, slow.numel(), dtype=slow.dtype).view_as(slow)
    pairs = [torch.autograd.grad((y * target).sum(), learnt, retain_graph=True) for y in (slow, fast)]
    for a, b in zip(*pairs, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_the_memory_is_not_projected_again_for_every_token() -> None:
    mixer = built(length=8, memory=16)
    rows = list[int]()
    for net in (mixer.key, mixer.value):
        net.register_forward_hook(lambda module, given, made: rows.append(made.shape[1]))
    with torch.no_grad():
        _, state = mixer(draw(1, 40, WIDTH), Where.run(1, 40), mixer.start(1))
        assert rows == [40, 40]  # once for a whole text, though every segment reads its memory
        for t in range(40, 60):
            _, state = mixer(draw(1, 1, WIDTH), Where.run(1, 1, start=t), state)
    assert rows == [40, 40]


class Largest(TorchDispatchMode):
    """The most numbers that any tensor held which was made meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        made = func(*args, **(kwargs or {}))
        self.numbers = max([self.numbers, *(t.numel() for t in tree_leaves(made) if isinstance(t, Tensor))])
        return made


@pytest.mark.parametrize("ragged", [False, True])
def test_memory_grows_with_the_length_not_with_its_square(ragged: bool) -> None:
    mixer = TransformerXLAttention.Config(length=16, memory=16).build(WIDTH)
    most = []
    for tokens in (512, 1024, 2048):
        x = torch.randn(1, tokens, WIDTH, requires_grad=True)
        where = Where.ragged([tokens - 3], width=tokens) if ragged else Where.run(1, tokens)
        with Largest() as largest:
            mixer(x, where)[0].sum().backward()
        most.append(largest.numbers)
        assert largest.numbers < 4 * tokens * 64  # heads, and the distances of 16 tokens to 32
    assert most[2] < 2.1 * most[1] < 4.5 * most[0]


def test_it_remembers_half_of_what_keys_and_values_take() -> None:
    mixer = TransformerXLAttention.Config(length=5, memory=7).build(WIDTH)
    assert words(mixer.spec()) == "width numbers per token, for the last (memory + length - 1) tokens"
    assert price(mixer.spec(), 1000) == 11 * (WIDTH * 4 + 16)
    assert price(Attention.Config().build(WIDTH).spec(), 11) == 11 * (2 * WIDTH * 4 + 16)
    with torch.no_grad():
        _, state = mixer(draw(2, 50, WIDTH).float(), Where.run(2, 50), mixer.start(2))
    assert nbytes(state) == 2 * price(mixer.spec(), 50)
    same = TransformerXLAttention.Config(length=5, memory=7, same_length=True).build(WIDTH)
    assert price(same.spec(), 1000) == 6 * (WIDTH * 4 + 16)


def test_segments_may_be_cut_anew() -> None:
    """As in evaluation, where segments are shorter and the memory is the same."""
    mixer, x = built(length=8, memory=4), draw(1, 11, WIDTH)
    before, _ = mixer(x, Where.run(1, 11))
    mixer.cut(1)
    assert mixer.reach.back == 4
    y, _ = mixer(x, Where.run(1, 11))
    assert torch.allclose(y[0], equation(mixer, x[0]), rtol=0, atol=1e-13)
    assert not torch.allclose(y, before)


@pytest.mark.parametrize("options", [{"length": 3, "memory": 4}, {"length": 3, "memory": 4, "begins": "zeros"}])
def test_weights_are_shown_over_all_that_is_seen(options: dict[str, object]) -> None:
    mixer = built(**options)
    with look(mixer) as seen:
        mixer(draw(2, 8, WIDTH), Where.run(2, 8))
    (weights,) = seen["weights"]
    before = 4 if "begins" in options else 0
    assert weights.shape == (2, 4, 8, before + 8)
    assert torch.allclose(weights.sum(-1), torch.ones((), dtype=torch.float64))
    for i in range(8):
        shown = {j - before for j in range(before + 8) if bool((weights[0, :, i, j] > 0).all())}
        assert shown == set(range(max(i // 3 * 3 - 4, -before), i + 1))


def test_layers_that_share_their_code_share_u_and_v_alone() -> None:
    for shared in (True, False):
        config = Decoder.Config(
            vocabulary=9, width=WIDTH, depth=3, mixer=TransformerXLAttention.Config(), one_position=shared
        )
        first, _, last = (block.mixer.position for block in config.build().stack.layers)
        assert isinstance(first, Relative)
        assert isinstance(last, Relative)
        assert (last.u is first.u) == (last.v is first.v) == shared
        assert last.distance.weight is not first.distance.weight


def test_dropout_falls_in_training_only() -> None:
    mixer = TransformerXLAttention.Config(dropout=0.5).build(WIDTH)
    x, where = torch.randn(1, 9, WIDTH), Where.run(1, 9)
    assert not torch.equal(mixer(x, where)[0], mixer(x, where)[0])
    mixer.eval()
    assert torch.equal(mixer(x, where)[0], mixer(x, where)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length"),
        ({"memory": -1}, "memory"),
        ({"memory": 0, "same_length": True}, "with memory = 0 it sees nothing"),
        ({"memory": 0, "begins": "zeros"}, "a memory of 0 tokens cannot begin with 'zeros'"),
        ({"begins": "ones"}, "'empty', 'zeros' or 'learned'"),
        ({"heads": 5}, "width 24 does not divide into 5 heads; use a multiple of 5, or set head_size"),
        ({"position": {"width": 7}}, "the waves of a distance come in pairs"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TransformerXLAttention.Config.load(options).build(WIDTH)
