"""What is not an attention but belongs to one: codes of positions, masks, slopes, shifts, norms, feed-forwards."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from torch import nn

from ..foreign.calls import Signature
from ..foreign.words import Role, role_of
from ..outcome import Outcome
from . import masking, model, norms, places, rotary


class Kind(StrEnum):
    """What a target is taken for."""

    ATTENTION = "attention"
    PLACES = "a code of positions"
    ROTARY = "a table of rotations"
    TURN = "a rotation by position"
    SLOPES = "slopes of ALiBi"
    SHIFT = "a relative shift"
    MASK = "a function that makes masks"
    NORM = "a norm"
    FEEDFORWARD = "a feed-forward layer"
    MODEL = "a model over token ids"


Asked = Callable[[Any, str], list[Outcome]]

OTHERS: dict[Kind, Asked] = {
    Kind.PLACES: places.asked,
    Kind.ROTARY: rotary.tables,
    Kind.TURN: rotary.turned,
    Kind.SLOPES: places.slopes,
    Kind.SHIFT: places.shifted,
    Kind.MASK: masking.asked,
    Kind.NORM: norms.asked,
    Kind.FEEDFORWARD: norms.positionwise,
    Kind.MODEL: model.asked,
}


def by_name(found: Any, name: str) -> Kind:
    """What a target is, by what it is called and what it takes."""
    words = set(re.findall(r"[a-z]+", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower()))
    roles = _roles(found)
    if words & {"slope", "slopes"}:
        return Kind.SLOPES
    if not inspect.isclass(found) and not isinstance(found, nn.Module):
        return _function(words, roles)
    if Role.IDS in roles and not roles[: roles.index(Role.IDS)]:
        return Kind.MODEL
    if words & {"norm", "layernorm", "rmsnorm"} or name.lower().endswith("norm"):
        return Kind.NORM
    if words & {"rotary", "rope"} and not words & {"attention", "attn", "block", "layer", "model", "self"}:
        return Kind.ROTARY
    attends = words & {"attention", "attn", "block", "layer", "encoder", "decoder", "transformer", "model"}
    if words & {"positional", "position", "positions", "pe", "sinusoidal", "pos"} and not attends:
        return Kind.PLACES
    if words & {"feedforward", "ffn", "mlp", "ff", "positionwise", "forward"} and not attends - {"layer"}:
        return Kind.FEEDFORWARD
    return Kind.ATTENTION


def _function(words: set[str], roles: list[Role]) -> Kind:
    tensors = {Role.QUERY, Role.KEY, Role.VALUE}
    if tensors <= set(roles):
        return Kind.ATTENTION
    if words & {"shift"}:
        return Kind.SHIFT
    if words & {"rotary", "rope", "rotate"} and roles and roles[0] in (Role.QUERY, Role.INPUT, Role.KEY):
        return Kind.TURN
    if words & {"mask", "masks", "causal", "padding"} and Role.QUERY not in roles:
        return Kind.MASK
    if Role.LENGTH in roles and (Role.WIDTH in roles or len(roles) == 2):
        return Kind.PLACES
    if words & {"positional", "position", "sinusoid", "sinusoidal", "pe", "encoding"}:
        return Kind.PLACES
    return Kind.NORM if words & {"norm", "layernorm", "rmsnorm"} else Kind.ATTENTION


def _roles(found: Any) -> list[Role]:
    """What its call takes, in order; of a class, what its forward takes."""
    if inspect.isclass(found):
        if not issubclass(found, nn.Module):
            return []
        return list(Signature.of(found.forward).roles.values())[1:]
    if isinstance(found, nn.Module):
        return list(Signature.of(found).roles.values())
    try:
        return [role_of(name) for name in inspect.signature(found).parameters]
    except (TypeError, ValueError):  # built in
        return list(Signature.of(found).roles.values())
