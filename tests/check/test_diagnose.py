"""From clues to names: which comes first, and what merely follows from another is left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from heed.check.bugs import BUGS
from heed.check.diagnose import diagnosed
from heed.check.outcome import Clue, Outcome, Sure


def told(*clues: tuple[str, str, Sure]) -> list[Outcome]:
    """One outcome per clue: the probe, the bug that it points to, and how surely."""
    return [Outcome.broken(probe, slug, Clue(slug, sure, f"{probe} saw it")) for probe, slug, sure in clues]


def names(*clues: tuple[str, str, Sure]) -> list[str]:
    return [one.bug.slug for one in diagnosed(told(*clues))]


def test_the_surest_comes_first() -> None:
    found = (("a", "wrong-scale", Sure.CONVENTION), ("b", "overflow", Sure.LIKELY), ("c", "value-is-key", Sure.CERTAIN))
    assert names(*found) == ["value-is-key", "overflow", "wrong-scale"]
    assert [one.fails for one in diagnosed(told(*found))] == [True, True, False]


def test_of_equally_sure_ones_the_first_probe_is_heard_first() -> None:
    found = (("a", "overflow", Sure.LIKELY), ("b", "wrong-scale", Sure.LIKELY))
    assert names(*found) == ["overflow", "wrong-scale"]
    assert names(*found[::-1]) == ["wrong-scale", "overflow"]


@pytest.mark.parametrize("sure", [Sure.LIKELY, Sure.CERTAIN])
def test_what_follows_from_a_bug_that_is_as_sure_is_left_out_in_either_order(sure: Sure) -> None:
    """mask-inverted explains future-leak, and not the other way round."""
    assert "future-leak" in BUGS["mask-inverted"].explains
    assert "mask-inverted" not in BUGS["future-leak"].explains
    cause, effect = ("a", "mask-inverted", sure), ("b", "future-leak", Sure.LIKELY)
    assert names(cause, effect) == names(effect, cause) == ["mask-inverted"]


def test_what_is_surer_than_its_explanation_stays() -> None:
    cause, effect = ("a", "mask-inverted", Sure.LIKELY), ("b", "future-leak", Sure.CERTAIN)
    assert names(cause, effect) == ["future-leak", "mask-inverted"]


def test_of_two_that_explain_each_other_the_surer_stays_and_else_the_first() -> None:
    assert "head-mixing" in BUGS["softmax-axis"].explains
    assert "softmax-axis" in BUGS["head-mixing"].explains
    one, other = ("a", "head-mixing", Sure.LIKELY), ("b", "softmax-axis", Sure.LIKELY)
    assert names(one, other) == ["head-mixing"]
    assert names(other, one) == ["softmax-axis"]
    surer = ("b", "softmax-axis", Sure.CERTAIN)
    assert names(one, surer) == names(surer, one) == ["softmax-axis"]


def test_two_bugs_at_once_are_both_named() -> None:
    assert names(("a", "overflow", Sure.LIKELY), ("b", "input-mutated", Sure.CERTAIN)) == ["input-mutated", "overflow"]


def test_two_hints_of_different_probes_make_it_likely() -> None:
    (alone,) = diagnosed(told(("a", "overflow", Sure.HINT)))
    (twice,) = diagnosed(told(("a", "overflow", Sure.HINT), ("a", "overflow", Sure.HINT)))
    (two,) = diagnosed(told(("a", "overflow", Sure.HINT), ("b", "overflow", Sure.HINT)))
    assert [one.sure for one in (alone, twice, two)] == [Sure.HINT, Sure.HINT, Sure.LIKELY]
    assert [one.fails for one in (alone, twice, two)] == [False, False, True]
    assert two.probes == ("a", "b")
    assert two.evidence == ("a saw it", "b saw it")


def test_two_conventions_do_not_make_it_likely() -> None:
    (found,) = diagnosed(told(("a", "wrong-scale", Sure.CONVENTION), ("b", "wrong-scale", Sure.CONVENTION)))
    assert not found.fails


def test_the_surest_evidence_is_told_first() -> None:
    (found,) = diagnosed(told(("a", "overflow", Sure.HINT), ("b", "overflow", Sure.CERTAIN)))
    assert (found.sure, found.evidence, found.probes) == (Sure.CERTAIN, ("b saw it", "a saw it"), ("b", "a"))


GREEDY = """
import torch


def attend(query, key, value):
    torch.empty({count}, dtype=torch.uint8)  # which nobody writes to: it costs no memory
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there the system limits memory")
@pytest.mark.parametrize(("count", "code"), [(2**20, 0), (3 * 2**29, 2)])
def test_a_target_may_take_so_much_memory_and_no_more(tmp_path: Path, count: int, code: int) -> None:
    path = tmp_path / "greedy.py"
    path.write_text(GREEDY.format(count=count))
    command = [sys.executable, "-m", "heed", "check", f"{path}:attend", "--memory", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    if code:
        assert "wanted more than 1 GiB of memory; give more with --memory" in " ".join(done.stderr.split())
