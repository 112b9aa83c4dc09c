"""What is hidden of frames of sound: as much as is said, anywhere, and drawn by nothing but its generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from heed.media.augment.frames import Loudness, Shift, SpecAugment


def frames(length: int = 50, bins: int = 20) -> Tensor:
    return torch.randn(length, bins, generator=torch.Generator().manual_seed(0))


def draw(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def runs(hidden: np.ndarray) -> list[int]:
    """Lengths of the runs of what is hidden."""
    edges = np.diff(np.concatenate([[0], hidden.astype(int), [0]]))
    return (np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)).tolist()


def test_bands_and_stretches_are_hidden_by_the_mean() -> None:
    given, widest, longest, places = frames(), 0, 0, set[int]()
    for seed in range(200):
        found = SpecAugment(bands=1, band=0.25, spans=1, span=0.1).frames(given, draw(seed))
        assert found.shape == given.shape
        hidden = np.asarray((found != given).numpy())
        assert np.allclose(found.numpy()[hidden], float(given.mean()))
        bands, spans = np.asarray(hidden.all(0)), np.asarray(hidden.all(1))
        assert (hidden == (bands[None] | spans[:, None])).all()
        assert len(runs(bands)) <= 1
        assert len(runs(spans)) <= 1
        widest, longest = max([widest, *runs(bands)]), max([longest, *runs(spans)])
        places |= set(np.flatnonzero(spans).tolist())
    assert (widest, longest) == (5, 5)  # a quarter of 20, a tenth of 50
    assert places == set(range(50))  # the first and the last, too


def test_the_last_frame_is_hidden_as_often_as_the_first() -> None:
    given, spec = frames(bins=1), SpecAugment(bands=0, spans=1, span=0.1)
    hidden = torch.stack([(spec.frames(given, draw(seed)) != given)[:, 0] for seed in range(2000)]).sum(0)
    first, last = int(hidden[0]), int(hidden[-1])
    assert abs(first - last) < 4 * (first + last) ** 0.5
    assert first > 10


def test_nothing_is_hidden_where_nothing_is_to_be() -> None:
    given = frames()
    assert torch.equal(SpecAugment(bands=0, spans=0).frames(given, draw(0)), given)
    kept = given.clone()
    SpecAugment(bands=3, spans=3).frames(given, draw(0))
    assert torch.equal(given, kept)  # what is given stays as it is


def test_all_bands_are_as_much_louder() -> None:
    given = frames()
    moved = {round(float((Loudness(decibels=6).frames(given, draw(seed)) - given).mean()), 5) for seed in range(50)}
    assert len(moved) == 50
    assert max(map(abs, moved)) <= 6 / 40 + 1e-6
    assert max(moved) > 0.1
    assert min(moved) < -0.1


def test_ten_decibels_are_a_quarter() -> None:
    """A wave of ten times the power has a log-mel spectrogram that is higher by 1/4 everywhere."""
    from heed.media.sounds import LogMel

    wave = torch.randn(4000, generator=torch.Generator().manual_seed(0)) * 0.01
    louder = LogMel(bins=20)(wave * 10**0.5) - LogMel(bins=20)(wave)
    assert float((louder - 0.25).abs().max()) < 1e-4


@pytest.mark.parametrize("seed", range(10))
def test_a_shift_moves_time_alone(seed: int) -> None:
    given = frames()
    found = Shift(share=0.2).frames(given, draw(seed))
    steps = [step for step in range(-10, 11) if torch.equal(kept(found, step), kept(given, -step))]
    assert len(steps) == 1
    rest = found[: steps[0]] if steps[0] > 0 else found[len(found) + steps[0] :]
    assert torch.equal(rest, given.amin(0).expand_as(rest))


def kept(x: Tensor, steps: int) -> Tensor:
    """Without what is moved in (steps > 0: at the front), or without what is moved out."""
    return x[steps:] if steps >= 0 else x[: len(x) + steps]


def test_bare_samples_have_no_bands() -> None:
    given = torch.randn(400, generator=torch.Generator().manual_seed(0))
    found = SpecAugment(bands=5, spans=1, span=0.2).frames(given, draw(3))
    hidden = (found != given).numpy()
    assert len(runs(hidden)) <= 1
    assert hidden.sum() <= 80
    louder = Loudness(decibels=20).frames(given, draw(1)) / given
    assert float((louder - louder[0]).abs().max()) < 1e-5
    assert 0.1 <= float(louder[0]) <= 10
    moved = Shift(share=0.1).frames(given, draw(2))
    assert moved.shape == given.shape
    assert not torch.equal(moved, given)


def test_shifts_go_both_ways() -> None:
    given = frames()
    found = {
        next(
            s
            for s in range(-10, 11)
            if torch.equal(kept(Shift(share=0.2).frames(given, draw(seed)), s), kept(given, -s))
        )
        for seed in range(80)
    }
    assert {-10, 10} <= found <= set(range(-10, 11))
