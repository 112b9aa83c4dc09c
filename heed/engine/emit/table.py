"""Which class has an emitter. Classes and emitters are named, not imported: a model's own parts are all that is loaded.

The class is looked up as it is, without its bases, on purpose: a subclass may compute something else. What is not here
runs as a plain call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...core.tables import Named
from ..program import Uncompiled

Emit: TypeAlias = Callable[..., Any]

CROSS = "heed.mixers.cross:Cross"
PARTS: Named[Emit] = Named(
    __package__,
    {
        "heed.mixers.attention:Attention": "attention:attention",
        CROSS: "attention:cross",
        "heed.mixers.retention:Retention": "recurrence:retention",
        "heed.mixers.rwkv:Rwkv": "recurrence:rwkv",
        "heed.parts.feedforward.channel_mix:ChannelMix": "feedforward:channel_mix",
        "heed.parts.feedforward.mlp:FeedForward": "feedforward:feedforward",
        "heed.parts.feedforward.mlp:Gated": "feedforward:gated",
    },
)
NORMS: Named[Emit] = Named(
    __package__,
    {
        "torch.nn.modules.normalization:LayerNorm": "norms:layer_norm",
        "torch.nn.modules.normalization:RMSNorm": "norms:rms_norm",
        "heed.parts.layers.norms:FromOne": "norms:from_one",
    },
)
POSITIONS: Named[Emit] = Named(
    __package__,
    {
        "heed.parts.positions.base:NoPosition": "positions:none",
        "heed.parts.positions.rotary:Rope": "positions:rope",
        "heed.parts.positions.scored:Alibi": "positions:alibi",
    },
)
MASKS: Named[Emit] = Named(
    __package__,
    {
        "heed.parts.masks.base:Causal": "attention:causal",
        "heed.parts.masks.base:Whole": "attention:whole",
        "heed.parts.masks.plain:Window": "attention:window",
    },
)
ADDED: Named[Emit] = Named(
    __package__,
    {
        "heed.parts.positions.added:Learned": "positions:learned",
        "heed.parts.positions.added:Sinusoid": "positions:made",
        "heed.parts.positions.added:Unit": "positions:made",
        "heed.parts.positions.added:Integer": "positions:made",
        "heed.parts.positions.added:Binary": "positions:made",
        "heed.parts.positions.axial:Axial": "positions:made",
    },
)
LINEARS: Named[Emit] = Named(
    __package__,
    {
        "torch.nn.modules.linear:Linear": "linears:plain",
        "heed.parts.outputs.heads:LMHead": "linears:plain",
        "heed.parts.layers.quantised:Int8Linear": "linears:int8",
        "heed.parts.layers.quantised:GroupedLinear": "linears:grouped",
        "heed.parts.layers.bitnet:PackedTernaryLinear": "linears:ternary",
    },
)
EMBEDDINGS: Named[Emit] = Named(
    __package__,
    {
        "heed.parts.inputs.tokens:TokenEmbeddings": "embeddings:tokens",
        "torch.nn.modules.sparse:Embedding": "embeddings:table",
        "heed.parts.layers.embeddings:QuantisedEmbedding": "embeddings:table",
    },
)
WIRINGS: Named[Emit] = Named(
    __package__,
    {
        "heed.parts.residual.wired:PostWired": "wirings:post",
        "heed.parts.residual.wired:PreWired": "wirings:pre",
        "heed.parts.residual.wired:NormedWired": "wirings:normed",
        "heed.parts.residual.wired:SandwichWired": "wirings:sandwich",
        "heed.parts.residual.wired:ParallelWired": "wirings:parallel",
        "heed.parts.residual.wired:RescaledWired": "wirings:rescaled",
    },
)
TABLES = (PARTS, NORMS, POSITIONS, MASKS, ADDED, LINEARS, EMBEDDINGS, WIRINGS)
EMIT: Named[Emit] = Named(__package__, {name: place for table in TABLES for name, place in table.places.items()})
DECODER, SEQ2SEQ = "heed.models.decoder:Decoder", "heed.models.seq2seq:Seq2seq"
BLOCK, ENDS = "heed.models.block:Block", "heed.parts.residual.wired:Ends"


def name_of(kind: Any) -> str:
    """module:qualname"""
    return f"{kind.__module__}:{kind.__qualname__}"


def emitter_of(table: Mapping[str, Emit], part: object) -> Emit:
    """What writes this part; `Uncompiled` says why there is nothing."""
    found = table.get(name_of(type(part)))
    if found is None:
        raise Uncompiled(part, why_not(table, type(part)))
    return found


def why_not(table: Mapping[str, Emit], kind: type) -> str:
    """Why a class has no emitter."""
    for base in kind.__mro__[1:]:
        if name_of(base) in table:
            return f"{kind.__name__}, a subclass of {base.__name__}, has no emitter: it may compute something else"
    return f"{kind.__name__} has no emitter"


def must_be(part: object, name: str) -> None:
    """Raise `Uncompiled` unless it is of this very class."""
    if name_of(type(part)) != name:
        raise Uncompiled(part, why_not({name: emitter_of}, type(part)))
