"""ELMo (Peters et al. 2018): a forward and a backward language model, whose layers are mixed into embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from ...core.contract import Reach, Where
from ...core.errors import ConfigError
from ...core.interfaces import Aside, Rehearses
from ...core.spec import Spec
from ...mixers import Lstm, SomeMixers
from ...parts.outputs.heads import heads_of
from ...parts.recurrence.reverse import Reversed
from ...parts.residual.wiring import ResiDual, Reversible
from ..block import States
from ..decoder import Decoder
from ..encoder import Encoder
from ..stack import Stack

BACK = (Lstm.Config(),)  # the paper's; any mixer that looks back will do


class Elmo(Decoder, Rehearses):
    """A language model that learns both ways: log p(x_t | x_<t) + log p(x_t | x_>t), with one table and one head.

    As a decoder it is its forward half, and its loss is that of the next token. `backward` is a second stack, for the
    reversed text. An `ElmoEncoder` mixes the hidden states of both.
    """

    class Config(Decoder.Config):
        kind: Literal["elmo"] = "elmo"  # type: ignore[assignment]  # a shape of its own
        mixer: SomeMixers = BACK

        def build(self) -> Elmo:
            return Elmo(self)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.backward = Stack(config)

    def rehearse(self, tokens: Tensor, where: Where, progress: float) -> Iterator[Aside]:
        x, reverse = self.embeddings(tokens, where), Reversed.of(where)
        before, _ = self.backward(reverse(x), reverse.where)
        yield Aside(self.narrowed(reverse(before)), self.head, -1, 1.0)
        after, _ = self.stack(x, where)
        yield Aside(self.narrowed(after), self.head, 1, 1.0)


class ElmoEncoder(Encoder):
    """Contextual embeddings of an `Elmo`: γ·Σ_l s_l [forward_l ; backward_l], s = softmax(w), l = 0 ... depth.

    Layer 0 is the embedding, twice. γ and w are learnt for each use. The output is twice as wide as the model and costs
    what two language models cost; it looks ahead, so that it has no state.
    """

    class Config(Encoder.Config):
        kind: Literal["elmo_encoder"] = "elmo_encoder"  # type: ignore[assignment]  # a shape of its own
        mixer: SomeMixers = BACK

        def build(self) -> ElmoEncoder:
            return ElmoEncoder(self)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.backward = Stack(config)
        self.share, self.gain = nn.Parameter(torch.zeros(config.depth + 1)), nn.Parameter(torch.ones(()))
        self.heads = heads_of(config.heads, 2 * config.width, self.embeddings.table)
        back, ahead = self.stack.reach
        if ahead != 0:
            raise ConfigError("each direction of an elmo_encoder looks back only; use masks like causal or window")
        if isinstance(config.wiring, ResiDual | Reversible):
            raise ConfigError("layers are mixed where one stream runs through them; choose a wiring like pre or post")
        self.reach = Reach(back, None if back is None else max(1, back))  # never 0: it has no state

    @classmethod
    def of(cls, model: Elmo, config: Config) -> ElmoEncoder:
        """An encoder with the weights of a language model of the same shape."""
        encoder = cls(config)
        held = {
            name: tensor for name, tensor in model.state_dict().items() if not name.startswith(("head.", "narrow."))
        }
        encoder.load_state_dict({**encoder.state_dict(), **held})
        return encoder

    def spec(self) -> Spec:
        return ()

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        x, reverse = self.embeddings.place(x, where), Reversed.of(where)
        pairs = zip(depths(self.stack, x, where), depths(self.backward, reverse(x), reverse.where), strict=True)
        layers = torch.stack([torch.cat((forward, reverse(backward)), -1) for forward, backward in pairs])
        return self.gain * torch.einsum("l,lbtd->btd", self.share.softmax(0), layers), state


def depths(stack: Stack, x: Tensor, where: Where) -> list[Tensor]:
    """The stream before the first block and after each, the last one as the stack leaves it."""
    made = [stack.ends.enter(x)]
    for block in stack.layers:
        made.append(block(made[-1], where)[0])
    return [*made[:-1], stack.ends.leave(made[-1])]
