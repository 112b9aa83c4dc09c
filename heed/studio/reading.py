"""One pass of a model over one input: what every mixer was given, and the weights that it shows, layer by layer.

A layer's weights are looked at as they are computed, made small for its thumbnails, and kept while there is room; those
that are not are computed again when they are asked for. So a pass holds the weights of one layer, not of all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core.contract import Mixer, Where
from ..core.errors import InputError
from ..core.interfaces import LanguageModel
from ..models.block import Block
from ..parts.look import points
from .maps import Floats, thumbnail
from .scenes import CROSS, DECODER, ENCODER, SELF, Scene

POINT = "weights"  # what points of weights are called
ROOM = 1 << 29  # bytes of weights that a reading keeps


@dataclass(eq=False)
class Layer:
    """One mixer at work."""

    part: str
    depth: int  # among the layers of its part
    name: str  # of the module
    mixer: Mixer[Any]
    x: Tensor  # what it was given
    where: Where
    heads: int = 0  # of the weights it shows; 0: it shows none
    thumbs: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0, 0), np.float32))  # [H, s, s]
    peaks: tuple[float, ...] = ()  # the largest |weight| of each head
    signed: bool = False
    shape: tuple[int, int] = (0, 0)

    @property
    def kind(self) -> str:
        """What the mixer is called."""
        return type(self.mixer).__name__


class Reading:
    """A scene, and what was seen of it."""

    def __init__(self, model: nn.Module, scene: Scene, room: int = ROOM) -> None:
        self._model, self.scene, self._room = model, scene, room
        self._kept: OrderedDict[int, Floats] = OrderedDict()
        self.layers: list[Layer] = []
        with torch.no_grad(), _watched(model, _Pass(self._begun, self._shown)), _heard(model) as said:
            scene.run(model)
        self.logits = said[-1] if said else None  # [T, vocabulary]
        if not self.layers:
            raise InputError("nothing in this model mixes tokens that the studio knows of")

    @property
    def parts(self) -> dict[str, list[Layer]]:
        """The layers of each part, in order."""
        found: dict[str, list[Layer]] = {}
        for layer in self.layers:
            found.setdefault(layer.part, []).append(layer)
        return found

    def layer(self, part: str, depth: int) -> Layer:
        """One of them."""
        layers = self.parts.get(part)
        if layers is None:
            raise InputError(f"this model has no part {part!r}; it has {', '.join(self.parts)}")
        if not 0 <= depth < len(layers):
            raise InputError(f"there is no layer {depth}; this part has the layers 0 to {len(layers) - 1}")
        return layers[depth]

    def weights(self, layer: Layer) -> Floats:
        """All heads of a layer. [H, T, N]"""
        if not layer.heads:
            raise InputError(f"{layer.kind} has no weights to show; its influence can be computed instead")
        index = self.layers.index(layer)
        if index not in self._kept:
            with torch.no_grad(), _watched(self._model, _Pass(lambda *_: None, self._again(index))):
                self.scene.run(self._model)
        self._kept.move_to_end(index)
        return self._kept[index]

    @property
    def nbytes(self) -> int:
        """Of the weights that are kept."""
        return sum(one.nbytes for one in self._kept.values())

    # --- the pass ---

    def _begun(self, name: str, mixer: Mixer[Any], x: Tensor, where: Where) -> None:
        part = _part(name, self.scene.both)
        depth = sum(layer.part == part for layer in self.layers)
        self.layers.append(Layer(part, depth, name, mixer, x.detach(), where))

    def _shown(self, number: int, weights: Tensor) -> None:
        layer = self.layers[number]
        if layer.heads or weights.dim() != 4 or weights.shape[0] != 1:
            return  # a mixer of several mixers shows the first; windows of an image as rows are no map of it
        each: Floats = weights[0].float().cpu().numpy()
        layer.heads, layer.shape = each.shape[0], (each.shape[1], each.shape[2])
        layer.signed = bool((each < 0).any())
        layer.peaks = tuple(float(np.abs(head).max(initial=0.0)) for head in each)
        layer.thumbs = np.stack([thumbnail(head) for head in each])
        self._keep(number, each)

    def _again(self, wanted: int) -> Any:
        seen: set[int] = set()

        def shown(number: int, weights: Tensor) -> None:
            if number == wanted and number not in seen:
                seen.add(number)
                self._keep(number, weights[0].float().cpu().numpy())

        return shown

    def _keep(self, number: int, each: Floats) -> None:
        while self._kept and self.nbytes + each.nbytes > self._room:
            self._kept.popitem(last=False)
        self._kept[number] = each


class _Pass:
    """Follows a call: which mixer is at work, and what is shown meanwhile."""

    def __init__(self, begun: Any, shown: Any) -> None:
        self._begun, self._show, self._count = begun, shown, 0
        self._within: list[int] = []

    def enter(self, name: str, mixer: Mixer[Any], x: Tensor, where: Where) -> None:
        self._begun(name, mixer, x, where)
        self._within.append(self._count)
        self._count += 1

    def leave(self) -> None:
        self._within.pop()

    def shown(self, weights: Tensor) -> None:
        if self._within:
            self._show(self._within[-1], weights)


class _Sink(list[Tensor]):
    """What a point shows is handed on and not held."""

    def __init__(self, following: _Pass) -> None:
        super().__init__()
        self._following = following

    def append(self, shown: Tensor) -> None:
        self._following.shown(shown)


@contextmanager
def _watched(model: nn.Module, following: _Pass) -> Iterator[None]:
    sink, hooks = _Sink(following), []
    looked = [point for name, point in points(model).items() if name.rpartition(".")[2] == POINT]
    for point in looked:
        point.watch(sink)
    for name, mixer in _mixers(model):
        hooks.append(mixer.register_forward_pre_hook(_entering(following, name)))
        hooks.append(mixer.register_forward_hook(lambda *_: following.leave()))
    try:
        yield
    finally:
        for point in looked:
            point.leave(sink)
        for hook in hooks:
            hook.remove()


def _entering(following: _Pass, name: str) -> Any:
    def enter(mixer: Mixer[Any], given: tuple[Any, ...]) -> None:
        following.enter(name, mixer, given[0], given[1])

    return enter


def _mixers(model: nn.Module) -> Iterator[tuple[str, Mixer[Any]]]:
    """The mixers of all blocks, by their names."""
    for name, block in model.named_modules():
        if isinstance(block, Block):
            yield f"{name}.mixer", block.mixer
            if block.cross is not None:
                yield f"{name}.{CROSS}", block.cross


def _part(name: str, both: bool) -> str:
    if name.rpartition(".")[2] == CROSS:
        return CROSS
    if not both:
        return SELF
    return ENCODER if name.startswith(f"{ENCODER}.") else DECODER


@contextmanager
def _heard(model: nn.Module) -> Iterator[list[Tensor]]:
    """The logits that a language model gives meanwhile."""
    said: list[Tensor] = []

    def keep(_: nn.Module, given: Any, output: Any) -> None:
        said.append(output[0][0].float())

    hook = model.register_forward_hook(keep) if isinstance(model, LanguageModel) else None
    try:
        yield said
    finally:
        if hook is not None:
            hook.remove()
