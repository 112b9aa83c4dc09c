"""Feed-forward parts: what a token makes of itself, between two mixings. `FEEDFORWARDS` is the table.

Each is a Mixer, most of which remember nothing and reach nowhere; so a block treats all its parts alike, and RWKV's
feed-forward, which looks one token back, is nothing special.
"""

from __future__ import annotations

from typing import Annotated

from ...core.config import ManyOf
from ...core.contract import MixerConfig
from .channel_mix import ChannelMix
from .experts import Experts
from .ista import Ista
from .mlp import Absent, Activation, FeedForward, Gated, activate

__all__ = ["FEEDFORWARDS", "Absent", "Activation", "ChannelMix", "Experts", "FeedForward", "Gated", "Ista"]
__all__ += ["SomeFeedForwards", "activate"]

FEEDFORWARDS: tuple[type[MixerConfig], ...] = (FeedForward.Config, Gated.Config, Experts.Config, Ista.Config)
FEEDFORWARDS += (ChannelMix.Config, Absent.Config)
SomeFeedForwards = Annotated[MixerConfig | tuple[MixerConfig, ...], ManyOf(lambda: FEEDFORWARDS)]
