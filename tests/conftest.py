"""What all tests share: one thread, because their tensors are tiny, a fixed seed, and no network."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from heed.mixers import MIXERS

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported; tests of the hub ask from other processes


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
