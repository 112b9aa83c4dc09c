"""What a call returned is read for what it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heed.check import CannotCheck, check
from heed.check.foreign.returned import Gives, NoStream, few, gives_weights, summed

ROWS, TOKENS, KEYS, WIDTH, HEADS = 3, 7, 5, 24, 2


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


WEIGHTS = drawn(ROWS, TOKENS, KEYS).softmax(-1)
LAID: dict[str, tuple[Tensor, Tensor]] = {  # as returned, and as they are read
    "pairs": (WEIGHTS, WEIGHTS),
    "heads": (WEIGHTS[:, None].expand(-1, HEADS, -1, -1), WEIGHTS[:, None].expand(-1, HEADS, -1, -1)),
    "heads among rows": (WEIGHTS.repeat_interleave(HEADS, 0), WEIGHTS[:, None].expand(-1, HEADS, -1, -1)),
    "one query": (WEIGHTS[:, 0], WEIGHTS[:, :1]),
    "keys first": (WEIGHTS[:, 0].T, WEIGHTS[:, :1]),
    "keys, one": (WEIGHTS[:, 0, :, None], WEIGHTS[:, :1]),
    "keys, rows, one": (WEIGHTS[:, 0].T[..., None], WEIGHTS[:, :1]),
    "one, rows": (WEIGHTS[None, :, 0], WEIGHTS[:, :1]),
}


@pytest.mark.parametrize("name", LAID)
def test_weights_are_read_in_every_layout(name: str) -> None:
    returned, read = LAID[name]
    given = (torch.zeros(ROWS, WIDTH + 1), {"weights": returned})
    assert gives_weights(given, ROWS, KEYS) is Gives.WEIGHTS
    assert torch.equal(Gives.WEIGHTS.weights(given, ROWS, KEYS), read)
    assert gives_weights(returned.log(), ROWS, KEYS) is Gives.LOGS
    torch.testing.assert_close(Gives.LOGS.weights(returned.log(), ROWS, KEYS), read)


def test_what_sums_to_nothing_is_no_weights() -> None:
    assert gives_weights(2 * WEIGHTS, ROWS, KEYS) is None
    assert gives_weights(drawn(ROWS, TOKENS, KEYS), ROWS, KEYS) is None
    assert gives_weights(torch.zeros(ROWS, TOKENS), ROWS, KEYS) is None
    of_another_axis = drawn(ROWS, TOKENS, KEYS).softmax(1)  # weights all the same: a probe tells
    assert gives_weights(of_another_axis, ROWS, KEYS) is Gives.WEIGHTS
    with pytest.raises(NoStream, match=r"returned \[3, 7\]; weights of 5 keys"):
        Gives.WEIGHTS.weights(torch.zeros(ROWS, TOKENS), ROWS, KEYS)


def test_heads_are_summed_side_by_side() -> None:
    source = drawn(ROWS, KEYS, WIDTH)
    one = summed(WEIGHTS, source)
    torch.testing.assert_close(one, WEIGHTS @ source)
    both = summed(WEIGHTS[:, None].expand(-1, HEADS, -1, -1), source)
    torch.testing.assert_close(both, torch.cat((one, one), -1))


def test_vectors_for_each_row() -> None:
    vectors = drawn(ROWS, 2, WIDTH)
    assert torch.equal(_some(vectors), vectors)
    assert torch.equal(_some(vectors.transpose(0, 1)), vectors)
    assert torch.equal(_some(vectors[:, 0]), vectors[:, :1])
    assert torch.equal(_some(vectors[:, 0, :, None, None]), vectors[:, :1])  # an image of one point
    assert torch.equal(_some((torch.zeros(KEYS, WIDTH), vectors)), vectors)
    assert few(vectors, ROWS, many=3) is None
    assert few("nothing", ROWS) is None


def _some(returned: Any) -> Tensor:
    found = few(returned, ROWS)
    assert found is not None
    return found


class Pooling(nn.Module):
    """One vector for each row."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(hidden_dim, 1)

    def forward(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        score = self.score(h).squeeze(-1)
        score = score if mask is None else score.masked_fill(mask == 0, -1e9)
        return (score.softmax(-1)[..., None] * h).sum(1)


class LatePooling(Pooling):
    """The mask comes after the softmax."""

    def forward(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        weights = self.score(h).squeeze(-1).softmax(-1)
        weights = weights if mask is None else weights * mask
        return (weights[..., None] * h).sum(1)


class Pointer(nn.Module):
    """Weights only."""

    axis = -1

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, hidden_size)

    def forward(self, query: Tensor, context: Tensor) -> Tensor:
        return torch.softmax(self.query(query) @ context.mT / context.shape[-1] ** 0.5, self.axis)


class RowPointer(Pointer):
    """The softmax is over the rows of the batch."""

    axis = 0


class Latents(nn.Module):
    def __init__(self, dim: int, latents: int = 4) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(latents, dim))
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        asks = self.latents.expand(len(x), -1, -1)
        return self.attention(asks, x, x, need_weights=False)[0]


class FromState(nn.Module):
    """A recurrent decoder's state looks at an encoder's outputs, tokens first and twice as wide."""

    def __init__(self, dec_dim: int, enc_dim: int) -> None:
        super().__init__()
        self.energy = nn.Linear(dec_dim + 2 * enc_dim, 1)

    def forward(self, hidden: tuple[Tensor, Tensor], encoder_outputs: Tensor) -> Tensor:
        state = hidden[0][-1].expand(len(encoder_outputs), -1, -1)
        weights = self.energy(torch.cat((state, encoder_outputs), -1)).softmax(0)
        return (weights * encoder_outputs).sum(0)


@pytest.mark.parametrize("target", [Pooling, Pointer, Latents, FromState], ids=lambda kind: kind.__name__)
def test_what_gives_no_stream_is_asked_what_can_be_asked(target: type[nn.Module]) -> None:
    report = check(target)
    assert report.ok
    assert {"rows", "repeat", "pure"} <= {one.probe for one in report.outcomes if one.status == "pass"}


@pytest.mark.parametrize(("target", "slug"), [(LatePooling, "mask-after-softmax"), (RowPointer, "softmax-axis")])
def test_and_found_wrong_where_it_is(target: type[nn.Module], slug: str) -> None:
    assert check(target).slugs == [slug]


@pytest.mark.parametrize(
    ("target", "words"), [(Pooling, "1 vector(s) for each row"), (Latents, "4 vector(s)"), (Pointer, "gives weights")]
)
def test_what_could_not_be_asked_comes_first(target: type[nn.Module], words: str) -> None:
    assert words in check(target).unchecked[0]


class Smoother(nn.Module):
    """Convolutions, and nothing that attends."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(channels, channels, 3, padding=1), nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(torch.relu(self.one(x)))


class SmoothingGate(Smoother):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.two(torch.relu(self.one(x))))


def test_what_does_not_attend_is_not_taken_for_attention() -> None:
    with pytest.raises(CannotCheck, match="there is no attention in Smoother"):
        check(Smoother)
    assert check(SmoothingGate).ok
