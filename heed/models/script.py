"""Blocks as instructions: what each part of a block does, on registers of a program (`kernels/program.py`).

A part that no instruction is known for raises `Unknown`: then plain calls do what is to be done, and they say what is
right.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from ..core.contract import Mixer
from ..kernels.abi import Matrix, Mode, Operation, Weights
from ..kernels.linear import matrix
from ..kernels.program import Draft, Unknown
from ..mixers import Attention
from ..parts.feedforward.channel_mix import ChannelMix
from ..parts.feedforward.mlp import FeedForward, Gated
from ..parts.layers.bitnet import PackedTernaryLinear
from ..parts.layers.linear import LinearLike
from ..parts.layers.norms import FromOne
from ..parts.layers.quantised import GroupedLinear, Int8Linear
from ..parts.masks import Causal, Window
from ..parts.outputs.heads import LMHead
from ..parts.positions import Alibi, NoPosition, Rope
from ..parts.residual.wired import NormedWired, ParallelWired, PostWired, PreWired, RescaledWired, SandwichWired

if TYPE_CHECKING:
    from ..mixers import Cross, Retention, Rwkv
    from .block import Block


class Blocks:
    """Writes blocks into a draft, for one token per row, which sees what its row remembers.

    It points to parameters and copies none: a program may outlive their values (`drafts.py`).
    """

    def __init__(self) -> None:
        self.draft = Draft()

    def _block(self, block: Block, stream: int) -> None:
        """As the wiring has it: what each part reads, and how what it gives is added to the stream."""
        wiring, width = block.wiring, self.draft.widths[stream]
        normed, beside = self.draft.register("normed", width), self.draft.register("beside", width)
        norms = list(wiring.norms)
        kind = type(wiring)
        if kind is ParallelWired:
            for norm, target in zip(norms, (normed, self.draft.register("second", width)), strict=False):
                self._norm(norm, stream, target)
        for place, part in enumerate(block.parts):
            if isinstance(wiring, PostWired):
                self._part(part, stream, stream, wiring.alpha)
                self._norm(norms[place], stream, stream)
            elif isinstance(wiring, PreWired):
                self._norm(norms[place], stream, normed)
                self._part(part, normed, stream, wiring.alpha)
            elif kind is NormedWired:
                self._norm(norms[place], stream, stream)
                self._part(part, stream, stream)
            elif kind is SandwichWired:
                self._norm(norms[2 * place], stream, normed)
                self._part(part, normed, beside, 0.0)
                self._norm(norms[2 * place + 1], beside, beside)
                self.draft.add(Operation.ADD, stream, beside, real=(1.0, 1.0))
            elif kind is ParallelWired:
                second = self.draft.register("second", width)
                self._part(part, (normed, second)[place % len(norms)], stream)
            elif isinstance(wiring, RescaledWired):
                self._norm(norms[place], stream, normed)
                self._part(part, normed, beside, 0.0)
                self.draft.add(Operation.ADD, stream, beside, real=(1.0, wiring.share))
            else:
                raise Unknown(kind.__name__)
        if isinstance(wiring, RescaledWired) and wiring.last != 1.0:
            self.draft.add(Operation.ADD, stream, stream, real=(wiring.last, 0.0))

    def _part(self, part: Mixer[object], source: int, target: int, old: float = 1.0) -> None:  # type: ignore[type-var]
        """target = old · target + part(source)."""
        kind = type(part)
        if isinstance(part, Attention) and kind is Attention:
            self._attention(part, source, target, old)
        elif isinstance(part, FeedForward) and kind is FeedForward:
            hidden = self._product(part.up, source, "hidden", activation=part.activation)
            self._down(part, hidden, target, old)
        elif isinstance(part, Gated) and kind is Gated:
            hidden = self._product(part.gate, source, "hidden", activation=part.activation)
            self._multiply(part.up, source, hidden, Mode.TIMES)
            self._down(part, hidden, target, old)
        elif isinstance(part, ChannelMix) and kind is ChannelMix:
            self._channels(part, source, target, old)
        else:
            self._rarer(part, source, target, old)

    def _rarer(self, part: Mixer[object], source: int, target: int, old: float) -> None:  # type: ignore[type-var]
        """Mixers that most models do without: they are imported to find out."""
        from ..mixers import Cross, Retention, Rwkv

        kind = type(part)
        if isinstance(part, Cross) and kind is Cross:
            self._cross(part, source, target, old)
        elif isinstance(part, Retention) and kind is Retention:
            self._retention(part, source, target, old)
        elif isinstance(part, Rwkv) and kind is Rwkv:
            self._rwkv(part, source, target, old)
        else:
            raise Unknown(kind.__name__)

    def _retention(self, part: Retention, source: int, target: int, old: float) -> None:
        from ..parts.recurrence.divisors import Undivided

        known(isinstance(part.divisor, Undivided), part.divisor)
        query, key = (self._product(layer, source, name) for layer, name in ((part.query, "query"), (part.key, "key")))
        value = self._product(part.value, source, "value")
        heads, size, wide = int(part.heads), int(part.head_size), int(part.value_size)
        self._turn(part.position, size, ((query, heads), (key, heads)))
        mixed = self.draft.register("mixed", heads * wide)
        number, gamma = (self.draft.cell(), heads, size, wide), torch.tensor(part.fade, dtype=torch.float64).exp()
        made = self.draft.add(Operation.RETAIN, mixed, query, number=number, real=(part.scale,), table=(gamma.float(),))
        made.key, made.value = key, value
        self._norm(part.norm, mixed, mixed, groups=heads)
        self._multiply(part.gate, source, mixed, Mode.TIMES, "silu")
        self._settle(part.out, mixed, target, old)

    def _rwkv(self, part: Rwkv, source: int, target: int, old: float) -> None:
        last, above, below, level = (self.draft.cell() for _ in range(4))
        shifted = [self._shifted(mix, source, last, name) for mix, name in ((part.mix_key, "a"), (part.mix_value, "b"))]
        key, value = (
            self._product(layer, register, name)
            for layer, register, name in zip((part.key, part.value), shifted, ("key", "value"), strict=True)
        )
        mixed = self.draft.register("mixed", int(part.hidden))
        table = part.decay, part.bonus
        made = self.draft.add(Operation.WKV, mixed, number=(above, below, level), table=table)
        made.key, made.value = key, value
        gate = self._shifted(part.mix_receptance, source, last, "a")
        self._multiply(part.receptance, gate, mixed, Mode.TIMES, "sigmoid")
        self.draft.add(Operation.KEEP, -1, source, number=(last,))
        self._settle(part.out, mixed, target, old)

    def _channels(self, part: ChannelMix, source: int, target: int, old: float) -> None:
        last = self.draft.cell()
        hidden = self._product(part.key, self._shifted(part.mix_key, source, last, "a"), "hidden", "relu_squared")
        made = self._product(part.value, hidden, "channels")
        gate = self._shifted(part.mix_receptance, source, last, "a")
        self._multiply(part.receptance, gate, made, Mode.TIMES, "sigmoid")
        self.draft.add(Operation.KEEP, -1, source, number=(last,))
        self.draft.add(Operation.ADD, target, made, real=(old, 1.0))

    def _shifted(self, share: Tensor, source: int, last: int, name: str) -> int:
        """The token and the one before it, mixed."""
        to = self.draft.register(f"shifted {name}", self.draft.widths[source])
        self.draft.add(Operation.SHIFT, to, source, number=(last,), table=(share,))
        return to

    def _down(self, part: FeedForward | Gated, hidden: int, target: int, old: float) -> None:
        if part.norm is not None:
            self._norm(part.norm, hidden, hidden)
        self._settle(part.down, hidden, target, old)

    def _attention(self, part: Attention, source: int, target: int, old: float) -> None:
        sight = self._sight(part)
        query = self._product(part.query, source, "query")
        named = ((part.key, "key"), (part.value, "value"))
        key, value = (self._product(layer, source, self._entry(name)) for layer, name in named)
        if part.clip is not None:
            for register in (query, key, value):
                self.draft.add(Operation.CLAMP, register, real=(part.clip,))
        for norm, register, heads in ((part.query_norm, query, part.heads), (part.key_norm, key, part.kv_heads)):
            if norm is not None:
                self._norm(norm, register, register, groups=int(heads))
        slopes = self._position(part, query, key)
        self._attend(part, (query, key, value), target, old, sight=sight, slopes=slopes)

    def _sight(self, part: Attention) -> tuple[int, int]:
        """The memory that tokens look at, and how far back; -1: any distance."""
        return self.draft.memory(), looks_back(part)

    def _entry(self, name: str) -> str:
        """What the register of a layer's keys or values is called."""
        return name

    def _position(self, part: Attention, query: int, key: int) -> Tensor | None:
        """Queries and keys are turned, or scores fall: then by these slopes."""
        code = part.position
        if type(code) is NoPosition:
            return None
        if isinstance(code, Alibi) and not code.rounded:
            return torch.tensor(code.slope) * code.scale
        self._turn(code, int(part.head_size), ((query, int(part.heads)), (key, int(part.kv_heads))))
        return None

    def _turn(self, code: nn.Module, size: int, registers: Iterable[tuple[int, int]]) -> None:
        """Registers of so many heads are turned by their position."""
        if type(code) is NoPosition:
            return
        known(isinstance(code, Rope) and not code.values and code.covers is None, code)
        rotation = cast(Rope, code).rotation
        waves = self.draft.waves(rotation.frequency, rotation.amplitude)
        for register, heads in registers:
            number = (heads, size, len(rotation.frequency), int(rotation.layout == "pairs"))
            self.draft.add(Operation.TURN, register, waves, number=number)

    def _cross(self, part: Cross, source: int, target: int, old: float) -> None:
        known(part.clip is None and part.query_norm is None, part)
        query = self._product(part.query, source, "query")
        self._attend(part, (query, -1, -1), target, old, sight=(self.draft.memory(source=True), -1))

    def _attend(
        self,
        part: Attention | Cross,
        three: tuple[int, int, int],
        target: int,
        old: float,
        *,
        sight: tuple[int, int],
        slopes: Tensor | None = None,
    ) -> None:
        query, key, value = three
        heads, shared, size = int(part.heads), int(part.kv_heads), int(part.head_size)
        memory, back = sight
        mixed = self.draft.register("mixed", heads * size)
        cap = part.cap if isinstance(part, Attention) else None
        number = (memory, heads, shared, size, size, back)
        made = self.draft.add(
            Operation.ATTEND, mixed, query, number=number, real=(part.scale, cap or 0.0), table=(slopes,)
        )
        made.key, made.value = key, value
        self._attended(part, key, value)
        if part.norm is not None:
            self._norm(part.norm, mixed, mixed)
        self._settle(part.out, mixed, target, old)

    def _attended(self, part: Attention | Cross, key: int, value: int) -> None:
        """These registers were looked at: what is remembered of a step is in its memory already."""

    def _norm(self, norm: nn.Module, source: int, target: int, groups: int = 1) -> None:
        gain: Tensor | None
        shift: Tensor | None = None
        more = 0  # than the weight is the gain
        if type(norm) is nn.LayerNorm:
            gain, shift, eps, plain = norm.weight, norm.bias, norm.eps, 0
        elif type(norm) is nn.RMSNorm and norm.eps is not None:
            gain, eps, plain = norm.weight, norm.eps, 1
        elif isinstance(norm, FromOne):
            gain, eps, plain, more = norm.weight, norm.eps, 1, 1
        else:
            raise Unknown(type(norm).__name__)
        width = self.draft.widths[source] // groups
        known(all(t is None or (t.dtype == torch.float32 and t.numel() == width) for t in (gain, shift)), norm)
        number = (groups, width, plain, more)
        self.draft.add(Operation.NORM, target, source, number=number, real=(eps,), table=(gain, shift))

    def _product(self, layer: nn.Linear | LinearLike, source: int, name: str, activation: str = "identity") -> int:
        target = self.draft.register(name, layer.out_features)
        self._multiply(layer, source, target, activation=activation)
        return target

    def _settle(self, layer: nn.Linear | LinearLike, source: int, target: int, old: float) -> None:
        """target = old · target + layer(source)."""
        self._multiply(layer, source, target, Mode.PLUS if old else Mode.SET, old=old)

    def _multiply(
        self,
        layer: nn.Linear | LinearLike,
        source: int,
        target: int,
        mode: Mode = Mode.SET,
        activation: str = "identity",
        old: float = 1.0,
    ) -> None:
        if isinstance(layer, PackedTernaryLinear) and layer.norm is not None:
            normed = self.draft.register("rounded", layer.in_features)
            self._norm(layer.norm, source, normed)
            source = normed
        self.draft.linear(self._matrix(layer), target, source, mode, activation, old)

    def _matrix(self, layer: nn.Linear | LinearLike) -> Matrix:
        sizes = layer.out_features, layer.in_features
        if isinstance(layer, PackedTernaryLinear):
            three, kind = (layer.codes, layer.scale, layer.shift), Weights.TERNARY
        elif isinstance(layer, Int8Linear):
            three, kind = (layer.codes, layer.scale, layer.bias), Weights.INT8 if layer.channels == 16 else Weights.W8A8
        elif isinstance(layer, GroupedLinear):
            three = (layer.codes, layer.scale, layer.bias)
            kind = Weights.GROUPS8 if layer.bits == 8 else Weights.GROUPS4
        else:
            known(type(layer) in (nn.Linear, LMHead) and layer.weight.dtype == torch.float32, layer)
            return self._plain(cast(nn.Linear, layer))
        known(three[2] is None or three[2].dtype == torch.float32, layer)
        for tensor in three:
            self.draft.keep(tensor)
        return matrix(kind, *three, *sizes)

    def _plain(self, layer: nn.Linear) -> Matrix:
        """A matrix of float32. One that is stored the other way round is, from now on, as it is read."""
        bias: Tensor | None = layer.bias
        known(bias is None or bias.dtype == torch.float32, layer)
        if not layer.weight.is_contiguous():
            layer.weight.data = layer.weight.data.contiguous()
        self.draft.keep(layer.weight), self.draft.keep(bias)
        return matrix(Weights.FLOAT32, layer.weight, None, bias, layer.out_features, layer.in_features)


def looks_back(part: Attention) -> int:
    """How far back tokens see, which see nothing ahead; -1: any distance."""
    mask = part.mask
    known(type(mask) is Causal or (type(mask) is Window and mask.ahead == 0), mask)
    return mask.back if isinstance(mask, Window) else -1


def known(condition: bool, what: object) -> None:
    """Raise unless there is an instruction for this."""
    if not condition:
        raise Unknown(type(what).__name__)
