"""A baseline: what it accepts, by which name, and what it notices when something is no longer there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heed.check.reports.baseline import BadBaseline, Baseline
from heed.check.reports.survey import Result
from tests.check.reports.made import HELD, LEAK, ODD, report


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "model.py").write_text("")
    (tmp_path / "other.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def known(here: Path, **accepted: set[str]) -> Baseline:
    return Baseline(here / "heed-baseline.json", {name: frozenset(slugs) for name, slugs in accepted.items()})


LEAKS = "src/model.py:A"


def test_what_is_accepted_is_not_wrong_and_anything_else_is(here: Path) -> None:
    baseline = known(here, **{LEAKS: {"future-leak"}})
    assert baseline.judged(Result.of(report(LEAK, target=LEAKS))).code == 0
    assert baseline.judged(Result.of(report(LEAK, target="src/model.py:B"))).code == 1
    assert baseline.judged(Result.of(report(ODD, target=LEAKS, strict=True))).code == 1
    missed = Result(LEAKS, problem="cannot be built")
    assert baseline.judged(missed).code == 2
    assert known(here, **{LEAKS: {"unchecked"}}).judged(missed).code == 0
    assert known(here, **{LEAKS: {"unchecked"}}).judged(Result.of(report(LEAK, target=LEAKS))).code == 1


def test_a_target_has_one_name_from_wherever_it_is_asked_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    baseline = known(here)
    names = {baseline.key(word) for word in (LEAKS, f"./{LEAKS}", f"{here}/{LEAKS}")}
    monkeypatch.chdir(here / "src")
    assert names | {baseline.key("model.py:A")} == {LEAKS}
    assert baseline.key("torch.nn:MultiheadAttention") == "torch.nn:MultiheadAttention"


def test_what_is_written_is_read_again(here: Path) -> None:
    results = [
        Result.of(report(LEAK, target=LEAKS)),
        Result.of(report(HELD, target="other.py:Fine")),
        Result("other.py:Odd", problem="cannot be built"),
    ]
    Baseline(here / "b.json").updated(results, ["."]).write()
    again = Baseline.read(here / "b.json")
    assert again.accepted == {LEAKS: {"future-leak"}, "other.py:Odd": {"unchecked"}}
    assert [again.judged(result).code for result in results] == [0, 0, 0]
    assert again.stale([again.judged(result) for result in results], ["."]) == []


def test_what_is_mended_or_gone_is_stale_where_it_was_looked_for(here: Path) -> None:
    baseline = known(
        here,
        **{LEAKS: {"future-leak"}, "src/model.py:Gone": {"wrong-scale"}, "other.py:B": {"overflow"}},
    )
    mended = [baseline.judged(Result.of(report(HELD, target=LEAKS)))]
    gone, scale, elsewhere = (LEAKS, "future-leak"), ("src/model.py:Gone", "wrong-scale"), ("other.py:B", "overflow")
    assert baseline.stale(mended, [LEAKS]) == [gone]
    assert baseline.stale(mended, ["src"]) == baseline.stale(mended, ["src/model.py"]) == [gone, scale]
    assert baseline.stale(mended, ["."]) == [elsewhere, gone, scale]
    missed = [Result(LEAKS, problem="cannot be built")]
    assert baseline.stale(missed, [LEAKS]) == [], "of what could not be checked nobody knows"
    assert known(here, **{LEAKS: {"unchecked"}}).stale(mended, [LEAKS]) == [(LEAKS, "unchecked")]


def test_writing_it_again_drops_what_is_stale_and_keeps_what_was_not_looked_at(here: Path) -> None:
    baseline = known(here, **{LEAKS: {"future-leak", "wrong-scale"}, "other.py:B": {"overflow"}})
    found = [baseline.judged(Result.of(report(LEAK, ODD, target=LEAKS, strict=True)))]
    assert baseline.updated(found, ["src"]).accepted == {
        LEAKS: {"future-leak", "dead-row-nan"},
        "other.py:B": {"overflow"},
    }


def test_packages_hold_their_modules(here: Path) -> None:
    baseline = known(here, **{"theirs.deep:A": {"overflow"}, "theirsish:A": {"overflow"}})
    assert baseline.stale([], ["theirs"]) == [("theirs.deep:A", "overflow")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no baseline"),
        ("{", "is no baseline of heed check"),
        ("[]", 'it has no "version": 1'),
        (json.dumps({"version": 2, "accepted": {}}), 'it has no "version": 1'),
        (json.dumps({"version": 1, "accepted": {"a": "b"}}), '"accepted" is no table'),
    ],
)
def test_a_file_that_is_none_says_what_to_do(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "b.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadBaseline, match=words) as caught:
        Baseline.read(path)
    assert "--write-baseline" in str(caught.value)
