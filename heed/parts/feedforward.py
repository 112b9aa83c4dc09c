"""Feed-forward parts: what a token makes of itself, between two mixings. `FEEDFORWARDS` is the table.

Each is a Mixer that remembers nothing and reaches nowhere, so that a block treats all its parts alike (RWKV's
feed-forward, which looks one token back, is then nothing special).
"""

from __future__ import annotations

from typing import Annotated

from ..core.config import ManyOf
from ..core.contract import MixerConfig
from .experts import Experts
from .positionwise import Activation, FeedForward, Gated, activate

__all__ = ["FEEDFORWARDS", "Activation", "Experts", "FeedForward", "Gated", "SomeFeedForwards", "activate"]

FEEDFORWARDS: tuple[type[MixerConfig], ...] = (FeedForward.Config, Gated.Config, Experts.Config)
SomeFeedForwards = Annotated[MixerConfig | tuple[MixerConfig, ...], ManyOf(lambda: FEEDFORWARDS)]
