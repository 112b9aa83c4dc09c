"""What a model makes of a whole text, whatever its kind: the stream that its heads read."""

from __future__ import annotations

from torch import Tensor

from ..core.contract import Where
from ..core.errors import InputError
from ..core.interfaces import Encodes, LanguageModel
from ..core.state import Seen
from .base import AnyModel


def fields_of(model: AnyModel) -> int:
    """Ids that a token brings: its own and, where a model tells two texts apart, which of them it is of."""
    return int(getattr(model.get_submodule("embeddings"), "fields", 1))


def stream_of(model: AnyModel, tokens: Tensor, where: Where) -> Seen:
    """The last hidden states of texts, stamped; fields that the model does not take are left out. [B, T, D]"""
    if tokens.dim() == 3:
        count = min(tokens.shape[-1], fields_of(model))
        tokens = tokens[..., 0] if count == 1 else tokens[..., :count]
    if isinstance(model, LanguageModel):
        if isinstance(model, Encodes):
            raise InputError("an encoder-decoder reads a source to generate a target; it has no stream of one text")
        return Seen.of(where, model.hidden_states(tokens, where)[0])
    if isinstance(model, Encodes):
        return model.encode(tokens, where)
    raise InputError(f"{type(model).__name__} does not read texts")
