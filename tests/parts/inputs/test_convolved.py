"""What convolutions before a model make of images and frames: how many are left, and that none depends on others."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import conv1d

from heed.parts.inputs.audio import FrameStep
from heed.parts.inputs.stem import Stem


def test_a_stem_makes_planes_smaller_and_looks_at_one_image() -> None:
    stem = Stem(channels=(4, 8), strides=(2, 2))
    layers = stem.build(3)
    images = torch.randn(2, 3, 16, 12)
    made = layers(images)
    assert made.shape == (2, 8, 16 // stem.shrinks, 12 // stem.shrinks) == (2, 8, 4, 3)
    assert torch.allclose(made[:1], layers(images[:1]), atol=1e-6)


@pytest.mark.parametrize("step", [FrameStep(3, 1, 1), FrameStep(3, 2, 1), FrameStep(10, 5, 0), FrameStep(2, 2, 0)])
def test_frames_are_as_many_as_a_convolution_gives(step: FrameStep) -> None:
    for length in range(step.kernel, 40):
        made = conv1d(
            torch.zeros(1, 1, length), torch.zeros(1, 1, step.kernel), stride=step.stride, padding=step.padding
        )
        assert step.frames(length) == made.shape[2]
    assert step.frames(0) <= step.padding
