"""ALiBi as Falcon has it, written out number by number; and what no rounding may change."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.stamps import Stamps
from heed.parts.attention.attend import written_out
from heed.parts.masks import Causal
from heed.parts.positions import Alibi, slopes

PLACES = [0, 1, 7, 255, 256, 257, 300, 2047]


def at(places: list[int]) -> Stamps:
    return Stamps(torch.arange(len(places))[None], torch.tensor([places]))


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def brief(number: float) -> float:
    """A number with the 8 binary digits that bfloat16 has."""
    return float(torch.tensor(number, dtype=torch.bfloat16))


@pytest.mark.parametrize("heads", [1, 4, 5, 12])
def test_scaled_is_the_papers_term_by_the_root_of_the_size(heads: int) -> None:
    query, where = draw(1, len(PLACES), heads, 6), at(PLACES)
    plain, scaled = (
        Alibi.Config(scaled=flag).build(heads, 6).term(query, query, where, where) for flag in (False, True)
    )
    assert torch.allclose(scaled, plain / 6**0.5, rtol=1e-14, atol=0)


@pytest.mark.parametrize("heads", [1, 4, 5, 12])
def test_rounded_rounds_slope_place_and_product(heads: int) -> None:
    query, where = draw(1, len(PLACES), heads, 6), at(PLACES)
    term = Alibi.Config(scaled=True, rounded=True).build(heads, 6).term(query, query, where, where)
    for h, slope in enumerate(slopes(heads)):
        fallen = [brief(brief(slope) * brief(place)) for place in PLACES]
        wanted = [[-abs(here - there) / 6**0.5 for there in fallen] for here in fallen]
        assert torch.allclose(term[0, h], torch.tensor(wanted, dtype=torch.float64), rtol=1e-14, atol=0)
    assert not torch.equal(term[0, :, 4, 3], term[0, :, 5, 4])  # one place apart, but 257 is no number there


def test_only_what_a_key_adds_matters() -> None:
    """The reference adds slope·p of the key alone: a softmax does not see what all keys of a query share."""
    q, k, run = draw(1, 9, 5, 6), draw(1, 9, 5, 6), Where.run(1, 9, start=250)
    code = Alibi.Config(scaled=True, rounded=True).build(5, 6)
    slope = torch.tensor(slopes(5), dtype=torch.bfloat16)[:, None]
    keys = (slope * torch.arange(250, 259)).double()[None, :, None] / 6**0.5  # [1, H, 1, N]
    sight = Causal()(run, run)
    ours, theirs = written_out(q, k, k, sight, bias=code.bias)[1], written_out(q, k, k, sight, bias=keys)[1]
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-13)


def test_half_precision_gets_the_same_term_rounded_once() -> None:
    where, code = at(PLACES), Alibi.Config(scaled=True, rounded=True).build(4, 6)
    exact = code.term(draw(1, 8, 4, 6), draw(1, 8, 4, 6), where, where)
    half = torch.zeros(1, 8, 4, 6, dtype=torch.bfloat16)
    assert torch.allclose(code.term(half, half, where, where).double(), exact, rtol=2.0**-8, atol=0)
