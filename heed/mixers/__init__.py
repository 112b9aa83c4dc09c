"""Mixers: attention, recurrences and convolutions, one file per mechanism. Every tool works from the table `MIXERS`.

It names each mechanism and its place: a model imports only what it is made of. A new mechanism is a file and a line of
this table; the imports below it are for type checkers alone. Mechanisms of other packages come in by `register`, or by
entry points of the group `heed.mixers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from ..core.config import ManyOf, OneOf
from ..core.contract import MixerConfig, mixer_entry
from ..core.tables import Outside, Table, later

MIXERS: Table[type[MixerConfig]] = Table(
    __name__,
    {
        "attention": "attention:Attention.Config",
        "plain_attention": "plain_attention:PlainAttention.Config",
        "bigbird": "bigbird:BigBird.Config",
        "chunked_cross": "chunked_cross:ChunkedCross.Config",
        "clustered": "clustered:Clustered.Config",
        "memory_compressed": "memory_compressed:MemoryCompressed.Config",
        "cross": "cross:Cross.Config",
        "dilated": "dilated:Dilated.Config",
        "disentangled": "disentangled:Disentangled.Config",
        "fourier": "fourier:Fourier.Config",
        "funnel": "funnel:FunnelAttention.Config",
        "lsh": "lsh:Lsh.Config",
        "infini": "infini:Infini.Config",
        "mla": "mla:LatentAttention.Config",
        "linformer": "linformer:Linformer.Config",
        "nystrom": "nystrom:Nystrom.Config",
        "performer": "performer:Performer.Config",
        "transformer_xl": "transformer_xl:TransformerXLAttention.Config",
        "local": "local:Local.Config",
        "longformer": "longformer:Longformer.Config",
        "knn": "knn:KnnCross.Config",
        "shifted_window": "shifted_window:ShiftedWindow.Config",
        "transient_global": "transient_global:TransientGlobal.Config",
        "two_stream": "two_stream:TwoStream.Config",
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
        "rnn": "lstm:Rnn.Config",
        "qrnn": "qrnn:Qrnn.Config",
        "bidirectional": "bidirectional:Bidirectional.Config",
    },
    renamed={
        "chunked": "chunked_cross",
        "compressed": "memory_compressed",
        "funneled": "funnel",
        "hashed": "lsh",
        "latent": "mla",
        "nearest": "knn",
        "recurrent": "transformer_xl",
        "ringed": "local",
        "shifted": "shifted_window",
        "transient": "transient_global",
        "twostream": "two_stream",
    },
    outside=Outside("heed.mixers", mixer_entry),
)
CROSSES: Table[type[MixerConfig]] = Table(  # those that look at a source
    __name__, {"cross": "cross:Cross.Config", "knn": "knn:KnnCross.Config"}, renamed={"nearest": "knn"}
)
T = TypeVar("T", bound=type)


def register(mixer: T) -> T:
    """`@heed.register` above a mixer of your own: configurations and recipes may then name its kind.

    Every tool that works from the table knows it from then on: laws, `verify`, `list`, run folders. Declared as an
    entry point of the group `heed.mixers` it is known wherever its package is installed, without being imported first.
    """
    outside = MIXERS.named.outside
    assert outside is not None  # it was opened above
    outside.register(mixer)
    return mixer


SomeMixers = Annotated[MixerConfig | tuple[MixerConfig, ...], ManyOf(lambda: MIXERS)]
MixerConfig.choices = MIXERS  # a mixer may hold any of them (branches)

if TYPE_CHECKING:
    from .attention import Attention as Attention
    from .bidirectional import Bidirectional as Bidirectional
    from .bigbird import BigBird as BigBird
    from .branches import Branches as Branches
    from .chunked_cross import ChunkedCross as ChunkedCross
    from .clustered import Clustered as Clustered
    from .convolution import Convolution as Convolution
    from .convolution import Separable as Separable
    from .cross import Cross as Cross
    from .dilated import Dilated as Dilated
    from .disentangled import Disentangled as Disentangled
    from .dynamicconv import DynamicConv as DynamicConv
    from .fourier import Fourier as Fourier
    from .funnel import FunnelAttention as FunnelAttention
    from .gated_retention import GatedRetention as GatedRetention
    from .gated_unit import GatedUnit as GatedUnit
    from .infini import Infini as Infini
    from .involution import Involution as Involution
    from .knn import KnnCross as KnnCross
    from .lightconv import LightConv as LightConv
    from .linear_attention import LinearAttention as LinearAttention
    from .linformer import Linformer as Linformer
    from .local import Local as Local
    from .longformer import Longformer as Longformer
    from .lsh import Lsh as Lsh
    from .lstm import Gru as Gru
    from .lstm import Lstm as Lstm
    from .lstm import Rnn as Rnn
    from .mamba import Mamba as Mamba
    from .memory_compressed import MemoryCompressed as MemoryCompressed
    from .mla import LatentAttention as LatentAttention
    from .mssa import Mssa as Mssa
    from .nystrom import Nystrom as Nystrom
    from .performer import Performer as Performer
    from .plain_attention import PlainAttention as PlainAttention
    from .qrnn import Qrnn as Qrnn
    from .retention import Retention as Retention
    from .rwkv import Rwkv as Rwkv
    from .s4 import S4 as S4
    from .shifted_window import ShiftedWindow as ShiftedWindow
    from .transformer_xl import TransformerXLAttention as TransformerXLAttention
    from .transient_global import TransientGlobal as TransientGlobal
    from .two_stream import TwoStream as TwoStream
    from .yoso import Yoso as Yoso

    AnyCross: TypeAlias = Cross.Config | KnnCross.Config
else:
    AnyCross = Annotated[MixerConfig, OneOf(lambda: CROSSES)]
    _RENAMED = {
        "Chunked": "ChunkedCross",
        "Compressed": "MemoryCompressed",
        "Funneled": "FunnelAttention",
        "Hashed": "Lsh",
        "Latent": "LatentAttention",
        "Nearest": "KnnCross",
        "Recurrent": "TransformerXLAttention",
        "Ringed": "Local",
        "Shifted": "ShiftedWindow",
        "Transient": "TransientGlobal",
    }
    __getattr__, __dir__ = later(__name__, {}, MIXERS, renamed=_RENAMED)
