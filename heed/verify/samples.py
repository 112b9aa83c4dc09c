"""Small models that together use every wiring, norm, added position and feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ..core.config import Config
from ..core.contract import MixerConfig
from ..mixers import (
    S4,
    Attention,
    Bidirectional,
    ChunkedCross,
    Cross,
    FunnelAttention,
    Infini,
    KnnCross,
    Lstm,
    Mamba,
    Retention,
    Rwkv,
    TransformerXLAttention,
    TwoStream,
)
from ..models import (
    RMT,
    AdaptiveDecoder,
    Crate,
    Decoder,
    DeepDecoder,
    Elmo,
    ElmoEncoder,
    Encoder,
    Funnel,
    LiteTransformer,
    NGramEncoder,
    Retro,
    Seq2seq,
    SledEncoder,
    XLNet,
    XLNetEncoder,
    Yoco,
)
from ..models.architectures.transformer import ANNOTATED, PAPER, TINY, TORCH, transformer
from ..models.variants.retro import NeighbourEncoder
from ..models.variants.yoco import SharedKVAttention
from ..parts.feedforward import Absent, ChannelMix, FeedForward, Gated
from ..parts.inputs.adaptive import Adaptive
from ..parts.layers.norms import GatedNorm, LayerNorm, RMSNorm, StdNorm
from ..parts.masks import Whole, Window
from ..parts.positions import ADDED, NoPosition, Rope, Sinusoid
from ..parts.residual.wiring import DeepNorm, Parallel, PostNorm, PreNorm, Rescaled, ResiDual, Reversible, Sandwich

Makers: TypeAlias = "dict[type[Config], Callable[[], tuple[Config, ...]]]"

WIDTH = 24  # four heads of six, and nothing else of that size: mixed-up axes do not go unnoticed
VOCABULARY = 13
DEPTH = 2

WIRINGS = (
    PostNorm(),
    PostNorm(final=True),
    PreNorm(),
    Sandwich(),
    Parallel(),
    Parallel(own_norms=True),
    DeepNorm.alone(DEPTH),
    ResiDual(scale=0.5, alpha=0.7),
    Reversible(),
)


def samples(kind: type[Config]) -> tuple[Config, ...]:
    """Small configurations of this kind that together use every option."""
    if issubclass(kind, MixerConfig):
        return kind.samples()
    shapes: Makers = {Encoder.Config: _encoders, Decoder.Config: _decoders, Seq2seq.Config: _seq2seqs}
    shapes |= {AdaptiveDecoder.Config: _adaptive}
    return {**shapes, **XLNETS, **SEGMENTED, **OWN, **FUNNELS}[kind]()


def _seq2seqs() -> tuple[Config, ...]:
    small = replace(TINY, width=WIDTH, hidden=31)
    variants = (transformer(VOCABULARY, 11, size=small, variant=variant) for variant in (PAPER, TORCH, ANNOTATED))
    lite = LiteTransformer(width=WIDTH, depth=DEPTH, heads=3, kernels=(3, 5)).sized(VOCABULARY)
    return (transformer(VOCABULARY, size=small), *variants, lite)


def _decoders() -> tuple[Decoder.Config, ...]:
    plain = Decoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    wired = (plain.model_copy(update={"wiring": wiring}) for wiring in WIRINGS)
    normed = (plain.model_copy(update={"norm": norm}) for norm in (LayerNorm(bias=False), RMSNorm(), StdNorm()))
    placed = (plain.model_copy(update={"position": code}) for kind in ADDED for code in kind.samples())
    hybrid = (Attention.Config(mask=Window(back=2)), Attention.Config(kv_heads=2, position=Rope.Config()))
    fixed = (Rwkv.Config(), Mamba.Config(state=3), S4.Config(state=4), Attention.Config(mask=Window(back=2)))
    between = (ChannelMix.Config(), Absent.Config(), FeedForward.Config())  # one remembers, one is not there
    other = (
        plain.model_copy(update={"mixer": hybrid, "depth": 3}),
        plain.model_copy(update={"feedforward": (Gated.Config(),), "scaled": True, "embedding_norm": LayerNorm()}),
        plain.model_copy(update={"feedforward": (FeedForward.Config(norm=LayerNorm()),), "tied": False}),
        plain.model_copy(update={"cross": Cross.Config(kv_heads=1), "head_bias": True}),
        plain.model_copy(update={"cross": KnnCross.Config(nearest=2)}),
        plain.model_copy(update={"mixer": fixed, "feedforward": between, "depth": 4, "wiring": Rescaled(every=2)}),
    )
    return (*wired, *normed, *placed, *other, Crate(width=WIDTH, depth=DEPTH).sized(VOCABULARY))


def _encoders() -> tuple[Encoder.Config, ...]:
    plain = Encoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    both_ways = Attention.Config(mask=Window(back=1, ahead=2))
    masks = (plain, plain.model_copy(update={"mixer": (both_ways, Attention.Config(mask=Whole()))}))
    return (*masks, *(plain.model_copy(update={"wiring": wiring}) for wiring in WIRINGS))


def _xlnets() -> tuple[Config, ...]:
    plain = XLNet.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    mixers = (TwoStream.Config(mask=Window(back=2)), TwoStream.Config(segments=True))
    wired = (plain.model_copy(update={"wiring": wiring}) for wiring in (PreNorm(), ResiDual()))
    return (plain, plain.model_copy(update={"mixer": mixers, "tied": False, "head_bias": False}), *wired)


def _xlnet_encoders() -> tuple[Config, ...]:
    plain = XLNetEncoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    return plain, plain.model_copy(update={"mixer": (TwoStream.Config(segments=True),)})


def _funnels() -> tuple[Config, ...]:
    plain = Funnel.Config(vocabulary=VOCABULARY, width=WIDTH)
    whole = (FunnelAttention.Config(separate=False, segments=0),)
    return (
        *(plain, Funnel.Config(vocabulary=VOCABULARY, width=WIDTH, sizes=(1, 2, 1), truncate=False, pool="max")),
        Funnel.Config(vocabulary=VOCABULARY, width=WIDTH, sizes=(2, 1), repeats=(1, 2), separate=False, mixer=whole),
        Funnel.Config(vocabulary=VOCABULARY, width=WIDTH, queries_only=False, pool="min", skip=0, upper=2),
    )


FUNNELS: Makers = {Funnel.Config: _funnels}


def _retros() -> tuple[Config, ...]:
    found = ChunkedCross.Config(chunk=4, neighbours=2, length=3)  # as the laws retrieve
    plain = Retro.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH, chunked=found)
    deep = NeighbourEncoder.Config(depth=1, wiring=DeepNorm.encoder(1, 3), norm=GatedNorm(), crossed=())
    near = {"mixer": (Attention.Config(mask=Window(back=1)),), "crossed": (1,), "norm": LayerNorm()}
    other = {"depth": 3, "crossed": (0, 2), "encoder": deep, "wiring": DeepNorm.decoder(3), "scaled": True}
    after = {"wiring": PostNorm(), "tied": False, "position": Sinusoid.Config()}
    return plain, *(plain.model_copy(update=change) for change in (near, other, after))


def _deeps() -> tuple[Config, ...]:
    plain = DeepDecoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH, places=96)
    return plain, plain.model_copy(update={"targets": 1, "wiring": PreNorm(), "tied": False})


def _elmos() -> tuple[Config, ...]:
    plain = Elmo.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    return plain, plain.model_copy(update={"mixer": (Attention.Config(mask=Window(back=2)),), "wiring": PostNorm()})


def _elmo_encoders() -> tuple[Config, ...]:
    plain = ElmoEncoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    near = (Attention.Config(mask=Window(back=1)), Infini.Config(segment=3))
    windows = (Attention.Config(mask=Window(back=1)),)
    return plain, *(plain.model_copy(update=change) for change in ({"mixer": near, "depth": 3}, {"mixer": windows}))


def _ngram_encoders() -> tuple[Config, ...]:
    plain = NGramEncoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH, between=(1, 2, 3), buckets=64)
    alone = {"between": (), "sizes": (2, 4), "mixer": (Bidirectional.Config(mixer=Lstm.Config(hidden=10)),)}
    return plain, plain.model_copy(update=alone)


OWN: Makers = {
    Retro.Config: _retros,
    DeepDecoder.Config: _deeps,
    Elmo.Config: _elmos,
    ElmoEncoder.Config: _elmo_encoders,
    NGramEncoder.Config: _ngram_encoders,
}


def _yocos() -> tuple[Config, ...]:
    plain = Yoco.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    near, few = (
        Attention.Config(mask=Window(back=2)),
        SharedKVAttention.Config(kv_heads=1, bias=True, position=NoPosition.Config()),
    )
    return (
        *(plain, plain.model_copy(update={"depth": 4, "mixer": (near, Retention.Config()), "upper": 1, "reader": few})),
        plain.model_copy(
            update={"depth": 3, "upper": 2, "reader": SharedKVAttention.Config(heads=3, head_size=4, scale=0.3)}
        ),
        *(plain.model_copy(update={"wiring": wiring, "tied": False}) for wiring in (DeepNorm.alone(2), Parallel())),
    )


OWN |= {Yoco.Config: _yocos}
XLNETS: Makers = {XLNet.Config: _xlnets, XLNetEncoder.Config: _xlnet_encoders}


def _adaptive() -> tuple[Config, ...]:
    plain = AdaptiveDecoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    clusters = (
        *(Adaptive(cutoffs=(5, 9), shrink=2, tied=(False, True)), Adaptive(cutoffs=(5,), shrink=1)),
        *(Adaptive(cutoffs=(4, 8), shrink=1, size=6, tied=(True, False, True)), Adaptive(shrink=1, size=30)),
    )
    apart = {"tied": False, "head_bias": True, "scaled": True, "mixer": (TransformerXLAttention.Config(),)}
    return (plain, *(plain.model_copy(update={"adaptive": some} | apart) for some in clusters))


def _rmts() -> tuple[Config, ...]:
    plain = RMT.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH, segment=4, memory=3)
    turned = Attention.Config(kv_heads=2, position=Rope.Config())
    return (
        *(plain, plain.model_copy(update={"segment": 1, "memory": 1, "tied": False, "scaled": True})),
        plain.model_copy(update={"segment": 3, "memory": 2, "mixer": (Attention.Config(mask=Window(back=2)), turned)}),
        plain.model_copy(update={"segment": 5, "mixer": (Infini.Config(segment=3),), "position": Sinusoid.Config()}),
        *(plain.model_copy(update={"wiring": wiring}) for wiring in (PostNorm(), ResiDual())),
    )


def _sled_encoders() -> tuple[Config, ...]:
    plain = SledEncoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH, window=4)
    turned = Attention.Config(mask=Whole(), position=Rope.Config())
    return plain, plain.model_copy(update={"window": 8, "mixer": (turned, Attention.Config(mask=Window(back=1)))})


SEGMENTED: Makers = {RMT.Config: _rmts, SledEncoder.Config: _sled_encoders}
