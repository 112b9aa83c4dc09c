"""A family of checkpoints: its config.json, typed; the same as a heed configuration; and one table of tensor names.

Adding a family = one short file in `families/`, a subclass of `Family` with the fields of their config that matter,
`ours` and `names`, and its types and place in `families.FAMILIES`. Loading, export, replay and the catalogue work from
the table.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import torch
from pydantic import BeforeValidator

from ...core.config import Config, Data, Theirs
from ...core.contract import Mixer
from ...core.errors import ConfigError, WeightsError
from ...models import Shape
from ...models.stack import Stack
from ...parts.feedforward import Activation
from ..edits import Edit, edit
from ..formats.checkpoint import Checkpoint
from ..formats.safetensors import Tensors
from ..rename import Table, restore

ACTIVATIONS: dict[str, Activation] = {  # by their name
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "silu": "silu",
    "swish": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_10": "gelu_clipped",
    "quick_gelu": "gelu_sigmoid",
    "relu2": "relu_squared",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "mish": "mish",
    "elu": "elu",
    "leaky_relu": "leaky_relu",
    "relu6": "relu6",
    "hardswish": "hardswish",
    "laplace": "laplace",
    "linear": "identity",
}


def _named(value: object) -> object:
    if isinstance(value, str) and value not in ACTIVATIONS and value not in ACTIVATIONS.values():
        raise ValueError(f"the activation {value!r} is not one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS.get(value, value) if isinstance(value, str) else value


Act: TypeAlias = Annotated[Activation, BeforeValidator(_named)]  # an activation under their name for it
Places: TypeAlias = Literal["columns", "ranks"]


class Family(Theirs):
    """One kind of checkpoint. Fields are those of its config.json, with its authors' defaults.

    Every field that changes what is computed must be here: what heed cannot do is refused by `ours`, never passed over.
    """

    types: ClassVar[tuple[str, ...]]  # what config.json calls it (model_type)
    paper: ClassVar[str] = ""
    typed: ClassVar[bool] = False  # token_type_ids are looked up in the vocabulary and added (GPT-2)

    @property
    def places(self) -> Places:
        """Whether positions count all columns of a batch, or real tokens only (OPT, RoBERTa)."""
        return "columns"

    @property
    @abstractmethod
    def layers(self) -> int:
        """Layers in all: what the number of tensors must bear out before anything is built."""

    @abstractmethod
    def ours(self, tensors: Tensors) -> Shape:
        """The same model as a heed configuration; the names that are there tell which heads it has."""

    def edits(self, tensors: Tensors) -> tuple[Edit, ...]:
        """What is changed in that model once it is built: layers whose weights are stored quantised."""
        return ()

    @abstractmethod
    def names(self, tensors: Tensors) -> Table:
        """The rename table: the name of every tensor in the checkpoint, and the one that it has in heed's model."""


@dataclass(frozen=True)
class Opened:
    """A checkpoint as a heed model, and what is needed to write it back."""

    family: Family
    model: Mixer[Any]
    table: Table
    config: Data  # their config.json
    dtypes: Mapping[str, torch.dtype]  # in which their tensors were stored
    shape: Shape  # what the model was built from
    edits: tuple[Edit, ...] = ()  # and how it was changed then


@dataclass(frozen=True)
class Understood:
    """What a checkpoint says of itself: enough to build its model and to fill it."""

    family: Family
    shape: Shape
    edits: tuple[Edit, ...]
    table: Table


def understood(kind: type[Family], checkpoint: Checkpoint) -> Understood:
    """The config of a checkpoint of this family, in heed's words. Nothing is built."""
    try:
        family = kind.load(checkpoint.config)
        if family.layers > len(checkpoint.tensors):
            raise ConfigError(f"it claims {family.layers} layers, but there are {len(checkpoint.tensors)} tensors")
        shape, edits = family.ours(checkpoint.tensors), family.edits(checkpoint.tensors)
        must_hold(shape, checkpoint.tensors)
    except ConfigError as error:
        raise WeightsError(f"{checkpoint.place}: its config cannot be used: {error}") from None
    return Understood(family, shape, edits, family.names(checkpoint.tensors))


def read(kind: type[Family], checkpoint: Checkpoint) -> Opened:
    """The model of a checkpoint of this family."""
    told = understood(kind, checkpoint)
    dtypes = {name: checkpoint.tensors.like(name).dtype for name in checkpoint.tensors}
    model = restore(lambda: edit(told.shape.build(), *told.edits), checkpoint, told.table)
    return Opened(told.family, model, told.table, checkpoint.config, dtypes, told.shape, told.edits)


def prefix(tensors: Tensors, name: str) -> str:
    """`name` if tensors are called so, "" if they are stored without: a model saved alone has no prefix."""
    return name if any(tensor.startswith(name) for tensor in tensors) else ""


def alone(tensors: Tensors, stem: str, head: str = "lm_head.weight") -> bool:
    """Whether a backbone was saved without its head, and so without a prefix: its embeddings are the nearest to one."""
    return head not in tensors and not prefix(tensors, stem)


def must_hold(shape: Config, tensors: Tensors) -> None:
    """Raise if widths are claimed that no tensor has: to build them costs time."""
    widest = max((max(tensors.like(name).shape, default=1) for name in tensors), default=0)
    for stack in _stacks(shape):
        if stack.width > widest or stack.blocks > len(tensors):
            raise ConfigError(
                f"it claims {stack.depth} layers of width {stack.width}; there are {len(tensors)} tensors, none of "
                f"them wider than {widest}"
            )


def _stacks(node: Config) -> Iterator[Stack.Config]:
    if isinstance(node, Stack.Config):
        yield node
    for _, value in node:
        if isinstance(value, Config):
            yield from _stacks(value)
