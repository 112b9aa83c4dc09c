"""Score functions: how well a key answers a query. `SCORES` is the table."""

from __future__ import annotations

from typing import Annotated

from ...core.config import OneOf
from .base import Pooling as Pooling
from .base import Product as Product
from .base import Scale as Scale
from .base import Score as Score
from .base import ScoreConfig as ScoreConfig
from .base import max_pool as max_pool
from .base import pool as pool
from .base import valid_lengths as valid_lengths
from .kernels import Boxcar as Boxcar
from .kernels import Constant as Constant
from .kernels import Epanechnikov as Epanechnikov
from .kernels import Gaussian as Gaussian
from .kernels import Kernel as Kernel
from .kernels import Triangular as Triangular
from .similarity import Additive as Additive
from .similarity import Cosine as Cosine
from .similarity import Dot as Dot
from .similarity import General as General
from .similarity import Location as Location
from .similarity import ScaledDot as ScaledDot

COMPARISONS: tuple[type[ScoreConfig], ...] = (  # those that attention may use
    Dot.Config,
    ScaledDot.Config,
    General.Config,
    Additive.Config,
    Cosine.Config,
    Location.Config,
)
SCORES: tuple[type[ScoreConfig], ...] = (
    *COMPARISONS,
    Gaussian.Config,
    Boxcar.Config,
    Triangular.Config,
    Epanechnikov.Config,
    Constant.Config,
)
AnyComparison = Annotated[ScoreConfig, OneOf(lambda: COMPARISONS)]
AnyScore = Annotated[ScoreConfig, OneOf(lambda: SCORES)]
