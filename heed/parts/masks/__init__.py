"""Attention masks, who may look at whom: values that combine with `&`, `|` and `-` and read `order`, never indices.

A mask says how far it reaches (so a window needs to remember only its window) and which pairs it allows. Whatever it
allows, no token looks at padding: `Padding` is part of every mask.
"""

from __future__ import annotations

from .base import And as And
from .base import AnyMask as AnyMask
from .base import Causal as Causal
from .base import Combined as Combined
from .base import Mask as Mask
from .base import Or as Or
from .base import Padding as Padding
from .base import Sight as Sight
from .base import Whole as Whole
from .base import Without as Without
from .plain import Prefix as Prefix
from .plain import Segments as Segments
from .plain import Window as Window
from .sparse import Atrous as Atrous
from .sparse import Blocks as Blocks
from .sparse import Fixed as Fixed
from .sparse import Sparse as Sparse
from .sparse import Strided as Strided
from .sparse import Summaries as Summaries

MASKS: tuple[type[Mask], ...] = (Whole, Causal, Window, Atrous, Sparse, Strided, Fixed, Prefix, Segments, Blocks)
MASKS += (Summaries, Padding, And, Or, Without)
for combined in (Combined, And, Or, Without):
    combined.model_rebuild()
