"""Small models that together use every wiring, norm, added position and feed-forward."""

from __future__ import annotations

from dataclasses import replace

from ..core.config import Config
from ..core.contract import MixerConfig
from ..mixers import Attention, Cross
from ..models import Decoder, Encoder, Seq2seq
from ..models.transformer import ANNOTATED, PAPER, TINY, TORCH, transformer
from ..parts.feedforward import FeedForward, Gated
from ..parts.masks import Whole, Window
from ..parts.norms import LayerNorm, RMSNorm, StdNorm
from ..parts.positions import ADDED, Rope
from ..parts.wiring import DeepNorm, Parallel, PostNorm, PreNorm, ResiDual, Sandwich

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
)


def samples(kind: type[Config]) -> tuple[Config, ...]:
    """Small configurations of this kind that together use every option."""
    if issubclass(kind, MixerConfig):
        return kind.samples()
    return {Encoder.Config: _encoders, Decoder.Config: _decoders, Seq2seq.Config: _seq2seqs}[kind]()


def _seq2seqs() -> tuple[Config, ...]:
    small = replace(TINY, width=WIDTH, hidden=31)
    variants = (transformer(VOCABULARY, 11, size=small, variant=variant) for variant in (PAPER, TORCH, ANNOTATED))
    return (transformer(VOCABULARY, size=small), *variants)


def _decoders() -> tuple[Decoder.Config, ...]:
    plain = Decoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    wired = (plain.model_copy(update={"wiring": wiring}) for wiring in WIRINGS)
    normed = (plain.model_copy(update={"norm": norm}) for norm in (LayerNorm(bias=False), RMSNorm(), StdNorm()))
    placed = (plain.model_copy(update={"position": code}) for kind in ADDED for code in kind.samples())
    hybrid = (Attention.Config(mask=Window(back=2)), Attention.Config(kv_heads=2, position=Rope.Config()))
    other = (
        plain.model_copy(update={"mixer": hybrid, "depth": 3}),
        plain.model_copy(update={"feedforward": (Gated.Config(),), "scaled": True, "front_norm": LayerNorm()}),
        plain.model_copy(update={"feedforward": (FeedForward.Config(norm=LayerNorm()),), "tied": False}),
        plain.model_copy(update={"cross": Cross.Config(kv_heads=1), "head_bias": True}),
    )
    return (*wired, *normed, *placed, *other)


def _encoders() -> tuple[Encoder.Config, ...]:
    plain = Encoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=DEPTH)
    both_ways = Attention.Config(mask=Window(back=1, ahead=2))
    masks = (plain, plain.model_copy(update={"mixer": (both_ways, Attention.Config(mask=Whole()))}))
    return (*masks, *(plain.model_copy(update={"wiring": wiring}) for wiring in WIRINGS))
