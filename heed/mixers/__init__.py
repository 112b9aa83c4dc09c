"""One file per mechanism. `MIXERS` is the table: the laws, the catalogue and every tool work from it."""

from __future__ import annotations

from typing import Annotated

from ..core.config import ManyOf, OneOf
from ..core.contract import MixerConfig
from .attention import Attention as Attention
from .bigbird import BigBird as BigBird
from .branches import Branches as Branches
from .chunked import Chunked as Chunked
from .clustered import Clustered as Clustered
from .compressed import Compressed as Compressed
from .convolution import Convolution as Convolution
from .convolution import Separable as Separable
from .cross import Cross as Cross
from .dilated import Dilated as Dilated
from .disentangled import Disentangled as Disentangled
from .dynamicconv import DynamicConv as DynamicConv
from .fourier import Fourier as Fourier
from .funneled import Funneled as Funneled
from .gated_retention import GatedRetention as GatedRetention
from .gated_unit import GatedUnit as GatedUnit
from .hashed import Hashed as Hashed
from .infini import Infini as Infini
from .involution import Involution as Involution
from .latent import Latent as Latent
from .lightconv import LightConv as LightConv
from .linear_attention import LinearAttention as LinearAttention
from .linformer import Linformer as Linformer
from .longformer import Longformer as Longformer
from .lstm import Gru as Gru
from .lstm import Lstm as Lstm
from .mamba import Mamba as Mamba
from .mssa import Mssa as Mssa
from .nearest import Nearest as Nearest
from .nystrom import Nystrom as Nystrom
from .performer import Performer as Performer
from .recurrent import Recurrent as Recurrent
from .retention import Retention as Retention
from .ringed import Ringed as Ringed
from .rwkv import Rwkv as Rwkv
from .s4 import S4 as S4
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
MIXERS += (Branches.Config, Convolution.Config, Separable.Config, LightConv.Config, DynamicConv.Config)
MIXERS += (Mssa.Config, Involution.Config)
MIXERS += (Retention.Config, GatedRetention.Config, LinearAttention.Config, GatedUnit.Config)
MIXERS += (Rwkv.Config, Mamba.Config, S4.Config, Lstm.Config, Gru.Config)
CROSSES: tuple[type[MixerConfig], ...] = (Cross.Config, Nearest.Config)  # those that look at a source
SomeMixers = Annotated[MixerConfig | tuple[MixerConfig, ...], ManyOf(lambda: MIXERS)]
AnyCross = Annotated[Cross.Config | Nearest.Config, OneOf(lambda: CROSSES)]

Branches.Config.choices = MIXERS  # a branch may be any of them
Branches.Config.model_rebuild(force=True)
