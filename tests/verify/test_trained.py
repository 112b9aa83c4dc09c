"""Proofs on run folders: they hold for what heed trains, and each of them catches a model that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from heed.core.contract import Where
from heed.core.errors import InputError, RunError
from heed.data import Dates, Files
from heed.models import Decoder, Seq2seq, Transformer
from heed.models.block import States
from heed.runs import Recipe, Run, Training
from heed.show.progress import Silent
from heed.tasks import Causal, Translate
from heed.text import Byte, Char, Tokenizer
from heed.train import train
from heed.verify import proofs, show
from heed.verify.trained import STATEMENTS, Trained
from heed.weights.formats import native as own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder-decoder after three steps."""
    recipe = Recipe(
        data=Dates(languages=("fr", "zh"), held=20, round=1000),
        tokenizer=Char(),
        task=Translate(longest=40),
        model=Transformer(width=16, depth=2, heads=2, hidden=24),
        training=Training(steps=3, batch=256),
    )
    return train(recipe, tmp_path_factory.mktemp("runs") / "dates", Silent()).run.path


@pytest.fixture
def trained(folder: Path) -> Trained:
    return Trained.open(str(folder))


def test_every_statement_holds_for_a_trained_run(folder: Path) -> None:
    found = [check() for check in proofs([str(folder)])]
    assert [proof.statement for proof in found] == list(STATEMENTS)
    assert all(proof.holds for proof in found), found
    assert {proof.subject for proof in found} == {str(folder)}
    samples = {proof.statement: proof.samples for proof in found}
    assert samples["decoding with state = recomputing everything"] == samples["batch = one by one"] == 12
    out = StringIO()
    show(found, Console(file=out, width=200))
    assert f"{len(STATEMENTS)} of {len(STATEMENTS)} statements hold" in out.getvalue()


@pytest.fixture
def writer(tmp_path: Path) -> Run:
    """A language model with fresh weights, which learnt from a file."""
    (tmp_path / "book.txt").write_text("To be, or not to be.\n" * 40, encoding="utf-8")
    recipe = Recipe(
        data=Files(train=str(tmp_path / "book.txt")),
        tokenizer=Byte(lowercase=True),
        task=Causal(context=32),
        model=Decoder.Config(width=16, depth=2),
    )
    tokenizer = recipe.tokenizer.train(())
    run = Run.create(tmp_path / "run", recipe.sized(tokenizer.size), tokenizer)
    run.keep(run.shape.build())
    return run


@pytest.mark.parametrize("there", [True, False])
def test_a_language_model_is_verified_with_its_data_and_without(writer: Run, there: bool) -> None:
    if not there:
        (writer.path.parent / "book.txt").unlink()
    found = {proof.statement: proof for proof in (check() for check in proofs([str(writer.path)]))}
    assert all(proof.holds for proof in found.values()), found
    told = "to be" in found["batch = one by one"].worst.lower()
    assert told == there
    assert "does not promise" in found["tokenizer round trip"].worst


def test_other_names_are_as_before(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is nothing called 'runs/none' to verify"):
        proofs(["runs/none"])
    with pytest.raises(RunError, match="not a run folder"):
        proofs([str(tmp_path)])
    (tmp_path / "cross").mkdir()
    monkeypatch.chdir(tmp_path)
    assert len(proofs(["cross"])) == 8  # a folder of that name does not hide the mixer
    mixed = proofs(["cross", str(folder)])
    assert len(mixed) == 8 + len(STATEMENTS)


# --- each statement can fail ---


class Drifts(Seq2seq):
    """Scores that are a little off whenever there is a state."""

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        logits, after = super().forward(x, where, state)
        return logits + torch.arange(logits.shape[-1]) * (1e-6 * (state is not None)), after


class Swaps(Seq2seq):
    """Another token has the largest logit whenever there is a state."""

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        logits, after = super().forward(x, where, state)
        return logits if state is None else -logits, after


class Peeks(Seq2seq):
    """Scores that depend on the other rows of the batch."""

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        logits, after = super().forward(x, where, state)
        return logits + 1e-3 * logits.mean(0, keepdim=True), after


class Raises(Seq2seq):
    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        raise RuntimeError("no memory left")


def broken(trained: Trained, kind: type[Seq2seq]) -> Trained:
    """The same weights in a model that does something else with them."""
    model = kind(trained.model.config)  # type: ignore[arg-type]
    model.load_state_dict(trained.model.state_dict())
    return replace(trained, model=model.double().eval())


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("decoding with state = recomputing everything", Drifts),
        ("decoding with state = recomputing everything", Swaps),
        ("whole = cut = padded, over token ids", Drifts),
        ("batch = one by one", Peeks),
        ("looking changes nothing", Raises),
        ("batch = one by one", Raises),
    ],
)
def test_a_broken_model_is_caught(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, statement: str, kind: type[Seq2seq]
) -> None:
    other = broken(trained, kind)
    monkeypatch.setattr(Trained, "open", lambda path: other)
    place = list(STATEMENTS).index(statement)
    proof = proofs([str(trained.run.path)])[place]()
    assert proof.statement == statement
    assert not proof.holds
    if kind is Raises:
        assert proof.worst == "raised RuntimeError: no memory left"


class Leaks(Seq2seq):
    """What the laws see of a token is mixed with the row beside it."""

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return super().mix(x + 0.1 * x.flip(0), where, state)


class Foresees(Seq2seq):
    """A token is mixed with the last one."""

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return super().mix(x + 0.1 * x[:, -1:], where, state)


@pytest.mark.parametrize(
    ("law", "kind"), [("rows", Leaks), ("split", Foresees), ("reach", Foresees), ("padding", Foresees)]
)
def test_a_broken_law_is_caught(trained: Trained, law: str, kind: type[Seq2seq]) -> None:
    (finding,) = STATEMENTS[law](broken(trained, kind))
    assert not finding.holds


def test_weights_that_change_when_they_are_saved_are_caught(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    write = own.write

    def rounds(model: nn.Module, path: Path) -> None:
        with torch.no_grad():
            copy = trained.run.shape.build()
            copy.load_state_dict({name: t.half().float() for name, t in model.state_dict().items()})
            write(copy, path)

    monkeypatch.setattr(own, "write", rounds)
    (finding,) = STATEMENTS["saved = loaded"](trained)
    assert not finding.holds
    assert "came back different" in finding.detail


def test_weights_that_are_untied_when_they_are_read_are_caught(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = own.read

    def unties(build: Callable[[], Any], folder: Path) -> Any:
        model = read(build, folder)
        model.decoder.head.weight = nn.Parameter(model.decoder.head.weight.detach().clone())
        return model

    monkeypatch.setattr(own, "read", unties)
    (finding,) = STATEMENTS["saved = loaded"](trained)
    assert not finding.holds
    assert "several" in finding.detail


def test_a_tokenizer_that_loses_something_is_caught(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    decode_all = Tokenizer.decode_all
    monkeypatch.setattr(Tokenizer, "decode_all", lambda self, rows, **_: [t[:-1] for t in decode_all(self, rows)])
    found = STATEMENTS["tokenizer round trip"](trained)
    assert len(found) == 12
    assert not any(finding.holds for finding in found)


def test_a_run_that_is_not_whole_is_an_error_of_the_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(RunError, match=r"tokenizer\.json is missing|model\.safetensors is missing"):
        proofs([str(tmp_path)])
