"""One file per mechanism. `MIXERS` is the table: the laws, the catalogue and every tool work from it."""

from __future__ import annotations

from typing import Annotated

from ..core.config import ManyOf
from ..core.contract import MixerConfig
from .attention import Attention as Attention
from .cross import Cross as Cross
from .disentangled import Disentangled as Disentangled
from .latent import Latent as Latent
from .shifted import Shifted as Shifted

MIXERS: tuple[type[MixerConfig], ...] = (
    Attention.Config,
    Cross.Config,
    Disentangled.Config,
    Latent.Config,
    Shifted.Config,
)
SomeMixers = Annotated[MixerConfig | tuple[MixerConfig, ...], ManyOf(lambda: MIXERS)]
