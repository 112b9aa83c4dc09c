"""Rounds that are whole processes: from the start of Python to the first token."""

from __future__ import annotations

import subprocess

from .base import Done, Round


def first_token(python: str, path: str, script: str) -> Round:
    """Runs a script that knows `path`, up to the first token: it ends there, and nothing is tidied up."""
    text = f"path = {path!r}\n{script}\nimport os\nos._exit(0)\n"

    def started() -> Done:
        made = subprocess.run([python, "-c", text], check=False, capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(made.stderr.strip().splitlines()[-1])
        return Done(1)

    return started
