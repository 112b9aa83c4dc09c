"""Files that once broke something, or that are nasty by design: each loads or is refused with an error of heed's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tools.attack.case import CORPUS, ROOT, corpus

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of processes are Linux's")

REPLAY = """
import json, sys, tempfile
from tools.attack.warm import warm
from pathlib import Path
from tools.attack.case import corpus
from tools.attack.fuzz import replay
from tools.attack.lanes import Lanes
from tools.attack.targets import TARGETS
with tempfile.TemporaryDirectory() as place:
    warm([TARGETS["run"]])  # what it imports writes caches of its own
    paths = [path for path, _ in corpus()]
    found = {path.name: (result.verdict, result.text) for path, result in replay(Lanes(Path(place), 1), paths)}
print(json.dumps(found))
"""


def test_the_corpus_is_held() -> None:
    names = [path.name for path, _ in corpus(CORPUS)]
    assert len(names) >= 5
    done = subprocess.run(
        [sys.executable, "-c", REPLAY], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == set(names)
    assert {name: told for name, told in found.items() if told[0] not in {"loaded", "refused"}} == {}
