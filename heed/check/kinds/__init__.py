"""What is not an attention but belongs to one: codes of positions, masks, slopes, shifts, norms, feed-forwards."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from torch import nn

from ..foreign.signature import Signature
from ..foreign.sizes import size_word
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


NORMS = {"norm", "layernorm", "rmsnorm"}
FEEDS = {"feedforward", "ffn", "mlp", "ff", "positionwise"}
POSITIONS = {"positional", "position", "positions", "pe", "sinusoid", "sinusoidal", "pos"}
NAMED = {"attention", "attn", "att", "mha", "mhsa", "msa"}
ATTENDS = {*NAMED, "block", "layer", "encoder", "decoder", "transformer", "model"}
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
    if (words & NORMS or name.lower().endswith("norm")) and not _wraps(found) and not _headed(found):
        return Kind.NORM
    if words & FEEDS or words >= {"feed", "forward"}:
        return Kind.FEEDFORWARD if not words & (ATTENDS - {"layer", "block"}) else Kind.ATTENTION
    attends = words & {*NAMED, "block", "layer", "model", "self"} or Role.CACHE in roles or _headed(found)
    if words & {"rotary", "rope"} and not attends:
        return Kind.ROTARY
    if words & POSITIONS and not words & (ATTENDS - {"encoder"}):
        return Kind.PLACES
    return Kind.ATTENTION


def _headed(found: Any) -> bool:
    """Whether its constructor takes a number of heads: a table of rotations needs the size of one only."""
    if not inspect.isclass(found):
        return False
    return any(size_word(name) == "heads" for name in inspect.signature(found).parameters)


def _wraps(found: Any) -> bool:
    """Whether its constructor takes another module: then it is what stands around that, and no norm by itself."""
    if not inspect.isclass(found):
        return isinstance(found, nn.Module) and any(True for _ in found.children())
    return bool({"fn", "sublayer", "module", "layer", "block", "f", "net"} & set(inspect.signature(found).parameters))


def _function(words: set[str], roles: list[Role]) -> Kind:
    tensors = {Role.QUERY, Role.KEY, Role.VALUE}
    if tensors <= set(roles):
        return Kind.ATTENTION
    if words & {"shift"}:
        return Kind.SHIFT
    if words & {"rotary", "rope", "rotate"} and roles and roles[0] in (Role.QUERY, Role.INPUT, Role.KEY):
        return Kind.TURN
    if words & {"mask", "masks", "causal", "padding"}:
        return Kind.MASK
    if words & NORMS:
        return Kind.NORM
    if words & FEEDS or words >= {"feed", "forward"}:
        return Kind.FEEDFORWARD
    numbers = bool(roles) and roles[0] in (Role.LENGTH, Role.WIDTH, Role.PLACES)
    if numbers and Role.LENGTH in roles and (Role.WIDTH in roles or len(roles) == 2):
        return Kind.PLACES
    return Kind.PLACES if words & (POSITIONS | {"encoding"}) else Kind.ATTENTION


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
