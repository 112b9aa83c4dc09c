"""Files to read, written where a test may write."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    def written(name: str, data: str | bytes) -> str:
        data = data if isinstance(data, bytes) else data.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(tmp_path / name)

    return written
