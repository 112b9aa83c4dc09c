"""Every probe, branch by branch: for each way in which it can fail, something that only this way finds.

A probe of which half is switched off still finds most bugs, because others point to them, too. So each branch is asked
here by itself, about one small fault, and must say what it saw. What is just right passes every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heed.check.outcome import Status, Sure
from heed.check.probes import PROBES
from heed.check.run import quiet, subjected
from heed.check.subject import Declared, Subject

ASK = {probe.name: probe.ask for probe in PROBES}


def scores_of(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT / query.shape[-1] ** 0.5


def masked(score: Tensor, mask: Tensor | None) -> Tensor:
    return score if mask is None else score.masked_fill(mask == 0, float("-inf"))


def plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    weight = masked(scores_of(query, key), mask).softmax(-1)
    return (weight if mask is None else weight.nan_to_num(0.0)) @ value


def triangle(score: Tensor) -> Tensor:
    return score.masked_fill(torch.ones(score.shape[-2:]).triu(1).bool(), float("-inf"))


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return triangle(scores_of(query, key)).softmax(-1) @ value


class Heads(nn.Module):
    """Attention of four heads over one stream; `see` says what becomes of the scores."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.h = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        self.p = dropout

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def see(self, score: Tensor) -> Tensor:
        return score

    def after(self, y: Tensor, x: Tensor) -> Tensor:
        return y

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        y = self.see(scores_of(q, k)).softmax(-1) @ v
        return self.after(self.o(y.transpose(1, 2).flatten(2)), x)


def heads(**methods: Callable[..., Any]) -> type[Heads]:
    return type("Planted", (Heads,), methods)


class Masked(Heads):
    """The same with a mask of keys, 1 = is there."""

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        there = None if attention_mask is None else attention_mask[:, None, None].bool()
        return self.after(self.o(self.attend(q, k, v, there).transpose(1, 2).flatten(2)), attention_mask)  # type: ignore[arg-type]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None) -> Tensor:
        return masked(scores_of(q, k), there).softmax(-1).nan_to_num(0.0) @ v


def masked_heads(**methods: Callable[..., Any]) -> type[Masked]:
    return type("Planted", (Masked,), methods)


def subject(target: Any, **declared: Any) -> Subject:
    return subjected(target, "planted", None, None, Declared(**declared), 0)


# --- the faults ---


