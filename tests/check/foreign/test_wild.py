"""Ways of writing that were met in public packages, in small: each could once not be run, or was falsely accused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heed.check import CannotCheck, check
from heed.check.reports.report import Verdict


class Layers(nn.Module):
    """A depth that has a default, and cannot be left out."""

    def __init__(self, dim: int, depth: int | None = None, heads: int = 8, causal: bool = False) -> None:
        super().__init__()
        assert depth is not None, "`depth` must be passed in"
        self.causal = causal
        self.layers = nn.ModuleList(nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        hides = torch.ones(x.shape[1], x.shape[1]).triu(1).bool() if self.causal else None
        for layer in self.layers:
            x = x + layer(x, x, x, attn_mask=hides, need_weights=False)[0]
        return x


class Decoder(Layers):
    """A constructor that hands on what it is given."""

    def __init__(self, **kwargs: object) -> None:
        assert "causal" not in kwargs, "a decoder is causal"
        super().__init__(causal=True, **kwargs)  # type: ignore[arg-type]


def test_a_constructor_that_hands_on_to_its_base() -> None:
    report = check(Decoder)
    assert report.verdict is Verdict.FINE
    assert "causal" not in report.notes[0]
    assert "depth=2" in report.notes[0]


class Model(nn.Module):
    """A model over token ids that calls them x."""

    def __init__(self, num_tokens: int, dim: int, max_seq_len: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(num_tokens, dim), nn.Embedding(max_seq_len, dim)
        self.layers = Decoder(dim=dim, depth=2, heads=heads)
        self.out = nn.Linear(dim, num_tokens)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.layers(self.tokens(x) + self.places(torch.arange(x.shape[1]))))
        return y


def test_a_model_that_calls_its_ids_x() -> None:
    report = check(Model)
    assert report.verdict is Verdict.FINE
    assert report.kind == "a model over token ids"


class Windows(nn.Module):
    """A window that is as long as there are rows."""

    def __init__(self, window_size: int) -> None:
        super().__init__()
        self.window_size = window_size

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert q.shape[-2] % self.window_size == 0, f"{q.shape[-2]} tokens are not windows of {self.window_size}"
        cut = [part.unflatten(-2, (-1, self.window_size)) for part in (q, k, v)]
        weights = (cut[0] @ cut[1].mT / q.shape[-1] ** 0.5).softmax(-1)
        return (weights @ cut[2]).flatten(-3, -2)


def test_a_window_is_no_batch() -> None:
    assert check(Windows).verdict is Verdict.FINE


class Switched(nn.Module):
    """A switch whose name asks for what would be a bug without it."""

    def __init__(self, dim: int, heads: int, sigmoid: bool = False) -> None:
        super().__init__()
        self.heads, self.sigmoid = heads, sigmoid
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = scores.sigmoid() if self.sigmoid else scores.softmax(-1)
        y: Tensor = self.out((weights @ v).transpose(1, 2).flatten(2))
        return y


def test_what_a_switch_asks_for_by_name_is_no_bug() -> None:
    report = check(Switched)
    assert report.verdict is Verdict.FINE
    assert "sigmoid=True" in report.swept


class Pool(nn.Module):
    """Learnt queries, unless others are given."""

    def __init__(self, dim: int, num_queries: int = 4) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(num_queries, dim))
        self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, context: Tensor, queries: Tensor | None = None) -> Tensor:
        asks = self.queries.expand(len(context), -1, -1) if queries is None else queries
        y: Tensor = (asks @ self.key(context).mT / asks.shape[-1] ** 0.5).softmax(-1) @ self.value(context)
        return y


def test_learnt_queries_that_others_may_stand_for() -> None:
    assert "parameter-unused" not in check(Pool).slugs


class Plain(Switched):
    """A call that hands on what it is given."""

    def forward(self, *args: object, context: object = None, **kwargs: object) -> Tensor:
        assert context is None, "self-attention takes no context"
        return super().forward(*args, **kwargs)  # type: ignore[arg-type]


def test_a_call_that_hands_on_to_its_base() -> None:
    assert check(Plain).verdict is Verdict.FINE


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Without a softmax, as its name says."""
    return q @ (k.mT @ v) / (q @ k.sum(-2)[..., None])


