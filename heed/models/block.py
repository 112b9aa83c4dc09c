"""A block: a token mixer, perhaps a cross-attention, and most often a feed-forward, wired into one stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias

from torch import Tensor

from ..core.contract import NOTHING, Given, Mixer, Reach, Where
from ..core.spec import Spec
from ..core.state import State, renewed, twin
from ..parts.feedforward import Absent
from ..parts.residual.wired import Wiring

States: TypeAlias = "tuple[State, ...]"


class Block(Mixer[States]):
    """The parts in order, wired; its state is the tuple of theirs."""

    def __init__(self, mixer: Mixer[Any], cross: Mixer[Any] | None, feedforward: Mixer[Any], wiring: Wiring) -> None:
        super().__init__()
        self.mixer, self.cross, self.feedforward, self.wiring = mixer, cross, feedforward, wiring
        self.reach = reduce(Reach.then, (part.reach for part in self.parts))

    @property
    def parts(self) -> tuple[Mixer[Any], ...]:
        """The mixers of this block, in order."""
        return present(self.mixer, self.cross, self.feedforward)

    def spec(self) -> Spec:
        return tuple(part.spec() for part in self.parts) if self.streams else ()  # one that looks ahead stops all

    def start(self, rows: int, given: Given = NOTHING) -> States:
        self.must_stream()
        return tuple(part.start(rows, given) for part in self.parts)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        again = state is not None and self.wiring.again
        before = (None,) * len(self.parts) if state is None else renewed(state) if again else state
        after: list[State | None] = []
        self.wiring.told(where)

        def call(part: Mixer[Any], memory: State | None) -> Callable[[Tensor], Tensor]:
            def mixed(stream: Tensor) -> Tensor:
                y, kept = part(stream, where, twin(memory) if again and memory is not None else memory)
                if len(after) < len(self.parts):  # a second time it is only looked at
                    after.append(kept)
                return y

            return mixed

        y = self.wiring.whole(x, [call(part, memory) for part, memory in zip(self.parts, before, strict=True)])
        return y, None if state is None else tuple(kept for kept in after if kept is not None)


def present(*parts: Mixer[Any] | None) -> tuple[Mixer[Any], ...]:
    """Those that there are: a block may lack its cross-attention, and its feed-forward may be absent."""
    return tuple(part for part in parts if part is not None and not isinstance(part, Absent))
