"""Heads that a checkpoint has, told by its tensors: how to build them, and what their tensors are called."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import ConfigError
from ...parts.outputs.heads import HeadConfig, Spans, Tagged
from ..formats.safetensors import Tensors
from ..rename import Table, both


@dataclass(frozen=True)
class Found:
    """A head that a checkpoint has: how to build it, and where its tensors go."""

    head: HeadConfig
    names: Table


def tagged(tensors: Tensors, scores: str) -> tuple[Found, ...]:
    """The classifier of every token, if there is one."""
    if f"{scores}.weight" not in tensors:
        return ()
    head = Tagged.Config(labels=classes(tensors, scores), bias=f"{scores}.bias" in tensors)
    return (Found(head, both(scores, "heads.tagged.scores")),)


def spans(tensors: Tensors) -> tuple[Found, ...]:
    """Where an answer begins and ends, if that can be asked."""
    if "qa_outputs.weight" not in tensors:
        return ()
    return (Found(Spans.Config(), both("qa_outputs", "heads.spans.scores")),)


def classes(tensors: Tensors, layer: str) -> int:
    """How many logits a layer makes."""
    name = f"{layer}.weight"
    shape = tensors.like(name).shape if name in tensors else ()
    if len(shape) != 2 or shape[0] < 1:
        raise ConfigError(f"{name} must be there with the shape [labels, width], not {list(shape)}")
    return shape[0]
