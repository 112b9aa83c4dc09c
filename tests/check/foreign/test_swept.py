"""Ways of writing that a second sweep over public packages met, in small: each was falsely accused, or not run."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heed.check import CannotCheck, check
from heed.check.bugs import asked_by, named_by
from heed.check.reports.report import Verdict


class Shared(nn.Module):
    """Queries and keys are one argument, values another."""

    def forward(self, qk: Tensor, v: Tensor, input_mask: Tensor | None = None) -> Tensor:
        scores = qk @ F.normalize(qk, dim=-1).mT
        if input_mask is not None:
            scores = scores.masked_fill(~input_mask[:, None, :], -torch.finfo(scores.dtype).max)
        return scores.softmax(-1) @ v


def test_queries_and_keys_in_one_argument() -> None:
    report = check(Shared)
    assert report.verdict is not Verdict.WRONG
    assert "input_mask" in dict(report.conventions)["mask"]


class Shifted(nn.Module):
    """Half of the heads look from the next token's place, and give back to it."""

    def __init__(self, dim: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        half = self.heads // 2
        q, k, v = (torch.cat((t[:, :half], t[:, half:].roll(1, 2)), 1) for t in (q, k, v))
        y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        y = torch.cat((y[:, :half], y[:, half:].roll(-1, 2)), 1)
        made: Tensor = self.out(y.transpose(1, 2).reshape(b, n, d))
        return made


def test_heads_that_are_shifted_are_not_mixed() -> None:
    assert "head-mixing" not in check(Shifted).slugs


class Placed(nn.Module):
    """Points with coordinates, which are moved as well: some weights matter for these only."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.qkv, self.move = nn.Linear(dim, 3 * dim), nn.Linear(dim, 1)

    def forward(self, feats: Tensor, coors: Tensor) -> tuple[Tensor, Tensor]:
        far = (coors[:, :, None] - coors[:, None]).norm(dim=-1)
        q, k, v = self.qkv(feats).chunk(3, -1)
        weights = (q @ k.mT / q.shape[-1] ** 0.5 - far).softmax(-1)
        return weights @ v, coors + self.move(feats)


def test_coordinates_are_given_and_other_outputs_use_weights() -> None:
    report = check(Placed)
    assert report.ok, report.slugs


class Narrow(nn.Module):
    """One unit behind a ReLU: it is off for one input, and on for another."""

    sign = 1.0

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.qkv, self.one, self.two = nn.Linear(dim, 3 * dim), nn.Linear(1, 1, bias=False), nn.Linear(1, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        made: Tensor = y * (1 + self.two(torch.relu(self.one(self.sign * x.mean((0, 1, 2))[None, None, None]))))
        return made


class NarrowToo(Narrow):
    sign = -1.0


@pytest.mark.parametrize("kind", [Narrow, NarrowToo])
def test_a_unit_that_is_off_by_chance_is_not_unused(kind: type[nn.Module]) -> None:
    assert "parameter-unused" not in check(kind).slugs


class Composed(nn.Module):
    """Projections are arguments of the constructor, as are numbers of heads."""

    def __init__(self, *, embed_dim: int, num_heads: int, num_kv_heads: int, q_proj: nn.Module, k_proj: nn.Module,
                 v_proj: nn.Module, output_proj: nn.Module) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.groups, self.size = num_heads, num_kv_heads, embed_dim // num_heads
        self.q, self.k, self.v, self.out = q_proj, k_proj, v_proj, output_proj

    def forward(self, x: Tensor, y: Tensor | None = None, *, mask: Tensor | None = None) -> Tensor:
        y = x if y is None else y
        q = self.q(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k, v = (f(y).unflatten(-1, (self.groups, self.size)).transpose(1, 2) for f in (self.k, self.v))
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        mask = None if mask is None else mask[:, None]
        made: Tensor = self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))
        return made


def test_projections_that_are_passed_in_mix_no_tokens() -> None:
    report = check(Composed)
    assert report.ok, report.slugs
    assert "mask" in dict(report.conventions)


class Undefined(nn.Module):
    """Reads a name that is nowhere defined."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        made: Tensor = (q @ k.mT * factor).softmax(-1) @ v  # type: ignore[name-defined]  # noqa: F821
        return made


def test_a_name_that_is_not_defined_is_told_with_its_place() -> None:
    with pytest.raises(CannotCheck, match=r"'factor' is not defined at .*test_swept\.py:\d+; define or import it"):
        check(Undefined)


def test_names_waive_a_bug_by_whole_words_only() -> None:
    assert "no-softmax" in named_by("LinearAttention")
    assert "no-softmax" in asked_by("use_softmax")
    assert named_by("SoftmaxAttention") == set(), "to be called so asks for one"
    assert named_by("ScaledDotProductAttention") == set()
    assert "no-softmax" not in named_by("PreluAttention"), "a word inside of another is none"
    assert "excludes-self" not in asked_by("self_attention")
    assert "wrong-scale" in asked_by("scale_by_width")


class Chosen(nn.Module):
    """Causal by its name; the best tokens are chosen among all, and weights look ahead beside that."""

    def __init__(self, dim: int, ahead: bool = False) -> None:
        super().__init__()
        self.ahead, self.qkv = ahead, nn.Linear(dim, 3 * dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        best = k.norm(dim=-1).topk(max(1, x.shape[1] // 2), -1).indices
        bonus = torch.zeros(x.shape[:2], dtype=x.dtype).scatter(1, best, 1.0)
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(2 if self.ahead else 1).bool()
        scores = (q @ k.mT / q.shape[-1] ** 0.5 + bonus[:, None]).masked_fill(hidden, -torch.inf)
        return scores.softmax(-1) @ v


class CausalChosen(Chosen):
    def __init__(self, dim: int) -> None:
        super().__init__(dim)


class CausalAhead(Chosen):
    def __init__(self, dim: int) -> None:
        super().__init__(dim, ahead=True)


def test_a_choice_among_all_tokens_is_unusual_and_a_gradient_from_later_ones_is_wrong() -> None:
    assert check(CausalChosen).verdict is Verdict.UNUSUAL
    assert check(CausalAhead).slugs == ["future-leak"]
