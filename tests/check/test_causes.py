"""One cause, one name: what looks alike from outside is told apart, and what is only unusual is not accused.

Each fault here was once taken for another one, or for none; each right one was once accused. Beside every fault stands
what differs from it in that one respect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import heed
from heed.check.outcome import Status, Sure
from heed.check.run import quiet
from tests.check.test_branches import ASK, Heads, heads, masked_heads, plain, scores_of, subject, triangle


def slugs(probe: str, target: Any) -> list[str]:
    """What one probe counts as wrong."""
    with quiet():
        outcome = ASK[probe](subject(target))
    return [clue.slug for clue in outcome.clues if clue.sure > Sure.HINT] if outcome.status is Status.FAIL else []


# --- masks ---


def filled(number: float) -> type[Heads]:
    def attend(self: Heads, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None) -> Tensor:
        score = scores_of(q, k)
        return (score if there is None else score.masked_fill(~there, number)).softmax(-1) @ v

    return masked_heads(attend=attend)


@pytest.mark.parametrize(
    ("number", "told"), [(-10.0, ["finite-mask"]), (1e-9, ["finite-mask"]), (0.0, ["mask-after-softmax"]), (-1e9, [])]
)
def test_a_number_that_scores_reach_hides_by_halves(number: float, told: list[str]) -> None:
    assert slugs("mask", filled(number)) == told


def first_row(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return plain(q, k, v, None if mask is None else mask[:1])


def test_a_mask_of_one_row_for_all_mixes_rows() -> None:
    assert slugs("mask", first_row) == ["batch-mixing"]
    assert slugs("mask", plain) == []


def on_the_left(self: Heads, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None) -> Tensor:
    """The weights stand behind the values, as einsum lays them out, and are masked after the softmax."""
    weight = scores_of(q, k).softmax(-1)
    weight = weight if there is None else weight * there
    return (v.mT @ weight.mT).mT


def test_weights_that_are_masked_late_may_stand_on_either_side() -> None:
    assert slugs("mask", masked_heads(attend=on_the_left)) == ["mask-after-softmax"]


def divided_anew(self: Heads, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None) -> Tensor:
    weight = scores_of(q, k).softmax(-1)
    weight = weight if there is None else weight * there
    return weight / (weight.sum(-1, keepdim=True) + 1e-13) @ v


def test_weights_that_are_divided_anew_are_unusual() -> None:
    report = heed.check(masked_heads(attend=divided_anew))
    assert report.ok
    assert "finite-mask" in [one.bug.slug for one in report.likely]


class Lengths(Heads):
    """Tokens from a length on are hidden; `late` of them are not."""

    late, least = 0, float("-inf")

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        score = scores_of(q, k)
        if lengths is not None:
            beyond = torch.arange(x.shape[1]) >= lengths[:, None] + self.late
            score = score.masked_fill(beyond[:, None, None], self.least)
        return self.o((score.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_a_length_that_counts_one_too_many_lets_padding_in() -> None:
    assert heed.check(type("Planted", (Lengths,), {"late": 1})).slugs == ["padding-leak"]


def test_a_length_says_nothing_of_a_single_key() -> None:
    """That only key 4 is seen cannot be said by a length: to ask for it accuses what is right."""
    assert heed.check(type("Planted", (Lengths,), {"least": -1e6})).ok


class Added(Heads):
    """A mask that is added; what is NaN after the softmax becomes 0."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        score = scores_of(q, k)
        score = score if attn_mask is None else score + attn_mask
        return self.o((self.weigh(score) @ v).transpose(1, 2).flatten(2))

    def weigh(self, score: Tensor) -> Tensor:
        return score.softmax(-1).nan_to_num(0.0)


def test_nan_that_is_replaced_after_the_softmax_stays_in_the_gradient() -> None:
    assert slugs("dead-row", Added) == ["dead-row-gradient"]
    assert slugs("dead-row", type("Planted", (Added,), {"weigh": lambda self, s: s.softmax(-1)})) == []


