"""One module takes less than 5 s, with all its other settings less than 30 s; here of the process, not of the clock."""

from __future__ import annotations

from time import process_time

import pytest
import torch._dynamo  # noqa: F401  # torch imports it at the first draw under a trace: 2 s that are not ours
from torch import nn

from heed.check import check
from heed.check.probes import PROBES
from tests.check.mutants import CORRECT, MUTANTS

SLOWEST = ("turned: values, too", "inside: keys kept as values", "classic: heads split by view")


@pytest.mark.parametrize("name", SLOWEST)
def test_one_module(name: str) -> None:
    target, _, known = MUTANTS[name]
    begun = process_time()
    check(target, only=[probe.name for probe in PROBES], **known)  # with `only` nothing else is swept
    assert process_time() - begun < 5


@pytest.mark.parametrize("target", [nn.MultiheadAttention, nn.TransformerEncoderLayer, CORRECT["shown"][0]])
def test_with_all_its_settings(target: type) -> None:
    begun = process_time()
    assert check(target).swept
    assert process_time() - begun < 30
