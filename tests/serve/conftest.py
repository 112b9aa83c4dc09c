"""What the tests of the engine look at."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from heed.serve.guesses.gain import Gain
from heed.serve.writer import Writer
from tests.serve.support import Noted


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    """The logits that each token is chosen by."""
    seen, write = Noted(), Writer.write

    def noting(writer: Writer, logits: Tensor) -> Any:
        seen.note(writer, logits)
        return write(writer, logits)

    monkeypatch.setattr(Writer, "write", noting)
    return seen


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every guess is taken, whatever a clock says."""
    monkeypatch.setattr(Gain, "count", lambda gain, rows, chances: len(chances))
