"""Strangers' files that do things when they are imported: each statement that fails is skipped, and told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from heed.check import CannotCheck, check
from heed.check.foreign.load import statements
from heed.check.foreign.target import locate
from tests.check.foreign.trees import attention, grow


def beside(target: str) -> dict[str, Any]:
    return vars(sys.modules[locate(target).found.__module__])


FAILS = {
    "a file of the author's": ("x = open('/home/author/data.csv')", "FileNotFoundError: [Errno 2]"),
    "the end": ("import sys\nsys.exit('usage: train DATA')", "SystemExit: usage: train DATA"),
    "a question": ("name = input('your name? ')", "EOFError"),
    "an argument": ("import sys\nx = sys.argv[1]", "IndexError: list index out of range"),
    "the end, at once": ("import os\nos._exit(3)", "SystemExit: 3"),
    "an assertion": ("assert False, 'torch 1.4 is needed'", "AssertionError: torch 1.4 is needed"),
    "several lines": ("raise ValueError('one\\ntwo')", "ValueError: one two"),
}


@pytest.mark.parametrize("name", FAILS)
def test_what_fails_above_a_class_is_skipped_and_told_with_its_line(name: str, tmp_path: Path) -> None:
    above, words = FAILS[name]
    target = attention(tmp_path, above)
    line = len(above.splitlines())
    (note,) = [note for note in check(target).notes if "it printed" not in note and "guessed" not in note]
    assert note.startswith(f"{tmp_path / 'att.py'}:{line} was skipped: {words}")


def test_the_innermost_line_of_the_users_files_is_told(tmp_path: Path) -> None:
    grow(tmp_path, {"helper.py": "import json\ndef read():\n    return json.loads('{')"})
    (note,) = locate(attention(tmp_path, "import helper\nX = helper.read()")).notes
    assert f"{tmp_path / 'att.py'}:2 was skipped: JSONDecodeError" in note
    assert note.endswith(f"({tmp_path / 'helper.py'}:3)")


def test_what_a_skipped_statement_makes_is_refused_where_it_is_used(tmp_path: Path) -> None:
    """Never a finding about the user's code, which would not have got so far."""
    text = attention(tmp_path, "import json\nCFG = json.load(open('cfg.json'))\nSCALE = CFG['scale']")
    path = tmp_path / "att.py"
    path.write_text(path.read_text().replace("** 0.5", "** SCALE"))
    with pytest.raises(CannotCheck) as error:
        check(text)
    first = str(error.value).splitlines()[0]
    assert "computed with at" in first
    assert f"what makes it was not run: {path}:2 was skipped: FileNotFoundError" in first


def test_a_command_line_is_read_as_empty(tmp_path: Path) -> None:
    text = """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("data")
        parser.add_argument("more", nargs="+")
        parser.add_argument("--out", "-o", required=True)
        parser.add_argument("--width", type=int, default=8)
        args = parser.parse_args()
    """
    target = attention(tmp_path, text)
    args = beside(target)["args"]
    assert (args.data, args.more, args.out, args.width) == (None, [], None, 8)
    assert "its command line was read as empty: data, more, --out/-o set to None" in locate(target).notes


def test_a_command_line_that_is_given_is_parsed_as_ever(tmp_path: Path) -> None:
    text = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', required=True)\n"
    (note,) = [n for n in locate(attention(tmp_path, text + "a = p.parse_args([])")).notes if "printed" not in n]
    assert "SystemExit: 2" in note


LATER = """
import torch
model = Attention(10**6, 1)
model.load_state_dict(torch.load("weights.pt"))
for epoch in range(10**9):
    model(torch.zeros(1)).sum().backward()
print("done")
if __name__ == "__main__":
    1 / 0
"""


def test_what_comes_below_and_is_not_used_is_not_run(tmp_path: Path) -> None:
    target = attention(tmp_path, below=LATER)
    assert locate(target).notes == ("not run, because it needs nothing of it: 4 statements of its file",)
    assert "model" not in beside(target)


USED = """
SIZES = [SIZE, 4]
SIZE = 3

def helper(x):
    return x * WIDTH[0]

@decorate
class Config:
    n = N

N = 5
WIDTH = [7]
WIDTH[0] += 1
Attention.extra = make(2)
del make
unused = 1 / 0
"""


def test_what_comes_below_and_is_used_is_run(tmp_path: Path) -> None:
    """By the class, by what the class uses, or when something is defined: decorators and bodies of classes."""
    path = Path(attention(tmp_path, below=USED.replace("SIZES = [SIZE, 4]\n", "")).rpartition(":")[0])
    text = path.read_text().replace(
        "    def forward(self, x):", "    def forward(self, x):\n        x = helper(x) * SIZE"
    )
    path.write_text(f"decorate = lambda x: x\ndef make(x):\n    return x + 1\n{text}")
    located = locate(f"{path}:Attention")
    names = vars(sys.modules[located.found.__module__])
    assert (names["SIZE"], names["WIDTH"], located.found.extra) == (3, [8], 3)
    assert "unused" not in names


