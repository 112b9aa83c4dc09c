"""Whole models over token ids: five with something wrong in them, right ones, and folders that heed itself writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typer.testing import CliRunner

import heed
from heed.check import CannotCheck, check
from heed.cli import app
from heed.show.progress import Silent
from heed.train import train
from tests.check.styles import changed, cut, joined
from tests.train.support import language_model

GOLDEN = Path(__file__).parents[1] / "golden"


class Little(nn.Module):
    """One layer, learned places, a cache that is handed on, and a loss of its own."""

    def __init__(self, vocab_size: int = 37, d_model: int = 24, n_heads: int = 4) -> None:
        super().__init__()
        self.h = n_heads
        self.table, self.place = nn.Embedding(vocab_size, d_model), nn.Embedding(64, d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.tie()

    def tie(self) -> None:
        self.head.weight = self.table.weight

    def places(self, mask: Tensor, past: int) -> Tensor:
        return (mask.cumsum(1) - 1).clamp(min=0)[:, past:]

    def hide(self, s: Tensor, mask: Tensor) -> Tensor:
        return s.masked_fill(mask[:, None, None] == 0, -1e9)

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, past: Any = None
    ) -> dict[str, Any] | tuple[Any, ...]:
        rows, tokens = input_ids.shape
        before = 0 if past is None else past[0].shape[2]
        mask = torch.ones(rows, before + tokens).long() if attention_mask is None else attention_mask
        x = self.table(input_ids) + self.place(self.places(mask, before))
        q, k, v = (cut(part, self.h) for part in self.qkv(x).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        s = self.hide(q @ k.mT * q.shape[-1] ** -0.5, mask)
        s = s.masked_fill(torch.ones(tokens, before + tokens).tril(before) == 0, -1e9)
        scores = self.head(x + self.out(joined(s.softmax(-1) @ v)))
        return (scores, (k, v)) if labels is None else (self.loss(scores, labels), scores, (k, v))


def _unshifted(self: Any, scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)


def _over_all(self: Any, scores: Tensor, labels: Tensor) -> Tensor:
    each = F.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum")
    return each / labels[:, 1:].numel()


def _copied(self: Any) -> None:
    self.head.weight = nn.Parameter(self.table.weight.detach().clone())


def _from_zero(self: Any, mask: Tensor, past: int) -> Tensor:
    return torch.arange(mask.shape[1] - past).expand(len(mask), -1)


def _by_column(self: Any, mask: Tensor, past: int) -> Tensor:
    return torch.arange(past, mask.shape[1]).expand(len(mask), -1)


MUTANTS = {
    "labels are not shifted": (changed(Little, "L1", loss=_unshifted), "label-shift"),
    "divided by padding, too": (changed(Little, "L2", loss=_over_all), "loss-denominator"),
    "a copy of the table": (changed(Little, "L3", tie=_copied), "tying-lost"),
    "places start anew in a cache": (changed(Little, "L4", places=_from_zero), "cache-mismatch"),
    "places are columns": (changed(Little, "L5", places=_by_column), "padding-leak"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_bug_is_named(name: str) -> None:
    kind, slug = MUTANTS[name]
    report = check(kind)
    assert slug in report.slugs, str(report)


@pytest.mark.parametrize("kind", [Little, changed(Little, "Untied", tie=lambda self: None)])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_right_is_left_alone(kind: type, seed: int) -> None:
    report = check(kind, seed=seed)
    assert report.ok, str(report)
    asked = {outcome.probe for outcome in report.outcomes if outcome.status == "pass"}
    assert {"prefix", "labels", "denominator", "tying", "cache", "left-padding"} <= asked, str(report)


def told(folder: Path) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["check", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    data: dict[str, Any] = json.loads(done.stdout)
    return {probe["name"]: probe["status"] for probe in data["probes"]}


def test_a_run_of_heed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(language_model(), folder, Silent())
    asked = told(folder)
    assert set(asked.values()) == {"pass"}, asked
    assert {"labels", "denominator", "tying", "cache", "left-padding"} <= asked.keys()
    with pytest.raises(CannotCheck, match="heed.load"):
        check(folder)


@pytest.mark.parametrize("name", ["retnet/lm_three_forms", "yoco/sliding_window", "infini/lm_delta_rule"])
def test_checkpoints_that_only_heed_reads(name: str) -> None:
    asked = told(GOLDEN / name)
    assert {"prefix", "rows", "repeat", "tying", "cache", "left-padding"} <= {
        n for n, s in asked.items() if s == "pass"
    }


def test_a_model_of_heed() -> None:
    report = check(heed.load(GOLDEN / "gpt2" / "lm").model)
    assert report.ok, str(report)
