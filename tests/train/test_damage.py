"""Run folders of strangers and of dying disks: nothing outside is touched, no bit is lost unseen, errors are heed's."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from heed.cli import app
from heed.core.atomic import appearing, replacing, unfinished
from heed.core.errors import HeedError, RunError
from heed.runs import Run, load
from heed.runs.card import add_metrics
from heed.runs.convert import convert
from heed.runs.digests import SUMS, recorded
from heed.runs.floors import keep
from heed.runs.folder import TOLD
from heed.runs.lock import LOCK, locked
from heed.show.progress import Silent
from heed.train import checkpoint, resume
from heed.verify import proofs
from heed.verify.trained import STATEMENTS
from tests.train.support import resumed, same_run, trained

links = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "run"
    trained(path)
    return path


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


class Heard(Silent):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def heard(run: Path, *changes: str) -> str:
    reporter = Heard()
    resume(run, changes, reporter)
    return "\n".join(reporter.lines)


@links
def test_links_in_a_run_folder_lead_nowhere(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("years of work")
    for name in ("scores.json", "README.md", "metrics.jsonl", "model.safetensors", "config.json", SUMS):
        (run / f".{name}.new").symlink_to(outside)
    (run / "README.md").unlink()
    (run / "README.md").symlink_to(outside)
    metrics = run / "metrics.jsonl"
    metrics.unlink()
    os.link(outside, metrics)
    with pytest.raises(RunError, match="README.md is damaged"):  # it is another than heed wrote
        add_metrics(Run.open(run), "test", {"loss": 1.0})
    resumed(run, "training.steps=7")
    assert outside.read_text() == "years of work"
    assert not (run / "README.md").is_symlink()


@links
@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_a_card_is_not_waited_for(run: Path, tmp_path: Path) -> None:
    for write in (lambda: add_metrics(Run.open(run), "test", {"loss": 1.0}), lambda: convert(run, tmp_path / "home")):
        (run / "README.md").unlink()
        os.mkfifo(run / "README.md")
        write()
        assert "## Contract" in (run / "README.md").read_text()


@links
def test_a_linked_state_is_refused_and_nothing_in_it_deleted(run: Path, tmp_path: Path) -> None:
    (run / "state").rename(tmp_path / "elsewhere")
    for name in ("00000001", "00000002"):
        (tmp_path / "elsewhere" / name).mkdir()
    (run / "state").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="state is a link"):
        resumed(run, "training.steps=9")
    assert len(list((tmp_path / "elsewhere").iterdir())) == 4


def test_only_what_heed_wrote_is_deleted_and_never_the_newest(run: Path, tmp_path: Path) -> None:
    state, outside = run / "state", tmp_path / "outside"
    outside.mkdir()
    (outside / "thesis.txt").write_text("years of work")
    for name in ("00000001", "99999998", "99999999"):
        (state / name).mkdir()
        (state / name / "notes.txt").write_text("mine")
    if sys.platform != "win32":
        (state / "00000002").symlink_to(outside)
        (state / ".00000004.0123456789abcdef.new").symlink_to(outside)
    resumed(run, "training.steps=12")
    assert (outside / "thesis.txt").exists()
    assert all((state / name / "notes.txt").exists() for name in ("00000001", "99999998", "99999999"))
    assert (state / "00000012" / "progress.json").exists()
    assert (state / "00000009").exists()
    assert not (state / "00000006").exists()


def test_every_flipped_bit_is_noticed(made: Path, tmp_path: Path) -> None:
    draw, run = random.Random(0), tmp_path / "run"
    shutil.copytree(made, run)
    add_metrics(Run.open(run), "test", {"loss": 1.0})
    keep(Run.open(run), {"the data: linear": {"accuracy": 80.0}})
    files = [run / name for name in ("config.json", "tokenizer.json", "model.safetensors", *TOLD, SUMS)]
    files += sorted((run / "state").rglob("*.*")) + sorted((run / "state").rglob(SUMS))
    for file in files:
        whole = file.read_bytes()
        for _ in range(20):
            place, bit = draw.randrange(len(whole)), draw.randrange(8)
            hurt = bytearray(whole)
            hurt[place] ^= 1 << bit
            file.write_bytes(hurt)
            assert noticed(run, file), f"bit {bit} of byte {place} of {file.relative_to(run)}"
        for cut in (b"", whole[:-1], whole + b"\0"):
            file.write_bytes(cut)
            grown = file.name == "metrics.jsonl" and cut == whole + b"\0"
            assert noticed(run, file) != grown, f"{file.relative_to(run)} with {len(cut)} bytes"
        file.write_bytes(whole)
    assert not Run.open(run).damage()
    load(run)


def test_verify_tells_damage(run: Path) -> None:
    statement = "every file is as it was written"
    first = next(iter(proofs([str(run)])))
    assert (first().statement, first().fails) == (statement, False)
    file = run / "state" / "00000003" / "rng.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    assert first().fails
    assert "rng.safetensors is damaged" in first().worst


def test_verify_goes_on_after_a_file_that_cannot_be_read(run: Path) -> None:
    weights = run / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    found = [check() for check in proofs([str(run)])]
    assert [proof.statement for proof in found] == list(STATEMENTS)
    assert all(proof.fails for proof in found)
    assert "model.safetensors is damaged" in found[0].worst
    assert "not tried" in found[1].worst
    assert CliRunner().invoke(app, ["verify", str(run)]).exit_code == 1
    (run / "state" / "00000003" / SUMS).write_text("nothing of a list")
    assert next(iter(proofs([str(run)])))().error == 2


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="nothing here fails like a disk")
def test_what_a_dying_disk_does_not_give_is_damage(run: Path) -> None:
    for name in ("config.json", "README.md", "metrics.jsonl", f"state/00000006/{SUMS}"):
        (run / name).unlink()
        (run / name).symlink_to("/proc/self/mem")  # nothing can be read at its beginning
    damage = Run.open(run).damage()
    assert damage.keys() == {"config.json", "README.md", "metrics.jsonl"}
    assert all("cannot be read: Input/output error; copy it again" in told for told in damage.values())
    with pytest.raises(RunError, match="config.json cannot be read"):
        load(run)
    with pytest.raises(RunError, match="SHA256SUMS cannot be read"):
        checkpoint.damage(run / "state" / "00000006")


def noticed(run: Path, file: Path) -> bool:
    if "state" in file.parts:
        try:
            return bool(checkpoint.damage(file.parent))
        except RunError:
            return True
    found = []
    for look in (lambda: Run.open(run).damage(), lambda: Run.open(run).pipeline()):
        try:
            found.append(isinstance(told := look(), dict) and bool(told))
        except RunError:
            found.append(True)
    return any(found) if file.name in (*TOLD, SUMS) else all(found)  # by whoever asks, and by whoever loads


@pytest.mark.parametrize("name", ["model", "optimizer", "average", "rng", "progress"])
def test_a_damaged_newest_falls_back_to_the_one_before(name: str, made: Path, run: Path) -> None:
    (file,) = (run / "state" / "00000006").glob(f"{name}.*")
    hurt = bytearray(file.read_bytes())
    hurt[len(hurt) // 2] ^= 4
    file.write_bytes(hurt)
    told = heard(run)
    assert "00000006 is damaged" in told
    assert "after step 3 of 6" in told
    assert same_run(made, run)
    assert not unfinished(run / "state")
    assert "is damaged" not in heard(run)


def test_all_damaged_is_an_error(run: Path) -> None:
    for file in (run / "state").glob("*/optimizer.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(RunError, match="00000003 is damaged.*there is no earlier one"):
        resumed(run)


def test_damaged_weights_are_noticed_when_a_training_goes_on(run: Path) -> None:
    file = run / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(RunError, match=r"model.safetensors is damaged.*Or remove model.safetensors"):
        resumed(run, "training.steps=9")
    file.unlink()
    resumed(run, "training.steps=9")
    load(run)


def test_runs_without_digests_are_read_and_that_is_told(run: Path) -> None:
    for file in run.rglob(SUMS):
        file.unlink()
    load(run)
    assert heard(run, "training.steps=7").count(f"has no {SUMS}") == 2  # of the run, and of the checkpoint
    assert (run / "state" / "00000007" / SUMS).is_file()


@pytest.mark.parametrize("there", [False, True], ids=["new", "replaced"])
@pytest.mark.parametrize("moves", [*itertools.product(range(4), repeat=2)], ids=str)
def test_killed_between_a_file_and_its_digest(
    moves: tuple[int, ...], there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of the three moves is the last one made, twice: the list knows what is there, and what is not."""
    with recorded(tmp_path, "config.json") as fresh:
        fresh.write_text("other")
    if there:
        with recorded(tmp_path, "README.md") as fresh:
            fresh.write_text("old")
    real = os.replace
    for attempt, allowed in enumerate(moves):
        left = [allowed]

        def move(source: Path, target: Path, left: list[int] = left) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            real(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", move)
            patch.setattr(Path, "replace", move)
            try:
                with recorded(tmp_path, "README.md") as fresh:
                    fresh.write_text(f"new {attempt}")
            except KeyboardInterrupt:
                assert allowed < 3
        assert not Run(tmp_path).damage()


def test_a_file_that_was_removed_is_damage(run: Path) -> None:
    for name in ("model.safetensors", "README.md", "metrics.jsonl"):
        (run / name).unlink()
    damage = Run.open(run).damage()
    assert damage.keys() == {"model.safetensors", "README.md", "metrics.jsonl"}
    assert "model.safetensors is missing, but SHA256SUMS lists it" in damage["model.safetensors"]


def test_names_are_not_to_be_guessed_and_leave_nothing(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as one, replacing(tmp_path / "a") as two:
        assert one != two
        one.write_text("1")
        two.write_text("2")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(OSError, match="not empty|exist"), appearing(tmp_path / "full") as fresh:
        (fresh / "y").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "full"]


def test_one_training_at_a_time(run: Path) -> None:
    with locked(run) as before:
        assert before is None
        with pytest.raises(RunError, match=f"being trained by process {os.getpid()} of .* since '2"):
            resumed(run)
    assert not (run / LOCK).exists()
    (run / LOCK).write_text('{"process": 12, "user": "ann", "host": "there", "since": "2026-01-01 00:00:00"}')
    assert "the training by process 12 of 'ann' on 'there' since '2026-01-01 00:00:00' was killed" in heard(run)
    assert not (run / LOCK).exists()


@links
def test_a_lock_that_leads_elsewhere_is_refused(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("years of work")
    for lead in (Path.symlink_to, Path.hardlink_to):
        lead(run / LOCK, outside)
        with pytest.raises(RunError, match="lock"):
            resumed(run)
        (run / LOCK).unlink()
    assert outside.read_text() == "years of work"


DEEP = "[" * 5000 + "]" * 5000
HUGE = "9" * 5000
PROGRESS: dict[str, Callable[[dict[str, object]], object]] = {
    "negative": lambda data: {**data, "step": -6},
    "text": lambda data: {**data, "batch": "many"},
    "flag": lambda data: {**data, "round": True},
    "huge": lambda data: {**data, "averaged": 10**30},
    "averages without weights": lambda data: {**data, "averaged": 1},
    "null": lambda data: {**data, "tokens": None},
    "list": lambda data: {**data, "best": [1.0]},
    "none": lambda data: {**data, "processes": 0},
    "unknown": lambda data: {**data, "more": 1},
    "sizes": lambda data: {**data, "sizes": {"../../x": 1}},
    "later": lambda data: {**data, "step": 7},
    "earlier": lambda data: {**data, "step": 3},
    "array": lambda data: [data],
}


@pytest.mark.parametrize("how", [*PROGRESS, "deep", "digits", "nothing"])
def test_strange_progress_is_damage(how: str, run: Path) -> None:
    place = run / "state" / "00000006"
    (place / SUMS).unlink()
    file = place / "progress.json"
    strange = {"deep": DEEP, "digits": f'{{"step": {HUGE}}}', "nothing": ""}
    file.write_text(strange[how] if how in strange else json.dumps(PROGRESS[how](json.loads(file.read_text()))))
    told = heard(run)
    assert "00000006 is damaged" in told
    assert ("progress.json is of step" in told) == (how in {"later", "earlier"})


def test_without_digests_sizes_still_tell(run: Path) -> None:
    """A file may be read well and yet be another: longer than it was written, or with nothing in it."""
    place = run / "state" / "00000006"
    (place / SUMS).unlink()
    file, progress = place / "optimizer.safetensors", place / "progress.json"
    tensors, before = load_file(file), file.stat().st_size
    save_file({**tensors, "zzz": tensors["step." + next(iter(tensors)).partition(".")[2]] * 0}, file)
    with pytest.raises(ValueError, match=f"optimizer.safetensors has [0-9]+ bytes, it was written with {before}"):
        checkpoint._load(place)
    save_file({}, file)
    told = json.loads(progress.read_text())
    told["sizes"][file.name] = file.stat().st_size
    progress.write_text(json.dumps(told))
    with pytest.raises(ValueError, match="the optimizer's state is empty after 6 steps"):
        checkpoint._load(place)


def test_checkpoints_are_sorted_by_their_steps(tmp_path: Path) -> None:
    """Beyond 99,999,999 steps a name gets longer."""
    for name in ("99999999", "100000000", "00000005", "notes"):
        (tmp_path / "state" / name).mkdir(parents=True)
    assert [place.name for place in checkpoint.found(Run(tmp_path))] == ["00000005", "99999999", "100000000"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics.jsonl", DEEP + "\n"),
        ("metrics.jsonl", '{"step": 1, "loss": true}\n'),
        ("metrics.jsonl", f'{{"step": {HUGE}}}\n'),
        ("metrics.jsonl", '{"step": -1}\n'),
        ("metrics.jsonl", "[1]\n"),
        ("metrics.jsonl", '{"step": 1, "loss": "low"}\n'),
        ("scores.json", '{"valid": 3}'),
        ("scores.json", '{"valid": {"loss": [1]}}'),
        ("scores.json", DEEP),
    ],
)
def test_strange_records_are_errors_of_heed(name: str, text: str, run: Path) -> None:
    from heed.runs.info import info

    (run / name).write_text(text)
    with pytest.raises(HeedError, match=name):
        info(run)
    resumed(run, "training.steps=7")  # what is beyond a checkpoint, or of other weights, is written anew
    info(run)
