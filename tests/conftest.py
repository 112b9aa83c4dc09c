"""What all tests share: one thread, because their tensors are tiny, a fixed seed, no network, and this checkout."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import torch

from heed.mixers import MIXERS
from tests import children

SLOW = 1800  # seconds that a test marked slow may take; pyproject.toml has the limit of all others
os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported; tests of the hub ask from other processes
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it, and so would its children
children.inherit()
children.watch()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that hangs is ended and named (pytest-timeout); slow ones may take longer."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test or a document registers is gone after it."""
    outside = MIXERS.named.outside
    for name in ("_taken", "_loaded"):
        monkeypatch.setattr(outside, name, vars(outside)[name].copy())


@pytest.fixture(autouse=True)
def _same_default_dtype() -> Iterator[None]:
    """What a test, or the code that it checks, does to torch's default dtype ends with it."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)
