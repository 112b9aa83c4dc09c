"""Stand-ins for a compiler: scripts that do what a bad one might."""

from __future__ import annotations

import shlex
from pathlib import Path

from heed.kernels import library


def real_library() -> Path:
    """The kernels that the tests run with."""
    found = library()
    assert found is not None
    return Path(found._name)


def stand_in(folder: Path, body: str) -> str:
    """A compiler that knows its version and otherwise does this; `$out` is what it should write."""
    script = folder / "stand-in"
    last = 'for word; do out="$word"; done'
    script.write_text(f'#!/bin/sh\ncase "$1" in --version) echo stand-in 1; exit;; esac\n{last}\n{body}\n')
    script.chmod(0o700)
    return str(script)


def honest(folder: Path) -> str:
    """One that gives the real library, quickly."""
    return stand_in(folder, f'cp {shlex.quote(str(real_library()))} "$out"')
