"""Hybrids: any tuple of mixers, tiled over the depth, is a model under the laws whose cost is the sum of its parts."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
import torch

from heed.core.config import kind_of
from heed.core.contract import MixerConfig, Reach, Where
from heed.core.laws import LAWS, Case, Law
from heed.core.spec import price
from heed.core.state import nbytes
from heed.mixers import MIXERS, Attention, Infini, LatentAttention, Performer
from heed.models import Decoder, Embedded
from heed.parts.feedforward import Experts, FeedForward, Gated
from heed.parts.masks import Window
from heed.parts.positions import Rope
from heed.verify.proof import STATEMENTS

WIDTH, TOKENS, SOURCE = 24, 7, 4
WINDOW = Attention.Config(mask=Window(back=2))


def streaming(config: type[MixerConfig]) -> MixerConfig | None:
    """A sample that can continue from a state."""
    return next((sample for sample in config.samples() if sample.build(WIDTH).streams), None)


OTHERS = {kind_of(config): sample for config in MIXERS if (sample := streaming(config)) is not None}
ALL = tuple(OTHERS.values())


def hybrid(*mixers: MixerConfig, depth: int = 3, **changes: Any) -> Decoder.Config:
    return Decoder.Config(vocabulary=13, width=WIDTH, depth=depth, mixer=mixers, **changes)


def obeyed(law: Law, config: Decoder.Config) -> None:
    torch.manual_seed(0)
    finding = law(Embedded(config.build()), Case.make(WIDTH, rows=2, tokens=TOKENS))
    assert finding.holds, finding


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("kind", OTHERS)
def test_laws_hold_for_a_window_in_turn_with_any_other(kind: str, law: Law) -> None:
    obeyed(law, hybrid(WINDOW, OTHERS[kind]))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws_hold_for_one_of_each(law: Law) -> None:
    obeyed(law, hybrid(*ALL, depth=len(ALL)))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_feed_forwards_are_tiled_too(law: Law) -> None:
    parts = (FeedForward.Config(), Gated.Config(), Experts.Config(experts=4))
    obeyed(law, hybrid(WINDOW, Infini.Config(segment=3), feedforward=parts, depth=4))


@pytest.mark.parametrize("mixers", [(WINDOW, other) for other in ALL] + [ALL], ids=lambda mixers: f"{len(mixers)}")
def test_the_cost_is_the_sum_of_the_parts(mixers: tuple[MixerConfig, ...]) -> None:
    """Bytes declared and reach declared are those of the mixers alone, added up over the depth."""
    depth = 2 * len(mixers) - 1
    model = hybrid(*mixers, depth=depth).build()
    alone = [mixers[layer % len(mixers)].build(WIDTH) for layer in range(depth)]
    assert price(model.spec(), TOKENS, SOURCE) == sum(price(mixer.spec(), TOKENS, SOURCE) for mixer in alone)
    assert model.reach == reduce(Reach.then, (mixer.reach for mixer in alone))


def test_the_bytes_held_are_those_declared() -> None:
    turned = Attention.Config(kv_heads=2, position=Rope.Config())
    model = hybrid(WINDOW, turned, Performer.Config(), LatentAttention.Config(), depth=7).build()
    state: Any = model.start(2)
    with torch.no_grad():
        for t in range(9):
            _, state = model(torch.zeros(2, 1, dtype=torch.long), Where.run(2, 1, start=t), state)
            assert nbytes(state) == 2 * price(model.spec(), t + 1)


def test_a_hybrid_is_a_configuration_like_any_other() -> None:
    config = hybrid(*ALL, depth=2 * len(ALL))
    finding = STATEMENTS["config round trip"](config)
    assert finding.holds, finding
    assert [config.mixer_of(layer) for layer in range(len(ALL), 2 * len(ALL))] == list(ALL)
