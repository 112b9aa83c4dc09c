"""Every statement about mixers, models, attention and scores fails when just that is broken, and else holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from heed.cli import app
from heed.core.config import Config
from heed.core.contract import Reach, Where
from heed.core.errors import InputError
from heed.core.laws import Finding
from heed.core.spec import Dim, Slot, Spec
from heed.core.state import Log, fork, remember
from heed.mixers import Attention
from heed.models import Decoder
from heed.models.block import States
from heed.parts.attention import attend as attending
from heed.parts.attention import sparse
from heed.parts.attention.sdpa import banded, whole
from heed.parts.masks import Window
from heed.parts.scores import SCORES, Dot, pool
from heed.verify import proof as proving
from heed.verify import statements
from heed.verify.base import Proof, attempted, compared, largest
from heed.verify.proof import STATEMENTS
from heed.verify.statements import ATTEND, pooled

OVER_IDS = "whole = cut = padded, over token ids"
EVERY: dict[str, Callable[[Any], Finding]] = {**STATEMENTS, OVER_IDS: proving._over_ids}


def sample(kind: type[Attention], **fields: Any) -> Attention.Config:
    """A configuration that builds this one."""

    class Sample(Attention.Config):
        def build(self, width: int) -> Attention:
            return kind(self, width)

    return Sample(**fields)


class ForgetsGradients(Attention):
    """What is remembered of one call teaches nothing in the next."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        return y, None if state is None else state.rebuild([t.detach() for t in state.tensors()])


class TimesZero(Attention):
    """Padding is multiplied by zero, which leaves no number none."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        query, key, value = self.project(x * where.real[..., None], where)
        seen, state = remember(state, where, key, value)
        return self.merge(self.attend_to(query, where, seen)), state


class SharesEqualRows(Attention):
    """Rows that are equal are taken for one, and come out twice as large."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        return y * (1 + 1e-6 * (len(x) > 1 and torch.equal(x[0], x[1]))), state


class DeclaresHalf(Attention):
    """Holds keys and values, and declares keys."""

    def spec(self) -> Spec:
        slot = super().spec()
        assert isinstance(slot, Slot)
        return replace(slot, parts=slot.parts[:1])

    def start(self, rows: int, given: Any = None) -> Log:
        slot = super().spec()
        assert isinstance(slot, Slot)
        return Log.empty(slot, rows)


class SeesFarther(Attention):
    """Keeps and sees three tokens back, and declares two."""

    def spec(self) -> Spec:
        slot = super().spec()
        assert isinstance(slot, Slot)
        return replace(slot, entries=replace(slot.entries, cap=Dim("window", 3)))

    def __init__(self, config: Attention.Config, width: int) -> None:
        super().__init__(config, width)
        self.reach = Reach(2, 0)


class Lends(Attention):
    """Works on a copy of what it is given, which can therefore be given again."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        return super().forward(x, where, None if state is None else fork(state))


class IsShy(Attention):
    """Gives something else while somebody looks."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        return y + 1e-12 * self.weights.watched, state


class Hides(Attention):
    """Has a point to look at, and shows nothing there."""

    def attend_to(self, query: Tensor, where: Where, seen: Any) -> Tensor:
        key, value = seen.parts
        return attending.attend(query, key, value, self.mask(where, seen), scale=self.scale)


class Forgetful(Attention.Config):
    """A configuration that is written down without one of its settings."""

    def dump(self) -> dict[str, Any]:
        return {name: value for name, value in super().dump().items() if name != "heads"}


class NotToml(Attention.Config):
    """A configuration that holds what TOML has no word for."""

    def dump(self) -> dict[str, Any]:
        return {**super().dump(), "kv_heads": None}


def model(forward: Callable[[Decoder, Tensor, Where, States | None], float]) -> Decoder.Config:
    """A decoder over ids whose scores are off by this."""

    class Off(Decoder):
        def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
            y, after = super().forward(x, where, state)
            return y + forward(self, x, where, state), after

    class Sample(Decoder.Config):
        def build(self) -> Decoder:
            return Off(self)

    return Sample(vocabulary=13, width=24, depth=1)


FAULTS: dict[str, tuple[Config, ...]] = {
    "split": (sample(ForgetsGradients),),
    "padding": (sample(TimesZero),),
    "rows": (sample(SharesEqualRows),),
    "cost": (sample(DeclaresHalf),),
    "reach": (sample(SeesFarther, mask=Window(back=3)),),
    "a consumed state is refused": (sample(Lends),),
    "looking changes nothing": (sample(IsShy), sample(Hides)),
    "config round trip": (Forgetful(heads=2), NotToml()),
    OVER_IDS: (
        model(lambda self, x, where, state: 1e-9 * (state is not None)),
        model(lambda self, x, where, state: 1e-9 * bool((x < 0).any())),
    ),
}


