"""Rules whose frequencies depend on the length: it is declared, and what lies beyond is refused."""

from __future__ import annotations

import pytest
import torch

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.mixers import Attention
from heed.parts.positions import Dynamic, LongRope, Rope, Scaling
from tests.parts.positions.frequencies import rope_frequencies

SHORT, LONG = (1.0, 1.5, 2.0), (2.0, 4.0, 8.0)


def turned(scaling: Scaling | None, tokens: int, start: int = 0) -> torch.Tensor:
    x = torch.ones(1, tokens, 1, 6, dtype=torch.float64)
    return Rope.Config(scaling=scaling).build(1, 6).turn(x, Where.run(1, tokens, start=start))


def test_up_to_the_length_of_training_dynamic_changes_nothing() -> None:
    assert torch.equal(turned(Dynamic(factor=4.0, original=32), 32), turned(None, 32))
    assert not torch.equal(turned(Dynamic(factor=4.0, original=16, length=32), 32), turned(None, 32))
    assert torch.equal(turned(Dynamic(factor=4.0, original=32, length=8), 32), turned(None, 32))


def test_longrope_takes_the_divisors_of_its_length() -> None:
    short = LongRope(short=SHORT, long=LONG, factor=1.0, original=32)
    long = short.model_copy(update={"length": 33})
    for scaling, divisors in ((short, SHORT), (long, LONG)):
        frequency, amplitude = rope_frequencies(Rope.Config(scaling=scaling), 6)
        plain, _ = rope_frequencies(Rope.Config(), 6)
        assert frequency == [f / d for f, d in zip(plain, divisors, strict=True)]
        assert amplitude == 1.0
    assert turned(long, 3, start=10**6).isfinite().all()  # any length beyond the original


@pytest.mark.parametrize(
    ("scaling", "covers"),
    [
        (Dynamic(factor=2.0, original=16), 16),
        (Dynamic(factor=2.0, original=16, length=40), 40),
        (LongRope(short=SHORT, long=LONG, factor=2.0, original=16), 16),
    ],
    ids=repr,
)
def test_positions_beyond_the_declared_length_are_refused(scaling: Scaling, covers: int) -> None:
    turned(scaling, 1, start=covers - 1)
    with pytest.raises(InputError, match=f"position {covers} is outside 0 to {covers - 1}.*declare the length"):
        turned(scaling, 1, start=covers)
    padded = Where(torch.tensor([[0, -1]]), torch.tensor([[0, 10**6]]))  # padding stands nowhere
    Rope.Config(scaling=scaling).build(1, 6).turn(torch.ones(1, 2, 1, 6), padded)


def test_a_declared_length_keeps_the_laws() -> None:
    """What the published rules break: keys that turned while the sequence was short."""
    for scaling in (
        Dynamic(factor=2.0, original=8, length=64),
        LongRope(short=SHORT, long=LONG, factor=2.0, original=8, length=64),
    ):
        mixer = Attention.Config(position=Rope.Config(scaling=scaling)).build(24)
        for law in LAWS:
            finding = law(mixer, Case.make(24))  # positions from 3 to 23
            assert finding.holds, finding


def test_impossible_scalings_are_refused() -> None:
    with pytest.raises(ConfigError, match="longrope has 3 divisors, but 8 channels .* needed are 4"):
        Rope.Config(scaling=LongRope(short=SHORT, long=LONG, factor=2.0, original=8)).build(1, 8)
    with pytest.raises(ConfigError, match="original must be at least 2"):
        LongRope(short=SHORT, long=LONG, factor=2.0, original=1)
    with pytest.raises(ConfigError, match="two rotated channels turn at the speed 1"):
        Rope.Config(scaling=Dynamic(factor=2.0, original=8, length=16)).build(1, 2)
    with pytest.raises(ConfigError, match="dynamic is defined for the frequencies of the paper only"):
        Rope.Config(scaling=Dynamic(factor=2.0, original=8), spread="inclusive")
