"""Fixtures of the API: one small model for all tests, and a server around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import heed
from heed.pipelines import TextGeneration
from heed.serve import Engine, Limits
from tests.serve.api.material import checkpoint
from tests.serve.api.serving import Live, running
from tests.serve.api.solo import Solo


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("served") / "chain")


@pytest.fixture(scope="session")
def pipeline(folder: Path) -> TextGeneration:
    found = heed.load(folder)
    assert isinstance(found, TextGeneration)
    return found


@pytest.fixture
def solo(pipeline: TextGeneration) -> Solo:
    return Solo({"chain": pipeline})


@pytest.fixture
def live(solo: Solo) -> Iterator[Live]:
    with running(solo) as server:
        yield server


@pytest.fixture(scope="session")
def _engine(pipeline: TextGeneration) -> Iterator[Engine]:
    with Engine({"chain": pipeline}, Limits(memory=1 << 26, rows=8)) as engine:
        yield engine


@pytest.fixture
def real(_engine: Engine) -> Iterator[Live]:
    """A server around the engine that `heed serve` has."""
    with running(_engine) as server:
        yield server
