"""Which family has the shape of a model of heed's own, and that model in the family's layout.

A family fits if it makes of the config that was derived for it the very shape that was asked for. Sinusoids that lie
side by side (the paper's) where a family has all sines first (Marian's) are the same model with its channels in another
order; they are put into that order.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ...core.config import Data
from ...core.contract import Mixer
from ...core.errors import ConfigError, WeightsError
from ...models import AudioEncoder, Decoder, Encoder, Shape, Swin, VisionEncoder
from ...models.backbone import TokenBackbone
from ...parts.outputs.heads import several
from ..edits import Edit, LoRA, merge
from ..edits.lora import adapters
from ..families import FAMILIES, kind_of
from ..families.base import Family, Opened, Understood, read, understood
from ..formats import native as own
from ..formats.checkpoint import Checkpoint
from ..formats.safetensors import Held
from ..rename import export
from .derived import PROPOSALS, Promised
from .heads import asked_by
from .plain import Difference, differences, plain

HEADED = Encoder.Config | Decoder.Config | VisionEncoder.Config | Swin.Config | AudioEncoder.Config  # by a task
M = TypeVar("M", bound=nn.Module)

# Where the stream's channels lie in a tensor of ours: along its columns, or its rows. Others hold none of them.
COLUMNS = re.compile(r".*(\.table|\.head|\.(mixer|cross)\.(query|key|value)|\.feedforward\.up)\.weight")
ROWS = re.compile(r".*((\.mixer|\.cross)\.out|\.feedforward\.down|\.norms\.\d+|\.final|\.norm)\.(weight|bias)")
INNER = re.compile(r".*(\.(mixer|cross)\.(query|key|value)|\.feedforward\.up|\.head)\.bias")


@dataclass(frozen=True)
class Trained:
    """What heed trained: the shape it was built from, its edits, and the checkpoint that it began as, if any."""

    shape: Shape
    edits: tuple[Edit, ...] = ()
    base: Checkpoint | None = None  # its config, and its tensors by name and shape
    labels: tuple[str, ...] = ()  # names of the classes that it tells

    def must_be_plain(self, known: tuple[Edit, ...]) -> None:
        """Raise if it was changed in a way that no other library knows; adapters are worked in."""
        rest = [change for change in self.edits[len(known) :] if not isinstance(change, LoRA)]
        if rest or self.edits[: len(known)] != known:
            kinds = ", ".join(str(change.dump()["kind"]) for change in rest or self.edits)
            raise WeightsError(
                f"the model was edited ({kinds}), which the Hugging Face layout cannot hold; heed loads it as it is"
            )


@dataclass(frozen=True)
class Fit:
    """A family that has the shape of a model."""

    name: str  # its model_type
    family: Family
    config: Data
    shape: Shape  # as the family makes it
    tensors: Promised
    reordered: bool  # whether the channels of the stream must be put into another order


def fitting(shape: Shape, length: int, tokens: Data) -> Fit:
    """The first family that has this shape; `tokens`: special tokens as a config.json names them.

    If there is none, the error tells what the nearest one has otherwise.
    """
    nearest: tuple[str, list[Difference]] | None = None
    wanted = plain(shape)
    for name, propose in PROPOSALS.items():
        proposal = propose(shape, length)
        if proposal is None:
            continue
        config = {"model_type": name, "architectures": [proposal.model], **proposal.config, **tokens}
        try:
            family = FAMILIES.named[name].load(config)
            theirs = family.ours(proposal.tensors)
        except ConfigError:  # a number that this family cannot have
            continue
        found = differences(wanted, plain(theirs))
        reordered = bool(found) and all(map(_is_order, found))
        if not found or reordered:
            return Fit(name, family, config, theirs, proposal.tensors, reordered)
        if all(one.place for one in found) and (nearest is None or len(found) < len(nearest[1])):
            nearest = name, found
    raise WeightsError(_reason(shape, nearest))


def without_adapters(model: M) -> M:
    """The model, or a copy of it into whose weights its adapters (LoRA) are worked."""
    if not adapters(model):
        return model
    copied = deepcopy(model)
    merge(copied)
    return copied


def at_home(model: Mixer[Any], trained: Trained, *, length: int, tokens: Data) -> Opened:
    """A model that heed trained as a checkpoint of the family that it came from or fits, ready to be written.

    Adapters (LoRA) are worked into a copy of its weights. `length`: tokens that it was trained on at a time.
    """
    model = without_adapters(model)
    if trained.base is not None:
        return _returned(model, trained, trained.base, tokens)
    trained.must_be_plain(())
    fit = fitting(trained.shape, length, tokens)
    if fit.reordered:
        model = _reordered(model, fit.shape)
    tensors = Held({name: tensor.cpu() for name, tensor in export(model, fit.family.names(fit.tensors)).items()})
    # Read as a stranger's checkpoint would be: every tensor has its place, and every place its tensor.
    checkpoint = Checkpoint(Path(fit.name), _typed(fit.config, tensors), tensors)
    return read(FAMILIES.named[fit.name], checkpoint)


def at_base(trained: Trained, base: Checkpoint) -> tuple[Understood, Data]:
    """The layout that a model has which began as a checkpoint: that one's, with the head that it was given since.

    And the config of both.
    """
    heads = several(trained.shape.heads) if isinstance(trained.shape, HEADED) else ()
    dressed = asked_by(base, heads[0], trained.labels) if len(heads) == 1 else None
    held = base if dressed is None else dressed
    told = understood(kind_of(held), held)
    found = differences(plain(trained.shape), plain(told.shape))
    if found:
        places = ", ".join(one.place for one in found)
        raise WeightsError(
            f"the Hugging Face layout of {base.config.get('model_type')} has no such model: it differs from its "
            f"base in {places}. `heed run` takes it as it is, and `heed convert --layout heed` keeps its layout"
        )
    return told, held.config


def _returned(model: Mixer[Any], trained: Trained, base: Checkpoint, tokens: Data) -> Opened:
    """A model that began as a checkpoint, in the layout that it had."""
    told, config = at_base(trained, base)
    trained.must_be_plain(told.edits)
    if trained.labels and config.get("pad_token_id") is None:  # whole batches are classified only by models with one
        config = {**config, **{name: index for name, index in tokens.items() if name == "pad_token_id"}}
    weights = Held(own.tensors(model))
    return Opened(told.family, model, told.table, _typed(config, weights), {}, told.shape, told.edits)


def _typed(config: Data, tensors: Held) -> Data:
    """With the precision of the weights."""
    name = "torch_dtype" if "torch_dtype" in config else "dtype"
    return {**config, name: str(tensors.dtype or torch.float32).removeprefix("torch.")}


def _is_order(found: Difference) -> bool:
    return found.place.endswith("position.layout") and (found.ours, found.theirs) == ("interleaved", "concatenated")


def _reordered(model: Mixer[Any], shape: Shape) -> Mixer[Any]:
    """The same model with all sines of its positions before all cosines: every tensor's stream in that order."""
    held = own.tensors(model)
    order = _halves(next(tensor.shape[1] for name, tensor in held.items() if name.endswith("table.weight")))
    fresh = shape.build().to(next(iter(held.values())).dtype)
    own.fill(fresh, {name: _put(name, tensor.cpu(), order) for name, tensor in held.items()})
    return fresh.eval()


