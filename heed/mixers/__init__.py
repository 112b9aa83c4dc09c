"""One file per mechanism. `MIXERS` is the table: the laws, the catalogue and every tool work from it."""

from __future__ import annotations

from typing import Annotated

from ..core.config import ManyOf, OneOf
from ..core.contract import MixerConfig
from .attention import Attention as Attention
from .bigbird import BigBird as BigBird
from .chunked import Chunked as Chunked
from .clustered import Clustered as Clustered
from .compressed import Compressed as Compressed
from .cross import Cross as Cross
from .dilated import Dilated as Dilated
from .disentangled import Disentangled as Disentangled
from .fourier import Fourier as Fourier
from .funneled import Funneled as Funneled
from .hashed import Hashed as Hashed
from .infini import Infini as Infini
from .latent import Latent as Latent
from .linformer import Linformer as Linformer
from .nearest import Nearest as Nearest
from .nystrom import Nystrom as Nystrom
from .performer import Performer as Performer
from .recurrent import Recurrent as Recurrent
from .ringed import Ringed as Ringed
from .longformer import Longformer as Longformer
from .shifted import Shifted as Shifted
from .transient import Transient as Transient
from .twostream import TwoStream as TwoStream
from .yoso import Yoso as Yoso

MIXERS: tuple[type[MixerConfig], ...] = (
    Attention.Config,
    BigBird.Config,
    Chunked.Config,
    Clustered.Config,
    Compressed.Config,
    Cross.Config,
    Dilated.Config,
    Disentangled.Config,
    Fourier.Config,
    Funneled.Config,
    Hashed.Config,
    Infini.Config,
    Latent.Config,
    Linformer.Config,
    Nystrom.Config,
    Performer.Config,
    Recurrent.Config,
    Ringed.Config,
    Longformer.Config,
    Nearest.Config,
    Shifted.Config,
    Transient.Config,
    TwoStream.Config,
    Yoso.Config,
)
CROSSES: tuple[type[MixerConfig], ...] = (Cross.Config, Nearest.Config)  # those that look at a source
SomeMixers = Annotated[MixerConfig | tuple[MixerConfig, ...], ManyOf(lambda: MIXERS)]
AnyCross = Annotated[Cross.Config | Nearest.Config, OneOf(lambda: CROSSES)]