def test_what_waits_is_run_when_somebody_else_wants_it(tmp_path: Path) -> None:
    below = "FACTOR = 3\n\ndef scaled(x):\n    return x * FACTOR\n\nLIST = [FACTOR]\nOTHER = 5"
    target = attention(tmp_path, below=below)
    place = target.rpartition(":")[0]
    assert "FACTOR" not in beside(target)
    assert locate(f"{place}:scaled").found(2) == 6
    assert "LIST" not in beside(target)
    grow(tmp_path, {"second.py": "from att import LIST\nATTENTION", "third.py": "import att\nATTENTION"})
    assert beside(f"{tmp_path / 'second.py'}:Attention")["LIST"] == [3]
    assert "OTHER" not in beside(target)
    assert beside(f"{tmp_path / 'third.py'}:Attention")["att"].OTHER == 5


def test_the_last_class_of_a_name_is_the_one(tmp_path: Path) -> None:
    grow(
        tmp_path,
        {"att.py": "class Attention:\n    n = 1\nFirst = Attention\nclass Attention:\n    n = 2\n    f = First"},
    )
    found = locate(f"{tmp_path / 'att.py'}:Attention").found
    assert (found.n, found.f.n) == (2, 1)


def test_training_above_a_class_is_skipped(tmp_path: Path) -> None:
    text = "import torch\nw = torch.zeros(1, requires_grad=True)\nwhile True:\n    w.sum().backward()"
    assert f"{tmp_path / 'att.py'}:3 was skipped: it trains" in locate(attention(tmp_path, text)).notes


def test_what_takes_too_long_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "OTHER_SECONDS", 0.5)
    text = "import time\nBEFORE = 1\ntime.sleep(60)\nAFTER = 2\n\ndef helper():\n    return BEFORE"
    target = attention(tmp_path, text)
    located = locate(target)
    assert located.notes == (f"{tmp_path / 'att.py'}:3 was skipped: not done after 0 s",)
    names = beside(target)
    assert names["helper"]() == 1
    assert "it comes after" in repr(names["AFTER"]._heed_why)


def test_time_is_counted_over_all_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "OTHER_SECONDS", 0.5)
    naps = "time.sleep(0.2)\n" * 20
    located = locate(attention(tmp_path, f"import time\n{naps}"))
    assert len(located.notes) == 1


def test_code_that_catches_everything_is_stopped_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "OTHER_SECONDS", 0.3)
    text = "import time\ndef nap():\n  try:\n    time.sleep(30)\n  except BaseException:\n    time.sleep(30)\nnap()"
    assert "not done" in locate(attention(tmp_path, text)).notes[0]


WRONG = {
    "a print of Python 2": ("x = 1\nprint 'a'", r"att\.py:2 is no Python 3\.\d+: .*print 'a'\nThis is Python 2"),
    "a raise of Python 2": ("raise ValueError, 'a'", r"att\.py:1 is no Python.*\nThis is Python 2"),
    "an open bracket": ("x = (\ny = 2", r"att\.py:1 is no Python .*'\(' was never closed"),
    "an indent": ("def f():\nreturn 1", r"att\.py:2 is no Python .*expected an indented block"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_python(name: str, tmp_path: Path) -> None:
    text, words = WRONG[name]
    with pytest.raises(CannotCheck, match=words) as error:
        locate(attention(tmp_path, text))
    assert ("Python 2;" in str(error.value)) is ("Python 2" in name)


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"# caf\xe9\n", "no text in UTF-8"), (b"x = '\0'", "zero bytes"), (b"# coding: klingon\n", "no text in UTF-8")],
)
def test_what_is_no_text(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "att.py").write_bytes(data)
    with pytest.raises(CannotCheck, match=words):
        locate(f"{tmp_path / 'att.py'}:A")


def test_an_encoding_that_is_declared(tmp_path: Path) -> None:
    (tmp_path / "att.py").write_bytes(b"# coding: latin-1\nNAME = '\xe9'\ndef f(x): return x\n")
    assert locate(f"{tmp_path / 'att.py'}:NAME").found == "é"


def test_other_files_that_are_no_python_are_stood_in_for(tmp_path: Path) -> None:
    grow(tmp_path, {"old.py": "print 'a'", "pkg/__init__.py": "print 'b'", "pkg/a.py": "Y = 1"})
    located = locate(attention(tmp_path, "from old import x\nfrom pkg.a import Y"))
    old, package = located.notes
    assert old.startswith(f"stubbed: old (there, but cannot be imported: {tmp_path / 'old.py'}:1 is no Python 3")
    assert f"{tmp_path / 'pkg/__init__.py'}:1 is no Python" in package
    assert "the package is taken without it" in package
    assert vars(sys.modules[located.found.__module__])["Y"] == 1


def test_annotations_of_the_future_stay_text(tmp_path: Path) -> None:
    text = "from __future__ import annotations\ndef f(x: NoSuchThing) -> None: ..."
    assert beside(attention(tmp_path, text))["f"].__annotations__["x"] == "NoSuchThing"


def test_many_failures_are_not_all_told(tmp_path: Path) -> None:
    notes = locate(attention(tmp_path, "\n".join(["1 / 0"] * 9))).notes
    assert len(notes) == 5
    assert notes[-1].endswith("and others: 5 more were skipped")


def test_no_bytecode_is_left_beside_the_strangers_files(tmp_path: Path) -> None:
    grow(tmp_path, {"pkg/__init__.py": "", "pkg/helper.py": "", "pkg/att.py": "from . import helper\nATTENTION"})
    locate(f"{tmp_path / 'pkg/att.py'}:Attention")
    assert not list(tmp_path.rglob("*.pyc"))