def failed(found: Config) -> list[str]:
    asked = EVERY if isinstance(found, Decoder.Config) else STATEMENTS
    proofs = (proving._tried("planted", name, measure, [found])() for name, measure in asked.items())
    return [proof.statement for proof in proofs if proof.fails]


@pytest.mark.parametrize("statement", EVERY)
def test_only_the_statement_about_it_fails(statement: str) -> None:
    """A statement that has no fault planted here is one that nobody has seen fail."""
    for fault in FAULTS[statement]:
        assert failed(fault) == [statement], fault


def test_what_is_right_fails_nowhere() -> None:
    assert failed(sample(Attention, mask=Window(back=3))) == []
    assert failed(model(lambda self, x, where, state: 0.0)) == []


@pytest.mark.parametrize("number", [nan, inf])
def test_what_gives_no_numbers_breaks_what_compares_them(number: float) -> None:
    class NoNumber(Attention):
        def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
            y, state = super().forward(x, where, state)
            return y * number, state

    assert failed(sample(NoNumber)) == ["split", "padding", "rows", "reach", "looking changes nothing"]
    assert OVER_IDS in failed(model(lambda self, x, where, state: number))


def test_what_raises_is_told_with_its_sample() -> None:
    class Raises(Attention):
        def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
            raise RuntimeError("no memory left")

    found = sample(Raises, heads=2)
    proof = proving._tried("planted", "looking changes nothing", STATEMENTS["looking changes nothing"], [found])()
    assert proof.fails
    assert proof.worst == f"raised RuntimeError: no memory left; {found!r}"


# --- attention ---


