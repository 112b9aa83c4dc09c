"""Training: one clear loop, with checkpoints that go on bit for bit.

The package itself can be called: `import heed; result = heed.train("characters", data="book.txt", steps=500)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Unpack

from ..data import Source
from ..data.paths import Given
from .call import AnyRecipe, TrainOptions, call
from .phases import resume as resume
from .phases import train as train
from .start import Outcome as Outcome


class Train(ModuleType):
    """`heed.train` is a package, and what people do with it is call it."""

    def __call__(
        self, recipe: AnyRecipe | None = None, data: Given | Source | None = None, **options: Unpack[TrainOptions]
    ) -> Outcome:
        return call(recipe, data, **options)

    __call__.__doc__ = call.__doc__


sys.modules[__name__].__class__ = Train
