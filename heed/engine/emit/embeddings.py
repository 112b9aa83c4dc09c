"""Tables of tokens as instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from ...kernels.abi import Matrix
from .. import operands
from ..program import must

if TYPE_CHECKING:
    from ...parts.inputs.tokens import TokenEmbeddings
    from .emitter import Emitter


def tokens(e: Emitter, embeddings: TokenEmbeddings, width: int) -> tuple[int, int]:
    """The register of the stream, and how many places are read from a table of position codes."""
    extra = embeddings.narrow is not None or embeddings.segment is not None or embeddings.box is not None
    must(not extra, embeddings, "narrow embeddings, segments or boxes")
    stream = e.builder.register("stream", width)
    e.table(embeddings.table, stream, embeddings.scale)
    places = 0 if embeddings.position is None else e.added(embeddings.position, stream)
    if embeddings.norm is not None:
        e.norm(embeddings.norm, stream, stream)
    return stream, places


def table(e: Emitter, table: nn.Embedding, stream: int, scale: float) -> None:
    """A row of the table, times a scale; of numbers, or of codes and scales."""
    from ...parts.layers.embeddings import stored_weights

    must(table.weight.dtype == torch.float32, table, "not float32")
    kind, codes, steps = stored_weights(table)
    at = e.builder.keep(codes), e.builder.keep(steps), None
    made = Matrix(int(kind), table.num_embeddings, table.embedding_dim, 0, *at)
    e.builder.add(operands.Embed(scale), stream, matrix=made)
