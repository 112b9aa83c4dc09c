"""XLNet (Yang et al. 2019): permutation language modelling with two-stream attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self, TypeAlias, cast

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Flag, kind_of
from ...core.contract import Mixer, Where
from ...core.errors import ConfigError, InputError
from ...core.interfaces import Permutes
from ...core.stamps import Span
from ...core.state import Log, Seen, remember
from ...mixers import SomeMixers, TwoStream
from ...parts.inputs.tokens import TokenEmbeddings
from ...parts.masks import Whole
from ...parts.residual.wired import Part
from ...parts.residual.wiring import AnyWiring, PostNorm
from ..backbone import TokenBackbone
from ..block import Block, States
from ..decoder import Decoder
from ..encoder import Encoder
from ..stack import Stack

Memory: TypeAlias = "tuple[Seen, ...]"  # hidden states of the tokens before, one entry per layer (XLNet's mems)
Project: TypeAlias = Callable[[TwoStream, Tensor], Seen]  # a layer's input to the keys and values to attend to


class Segmented(TokenEmbeddings):
    """Tokens whose second field, the segment, is not embedded: the mixers compare it."""

    @classmethod
    def like(cls, embeddings: TokenEmbeddings) -> Segmented:
        """With the parts of other embeddings."""
        share = embeddings.dropout.share
        return cls(
            embeddings.table, embeddings.scale, embeddings.position, embeddings.norm, share, narrow=embeddings.narrow
        )

    @property
    def fields(self) -> int:
        return 2


class XLNet(Decoder, Permutes):
    """Logits of the token at any position, from all tokens that were revealed before it, whatever their positions.

        logits = model.predict(tokens, where, asked)              # at the positions `asked`, [B, M, vocabulary]

    The content stream h holds the tokens, the query stream g begins with one learnt vector at every position to
    predict; both run through the same blocks, and g attends to what h holds of tokens revealed before (`TwoStream`). As
    a Mixer it predicts the position after each token, so it generates like any decoder, at the price of two streams.
    """

    once = False  # parts of blocks are called, for two streams

    class Config(Decoder.Config):
        kind: Literal["xlnet"] = "xlnet"  # type: ignore[assignment]  # a shape of its own
        mixer: SomeMixers = (TwoStream.Config(),)
        wiring: AnyWiring = PostNorm()
        head_bias: Flag = True  # the head has a bias

        @model_validator(mode="after")
        def _two_streams(self) -> Self:
            if any(mixer.mask.reach.ahead != 0 for mixer in two_streams(self)):
                raise ValueError(
                    "a model that predicts must not look ahead; use masks like causal, window or segments and causal"
                )
            return self

        def build(self) -> XLNet:
            return XLNet(self)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        must_forget(self.stack)
        self.embeddings = Segmented.like(self.embeddings)
        self.mask = mask_embedding(config.width)

    def predict(self, tokens: Tensor, where: Where, asked: Where) -> Tensor:
        """Logits of the tokens at the positions `asked`, [B, M, vocabulary].

        A position is given by its stamps: its `position` in the text, and its `order`: tokens of a lower order are
        visible to it. Tokens that stand there themselves are revealed there, not before. Its segment, where segments
        count, is `asked.given.segment`, or 0.
        """
        stream, head = self.asked(tokens, where, asked)
        logits: Tensor = head(stream)
        return logits

    def asked(self, tokens: Tensor, where: Where, asked: Where) -> tuple[Tensor, nn.Linear]:
        where = with_segments(tokens, where)
        stream, _ = self._predicted(self.embeddings(tokens, where), where, asked, None)
        return self.narrowed(stream), self.head

    def hidden_states(self, tokens: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.hidden(self.embeddings.embed(tokens, where), with_segments(tokens, where), state)

    def hidden(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        stream, state = self._predicted(self.embeddings.place(x, where), where, following(where), state)
        return self.narrowed(stream), state

    def _predicted(self, h: Tensor, where: Where, asked: Where, state: States | None) -> tuple[Tensor, States | None]:
        """The query stream after all blocks, and what the content stream remembers."""
        kept: list[States] = []
        ends = self.stack.ends
        streams = Streams(ends.enter(h), ends.enter(self.embeddings.dropout(self.mask.expand(*asked.shape, -1))))
        for depth, block in enumerate(self.stack.layers):
            log = None if state is None else cast(Log, cast(States, state[depth])[0])
            nothing = ((),) * len(block.parts[1:])  # is remembered by a feed-forward, if there is one

            def project(mixer: TwoStream, x: Tensor, log: Log | None = log, nothing: States = nothing) -> Seen:
                seen, after = remember(log, where, *mixer.entries(x, where))
                kept.extend([] if after is None else [(after, *nothing)])
                return seen

            streams = both(block, streams, where, asked, project)
        return ends.leave(streams.g), None if state is None else tuple(kept)


class XLNetEncoder(Encoder):
    """The content stream alone, an encoder: for classifying texts and tagging tokens.

    A token may bring its segment as a second id, [B, T, 2]. A long text may be encoded segment by segment:

        stream, memory = encoder.read_on(tokens, where, memory, keep=512)

    Every token then sees its own segment, ahead too, and the hidden states kept of those before. That is not a state:
    tokens of an earlier segment do not look ahead into the next, so another cut gives other hidden states.
    """

    class Config(Encoder.Config):
        kind: Literal["xlnet_encoder"] = "xlnet_encoder"  # type: ignore[assignment]  # a shape of its own
        mixer: SomeMixers = (TwoStream.Config(mask=Whole(), segments=True),)
        wiring: AnyWiring = PostNorm()

        @model_validator(mode="after")
        def _two_streams(self) -> Self:
            two_streams(self)
            return self

        def build(self) -> XLNetEncoder:
            return XLNetEncoder(self)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.embeddings = Segmented.like(self.embeddings)
        self.mask = mask_embedding(config.width)  # checkpoints hold it; an encoder does not use it
        self.mask.requires_grad_(False)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.mix(self.embeddings.embed(x, where), with_segments(x, where), state)

    def read_on(
        self, tokens: Tensor, where: Where, memory: Memory | None = None, *, keep: int
    ) -> tuple[Tensor, Memory]:
        """The hidden states of these tokens beside a memory; and the next memory, the last `keep` tokens, detached."""
        if keep < 0:
            raise InputError(f"keep is {keep}; the tokens to remember are 0 or more")
        where = with_segments(tokens, where)
        x, kept = self.stack.ends.enter(self.embeddings(tokens, where)), list[Seen]()
        if memory is not None:
            must_precede(memory, x, where, len(self.stack.layers))
        for depth, block in enumerate(self.stack.layers):
            before = None if memory is None else memory[depth]

            def project(mixer: TwoStream, given: Tensor, before: Seen | None = before) -> Seen:
                all_of_it, stamps = joined(before, given, where)
                kept.append(last(stamps, all_of_it, keep))
                return Seen.of(stamps, *mixer.entries(all_of_it, stamps))

            x = content(block, x, where, project)[0]
        return self.stack.ends.leave(x), tuple(kept)


class Streams(NamedTuple):
    """The content stream and the query stream."""

    h: Tensor  # [B, T, D]
    g: Tensor  # [B, M, D]


def both(block: Block, streams: Streams, where: Where, asked: Where, project: Project) -> Streams:
    """Both streams after a block: the second one takes from the keys of the first."""
    h, seen = content(block, streams.h, where, project)
    return Streams(h, query(block, streams.g, asked, lambda mixer, g: mixer.ask(g, asked, seen)))


def content(block: Block, x: Tensor, where: Where, project: Project) -> tuple[Tensor, Seen]:
    """The content stream after a block, and the keys and values that both streams look at."""
    seen: list[Seen] = []

    def mixed(mixer: TwoStream, given: Tensor) -> Tensor:
        seen.append(project(mixer, given))
        return mixer.known(given, where, seen[0])

    return query(block, x, where, mixed), seen[0]


def query(block: Block, x: Tensor, where: Where, ask: Callable[[TwoStream, Tensor], Tensor]) -> Tensor:
    """A stream after a block whose mixer is called in this way."""
    mixer = cast(TwoStream, block.mixer)
    y: Tensor = block.wiring(x, [lambda given: ask(mixer, given), *(fed(part, where) for part in block.parts[1:])])
    return y


def fed(feedforward: Mixer[Any], where: Where) -> Part:
    """A feed-forward as a wiring takes it."""
    return lambda x: feedforward(x, where)[0]


def mask_embedding(width: int) -> nn.Parameter:
    """The vector that stands in the place of an unknown token."""
    vector = nn.Parameter(torch.empty(width))
    nn.init.normal_(vector, std=width**-0.5)
    return vector


def with_segments(tokens: Tensor, where: Where) -> Where:
    """With the segments that tokens bring as a second field. [B, T] or [B, T, 2]"""
    return where.give(segment=tokens[..., 1]) if tokens.dim() == 3 and tokens.shape[2] == 2 else where


def following(where: Where) -> Where:
    """The place after each token, in its segment: revealed next, standing next."""
    after = Where(where.order + where.real, where.position + 1, where.given)
    span = where.span
    after.known(Span(span.first + 1, span.last + 1, span.run, span.padded) if span.last >= span.first else span)
    return after


def must_precede(memory: Memory, x: Tensor, where: Where, layers: int) -> None:
    """Raise unless a memory is that of these rows, in every layer, and of tokens that came before."""
    if len(memory) != layers:
        raise InputError(f"a memory of {len(memory)} layers was given, the model has {layers}")
    for seen in memory:
        rows, width = seen.parts[0].shape[0], seen.parts[0].shape[2]
        if (rows, width) != (x.shape[0], x.shape[2]):
            raise InputError(
                f"a memory of {rows} rows and width {width} was given beside {x.shape[0]} rows and width {x.shape[2]}; "
                "give the memory that the segment before left of the same rows"
            )
        late = where.real & (where.order <= seen.order.amax(1, keepdim=True)) if seen.order.shape[1] else None
        if late is not None and bool(late.any()):
            raise InputError(
                f"a token of order {int(where.order[late][0])} was encoded already: the memory goes up to "
                f"{int(seen.order.max())}; stamp a segment as the continuation of those before (Where.run(start=...))"
            )


def joined(before: Seen | None, x: Tensor, where: Where) -> tuple[Tensor, Where]:
    """What is remembered, in front of these tokens; it counts as segment 0."""
    if before is None:
        return x, where
    order, position = torch.cat((before.order, where.order), 1), torch.cat((before.position, where.position), 1)
    segment = where.given.segment
    if segment is not None:
        segment = torch.cat((torch.zeros_like(before.order), segment), 1)
    return torch.cat((before.parts[0], x), 1), Where(order, position).give(segment=segment)


def last(stamps: Where, x: Tensor, keep: int) -> Seen:
    """The last tokens of every row, as they are remembered; of a row that has fewer, holes in front of them."""
    begin, order, position, x = max(0, stamps.shape[1] - keep), stamps.order, stamps.position, x.detach()
    if stamps.span.padded:
        column = stamps.real.byte().argsort(dim=1, stable=True)  # padding first
        order, position = order.gather(1, column), position.gather(1, column)
        x = x.take_along_dim(column[..., None], 1)
    return Seen(order[:, begin:], position[:, begin:], x[:, begin:])


def two_streams(config: TokenBackbone.Config) -> list[TwoStream.Config]:
    """The mixers. Raise unless each has two streams, and nothing else stands between a stream and its block."""
    mixers = config.mixer if isinstance(config.mixer, tuple) else (config.mixer,)
    strange = sorted({kind_of(type(mixer)) for mixer in mixers if not isinstance(mixer, TwoStream.Config)})
    if strange:
        raise ValueError(f"two streams need mixers of kind two_stream, not {', '.join(strange)}")
    if config.cross is not None or config.convolution is not None:
        raise ValueError("a model of two streams has neither cross nor convolution; leave them out")
    if config.segments is not None or config.boxes is not None:
        raise ValueError("segments are compared by the mixers, not embedded; set mixer.segments, leave these out")
    return [mixer for mixer in mixers if isinstance(mixer, TwoStream.Config)]


def must_forget(stack: Stack) -> None:
    """Raise if a feed-forward has a state: there is one for two streams."""
    if any(block.feedforward.spec() != () for block in stack.layers):
        raise ConfigError(
            "the feed-forward of a model of two streams must look at one token alone; use feedforward, gated or experts"
        )