def blown(right: Callable[..., Tensor], change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda *given, **named: change(right(*given, **named))


class Poisons(torch.autograd.Function):
    """Hands values on, and gives back a gradient with one entry that is no number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> Tensor:
        above = above.clone()
        above.view(-1)[0] = nan
        return above


def poisoned(right: Callable[..., Tensor], place: int) -> Callable[..., Tensor]:
    """The gradient of one argument is no number at one place."""

    def wrong(*given: Any) -> Tensor:
        touched = [Poisons.apply(x) if at == place else x for at, x in enumerate(given)]
        return right(*touched)

    return wrong


def _tiny(y: Tensor) -> Tensor:
    return y * (1 + 1e-11)


ATTENTION: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], ...]] = {
    "fused = written out": (
        lambda patch: patch.setattr(sparse, "whole", blown(whole, _tiny)),
        *(lambda patch, at=at: patch.setattr(sparse, "whole", poisoned(whole, at)) for at in range(3)),
    ),
    "banded = written out": (
        lambda patch: patch.setattr(sparse, "banded", blown(banded, _tiny)),
        *(lambda patch, at=at: patch.setattr(sparse, "banded", poisoned(banded, at)) for at in range(3)),
        lambda patch: patch.setattr(statements, "pays", lambda *given: False),
    ),
    "a query that sees nothing gets zeros": (
        lambda patch: patch.setattr(attending, "whole", blown(whole, lambda y: y + 1e-30)),
        *(lambda patch, at=at: patch.setattr(attending, "whole", poisoned(whole, at)) for at in range(3)),
    ),
}


@pytest.mark.parametrize(("statement", "place"), [(name, at) for name in ATTEND for at in range(len(ATTENTION[name]))])
def test_a_form_of_attention_that_is_a_little_off_is_found(
    statement: str, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "SAMPLE_MASKS", (Window(back=2, ahead=3),))  # few, to be quick
    ATTENTION[statement][place](monkeypatch)
    asked = ATTEND if place == 0 else {statement: ATTEND[statement]}
    assert [name for name, compare in asked.items() if compared("attend", name, compare)().fails] == [statement]


def test_the_written_out_form_gives_zeros_to_what_sees_nothing_too(monkeypatch: pytest.MonkeyPatch) -> None:
    right = attending.written_out
    monkeypatch.setattr(statements, "written_out", lambda *given: (right(*given)[0] + 1e-30, None))
    assert [finding.detail for finding in ATTEND["a query that sees nothing gets zeros"]() if not finding.holds] == [
        "written out"
    ]


# --- scores ---


def weighed(change: Callable[[Tensor], Tensor], also_outputs: bool = True) -> Callable[..., tuple[Tensor, Tensor]]:
    def wrong(score: Any, query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        y, weight = pool(score, query, key, value, visible)
        changed = change(weight)
        return (changed @ value if also_outputs else y), changed

    return wrong


def _negative(weight: Tensor) -> Tensor:
    """They still sum to one, and some are negative."""
    return weight + torch.tensor([[1.0, -1.0, 0.0, 0.0, 0.0], [1.0, 0.0, -1.0, 0.0, 0.0], [0.0] * 5]).double()


def _on_hidden(weight: Tensor) -> Tensor:
    """They still sum to one, and some lie on what the second query may not see."""
    return torch.stack((weight[0], weight[1].flip(0), weight[2]))


SCORED: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "they sum to less": weighed(lambda weight: weight * (1 - 1e-12)),
    "something is seen where nothing is visible": weighed(lambda weight: weight + 0.2 * (weight.sum(-1) == 0)[:, None]),
    "they lie on what is hidden": weighed(_on_hidden),
    "some are negative": weighed(_negative),
    "outputs are not summed with them": weighed(lambda weight: weight.roll(1, 0) * 0 + weight.flip(1), False),
    "no number": weighed(lambda weight: weight + nan),
    "their gradient is no number": weighed(Poisons.apply),
}


@pytest.mark.parametrize("fault", SCORED)
def test_weights_that_are_no_mean_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(finding.holds for finding in pooled([Dot.Config]))
    monkeypatch.setattr(statements, "pool", SCORED[fault])
    (finding,) = pooled([Dot.Config])
    assert not finding.holds
    assert len(pooled(SCORES)) == len(SCORES)


# --- what a proof makes of its findings ---


def finding(error: float, bound: float = 1.0) -> Finding:
    return Finding("x", error, bound, f"{error}")


@pytest.mark.parametrize(
    ("found", "worst"),
    [
        ([], "there is no sample to try it on"),
        ([finding(0.5), finding(nan), finding(0.7)], "nan"),
        ([finding(2.0), finding(nan)], "nan"),
        ([finding(nan), finding(2.0)], "nan"),
        ([finding(0.5), finding(1.5), finding(0.9, 0.1)], "1.5"),
        ([finding(0.9, 0.1), finding(0.95, 1.0)], "0.9"),
        ([finding(0.0, inf)], "0.0"),
        ([finding(0.0, nan)], "0.0"),
        ([finding(inf, inf)], "inf"),
        ([finding(-1.0)], "-1.0"),
    ],
)
def test_one_sample_that_fails_is_enough(found: Sequence[Finding], worst: str) -> None:
    proof = Proof.of("subject", "x", found)
    assert (proof.holds, proof.fails, proof.missing, proof.worst) == (False, True, "", worst)
    assert proof.samples == len(found)
    json.dumps(proof.plain(), allow_nan=False)


def test_an_error_up_to_its_bound_holds() -> None:
    assert Proof.of("subject", "x", [finding(1.0), finding(0.2)]).holds
    assert Proof.of("subject", "x", [finding(0.0, 0.0)]).holds
    assert not finding(1.0000001).holds


def test_the_largest_error_is_never_passed_over() -> None:
    assert largest([0.5, nan, 0.7]) == largest([nan, 0.5]) == largest([0.5, nan]) == largest([]) == inf
    assert largest([0.5, 0.7, 0.6]) == 0.7


def test_errors_of_heed_are_told_in_their_own_words() -> None:
    def refuse() -> list[Finding]:
        raise InputError("no such thing")

    assert [(f.error, f.detail) for f in attempted("x", refuse)] == [(inf, "no such thing")]


# --- the command ---


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_command_fails_and_tells_what_failed(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = {Attention.Config: (sample(Attention), sample(Lends))}
    monkeypatch.setattr(proving, "samples", lambda kind: planted.get(kind, ()))
    told = CliRunner().invoke(app, ["verify", "attention", "scores", *(["--json"] if form == "json" else [])])
    assert told.exit_code == 1
    if form == "table":
        assert f"{len(STATEMENTS)} of {len(STATEMENTS) + 1} statements hold" in told.stdout
        assert "a state was taken twice without an error" in told.stdout
        return
    report = json.loads(told.stdout)
    assert report["holds"] is False
    assert [proof["statement"] for proof in report["proofs"]] == [*STATEMENTS, "weights are a mean, or nothing"]
    (wrong,) = [proof for proof in report["proofs"] if not proof["holds"]]
    assert (wrong["subject"], wrong["statement"]) == ("attention", "a consumed state is refused")
    assert (wrong["samples"], wrong["error"], wrong["bound"], wrong["missing"]) == (2, 1.0, 0.0, "")
    assert wrong["worst"].startswith("a state was taken twice")


def test_the_command_holds_where_all_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "samples", lambda kind: (sample(Attention),) if kind is Attention.Config else ())
    told = CliRunner().invoke(app, ["verify", "attention", "--json"])
    assert told.exit_code == 0
    assert json.loads(told.stdout)["holds"] is True
