"""Long-short range attention of Lite Transformer (Wu et al. 2020): mixers side by side, each on its own channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ..core.config import ManyOf, Size
from ..core.contract import NOTHING, Given, Mixer, MixerConfig, Reach, Where
from ..core.errors import ConfigError
from ..core.spec import Spec
from ..core.state import Seen, State

States: TypeAlias = "tuple[State, ...]"


SomeMixers: TypeAlias = Annotated[MixerConfig | tuple[MixerConfig, ...], ManyOf(lambda: MixerConfig.choices)]


class Branches(Mixer[States]):
    """Channels are split into parts; each part has a mixer of its own, and their outputs are concatenated.

        y = [ mixer_1(x[:c_1]); mixer_2(x[c_1 : c_1 + c_2]); ... ]

    With attention on one half and a convolution on the other it is long-short range attention (Wu et al. 2020, LSRA):
    attention is freed from local patterns, which a convolution finds at less cost. Nothing mixes the parts but what
    comes after, the feed-forward. A source or neighbours that a mixer is given are cut alike. Costs, remembers and
    reaches what its branches do together.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Wu et al. 2020, Lite Transformer with Long-Short Range Attention, arXiv 2004.11886"

        kind: Literal["branches"] = "branches"
        mixers: SomeMixers  # one for each part of the channels
        channels: tuple[Size, ...] | None = None  # of each branch; None: equal parts

        @model_validator(mode="after")
        def _each(self) -> Self:
            if self.channels is not None and len(self.channels) != len(self.branches):
                raise ValueError(f"{len(self.branches)} mixers need as many channels, not {len(self.channels)}")
            return self

        @property
        def branches(self) -> tuple[MixerConfig, ...]:
            """The mixers, in order."""
            return self.mixers if isinstance(self.mixers, tuple) else (self.mixers,)

        def widths(self, width: int) -> tuple[int, ...]:
            """The channels of each branch."""
            count = len(self.branches)
            if self.channels is None:
                if width % count:
                    raise ConfigError(f"width {width} does not divide into {count} equal branches; name their channels")
                return (width // count,) * count
            if sum(self.channels) != width:
                raise ConfigError(
                    f"branches of {' + '.join(map(str, self.channels))} = {sum(self.channels)} channels do not make "
                    f"up a stream of {width}"
                )
            return self.channels

        def build(self, width: int) -> Branches:
            return Branches(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return tuple(cls.load(data) for data in SAMPLES)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.channels = config.widths(width)
        pairs = zip(config.branches, self.channels, strict=True)
        self.mixers = nn.ModuleList(mixer.build(channels) for mixer, channels in pairs)
        self.reach = reduce(Reach.beside, (mixer.reach for mixer in self.parts))

    @property
    def parts(self) -> list[Mixer[Any]]:
        """The mixers, in order."""
        return [mixer for mixer in self.mixers if isinstance(mixer, Mixer)]

    def spec(self) -> Spec:
        return tuple(mixer.spec() for mixer in self.parts) if self.streams else ()

    def start(self, rows: int, given: Given = NOTHING) -> States:
        self.must_stream()
        return tuple(mixer.start(rows, part) for mixer, part in zip(self.parts, self._cut(given), strict=True))

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        before = (None,) * len(self.parts) if state is None else state
        after: list[State] = []
        made: list[Tensor] = []
        pieces = x.split_with_sizes(self.channels, 2)
        for mixer, piece, given, held in zip(self.parts, pieces, self._cut(where.given), before, strict=True):
            y, kept = mixer(piece, where if given is where.given else where.beside(given), held)
            made.append(y)
            after += [] if kept is None else [kept]
        return torch.cat(made, 2), None if state is None else tuple(after)

    def _cut(self, given: Given) -> Iterator[Given]:
        """What each branch is given: its channels of a source or of neighbours that are as wide as the stream."""
        end = 0
        for channels in self.channels:
            begin, end = end, end + channels
            cut = (self._sliced(seen, begin, end) for seen in (given.encoder_output, given.neighbours))
            source, neighbours = cut
            same = source is given.encoder_output and neighbours is given.neighbours
            yield given if same else replace(given, encoder_output=source, neighbours=neighbours)

    def _sliced(self, seen: Seen | None, begin: int, end: int) -> Seen | None:
        if seen is None or not seen.parts or seen.parts[0].shape[-1] != sum(self.channels):
            return seen
        return Seen.of(seen, *(part[..., begin:end] for part in seen.parts))


# As a file holds them: this file must not know the others of the package.
SAMPLES: tuple[dict[str, Any], ...] = (
    {"mixers": [{"kind": "attention", "heads": 2}, {"kind": "lightconv"}]},
    {"mixers": [{"kind": "convolution"}, {"kind": "attention", "mask": {"kind": "window", "back": 3}}]}
    | {"channels": [8, 16]},
    {"mixers": [{"kind": "attention", "mask": {"kind": "whole"}}, {"kind": "dynamicconv", "causal": False}]}
    | {"channels": [16, 8]},
    {"mixers": [{"kind": "cross"}, {"kind": "separable"}, {"kind": "infini", "segment": 4}]},
    {"mixers": [{"kind": "branches", "mixers": [{"kind": "dynamicconv"}]}, {"kind": "fourier"}]},
)
