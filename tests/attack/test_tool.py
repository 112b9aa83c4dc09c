"""The attacks themselves: every planted failure is recognised, and a seed gives the same case again."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.attack.case import ROOT, Case, Special, read_case, write_case
from tools.attack.formats import FORMATS, mutated
from tools.attack.lanes import Result
from tools.attack.mutate import mutated_json
from tools.attack.targets import Target

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of processes are Linux's")

PLANTED = """
import ctypes, os, sys, time
from pathlib import Path
from tools.attack import cell
cell.MEMORY, cell.SECONDS = 1 << 28, 1
cell.limit.__defaults__, cell.spare.__defaults__ = (1 << 28,), (1,)
from tools.attack.lanes import Lanes
from tools.attack.targets import Target
from heed.core.errors import InputError

def spin():
    while True:
        pass

def refuse():
    raise InputError("no")

def panic():
    os.write(2, b"thread 'main' panicked at src/lib.rs")

ACTS = {
    "loaded": lambda folder: None,
    "refused": lambda folder: refuse(),
    "traceback": lambda folder: {}["a"],
    "crash": lambda folder: ctypes.string_at(0),
    "timeout": lambda folder: spin(),
    "memory": lambda folder: bytearray(1 << 32),
    "panic": lambda folder: panic(),
    "outside": lambda folder: (folder.parent / "outside" / "x").write_text("x"),
    "canary": lambda folder: os.unlink(folder.parent / "outside" / "canary"),
    "asleep": lambda folder: time.sleep(60),
}
lanes = Lanes(Path(sys.argv[1]), 2, wall=4)
def batches():
    for name, act in ACTS.items():
        yield Target(name, lambda folder, out, draw, act=act: act(folder), given={"m": {"a.json": b"{}"}}), [1, 2]
for result in lanes.run(batches()):
    print(result.target.name, result.verdict)
"""


def test_planted_failures_are_recognised(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLANTED, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found = sorted(done.stdout.splitlines())
    wanted = {"asleep": "timeout", "canary": "outside"}
    names = ("asleep", "canary", "crash", "loaded", "memory", "outside", "panic", "refused", "timeout", "traceback")
    assert found == sorted(f"{name} {wanted.get(name, name)}" for name in names for _ in range(2))


def test_a_seed_gives_the_same_case_again() -> None:
    files = {"config.json": b'{"a": [1, 2.5, "x", {"b": null}], "c": true}', "notes.txt": b"a\tb\nc\td\n"}
    target = Target("sample", lambda folder, out, draw: None, given={"one": dict(files), "two": dict(files)})
    made = [target.case(seed) for seed in range(300)]
    assert made == [target.case(seed) for seed in range(300)]
    assert len({repr(case.changed) + repr(case.removed) for case in made}) > 200
    assert all(case.changed or case.removed or case.steps for case in made)


def test_failures_are_told_apart_by_what_was_raised_where() -> None:
    target = Target("sample", lambda folder, out, draw: None, given={})
    frames = 'Traceback (most recent call last):\n  File "/a/heed/data/x.py", line 7, in b\n    c\n'
    one, other = (Result(target, 1, "traceback", f"{frames}OSError: {told}") for told in ("a\nb: c", "d"))
    assert one.signature == other.signature == 'sample: traceback OSError data/x.py", line 7, in b'
    assert Result(target, 1, "crash", "SIGABRT").signature == "sample: crash SIGABRT"


@pytest.mark.parametrize("end", sorted(FORMATS))
def test_mutations_take_any_bytes(end: str) -> None:
    from random import Random

    for seed in range(60):
        draw = Random(seed)
        data = draw.choice((b"", b"{", b"PK\3\4x", b"GGUF" + bytes(30), draw.randbytes(300), b'{"a": 1}'))
        first = mutated(Random(seed), "file" + end, data)
        assert first == mutated(Random(seed), "file" + end, data)


def test_mutated_json_is_mostly_json() -> None:
    import json
    from random import Random

    whole = 0
    for seed in range(200):
        try:
            json.loads(mutated_json(Random(seed), b'{"model_type": "llama", "hidden_size": 16, "heads": [1, 2]}'))
            whole += 1
        except (ValueError, RecursionError):
            continue
    assert whole > 140


def test_a_case_is_kept_as_it_is(tmp_path: Path) -> None:
    case = Case("gguf", "f16", {"a": b"\xff\0x", "b": b"text", "c": Special("symlink", "../x")}, ("d",), 7, "because")
    assert write_case(case, tmp_path / "x.json")
    assert read_case(tmp_path / "x.json") == case


# --- guided by coverage ---

guided = pytest.mark.skipif(find_spec("atheris") is None, reason='atheris is not installed: pip install -e ".[fuzz]"')

BEHIND = """
import sys
from pathlib import Path
import atheris
from tools.attack import guided
from tools.attack.lanes import Lanes
from tools.attack.targets import Target

@atheris.instrument_func
def use(folder, out, draw):
    text = (folder / "a.txt").read_bytes()
    if text[:1].isupper() and text[1:2].isdigit() and text[2:3].isupper():
        raise KeyError("behind three doors")

room, target = Path(sys.argv[2]), Target("planted", use, given={"m": {"a.txt": b"a fox"}})
guided.GUIDED["planted"] = target
if sys.argv[1] == "work":
    for name in ("failed", "kept", "seeds"):
        (room / name).mkdir()
    (room / "seeds" / "0").write_bytes(next(guided.Inputs(target).seeds()))
    guided.work("planted", room, 0.15)
(failed,) = (room / "failed").iterdir()
print(guided._confirmed(Lanes(room / "lanes", 1), guided.Inputs(target), failed, room / "found"))
"""


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        stdin=subprocess.DEVNULL,
    )


@guided
def test_coverage_leads_to_a_failure_that_chance_does_not_find() -> None:
    """Letters and a digit must stand at three places: what opens a door is kept, and mutated on."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as room:  # a disk would be waited for, thousands of times
        done = ran("-c", BEHIND, "work", room)
        assert done.returncode == 0, done.stderr
        told = ran("-c", BEHIND, "confirm", room)
        assert told.returncode == 0, told.stderr
        assert told.stdout.startswith("planted: traceback KeyError")
        (kept,) = Path(room, "found").glob("planted/traceback-*.json")
        held = read_case(kept).changed["a.txt"]
    assert isinstance(held, bytes)
    assert re.fullmatch(rb"[A-Z]\d[A-Z]", held), "what does not matter was not left out"


@guided
def test_guided_tries_a_parser_and_tells_how_far_it_came(tmp_path: Path) -> None:
    done = ran("-m", "tools.attack.guided", "--target", "index", "--minutes", "0.05", "--found", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    name, executions, seeds, edges, kept, failures = done.stdout.splitlines()[-1].replace(",", "").split()
    assert (name, failures) == ("index", "0")
    assert int(executions) > 20
    assert 10 < int(seeds) <= int(edges)
    assert int(kept) >= 1


def test_without_atheris_guided_says_what_to_install() -> None:
    hidden = "import importlib.util as found; found.find_spec = lambda name: None"
    done = ran("-c", f"{hidden}; import sys; from tools.attack import guided; sys.exit(guided.main())")
    assert done.returncode == 2
    assert 'atheris is not installed; run: pip install -c constraints.txt -e ".[fuzz]"' in done.stderr
