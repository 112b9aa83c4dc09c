"""Cross-attention to the nearest: against its equation, against `cross`, and by what it promises."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Given, Where
from heed.core.errors import ConfigError, InputError
from heed.core.spec import price
from heed.core.state import Seen, nbytes
from heed.mixers import Cross, KnnCross
from heed.mixers import knn as nearest
from heed.parts.look import look

WIDTH, HEADS, SIZE = 24, 4, 6


def source(rows: int, lengths: list[int], seed: int = 0) -> Seen:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, max(lengths), WIDTH, dtype=torch.float64, generator=draw)
    return Seen.of(Where.ragged(lengths), x)


def pair(nearest: int, **options: object) -> tuple[KnnCross, Cross]:
    """The two with the same weights."""
    torch.manual_seed(1)
    near = KnnCross.Config.load({"nearest": nearest, "heads": HEADS, **options}).build(WIDTH).double()
    cross = Cross.Config.load({"heads": HEADS, **options}).build(WIDTH).double()
    cross.load_state_dict(near.state_dict())
    return near, cross


def test_it_is_its_equation() -> None:
    mixer, _ = pair(3)
    x, memory = torch.randn(1, 5, WIDTH, dtype=torch.float64), source(1, [9])
    with torch.no_grad():
        y, _ = mixer(x, Where.run(1, 5).give(encoder_output=memory))
        m = memory.parts[0][0]
        q, k, v = (
            linear(z).view(-1, HEADS, SIZE) for linear, z in ((mixer.query, x[0]), (mixer.key, m), (mixer.value, m))
        )
        for i in range(5):
            heads: list[Tensor] = []
            for h in range(HEADS):
                scores = [float(q[i, h] @ k[j, h]) / SIZE**0.5 for j in range(9)]
                best = sorted(range(9), key=lambda j, scores=scores: -scores[j])[:3]  # type: ignore[misc]
                weight = torch.tensor([scores[j] for j in best], dtype=torch.float64).softmax(0)
                heads.append(sum((w * v[j, h] for w, j in zip(weight, best, strict=True)), torch.zeros(SIZE)))
            assert torch.allclose(y[0, i], mixer.out(torch.cat(heads)), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "options", [{}, {"kv_heads": 1}, {"kv_heads": 2, "bias": False}, {"head_size": 5, "scale": 0.3}]
)
@pytest.mark.parametrize("form", ["whole", "searched"])
def test_with_all_of_the_source_it_is_cross(options: dict[str, object], form: str) -> None:
    """Values and gradients, in both forms."""
    near, cross = pair(7, **options)
    memory = source(3, [7, 4, 1])
    where = Where.ragged([5, 2, 3])
    gradients = []
    for mixer in (near, cross):
        x = torch.randn(3, 5, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
        m = memory.parts[0].clone().requires_grad_()
        seen = Seen.of(memory, m)
        if mixer is near:
            y = near.merge(
                where.blank(
                    getattr(near, form)(
                        near.queries(where.blank(x)), where, near._source(Given(encoder_output=seen), 3)
                    )
                )
            )
        else:
            y, _ = mixer(x, where.give(encoder_output=seen))
        weights = [p for name, p in mixer.named_parameters() if name != "key.bias"]  # a softmax does not see it
        total = (y[where.real] * torch.linspace(-1, 1, WIDTH)).sum()
        gradients.append([y[where.real], *torch.autograd.grad(total, [x, m, *weights])])
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"kv_heads": 2}, {"kv_heads": 1}])
def test_who_sees_nothing_of_the_source_gets_nothing_not_even_a_bias(options: dict[str, object]) -> None:
    """The second row has no source at all; the bias of the values is part of a mean over no tokens."""
    near, cross = pair(3, **options)
    assert near.value.bias is not None
    for projection in (near.value, cross.value):
        torch.nn.init.constant_(projection.bias, 3.0)
    x, memory = torch.randn(2, 4, WIDTH, dtype=torch.float64), source(2, [9, 0])
    where = Where.run(2, 4).give(encoder_output=memory)
    made, wanted = near(x, where)[0], cross(x, where)[0]
    assert torch.allclose(made[1], wanted[1], rtol=0, atol=1e-13)
    assert torch.equal(made[1], near.out.bias.expand_as(made[1]))


def test_fewer_is_not_cross() -> None:
    near, cross = pair(3)
    x, where = torch.randn(1, 2, WIDTH, dtype=torch.float64), Where.run(1, 2).give(encoder_output=source(1, [7]))
    assert not torch.allclose(near(x, where)[0], cross(x, where)[0], rtol=0, atol=1e-6)


def test_a_search_block_by_block_finds_what_one_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    mixer, _ = pair(5)
    x, memory = torch.randn(3, 9, WIDTH, dtype=torch.float64), source(3, [50, 31, 2])
    where = Where.run(3, 9).give(encoder_output=memory)

    def run() -> tuple[Tensor, Tensor]:
        asked = x.clone().requires_grad_()
        y, _ = mixer(asked, where)
        return y, torch.autograd.grad(y.square().sum(), asked)[0]

    once = run()
    monkeypatch.setattr(nearest, "BLOCK", 4)
    monkeypatch.setattr(nearest, "SCORES", 64)
    monkeypatch.setattr(nearest, "HELD", 1)
    for one, other in zip(once, run(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-13)


def test_scores_are_never_held_all_at_once() -> None:
    """200 queries of 4 heads over 30,000 source tokens would be 24 million scores."""
    mixer = KnnCross.Config(nearest=4).build(WIDTH)
    memory = Seen.of(Where.run(1, 30_000), torch.randn(1, 30_000, WIDTH))
    sizes: list[int] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            made = function(*args, **(kwargs or {}))
            sizes.extend(t.numel() for t in (made if isinstance(made, tuple) else (made,)) if isinstance(t, Tensor))
            return made

    with torch.no_grad(), Watch():
        mixer(torch.randn(1, 200, WIDTH), Where.run(1, 200).give(encoder_output=memory))
    assert 0 < max(sizes) <= nearest.HELD < 200 * 4 * 30_000


def test_the_source_is_remembered_once_and_not_projected() -> None:
    mixer = KnnCross.Config(nearest=2).build(WIDTH)
    memory = Seen.of(Where.run(2, 5), torch.randn(2, 5, WIDTH))
    state = mixer.start(2, Given(encoder_output=memory))
    assert nbytes(state) == 2 * price(mixer.spec(), 0, 5) == 2 * 5 * (WIDTH * 4 + 16)
    assert state.tensors()[2].data_ptr() == memory.parts[0].data_ptr()


def test_what_is_looked_at_are_the_nearest() -> None:
    mixer, _ = pair(3)
    where = Where.run(2, 4).give(encoder_output=source(2, [8, 2]))
    with torch.no_grad(), look(mixer) as seen:
        mixer(torch.randn(2, 4, WIDTH, dtype=torch.float64), where)
    (weights,) = seen["weights"]
    assert weights.shape == (2, HEADS, 4, 8)
    assert torch.allclose(weights.sum(-1), torch.ones(2, HEADS, 4, dtype=torch.float64))
    assert ((weights > 0).sum(-1) == torch.tensor([3, 2])[:, None, None]).all()


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="nearest is 0"):
        KnnCross.Config(nearest=0)
    with pytest.raises(ConfigError, match="searched before they are projected, which clip forbids"):
        KnnCross.Config(clip=1.0)
    with pytest.raises(InputError, match="needs the encoder's output"):
        KnnCross.Config().build(WIDTH)(torch.zeros(1, 1, WIDTH), Where.run(1, 1))
    with pytest.raises(
        InputError, match=r"3 rows of width 24 need an encoder output of \[3, tokens, 24\], not of \[2, 4, 24\]"
    ):
        KnnCross.Config().build(WIDTH).start(3, Given(encoder_output=source(2, [4, 4])))


@pytest.mark.parametrize("nearest", [3, 16])
def test_a_source_of_other_rows_or_another_width_is_refused(nearest: int) -> None:
    """Searched or whole; a single row is not taken for all."""
    mixer, x = KnnCross.Config(nearest=nearest).build(WIDTH), torch.zeros(2, 3, WIDTH)
    for shape in ((1, 9, WIDTH), (3, 9, WIDTH), (2, 9, WIDTH + 2)):
        memory = Seen.of(Where.run(*shape[:2]), torch.zeros(shape))
        with pytest.raises(InputError, match=rf"not of \[{shape[0]}, 9, {shape[2]}\]"):
            mixer(x, Where.run(2, 3).give(encoder_output=memory))
