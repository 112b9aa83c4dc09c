"""Who is measured: every long-range mechanism, once for long texts and once for small puzzles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from heed.core.contract import MixerConfig
from heed.mixers import (
    S4,
    Attention,
    BigBird,
    Branches,
    Clustered,
    Convolution,
    Dilated,
    DynamicConv,
    Fourier,
    GatedRetention,
    GatedUnit,
    Gru,
    Infini,
    Involution,
    LightConv,
    LinearAttention,
    Linformer,
    Longformer,
    Lsh,
    Lstm,
    Mamba,
    MemoryCompressed,
    Mssa,
    Nystrom,
    Performer,
    Retention,
    Rwkv,
    Separable,
    TransformerXLAttention,
    TransientGlobal,
    Yoso,
)
from heed.parts.masks import Atrous, Fixed, Sparse, Strided, Whole, Window
from heed.parts.positions import Rope

Growth: TypeAlias = Literal["linear", "less than square", "square"]

WIDTH, HEADS = 128, 2  # of the mixers of a long text
LONGEST = 32_768
SMALL, FEW = 64, 2  # width and heads of the mixers of a puzzle
PUZZLE = 128  # tokens of the longest puzzle, at most


@dataclass(frozen=True)
class Contender:
    """A mechanism: how it is set for long texts, how for puzzles, and how its time and memory should grow."""

    long: MixerConfig
    short: MixerConfig
    growth: Growth = "linear"
    aim: bool = False  # whether linear growth is a target of ours
    both_ways: bool = False


ROPE = Rope.Config()
CONTENDERS: dict[str, Contender] = {
    "full": Contender(Attention.Config(heads=HEADS), Attention.Config(heads=FEW), "square"),
    "full, both ways": Contender(
        Attention.Config(heads=HEADS, mask=Whole()), Attention.Config(heads=FEW, mask=Whole()), "square", both_ways=True
    ),
    "local": Contender(
        Attention.Config(heads=HEADS, mask=Window(back=255)),
        Attention.Config(heads=FEW, mask=Window(back=15)),
        aim=True,
    ),
    "atrous": Contender(
        Attention.Config(heads=HEADS, mask=Window(back=1023) & Atrous(step=8)),
        Attention.Config(heads=FEW, mask=Window(back=127) & Atrous(step=4)),
        aim=True,
    ),
    "local and atrous": Contender(
        Attention.Config(heads=HEADS, mask=Window(back=127) | Window(back=2047) & Atrous(step=16)),
        Attention.Config(heads=FEW, mask=Window(back=7) | Window(back=127) & Atrous(step=8)),
        aim=True,
    ),
    "sparse": Contender(
        Attention.Config(heads=HEADS, mask=Window(back=64) | Strided(stride=64)),
        Attention.Config(heads=FEW, mask=Window(back=8) | Strided(stride=8)),
        "less than square",
    ),
    "sparse, both ways": Contender(
        Attention.Config(heads=HEADS, mask=Sparse(step=64)),
        Attention.Config(heads=FEW, mask=Sparse(step=8)),
        "less than square",
        both_ways=True,
    ),
    "fixed": Contender(
        Attention.Config(heads=HEADS, mask=Fixed(context=128)),
        Attention.Config(heads=FEW, mask=Fixed(context=16)),
        "less than square",
    ),
    "longformer": Contender(
        Longformer.Config(heads=HEADS, window=256, marks=(0,)),
        Longformer.Config(heads=FEW, window=16, marks=(0,)),
        aim=True,
        both_ways=True,
    ),
    "bigbird": Contender(
        BigBird.Config(heads=HEADS, block=64, random=3),
        BigBird.Config(heads=FEW, block=4, random=2),
        aim=True,
        both_ways=True,
    ),
    "longnet": Contender(
        Dilated.Config(heads=HEADS, segments=(256, 1024, 4096), dilations=(1, 4, 16)),
        Dilated.Config(heads=FEW, segments=(8, 32, 128), dilations=(1, 2, 4)),
        aim=True,
    ),
    "transient-global": Contender(
        TransientGlobal.Config(heads=HEADS, radius=127, block=64),
        TransientGlobal.Config(heads=FEW, radius=15, block=8),
        "less than square",
        both_ways=True,
    ),
    "reformer": Contender(
        Lsh.Config(heads=HEADS, buckets=64, rounds=2),
        Lsh.Config(heads=FEW, buckets=4, rounds=2),
        "less than square",
    ),
    "clustered": Contender(
        Clustered.Config(heads=HEADS, clusters=64), Clustered.Config(heads=FEW, clusters=8), both_ways=True
    ),
    "linformer": Contender(
        Linformer.Config(heads=HEADS, length=LONGEST, rank=64),
        Linformer.Config(heads=FEW, length=PUZZLE, rank=16),
        both_ways=True,
    ),
    "performer": Contender(Performer.Config(heads=HEADS, features=64), Performer.Config(heads=FEW, features=64)),
    "nystromformer": Contender(
        Nystrom.Config(heads=HEADS, landmarks=64), Nystrom.Config(heads=FEW, landmarks=8), both_ways=True
    ),
    "yoso": Contender(
        Yoso.Config(heads=HEADS, bits=8, hashes=16), Yoso.Config(heads=FEW, bits=4, hashes=16), both_ways=True
    ),
    "fnet": Contender(Fourier.Config(), Fourier.Config(), both_ways=True),
    "memory-compressed": Contender(
        MemoryCompressed.Config(heads=HEADS), MemoryCompressed.Config(heads=FEW), "less than square"
    ),
    "transformer-xl": Contender(
        TransformerXLAttention.Config(heads=HEADS, length=256, memory=256),
        TransformerXLAttention.Config(heads=FEW, length=16, memory=16, stopped=False),
        aim=True,
    ),
    "infini": Contender(
        Infini.Config(heads=HEADS, segment=256, position=ROPE), Infini.Config(heads=FEW, segment=16), aim=True
    ),
    "infini, delta rule": Contender(
        Infini.Config(heads=HEADS, segment=256, update="delta", position=ROPE),
        Infini.Config(heads=FEW, segment=16, update="delta"),
        aim=True,
    ),
    "subspace attention": Contender(Mssa.Config(heads=HEADS), Mssa.Config(heads=FEW), "square"),
    "retention": Contender(Retention.Config(heads=HEADS), Retention.Config(heads=FEW), aim=True),
    "gated retention": Contender(GatedRetention.Config(heads=HEADS), GatedRetention.Config(heads=FEW), aim=True),
    "linear attention": Contender(LinearAttention.Config(heads=HEADS), LinearAttention.Config(heads=FEW), aim=True),
    "linear attention, both ways": Contender(
        LinearAttention.Config(heads=HEADS, causal=False),
        LinearAttention.Config(heads=FEW, causal=False),
        aim=True,
        both_ways=True,
    ),
    "gated attention unit": Contender(GatedUnit.Config(), GatedUnit.Config(size=32, chunk=16), aim=True),
    "rwkv": Contender(Rwkv.Config(), Rwkv.Config(), aim=True),
    "mamba": Contender(Mamba.Config(), Mamba.Config(), aim=True),
    "s4": Contender(S4.Config(), S4.Config(), aim=True),
    "lstm": Contender(Lstm.Config(), Lstm.Config(), aim=True),
    "gru": Contender(Gru.Config(), Gru.Config(), aim=True),
    "convolution": Contender(Convolution.Config(kernel=7), Convolution.Config(kernel=7), aim=True),
    "dilated convolution": Contender(
        Convolution.Config(kernel=7, dilation=4), Convolution.Config(kernel=7, dilation=4), aim=True
    ),
    "grouped convolution": Contender(
        Convolution.Config(kernel=7, groups=4), Convolution.Config(kernel=7, groups=4), aim=True
    ),
    "separable convolution": Contender(Separable.Config(kernel=31), Separable.Config(kernel=31), aim=True),
    "light convolution": Contender(
        LightConv.Config(heads=HEADS, kernel=31), LightConv.Config(heads=FEW, kernel=31), aim=True
    ),
    "dynamic convolution": Contender(
        DynamicConv.Config(heads=HEADS, kernel=31), DynamicConv.Config(heads=FEW, kernel=31), aim=True
    ),
    "involution": Contender(Involution.Config(group=16), Involution.Config(group=16), aim=True),
    "long-short range": Contender(
        Branches.Config(mixers=(Attention.Config(heads=1), LightConv.Config(heads=1, kernel=31))),
        Branches.Config(mixers=(Attention.Config(heads=1), LightConv.Config(heads=1, kernel=15))),
        "square",
    ),
}