def _halves(width: int) -> Tensor:
    """0, 2, 4 ... 1, 3, 5 ..."""
    return torch.arange(width).view(-1, 2).T.flatten()


def _put(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    if COLUMNS.fullmatch(name):
        return tensor[:, order]
    if ROWS.fullmatch(name):
        return tensor[order]
    if INNER.fullmatch(name):
        return tensor
    raise WeightsError(f"heed does not know how the channels of {name} lie, so it cannot put them into another order")


def _reason(shape: Shape, nearest: tuple[str, list[Difference]] | None) -> str:
    kept = "`heed run` takes it as it is, and `heed convert --layout heed` keeps its layout"
    kind = shape.dump()["kind"]
    if nearest is None:
        mixers = f" of {shape.mixer_of(0).dump()['kind']}" if isinstance(shape, TokenBackbone.Config) else ""
        return f"no family of the Hugging Face layout that transformers reads is a {kind}{mixers}; {kept}"
    name, found = nearest
    told = "".join(f"\n  - {one.place}: {_word(one.ours)}, where {name} has {_word(one.theirs)}" for one in found[:8])
    more = f"\n  - and {len(found) - 8} more" if len(found) > 8 else ""
    return (
        f"no family of the Hugging Face layout has a {kind} of this shape; the nearest is {name}, but for{told}{more}\n"
        f"train with those settings (--set model...) to make it one; {kept}"
    )


def _word(value: object) -> str:
    return "none" if value is None else str(value)
