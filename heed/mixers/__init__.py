"""One file per mechanism. `MIXERS` is the table: the laws, the catalogue and every tool work from it.

It names each mechanism and its place, so that a model imports only those that it is made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from ..core.config import ManyOf, OneOf
from ..core.contract import MixerConfig
from ..core.tables import Table, later

MIXERS: Table[type[MixerConfig]] = Table(
    __name__,
    {
        "attention": "attention:Attention.Config",
        "bigbird": "bigbird:BigBird.Config",
        "chunked": "chunked_cross:Chunked.Config",
        "clustered": "clustered:Clustered.Config",
        "compressed": "memory_compressed:Compressed.Config",
        "cross": "cross:Cross.Config",
        "dilated": "dilated:Dilated.Config",
        "disentangled": "disentangled:Disentangled.Config",
        "fourier": "fourier:Fourier.Config",
        "funneled": "funnel:Funneled.Config",
        "hashed": "lsh:Hashed.Config",
        "infini": "infini:Infini.Config",
        "latent": "mla:Latent.Config",
        "linformer": "linformer:Linformer.Config",
        "nystrom": "nystrom:Nystrom.Config",
        "performer": "performer:Performer.Config",
        "recurrent": "transformer_xl:Recurrent.Config",
        "ringed": "local:Ringed.Config",
        "longformer": "longformer:Longformer.Config",
        "nearest": "knn:Nearest.Config",
        "shifted": "shifted_window:Shifted.Config",
        "transient": "transient_global:Transient.Config",
        "twostream": "two_stream:TwoStream.Config",
        "yoso": "yoso:Yoso.Config",
        "branches": "branches:Branches.Config",
        "convolution": "convolution:Convolution.Config",
        "separable": "convolution:Separable.Config",
        "lightconv": "lightconv:LightConv.Config",
        "dynamicconv": "dynamicconv:DynamicConv.Config",
        "mssa": "mssa:Mssa.Config",
        "involution": "involution:Involution.Config",
        "retention": "retention:Retention.Config",
        "gated_retention": "gated_retention:GatedRetention.Config",
        "linear_attention": "linear_attention:LinearAttention.Config",
        "gated_unit": "gated_unit:GatedUnit.Config",
        "rwkv": "rwkv:Rwkv.Config",
        "mamba": "mamba:Mamba.Config",
        "s4": "s4:S4.Config",
        "lstm": "lstm:Lstm.Config",
        "gru": "lstm:Gru.Config",
    },
)
CROSSES: Table[type[MixerConfig]] = Table(  # those that look at a source
    __name__, {"cross": "cross:Cross.Config", "nearest": "knn:Nearest.Config"}
)
SomeMixers = Annotated[MixerConfig | tuple[MixerConfig, ...], ManyOf(lambda: MIXERS)]
MixerConfig.choices = MIXERS  # a mixer may hold any of them (branches)

if TYPE_CHECKING:
    from .attention import Attention as Attention
    from .bigbird import BigBird as BigBird
    from .branches import Branches as Branches
    from .chunked_cross import Chunked as Chunked
    from .clustered import Clustered as Clustered
    from .convolution import Convolution as Convolution
    from .convolution import Separable as Separable
    from .cross import Cross as Cross
    from .dilated import Dilated as Dilated
    from .disentangled import Disentangled as Disentangled
    from .dynamicconv import DynamicConv as DynamicConv
    from .fourier import Fourier as Fourier
    from .funnel import Funneled as Funneled
    from .gated_retention import GatedRetention as GatedRetention
    from .gated_unit import GatedUnit as GatedUnit
    from .infini import Infini as Infini
    from .involution import Involution as Involution
    from .knn import Nearest as Nearest
    from .lightconv import LightConv as LightConv
    from .linear_attention import LinearAttention as LinearAttention
    from .linformer import Linformer as Linformer
    from .local import Ringed as Ringed
    from .longformer import Longformer as Longformer
    from .lsh import Hashed as Hashed
    from .lstm import Gru as Gru
    from .lstm import Lstm as Lstm
    from .mamba import Mamba as Mamba
    from .memory_compressed import Compressed as Compressed
    from .mla import Latent as Latent
    from .mssa import Mssa as Mssa
    from .nystrom import Nystrom as Nystrom
    from .performer import Performer as Performer
    from .retention import Retention as Retention
    from .rwkv import Rwkv as Rwkv
    from .s4 import S4 as S4
    from .shifted_window import Shifted as Shifted
    from .transformer_xl import Recurrent as Recurrent
    from .transient_global import Transient as Transient
    from .two_stream import TwoStream as TwoStream
    from .yoso import Yoso as Yoso

    AnyCross: TypeAlias = Cross.Config | Nearest.Config
else:
    AnyCross = Annotated[MixerConfig, OneOf(lambda: CROSSES)]
    __getattr__, __dir__ = later(__name__, {}, MIXERS)
