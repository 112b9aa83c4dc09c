"""Augmentations: an example changed in ways that leave what it is. `AUGMENTS` is the table; a task takes some of it.

    augment = [{ kind = "crop" }, { kind = "flip" }, { kind = "mixup" }]

What is drawn follows from the seed, the round and the number of the example alone, so that neither a stop nor the
number of processes changes it.
"""

from __future__ import annotations

from ...core.tables import Table, later
from .base import Augment as Augment
from .base import OfFrames as OfFrames
from .base import OfPair as OfPair
from .base import OfPicture as OfPicture
from .base import drawing as drawing

AUGMENTS: Table[type[Augment]] = Table(
    __name__,
    {
        "crop": "pictures:Crop",
        "zoom": "pictures:Zoom",
        "flip": "pictures:Flip",
        "rand": "rand:RandAugment",
        "mixup": "base:Mixup",
        "spec": "frames:SpecAugment",
        "loudness": "frames:Loudness",
        "shift": "frames:Shift",
    },
)

__getattr__, __dir__ = later(__name__, {}, AUGMENTS)
