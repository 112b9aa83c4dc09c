"""What every model is below its heads: a front that makes a stream of what it is given, and a stack that mixes it."""

from __future__ import annotations

from torch import Tensor

from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.spec import Spec
from ..parts.inputs.tokens import Front
from .block import States
from .drafts import Drafted
from .stack import Stack


class Body(Drafted, Mixer[States]):
    """A front and a stack. From bare embeddings on (`mix`) it is a Mixer like any other: the laws are run on that."""

    front: Front

    def __init__(self, config: Stack.Config, front: Front) -> None:
        super().__init__()
        self.front, self.stack = front, Stack(config)
        self.reach = self.stack.reach

    def spec(self) -> Spec:
        return self.stack.spec()

    def start(self, rows: int, given: Given = NOTHING) -> States:
        self.must_stream()
        return self.stack.start(rows, given)

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """From bare embeddings on."""
        return self.stack(self.front.place(x, where), where, state)