def test_what_a_target_is_called_is_no_bug() -> None:
    assert check(linear_attention).verdict is Verdict.FINE


class Beside(nn.Module):
    """A model over ids that must be given a source, too."""

    def __init__(self, n_vocab: int, n_state: int, n_head: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(n_vocab, n_state)
        self.attn = nn.MultiheadAttention(n_state, n_head, batch_first=True)

    def forward(self, tokens: Tensor, xa: Tensor) -> Tensor:
        x = self.tokens(tokens)
        y: Tensor = (x + self.attn(x, xa, xa, need_weights=False)[0]) @ self.tokens.weight.mT
        return y


def test_a_model_that_reads_a_source() -> None:
    report = check(Beside)
    assert report.verdict is Verdict.FINE
    assert len(report.outcomes) > 2


class Refusing(Beside):
    """A model that cannot be called by guessing."""

    def forward(self, tokens: Tensor, xa: Tensor) -> Tensor:
        raise TypeError("it takes what nobody guesses")


def test_a_model_that_cannot_be_called_is_not_accused() -> None:
    with pytest.raises(CannotCheck, match="what nobody guesses"):
        check(Refusing)


class EitherOr(Switched):
    """Of two switches one must be on, and neither is."""

    def __init__(self, embed_dim: int, num_heads: int, self_attention: bool = False, cross: bool = False) -> None:
        assert self_attention != cross
        super().__init__(embed_dim, num_heads)


def test_one_of_two_switches() -> None:
    assert check(EitherOr).verdict is Verdict.FINE


class Frames(Switched):
    """Tokens in groups of a size that only an error tells, behind one that stands for all."""

    def __init__(self, dim: int, heads: int, tokens_to_attend: int = 10) -> None:
        super().__init__(dim, heads)
        self.frames = 10

    def forward(self, x: Tensor) -> Tensor:
        first, rest = x[:, :1], x[:, 1:]
        if rest.shape[1] % self.frames:
            raise RuntimeError(
                f"Shape mismatch, can't divide axis of length {rest.shape[1]} in chunks of {self.frames}"
            )
        groups = rest.unflatten(1, (-1, self.frames)).flatten(0, 1)
        return torch.cat((first, super().forward(groups).view_as(rest)), 1)


def test_lengths_that_an_error_asks_for() -> None:
    assert check(Frames).verdict is not Verdict.WRONG


class Chosen(Switched):
    """Attention among the few tokens that a learnt score chooses; the others are left as they are."""

    def __init__(self, dim: int, heads: int, num_local_heads: int = 0) -> None:
        super().__init__(dim, heads)
        self.local, self.score = num_local_heads, nn.Linear(dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        count = (x.shape[1] + 1) // 2
        best = self.score(x).squeeze(-1).topk(count, -1).indices[..., None].expand(-1, -1, x.shape[-1])
        few = super().forward(x.gather(1, best)) if not self.local else x.gather(1, best)
        return x + torch.zeros_like(x).scatter(1, best, few * self.score(few).sigmoid())


def test_tokens_that_are_chosen_are_not_mixed_up() -> None:
    report = check(Chosen)
    assert report.verdict is not Verdict.WRONG
    assert "local" not in report.call  # what is none if nothing is said stays none


class Perhaps(Switched):
    """A source that counts only if the constructor was told that there will be one."""

    def __init__(self, dim: int, heads: int, receives_context: bool = False) -> None:
        super().__init__(dim, heads)
        self.receives_context = receives_context

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        assert not self.receives_context or context is not None
        y = super().forward(x)
        return y if context is None or not self.receives_context else y + super().forward(context).mean(1, True)


def test_a_source_that_is_switched_off() -> None:
    assert check(Perhaps).verdict is not Verdict.WRONG


def buckets(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every bucket of 64 tokens sees those before it: in one bucket there is nothing to be seen."""
    assert q.shape[-2] % 64 == 0, "the length must be divisible by 64"
    sums = torch.cat(
        [(part.mT @ value)[..., None] for part, value in zip(k.split(64, -2), v.split(64, -2), strict=True)], -1
    )
    before = sums.cumsum(-1) - sums
    return torch.cat([part @ before[..., n] for n, part in enumerate(q.split(64, -2))], -2)


def test_an_output_that_hangs_on_nothing_clears_and_accuses_nothing() -> None:
    with pytest.raises(CannotCheck, match="whatever it is given"):
        check(buckets)


class Backward(torch.autograd.Function):
    """A function that goes back by hand, and has gradients only where its input has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: nn.Module) -> Tensor:
        ctx.block = block
        ctx.save_for_backward(x)
        with torch.no_grad():
            y: Tensor = block(x)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None]:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            torch.autograd.backward(ctx.block(x), grads[0])
        return x.grad, None


class Reversible(Switched):
    """Attention and a convolution between neighbours, with a backward pass by hand."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.near = nn.Conv1d(dim, dim, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        def block(x: Tensor) -> Tensor:
            return Switched.forward(self, self.near(x.mT).mT)

        return Backward.apply(x, block)


def test_neighbours_and_a_backward_pass_by_hand() -> None:
    assert check(Reversible).verdict is not Verdict.WRONG


class Padded(nn.Module):
    """Tokens filled up to blocks of eight, which only a mask hides."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        tokens, more = x.shape[1], -x.shape[1] % 8
        q, k, v = (nn.functional.pad(part, (0, 0, 0, more)) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~nn.functional.pad(mask, (0, more))[:, None], -1e30)
        y: Tensor = scores.softmax(-1) @ v
        return y[:, :tokens]


def test_padding_of_its_own_that_only_a_mask_hides() -> None:
    assert "path-differs" in check(Padded).slugs
    assert "mask-inverted" not in check(Padded).slugs


class Wrapped(nn.Module):
    """Arguments of a part that are handed on to it, and a mask of what is not there."""

    def __init__(self, chunk: int = 4, **kwargs: int) -> None:
        super().__init__()
        self.chunk, self.inner = chunk, Switched(**kwargs)  # type: ignore[arg-type]

    def forward(self, x: Tensor, retrieved: Tensor | None = None, context_mask: Tensor | None = None) -> Tensor:
        y: Tensor = self.inner(x)
        return (
            y if retrieved is None or context_mask is None else y + (retrieved * context_mask[..., None]).mean(1, True)
        )


def test_arguments_that_are_handed_on_to_a_part() -> None:
    assert check(Wrapped).verdict is not Verdict.WRONG


class Edges(Switched):
    """Edges of a graph, which add to the scores and hide nothing."""

    def forward(self, x: Tensor, adj_mat: Tensor | None = None) -> Tensor:
        y = super().forward(x)
        return y if adj_mat is None else y + 0.1 * adj_mat.to(y) @ y


def test_edges_that_hide_nothing() -> None:
    assert check(Edges).verdict is not Verdict.WRONG


class Switches(Model):
    """A model that takes a mask of switches only, and gives a cache that nobody can hand on."""

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: object = None) -> Tensor:
        hidden = torch.zeros_like(x, dtype=torch.bool) if mask is None else mask.logical_not()
        if mask is not None and mask.dtype is not torch.bool:
            raise RuntimeError("masks must be boolean")
        return super().forward(x).masked_fill(hidden[..., None], 0.0)


def test_what_heed_gets_wrong_about_a_model_is_no_finding() -> None:
    assert "raises" not in check(Switches).slugs


class Noisy(Switched):
    """Gumbel noise in every call, also while not training: chance, but no dropout."""

    def forward(self, x: Tensor) -> Tensor:
        noise = -(-torch.rand(x.shape, dtype=x.dtype).log()).log()
        return super().forward(x + 0.1 * noise)


def test_noise_is_no_dropout() -> None:
    assert check(Noisy).verdict is not Verdict.WRONG