class Truth(Heads):
    """mask: 1 marks padding"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        score = scores_of(q, k)
        score = score if mask is None else score.masked_fill(self.hides(mask)[:, None, None], -1e9)
        return self.o((score.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def hides(self, mask: Tensor) -> Tensor:
        return mask == 1


def test_what_ones_mean_is_what_the_source_says() -> None:
    silent = type("Planted", (Truth,), {"__module__": "nowhere"})
    assert slugs("mask", silent) == ["mask-inverted"]
    assert slugs("mask", Truth) == []
    assert slugs("mask", type("Planted", (silent,), {"hides": lambda self, mask: mask.bool()})) == []


# --- who sees whom ---


def test_a_triangle_without_its_diagonal_leaves_the_first_token_with_all() -> None:
    def see(self: Heads, score: Tensor) -> Tensor:
        return score.masked_fill(~torch.ones(score.shape[-2:]).tril(-1).bool(), -1e9)

    assert heed.check(heads(see=see)).slugs == ["excludes-self"]


def test_a_triangle_upside_down_leaves_the_last_token_with_all() -> None:
    def see(self: Heads, score: Tensor) -> Tensor:
        return score.masked_fill(torch.ones(score.shape[-2:]).tril().bool(), -1e9)

    assert heed.check(heads(see=see)).slugs == ["mask-inverted"]


def test_heads_that_attend_to_heads_see_no_token() -> None:
    def forward(self: Heads, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (self.h, -1)) for part in (self.q, self.k, self.v))
        return self.o((scores_of(q, k).softmax(-1) @ v).flatten(2))

    assert slugs("past", heads(forward=forward)) == ["head-mixing"]


class Switched(Heads):
    """A switch puts the triangle on, whatever it is called."""

    def __init__(self, d_model: int, num_heads: int, mask_flag: bool = True) -> None:
        super().__init__(d_model, num_heads)
        self.mask_flag = mask_flag

    def see(self, score: Tensor) -> Tensor:
        return triangle(score) if self.mask_flag else score


def test_a_switch_of_the_mask_may_switch_it_off() -> None:
    assert heed.check(Switched).ok


def test_a_mean_over_rows_mixes_rows_and_not_heads() -> None:
    def split(self: Heads, x: Tensor) -> Tensor:
        return Heads.split(self, x - x.mean(0, keepdim=True))

    assert heed.check(heads(split=split)).slugs == ["batch-mixing"]


# --- what is kept, dropped and written to ---


class Lazy(Heads):
    """The triangle is made once."""

    seen: Tensor | None = None
    grows = False

    def see(self, score: Tensor) -> Tensor:
        tokens = score.shape[-1]
        if self.seen is None or (self.grows and len(self.seen) < tokens):
            self.seen = torch.ones(tokens, tokens).tril().bool()
        return score.masked_fill(~self.seen[:tokens, :tokens], float("-inf"))


def test_what_is_made_for_the_first_text_must_do_for_a_longer_one() -> None:
    assert slugs("pure", Lazy) == ["state-between-calls"]
    assert slugs("pure", type("Planted", (Lazy,), {"grows": True})) == []


@dataclass
class LayerConfig:
    hidden_size: int = 24
    num_heads: int = 4
    attention_dropout: float = 0.1


class Configured(nn.Module):
    """Its dropout stands in its configuration."""

    always = True

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.config = config
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (z.unflatten(-1, (self.config.num_heads, -1)).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        share = self.config.attention_dropout if self.always or self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, dropout_p=share).transpose(1, 2).flatten(2)


def test_dropout_of_a_configuration_is_switched_on() -> None:
    assert slugs("repeat", Configured) == ["dropout-in-eval"]
    assert slugs("repeat", type("Planted", (Configured,), {"always": False})) == []


def test_what_is_written_to_is_not_told_as_memory() -> None:
    def forward(self: Heads, x: Tensor) -> Tensor:
        x += 0.1
        return Heads.forward(self, x)

    assert heed.check(heads(forward=forward)).slugs == ["input-mutated"]


def test_keys_that_are_scaled_before_they_are_summed_are_keys() -> None:
    def forward(self: Heads, x: Tensor) -> Tensor:
        q, k = (self.split(part(x)) / 6**0.25 for part in (self.q, self.k))
        self.v(x)
        return self.o(((q @ k.mT).softmax(-1) @ k).transpose(1, 2).flatten(2))

    assert heed.check(heads(forward=forward)).slugs == ["value-is-key"]


class Rows:
    """Keys and values so far."""

    lost = False

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def reorder(self, rows: Tensor) -> None:
        self.parts = [self.parts[0][rows], self.parts[1] if self.lost else self.parts[1][rows]]


class LosesRows(Rows):
    lost = True


def keeping(kind: type[Rows]) -> type[Heads]:
    def forward(self: Heads, x: Tensor, cache: Any = None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        if cache is not None:
            k, v = (torch.cat(two, 2) for two in zip(cache.parts, (k, v), strict=True)) if cache.parts else (k, v)
            cache.parts = [k, v]
        hidden = torch.ones(q.shape[2], k.shape[2]).triu(1 + k.shape[2] - q.shape[2]).bool()
        y = scores_of(q, k).masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return self.o(y.transpose(1, 2).flatten(2))

    forward.__annotations__["cache"] = kind.__name__
    return type("Planted", (Heads,), {"forward": forward, "__module__": __name__})


def test_a_cache_may_choose_its_rows_itself() -> None:
    assert slugs("cache", keeping(LosesRows)) == ["cache-reorder"]
    assert slugs("cache", keeping(Rows)) == []


# --- places ---


def test_a_bias_by_the_place_of_the_key_is_one_by_distance() -> None:
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], dtype=torch.float64)[:, None, None]

    def see(sign: float) -> type[Heads]:
        return heads(see=lambda self, s: triangle(s + sign * slopes * torch.arange(s.shape[-1])))

    assert slugs("shift", see(1.0)) == []
    assert slugs("shift", see(-1.0)) == ["alibi-slopes"]


class Distances(Heads):
    """A learnt vector for every distance, shifted into place by a view; `first` is the row where that begins."""

    first = 1

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.table = nn.Parameter(torch.randn(64, d_model // num_heads))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        tokens = x.shape[1]
        padded = F.pad(q @ self.table[64 - tokens :].mT, (1, 0)).view(*q.shape[:2], tokens + 1, tokens)
        moved = padded[:, :, self.first : self.first + tokens]
        return self.o((triangle((q @ k.mT + moved) * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_scores_of_distances_stay_with_their_query() -> None:
    assert slugs("shift", Distances) == []
    assert slugs("shift", type("Planted", (Distances,), {"first": 0})) == ["relative-shift"]


def test_queries_that_are_convolved_are_no_shifted_scores() -> None:
    def split(self: Heads, x: Tensor) -> Tensor:
        return Heads.split(self, x + F.pad(x, (0, 0, 1, 0))[:, :-1])

    assert slugs("shift", heads(split=split, see=lambda self, s: triangle(s))) == []
