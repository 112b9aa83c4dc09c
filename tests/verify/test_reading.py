"""Runs that generate nothing are verified, too: what holds, what is left out and said, what breaks a statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from torch import Tensor, nn
from typer.testing import CliRunner

from heed import engine
from heed.cli import app
from heed.core.contract import Where
from heed.data import Files
from heed.models import Encoder, Seq2seq
from heed.parts.outputs.heads import Tagged
from heed.runs import Recipe, Run
from heed.tasks import Classify
from heed.text import Word
from heed.verify import proofs, show
from heed.verify.trained import DECODING, LAW_NAMES, READING, Trained
from tests.tasks.labels.words_and_answers import trained


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("runs")
    found = {
        kind: trained(kind, place / kind, "training.steps=2", "training.evaluate=2").path for kind in ("tag", "span")
    }
    (place / "texts.tsv").write_text("".join(f"a text of {'x' * number}\t{number % 2}\n" for number in range(1, 30)))
    data = Files(train=str(place / "texts.tsv"))
    task = Classify(labels=("0", "1"))
    tokenizer = task.equip(Word().train(["a text of x"]))
    recipe = Recipe(data=data, tokenizer=Word(), task=task, model=Encoder.Config(width=16, depth=1))
    run = Run.create(place / "classify", recipe.sized(tokenizer.size), tokenizer)
    run.keep(run.build())
    return {**found, "classify": run.path}


@pytest.mark.parametrize("kind", ["tag", "span", "classify"])
def test_every_statement_holds_or_is_left_out_and_said(kind: str, runs: dict[str, Path]) -> None:
    found = [check() for check in proofs([str(runs[kind])])]
    assert [proof.statement for proof in found] == list(READING)
    assert [proof.statement for proof in found if not proof.holds] == [DECODING]
    assert not any(proof.fails or proof.missing for proof in found)
    assert all(proof.samples for proof in found if proof.statement != DECODING)
    out = StringIO()
    show(found, Console(file=out, width=200))
    assert f"{len(READING) - 1} of {len(READING) - 1} statements hold, 1 left out" in out.getvalue()
    assert "left out, since this run generates nothing" in out.getvalue()
    command = CliRunner().invoke(app, ["verify", str(runs[kind]), "--json", "-q"])
    assert command.exit_code == 0
    assert '"holds": true' in command.stdout


def test_without_its_data_a_run_is_read_on_random_tokens(runs: dict[str, Path]) -> None:
    data = runs["classify"].parent / "texts.tsv"
    kept = data.read_bytes()
    data.unlink()
    try:
        found = [check() for check in proofs([str(runs["classify"])])]
    finally:
        data.write_bytes(kept)
    assert not any(proof.fails for proof in found)


class Leaks(Tagged):
    """A head that looks at what else is in the batch."""

    def forward(self, stream: Tensor, where: Any) -> Tensor:
        return super().forward(stream, where) + 1e-6 * (len(stream) > 1)


class CountsPlaces(Tagged):
    """A head that counts all places, padding included."""

    def forward(self, stream: Tensor, where: Any) -> Tensor:
        return super().forward(stream, where) + 1e-6 * stream.shape[1] * (len(stream) == 1)


def headed(kind: type[Tagged]) -> Callable[[Trained], Trained]:
    def plant(trained: Trained) -> Trained:
        model: Any = trained.model
        head = kind(Tagged.Config(labels=len(model.heads["tagged"].scores.bias)), model.config.width).double()
        head.load_state_dict(model.heads["tagged"].state_dict())
        model.heads = nn.ModuleDict({"tagged": head})
        return replace(trained, model=model)

    return plant


@pytest.mark.parametrize(
    ("statement", "kind"), [("batch = one by one", Leaks), ("padding does not matter", CountsPlaces)]
)
def test_what_breaks_a_statement_is_found(
    statement: str, kind: type[Tagged], runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = headed(kind)(Trained.open(str(runs["tag"])))
    monkeypatch.setattr(Trained, "open", lambda path: other)
    failed = [proof.statement for proof in (check() for check in proofs([str(runs["tag"])])) if proof.fails]
    assert statement in failed
    assert set(failed) <= {"batch = one by one", "padding does not matter"}


def test_a_compiled_model_that_says_something_else_is_found(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = engine.compile

    def wrong(model: Any) -> Any:
        shadow = right(model)
        encode = shadow.encode
        monkeypatch.setattr(
            type(shadow), "encode", lambda self, tokens, where: _moved(encode(tokens, where)), raising=False
        )
        return shadow

    def _moved(seen: Any) -> Any:
        return type(seen).of(Where(seen.order, seen.position), seen.parts[0] + 0.1)

    monkeypatch.setattr("heed.verify.reading.engine.compile", wrong)
    found = {proof.statement: proof for proof in (check() for check in proofs([str(runs["tag"])]))}
    assert found["compiled = plain"].fails


def test_laws_are_left_out_of_models_that_they_do_not_know(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heed.verify.trained.AnyModel", Seq2seq)
    found = [check() for check in proofs([str(runs["tag"])])]
    assert {proof.statement for proof in found if proof.left_out} == {DECODING, *LAW_NAMES}
    assert all(proof.holds for proof in found if not proof.left_out)