def loud_leak(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Only a stream that is a hundred times as large gets through the triangle."""
    return causal(query, key, value) + (value.abs() > 50).to(value).sum(-2, keepdim=True)


def gradient_leak(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """No value leads ahead, and a gradient does."""
    whole = value.sum(-2, keepdim=True)
    return causal(query, key, value) + 1e-6 * (whole - whole.detach())


def counts_tokens(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """How long the text is matters, and no later token does."""
    return causal(query, key, value) * (1 + 1e-3 * value.shape[-2])


def counts_beside_itself(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same, and equal tokens do not show it."""
    y = causal(query, key, value)
    return y + 1e-3 * value.shape[-2] * (y - value)


def only_itself(x: Tensor) -> Tensor:
    score = scores_of(x, x)
    return score.masked_fill(~torch.eye(score.shape[-1]).bool(), float("-inf")).softmax(-1) @ x


def louder_alone(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Where a mask leaves one key of several, its value is heard more."""
    y = plain(query, key, value, mask)
    if mask is None:
        return y
    seen = mask.expand(*mask.shape[:-2], query.shape[-2], key.shape[-2]).sum(-1, keepdim=True)
    return y * (1 + 0.1 * ((seen == 1) & (key.shape[-2] > 1)).to(y))


def switch_ignored(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    return plain(query, key, value)


def sees_next(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    seen = torch.ones(query.shape[-2], key.shape[-2]).triu(2).bool()
    return scores_of(query, key).masked_fill(seen, float("-inf")).softmax(-1) @ value


def not_itself(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    hidden = torch.ones(query.shape[-2], key.shape[-2]).triu(0).bool()
    return scores_of(query, key).masked_fill(hidden, float("-inf")).softmax(-1).nan_to_num(0.0) @ value


def constant(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.ones_like(query)


def nan_at_large(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    score = scores_of(query, key)
    return score.exp() / score.exp().sum(-1, keepdim=True) @ value


def finite_triangle(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    hidden = torch.ones(query.shape[-2], key.shape[-2]).triu(1).bool()
    return scores_of(query, key).masked_fill(hidden, -1e2).softmax(-1) @ value


def finite_mask(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    score = scores_of(query, key)
    return (score if mask is None else score.masked_fill(mask == 0, -1e2)).softmax(-1) @ value


def always_nan(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    y = plain(query, key, value).clone()
    y[..., 0, :] = float("nan")
    return y


def writes_query(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query.div_(query.shape[-1] ** 0.5)
    return (query @ key.mT).softmax(-1) @ value


def writes_mask(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    y = plain(query, key, value, mask)
    if mask is not None:
        mask.zero_()
    return y


def rounds(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    y = plain(query, key, value)
    return y if y.dtype == torch.float64 else y.half().to(y)


def no_value(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return scores_of(query, key).softmax(-1) @ key


def no_key(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return scores_of(query, query).softmax(-1) @ value


def swapped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return scores_of(query, value).softmax(-1) @ key


def row_mean(y: Tensor, x: Tensor) -> Tensor:
    return y + 0.1 * y.mean(0, keepdim=True)


class Forgets(Heads):
    """Each call adds something to the next one."""

    kept: Tensor | float = 0.0

    def after(self, y: Tensor, x: Tensor) -> Tensor:
        out = y + self.kept
        self.kept = float(x.abs().mean())
        return out


class LearnsByCalling(Heads):
    """A call while training changes all later ones."""

    def after(self, y: Tensor, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.o.weight.mul_(1.01)
        return y


class MakesLayers(Heads):
    def after(self, y: Tensor, x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return nn.Linear(y.shape[-1], y.shape[-1]).to(y)(y)


class Unused(Heads):
    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.extra = nn.Linear(d_model, d_model)


class Steep(Heads):
    def after(self, y: Tensor, x: Tensor) -> Tensor:
        return y + (self.o.weight - self.o.weight.detach()).sum().sqrt()


class Shows(Heads):
    """Its weights may be asked for."""

    off, share = 0.0, 1.0

    def forward(self, x: Tensor, need_weights: bool = False) -> Any:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        weight = scores_of(q, k).softmax(-1)
        y = self.o((weight @ v).transpose(1, 2).flatten(2)) + self.off * need_weights
        return (y, weight * self.share) if need_weights else y


def _pad_heard(self: Masked, y: Tensor, mask: Tensor | None) -> Tensor:
    """How many tokens are hidden behind the last one is added to all."""
    return y if mask is None else y + 0.01 * (mask == 0).sum(1)[:, None, None]


def _late_mask(self: Masked, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None) -> Tensor:
    weight = scores_of(q, k).softmax(-1)
    return (weight if there is None else weight * there) @ v


def window(seen: int) -> Callable[..., Tensor]:
    """Causal, and so many tokens are seen, itself included."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        near = torch.ones(query.shape[-2], key.shape[-2]).tril().triu(1 - seen).bool()
        return scores_of(query, key).masked_fill(~near, float("-inf")).softmax(-1) @ value

    return attend


def head_scale(power: float, by: Callable[[Heads, Tensor], float]) -> type[Heads]:
    """Scores that are scaled otherwise."""

    def see(self: Heads, score: Tensor) -> Tensor:
        size = self.q.out_features // self.h
        return score * size**0.5 * by(self, score) ** power

    return heads(see=see)


class Keeps(nn.Module):
    """One head, causal; keys and values are handed on."""

    lost, mixed = 0, False

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model, bias=False) for _ in range(3))

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None = None) -> Any:
        q, k, v = self.q(x), self.k(x), self.v(x)
        if past is not None:
            k, v = (torch.cat((a[:, : a.shape[1] - self.lost], b), 1) for a, b in zip(past, (k, v), strict=True))
        hidden = torch.ones(q.shape[1], k.shape[1]).triu(1 + k.shape[1] - q.shape[1]).bool()
        return scores_of(q, k).masked_fill(hidden, float("-inf")).softmax(-1) @ v, (k, v)

    def reorder_cache(self, past: tuple[Tensor, Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
        return (past[0][rows], past[1] if self.mixed else past[1][rows])


FAIL = dict[str, tuple[Any, dict[str, Any], str, str]]  # target, what is declared, slug, words
BRANCHES: dict[str, FAIL] = {
    "layout": {
        "rows": (heads(after=lambda self, y, x: row_mean(y, x)), {}, "batch-mixing", "moves row"),
    },
    "rows": {
        "alone": (heads(after=lambda self, y, x: row_mean(y, x)), {}, "batch-mixing", "among others than alone"),
        "counted": (heads(after=lambda self, y, x: y * len(x)), {}, "batch-mixing", "among others than alone"),
        "masks": (
            masked_heads(after=lambda self, y, m: y if m is None else y * m.float().mean()),
            {},
            "batch-mixing",
            "with a mask of its own",
        ),
    },
    "prefix": {
        "length": (counts_tokens, {"causal": True}, "future-leak", "the first 1 tokens"),
        "length, beside itself": (counts_beside_itself, {"causal": True}, "future-leak", "the first 2 tokens"),
    },
    "future": {
        "near": (sees_next, {"causal": True}, "future-leak", "which comes later, is replaced"),
        "loud": (loud_leak, {"causal": True}, "future-leak", "a thousand times as large"),
        "switch": (switch_ignored, {}, "future-leak", "with is_causal=True"),
    },
    "extent": {
        "one too many": (window(5), {"causal": True, "window": 4}, "window-extent", "sees 5 tokens back"),
        "one too few": (window(3), {"causal": True, "window": 4}, "window-extent", "sees 3 tokens back"),
    },
    "same": {
        "sums": (
            heads(see=lambda self, s: triangle(s), after=lambda self, y, x: y * x.shape[1]),
            {},
            "scale-after-softmax",
            "equal tokens",
        )
    },
    "order": {
        "cut by view": (
            heads(split=lambda self, x: x.reshape(len(x), self.h, x.shape[1], -1)),
            {},
            "head-mixing",
            "shuffled tokens do not",
        ),
    },
    "scale": {
        "width": (head_scale(-0.5, lambda self, s: self.q.out_features), {}, "wrong-scale", "width of all heads"),
        "times": (head_scale(0.5, lambda self, s: self.q.out_features // self.h), {}, "wrong-scale", "·√(size"),
        "declared": (Heads, {"scale": "none"}, "wrong-scale", "declared: none"),
        "declared number": (Heads, {"scale": 0.5}, "wrong-scale", "declared: 0.5"),
    },
    "cache": {
        "one lost": (type("Planted", (Keeps,), {"lost": 1}), {"causal": True}, "cache-mismatch", "in pieces of"),
        "reordered": (type("Planted", (Keeps,), {"mixed": True}), {"causal": True}, "cache-reorder", "reorder_cache"),
    },
    "gradient": {"alone": (gradient_leak, {"causal": True}, "future-leak", "has a gradient")},
    "past": {
        "itself": (not_itself, {"causal": True}, "excludes-self", "replaced itself"),
        "nothing": (constant, {}, "parameter-unused", "no output depends on any input"),
        "nothing before": (only_itself, {"causal": True}, "parameter-unused", "influenced by one before it"),
    },
    "large": {
        "overflow": (nan_at_large, {}, "overflow", "times as large give"),
        "triangle": (finite_triangle, {"causal": True}, "finite-mask", "with what comes later"),
        "mask": (finite_mask, {}, "finite-mask", "hidden keys change the output"),
    },
    "dead-row": {
        "without a mask": (always_nan, {}, "dead-row-nan", "without any mask"),
    },
    "padding": {
        "without": (masked_heads(after=_pad_heard), {}, "padding-leak", "differs from the same row without"),
    },
    "alone": {"louder": (louder_alone, {}, "padding-leak", "differs from the same token alone")},
    "mask": {"late": (masked_heads(attend=_late_mask), {}, "mask-after-softmax", "taken out after it")},
    "repeat": {
        "made": (MakesLayers, {}, "layer-made-in-forward", "is made inside forward"),
        "chance": (
            heads(after=lambda self, y, x: nn.functional.dropout(y, 0.5, True)),
            {},
            "dropout-in-eval",
            "in eval mode",
        ),
        "chance of the constructor": (
            heads(after=lambda self, y, x: nn.functional.dropout(y, self.p, True)),
            {},
            "dropout-in-eval",
            "with dropout=0.5",
        ),
        "training": (LearnsByCalling, {}, "state-between-calls", "train(), a call"),
    },
    "pure": {
        "inputs": (writes_query, {}, "input-mutated", "is changed by the call"),
        "masks": (writes_mask, {}, "input-mutated", "the mask mask is changed"),
        "memory": (Forgets, {}, "state-between-calls", "after another text"),
    },
    "gradients": {
        "finite": (Steep, {}, "overflow", "is not finite"),
        "reached": (Unused, {}, "parameter-unused", "no gradient reaches extra"),
        "effect": (heads(see=lambda self, s: s * 0), {}, "parameter-unused", "is zero"),
        "cut off": (heads(after=lambda self, y, x: y.detach()), {}, "parameter-unused", "is cut off from them"),
    },
    "precision": {"rounded": (rounds, {}, "rope-precision", "more than rounding explains")},
    "looking": {
        "output": (type("Planted", (Shows,), {"off": 1e-3}), {}, "looking-changes-output", "changes the output"),
        "weights": (type("Planted", (Shows,), {"share": 0.5}), {}, "weights-averaged", "do not sum to one"),
    },
    "source": {
        "values": (no_value, {}, "value-is-key", "replacing all values"),
        "keys": (no_key, {}, "value-is-key", "replacing all keys"),
        "exchanged": (swapped, {}, "value-is-key", "linear in the keys"),
    },
}
EACH = [(probe, branch) for probe, faults in BRANCHES.items() for branch in faults]


@pytest.mark.parametrize(("probe", "branch"), EACH)
def test_a_branch_finds_what_it_is_for(probe: str, branch: str) -> None:
    target, declared, slug, words = BRANCHES[probe][branch]
    with quiet():
        outcome = ASK[probe](subject(target, **declared))
    assert outcome.status is Status.FAIL, outcome
    assert [clue.slug for clue in outcome.clues if clue.sure > Sure.CONVENTION] == [slug], outcome
    assert words in outcome.words, outcome


RIGHT: dict[str, tuple[Any, dict[str, Any]]] = {
    "function": (plain, {}),
    "causal function": (causal, {"causal": True}),
    "heads": (Heads, {}),
    "masked heads": (Masked, {}),
    "weights shown": (Shows, {}),
    "window": (window(4), {"causal": True, "window": 4}),
    "cache": (Keeps, {"causal": True}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_fails_in_no_branch(name: str) -> None:
    target, declared = RIGHT[name]
    assert failing(target, **declared) == set()


def failing(target: Any, **declared: Any) -> set[str]:
    """The probes that fail."""
    with quiet():
        asked = subject(target, **declared)
        return {name for name, ask in ASK.items() if ask(asked).status is Status.FAIL}


def test_branches_are_of_probes() -> None:
    assert BRANCHES.keys() <= ASK.keys()
    assert len(EACH) >= 45


def off_by(gap: float) -> Callable[..., Tensor]:
    """A triangle through which this much of the next token comes, relative to the output."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        y = causal(query, key, value)
        return y + gap * value.roll(-1, -2) * (torch.arange(y.shape[-2]) < y.shape[-2] - 1).to(y)[:, None]

    return attend


@pytest.mark.parametrize(("gap", "wrong"), [(1e-13, False), (1e-7, True)])
def test_what_counts_as_influence_has_two_sides(gap: float, wrong: bool) -> None:
    """Less than rounding explains has not moved; far more has (what comes later is made 1000 times as large)."""
    with quiet():
        asked = subject(off_by(gap), causal=True)
        assert (ASK["future"](asked).status is Status.FAIL) == wrong


@pytest.mark.parametrize(("dtype", "wrong"), [(torch.float32, False), (torch.bfloat16, True)])
def test_what_rounding_explains_has_two_sides(dtype: torch.dtype, wrong: bool) -> None:
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        y = plain(query, key, value)
        return y if y.dtype == torch.float64 else y.to(dtype).to(y)

    with quiet():
        assert (ASK["precision"](subject(attend)).status is Status.FAIL) == wrong
