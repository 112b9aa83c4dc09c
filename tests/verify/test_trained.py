"""Proofs on run folders: they hold for what heed trains, and each of them catches a model that breaks it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from heed.core.contract import Reach, Where
from heed.core.errors import InputError, RunError
from heed.core.spec import Spec
from heed.core.state import detach
from heed.data import Dates, Files
from heed.decode import Sample, stream
from heed.models import Decoder, Seq2seq, Transformer
from heed.models.block import States
from heed.parts.look import points
from heed.runs import Recipe, Run, Training
from heed.show.progress import Silent
from heed.tasks import Causal, Translate
from heed.text import Byte, Char, Tokenizer
from heed.train import train
from heed.verify import proofs, show
from heed.verify import trained as verified
from heed.verify.trained import STATEMENTS, Trained
from heed.weights.formats import native as own

Plant: TypeAlias = "Callable[[Trained, pytest.MonkeyPatch], Trained]"


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


# --- each statement can fail, and fails alone ---


class Shifted(Seq2seq):
    """Scores that are off by something; the laws ask `mix`, which is right, and all else asks `forward`."""

    off: Callable[..., Tensor | float]

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        logits, after = super().forward(x, where, state)
        return logits + self.off(self, logits, x, state), after


def off(change: Callable[[Seq2seq, Tensor, Tensor, States | None], Tensor | float]) -> type[Seq2seq]:
    """A model whose scores are off by this; what the laws see of it is right."""
    return type("Off", (Shifted,), {"off": staticmethod(change)})


class ForgetsGradients(Seq2seq):
    """What is remembered teaches nothing in the next call."""

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        y, state = super().mix(x, where, state)
        return y, None if state is None else detach(state)


class TimesZero(Seq2seq):
    """Padding is added times zero, which leaves no number none."""

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        y, state = super().mix(x, where, state)
        return y + 0 * (x * ~where.real[..., None]).sum(), state


class SharesEqualRows(Seq2seq):
    """Rows that are equal come out a little larger."""

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        y, state = super().mix(x, where, state)
        return y * (1 + 1e-6 * (len(x) > 1 and torch.equal(x[0], x[1]))), state


class DeclaresLess(Seq2seq):
    """Holds what two layers remember, and declares one."""

    def spec(self) -> Spec:
        return cast(tuple[Spec, ...], super().spec())[:1]


class SeesFarther(Seq2seq):
    """Sees everything, and declares two tokens."""

    def __init__(self, config: Seq2seq.Config) -> None:
        super().__init__(config)
        self.reach = Reach(2, 0)


def kind(model: type[Seq2seq]) -> Plant:
    """The same weights in a model that does something else with them."""
    return lambda trained, patch: broken(trained, model)


def broken(trained: Trained, kind: type[Seq2seq]) -> Trained:
    model = kind(trained.model.config)  # type: ignore[arg-type]
    model.load_state_dict(trained.model.state_dict())
    return replace(trained, model=model.double().eval())


def flipped(pattern: str) -> Plant:
    """A bit of one file is another one, after the run was opened."""

    def plant(trained: Trained, patch: pytest.MonkeyPatch) -> Trained:
        copy = trained.run.path.with_name(f"flipped-{pattern.replace('/', '-').replace('*', 'any')}")
        shutil.copytree(trained.run.path, copy)
        opened = Trained.open(str(copy))
        assert opened.texts
        (path,) = list(copy.glob(pattern))[:1]
        held = bytearray(path.read_bytes())
        held[len(held) // 2] ^= 1
        path.write_bytes(held)
        return opened

    return plant


def streamed(change: Callable[..., Any]) -> Plant:
    """What is generated one by one is changed on its way."""

    def plant(trained: Trained, patch: pytest.MonkeyPatch) -> Trained:
        patch.setattr(verified, "stream", lambda *given, **named: change(stream, *given, **named))
        return trained

    return plant


def _told_less(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
    return (token._replace(logprob=token.logprob - 1e-9) for token in right(*given, **named))


def _not_the_largest(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
    return right(*given, **named, strategy=Sample(temperature=3.0).seeded(0))


def _watched(model: Seq2seq, y: Tensor, x: Tensor, state: States | None) -> float:
    return 1e-12 * any(point.watched for point in points(model).values())


def rounds(trained: Trained, patch: pytest.MonkeyPatch) -> Trained:
    """Weights are written with half of their bits."""
    write = own.write

    def wrong(model: nn.Module, path: Path) -> None:
        copy = trained.run.shape.build()
        copy.load_state_dict({name: t.half().float() for name, t in model.state_dict().items()})
        write(copy, path)

    patch.setattr(own, "write", wrong)
    return trained


def unties(trained: Trained, patch: pytest.MonkeyPatch) -> Trained:
    """Weights that are one in the model are several when it is read."""
    read = own.read

    def wrong(build: Callable[[], Any], folder: Path) -> Any:
        model = read(build, folder)
        model.decoder.head.weight = nn.Parameter(model.decoder.head.weight.detach().clone())
        return model

    patch.setattr(own, "read", wrong)
    return trained


def loses(trained: Trained, patch: pytest.MonkeyPatch) -> Trained:
    """The last character of a text does not come back."""
    right = Tokenizer.decode_all
    assert trained.texts
    patch.setattr(Tokenizer, "decode", lambda self, ids, **_: right(self, [ids])[0][:-1])
    return trained


FAULTS: dict[str, dict[str, Plant]] = {
    "every file is as it was written": {
        "a file": flipped("tokenizer.json"),
        "a checkpoint": flipped("state/*/model.safetensors"),
    },
    "split": {"gradients": kind(ForgetsGradients)},
    "padding": {"times zero": kind(TimesZero)},
    "rows": {"equal ones": kind(SharesEqualRows)},
    "cost": {"a layer": kind(DeclaresLess)},
    "reach": {"declared": kind(SeesFarther)},
    "looking changes nothing": {"while looked at": kind(off(_watched))},
    "whole = cut = padded, over token ids": {
        "padded": kind(off(lambda model, y, x, state: 1e-9 * bool((x < 0).any()))),
    },
    "decoding with state = recomputing everything": {
        "log-probabilities": streamed(_told_less),
        "not the largest": streamed(_not_the_largest),
    },
    "batch = one by one": {
        "scores": kind(off(lambda model, y, x, state: 1e-6 * y.mean(0, keepdim=True))),
        "words": kind(off(lambda model, y, x, state: 3.0 * y.mean(0, keepdim=True) - 3.0 * y)),
    },
    "saved = loaded": {"bits": rounds, "ties": unties},
    "tokenizer round trip": {"a character": loses},
}
EACH = [(statement, fault) for statement, faults in FAULTS.items() for fault in faults]


def few_texts(patch: pytest.MonkeyPatch) -> None:
    """Short ones: what is broken here is broken everywhere."""
    patch.setattr(verified, "TEXTS", 3)
    patch.setattr(verified, "TOKENS", 8)


def test_every_statement_has_its_fault() -> None:
    """One that has none is one that nobody has seen fail."""
    assert FAULTS.keys() == STATEMENTS.keys()


@pytest.mark.parametrize(("statement", "fault"), EACH)
def test_only_the_statement_about_it_fails(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, statement: str, fault: str
) -> None:
    few_texts(monkeypatch)
    other = FAULTS[statement][fault](trained, monkeypatch)
    monkeypatch.setattr(Trained, "open", lambda path: other)
    found = [check() for check in proofs([str(trained.run.path)])]
    assert [proof.statement for proof in found if proof.fails] == [statement]


class Drifts(Seq2seq):
    """Scores that are a little off whenever there is a state."""

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        logits, after = super().forward(x, where, state)
        return logits + torch.arange(logits.shape[-1]) * (1e-6 * (state is not None)), after


class Raises(Seq2seq):
    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        raise RuntimeError("no memory left")


class NoNumber(Seq2seq):
    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        logits, after = super().forward(x, where, state)
        return logits * torch.nan, after


@pytest.mark.parametrize(
    ("kind", "more"), [(Drifts, ()), (Raises, ("looking", "batch")), (NoNumber, ("looking", "batch"))]
)
def test_what_decodes_otherwise_breaks_all_that_decodes(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, kind: type[Seq2seq], more: tuple[str, ...]
) -> None:
    few_texts(monkeypatch)
    other = broken(trained, kind)
    monkeypatch.setattr(Trained, "open", lambda path: other)
    found = {proof.statement: proof for proof in (check() for check in proofs([str(trained.run.path)]))}
    wrong = [name for name in STATEMENTS if name.startswith(("whole", "decoding", *more))]
    assert [name for name, proof in found.items() if proof.fails] == wrong
    if kind is Raises:
        assert {found[name].worst for name in wrong} == {"raised RuntimeError: no memory left"}


def test_a_run_that_is_not_whole_is_an_error_of_the_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(RunError, match=r"tokenizer\.json is missing|model\.safetensors is missing"):
        proofs([str(tmp_path)])
