"""The contract: whatever carries information along a sequence is a Mixer.

    y, state = mixer(x, where, state)

`state=None` means "the whole sequence is here" (training); a state means "continue" (prefill, decoding). `where` says
which tokens these are; left out, they are the whole sequence, or those that follow the state's last. Five laws
(`laws.py`) say when that is honest:

1. split    any cutting of a sequence into calls gives the outputs and the gradients of one call
2. padding  tokens of order -1 change neither other outputs nor the state, even if they hold garbage
3. rows     rows are independent: selecting rows of input and state commutes with the call
4. cost     the state holds at most, for most mixers exactly, the bytes that `spec` declares
5. reach    the gradient of output i is zero for inputs revealed after i, or before the declared reach
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, NamedTuple, Self, cast
from warnings import warn

import torch
from torch import Tensor, nn

from .config import Config
from .errors import CannotStream, ConfigError, InputError
from .spec import Spec
from .stamps import Span, Stamps
from .state import S, Seen, allocate, ends, must_have

# What other libraries call a width and a number of heads.
WIDTH = ("width", "embed_dim", "d_model", "dim", "hidden_size")
OURS = {"num_heads": "heads", "nhead": "heads", "n_heads": "heads", "num_layers": "depth", "vocab_size": "vocabulary"}


class Reach(NamedTuple):
    """How far a token looks; None = without limit."""

    back: int | None = None
    ahead: int | None = 0

    def then(self, other: Reach) -> Reach:
        """One after the other: reaches add up."""
        return Reach(_sum(self.back, other.back), _sum(self.ahead, other.ahead))

    def beside(self, other: Reach) -> Reach:
        """Both at once: the farther one counts."""
        return Reach(_larger(self.back, other.back), _larger(self.ahead, other.ahead))

    def within(self, other: Reach) -> Reach:
        """Only what both allow: the nearer one counts."""
        return Reach(_smaller(self.back, other.back), _smaller(self.ahead, other.ahead))


@dataclass(frozen=True, init=False)
class Given:
    """Side inputs by name and type; never a dict."""

    encoder_output: Seen | None = None  # what cross-attention looks at
    shared: Seen | None = None  # keys and values made by another layer (YOCO)
    neighbours: Seen | None = None  # retrieved chunks that arrived with this call (RETRO)
    marked: Tensor | None = None  # [B, T] global tokens of this call: all see them, they see all (Longformer)
    segment: Tensor | None = None  # [B, T] which part of a text each token of this call is of (XLNet)

    def __init__(
        self,
        encoder_output: Seen | None = None,
        shared: Seen | None = None,
        neighbours: Seen | None = None,
        marked: Tensor | None = None,
        segment: Tensor | None = None,
        *,
        memory: Seen | None = None,  # what encoder_output was called in the last release
    ) -> None:
        if memory is not None:
            warn("Given(memory=...) is called encoder_output now; the old name will go", DeprecationWarning, 2)
            encoder_output = memory
        values = (encoder_output, shared, neighbours, marked, segment)
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)


NOTHING = Given()


@dataclass(frozen=True, eq=False)
class Where(Stamps):
    """Which tokens a call is about, and what it was given beside them."""

    given: Given = NOTHING

    def __post_init__(self) -> None:
        order, position = self.order, self.position
        given: tuple[object, ...] = order, position  # callers may not check types
        if not all(isinstance(one, Tensor) for one in given):
            raise InputError(f"order and position are tensors, not {type(order).__name__}; Where.run makes them")
        if order.shape != position.shape or order.dim() != 2 or order.is_floating_point():
            raise InputError(
                f"order and position are whole numbers, one for each token, [rows, tokens]; got {order.dtype} of shape "
                f"{list(order.shape)} and {position.dtype} of shape {list(position.shape)}"
            )

    @classmethod
    def run(cls, rows: int, length: int, *, start: int = 0, device: torch.device | str | None = None) -> Where:
        """Tokens start .. start+length-1 in every row, no padding."""
        if start < 0:
            raise InputError(f"the first token of a run must have an order of 0 or more, not {start}")
        sizes: tuple[object, ...] = rows, length
        if not all(isinstance(size, int) for size in sizes) or min(rows, length) < 0:
            raise InputError(f"a run has 0 or more rows and tokens, not {rows!r} and {length!r}")
        order = torch.arange(start, start + length, device=device).expand(rows, length)
        where = cls(order, order)
        where.known(Span(start, start + length - 1, run=True, padded=False))
        return where

    @classmethod
    def ragged(cls, lengths: Tensor | Iterable[int], *, start: Tensor | int = 0, width: int | None = None) -> Where:
        """Row b holds `lengths[b]` tokens from `start` (or `start[b]`) on, then padding up to the longest row."""
        length = lengths if isinstance(lengths, Tensor) else torch.tensor(list(lengths))
        longest = int(length.max()) if length.numel() else 0
        if bool((length < 0).any()) or (width is not None and width < longest):
            raise InputError(f"lengths must be 0 to {'any' if width is None else width}, got {length.tolist()}")
        column = torch.arange(longest if width is None else width, device=length.device)
        begin = start[:, None] if isinstance(start, Tensor) else start
        order = torch.where(column < length[:, None], column + begin, -1)
        return cls(order, order.clamp(min=0))

    @classmethod
    def of_mask(cls, mask: Tensor) -> Where:
        """From an attention mask of other libraries: 1 = a token, 0 = padding, which stands at the row's end.

        Left padding moves tokens to other columns: `Aligned.of(mask)` gives the stamps, the move and the way back.
        """
        real = real_of(mask)
        if bool((real[:, 1:] & ~real[:, :-1]).any()):
            raise InputError(
                "this attention mask has padding before a token; in heed padding stands at a row's end. Move the "
                "tokens: padded = heed.Aligned.of(mask), then model(padded.align(ids), padded.where), and "
                "padded.restore(y) brings outputs back to the columns of ids; or pad on the right"
            )
        if bool(real.all()):
            return cls.run(*real.shape, device=real.device)
        where = cls.ragged(real.sum(1), width=real.shape[1])
        where.known(Span(0, int(where.order.max()), run=True, padded=True))
        return where

    def give(
        self,
        *,
        encoder_output: Seen | None = None,
        shared: Seen | None = None,
        neighbours: Seen | None = None,
        marked: Tensor | None = None,
        segment: Tensor | None = None,
    ) -> Where:
        """The same tokens with more side inputs; what is not named stays."""
        before = self.given
        return self.beside(
            Given(
                encoder_output or before.encoder_output,
                shared or before.shared,
                neighbours or before.neighbours,
                before.marked if marked is None else marked,
                before.segment if segment is None else segment,
            )
        )

    def beside(self, given: Given) -> Where:
        """The same tokens with these side inputs and no others."""
        where = replace(self, given=given)
        where.known(self.span)
        return where

    def cut(self, begin: int, end: int) -> Where:
        """Columns begin .. end-1 of every row."""
        return Where(self.order[:, begin:end], self.position[:, begin:end], self.given)


class Mixer(nn.Module, ABC, Generic[S]):
    """Whatever carries information along a sequence: attention, recurrence, convolution, a block, a whole stack."""

    reach: Reach  # how far back and ahead of itself a token can be influenced from

    def __new__(cls, *given: Any, **named: Any) -> Self:
        if given or named:  # copying and unpickling give nothing
            _must_be_given_config(cls, given, named)
        return super().__new__(cls)

    @property
    def streams(self) -> bool:
        """Whether it can continue from a state: it must not look ahead."""
        return self.reach.ahead == 0

    @abstractmethod
    def spec(self) -> Spec:
        """What it remembers."""

    def start(self, rows: int, given: Given = NOTHING) -> S:
        """The state before the first token. A mixer that looks ahead has none."""
        self.must_stream()
        return cast(S, allocate(self.spec(), rows, self.device))  # S is the tree that spec declares

    @abstractmethod
    def forward(self, x: Tensor, where: Where, state: S | None = None) -> tuple[Tensor, S | None]:
        """Outputs for these tokens, and the state to continue from (None if none was given)."""

    @property
    def device(self) -> torch.device | None:
        """Where its weights are; None if it has none."""
        tensor = next(self.parameters(), None)
        return None if tensor is None else tensor.device

    def must_stream(self) -> None:
        """Raise unless it can continue from a state."""
        if not self.streams:
            raise CannotStream.because(type(self).__name__, self.reach.ahead)

    def default_where(self, x: Tensor) -> Where:
        """The stamps of a whole sequence without padding: what `where` is if it is left out."""
        must_be_tensor(x, type(self).__name__)
        if x.dim() < 2:  # rows and tokens
            raise InputError(
                f"{type(self).__name__} needs [rows, tokens, ...], got the shape {list(x.shape)}; for one sequence "
                "write x[None]"
            )
        return Where.run(x.shape[0], x.shape[1], device=x.device)

    def __call__(self, x: Tensor, where: Where | None = None, state: S | None = None) -> tuple[Tensor, S | None]:
        if not isinstance(where, Where):
            where = self._left_out(x, where, state)
        must_be_tensor(x, type(self).__name__)
        if x.dim() < 4 and x.shape[:2] != where.order.shape and x.numel():  # of four axes are images, cut into patches
            raise InputError(
                f"where is about {tuple(where.shape)} (rows, tokens), the tensor of {type(self).__name__} holds "
                f"{tuple(x.shape[:2])}; Where.run({', '.join(map(str, x.shape[:2]))}) would fit"
            )
        if state is not None:
            self.must_stream()
            must_have(state, where.shape[0])
        y, state = super().__call__(x, where, state)
        return y, state

    def _left_out(self, x: Tensor, given: object, state: S | None) -> Where:
        """The stamps of a call that does not say which tokens it is about."""
        name = type(self).__name__
        if isinstance(given, Tensor):
            raise InputError(
                f"the second argument of {name} says which tokens these are: a Where, not a tensor "
                f"{list(given.shape)}. If it is an attention mask (1 = a token, 0 = padding), write "
                f"{name.lower()}(x, Where.of_mask(mask))"
            )
        if given is not None:
            raise InputError(
                f"the second argument of {name} is a Where, not a {type(given).__name__}; a state is the third: "
                f"{name.lower()}(x, where, state), or {name.lower()}(x, state=state)"
            )
        first = self.default_where(x)
        if state is None:
            return first
        must_have(state, x.shape[0])
        last = ends(self.spec(), state)
        if last is None:
            raise InputError(
                f"this state of {name} does not tell how many tokens came before; say which tokens these are: "
                "where=Where.run(rows, tokens, start=how_many_came_before)"
            )
        return _after(first, *last)


def must_be_tensor(x: object, name: str) -> None:
    """What a mixer is given; lists are what most people try first."""
    if not isinstance(x, Tensor):
        raise InputError(
            f"{name} takes a tensor, not {type(x).__name__}; of token ids in lists, write torch.tensor([[...]]), a row "
            "for each sequence; a pipeline (heed.load) takes texts and lists"
        )


class MixerConfig(Config):
    """How to build a mixer. Every mixer nests one, with defaults that work."""

    paper: ClassVar[str] = ""
    choices: ClassVar[Sequence[type[MixerConfig]]] = ()  # all there are: set by heed.mixers when that is imported

    @abstractmethod
    def build(self, width: int) -> Mixer[Any]:
        """The mixer for a stream of this width."""

    @classmethod
    def samples(cls) -> tuple[MixerConfig, ...]:
        """Small configurations that together use every option: what the laws are run over."""
        return (cls(),)


def _must_be_given_config(owner: type, given: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise if the constructor takes a configuration and gets something else, as in Attention(64, 8)."""
    first = given[0] if given else named.get("config")
    if isinstance(first, Config) or next(iter(_parameters(owner)), "") != "config":
        return
    config = _config_of(owner)
    if config is not None:
        raise ConfigError(
            f"{owner.__name__} is built from its configuration; write {_written(owner, config, given, named)}"
        )


def _parameters(owner: type) -> list[str]:
    return list(inspect.signature(owner.__init__).parameters)[1:]  # type: ignore[misc]  # whatever it is, it is called


def _config_of(owner: type) -> type[Config] | None:
    """The configuration that this class or one of its bases nests."""
    nested = (vars(base)["Config"] for base in owner.__mro__ if "Config" in vars(base))
    return next((config for config in nested if isinstance(config, type) and issubclass(config, Config)), None)


def _written(owner: type, config: type[Config], given: Sequence[Any], named: Mapping[str, Any]) -> str:
    """The call that was meant, as far as what was given tells: a width comes first, then the number of heads."""
    known = config.model_fields
    numbers = [value for value in given if isinstance(value, int)]
    said = {OURS.get(name, name): value for name, value in named.items()}
    width = next((said[name] for name in WIDTH if name in said), numbers[0] if numbers else "width")
    chosen = {name: repr(value) for name, value in said.items() if name in known}
    if (
        len(numbers) > 1 and "heads" in known and known["heads"].annotation is int
    ):  # a model's heads are of another kind
        chosen.setdefault("heads", str(numbers[1]))
    for name, field in known.items():
        if field.is_required():
            chosen.setdefault(name, str(width) if name == "width" else "...")
    built = ", ".join(inspect.signature(config.build).parameters.keys() - {"self"})  # type: ignore[attr-defined]
    settings = ", ".join(f"{name}={value}" for name, value in chosen.items())
    return f"{owner.__name__}.Config({settings}).build({width if built else ''})"


def mixer_entry(thing: Any) -> tuple[str, type[MixerConfig]]:
    """The kind and the configuration of a mixer that another package brings: of its class, or of its `Config`."""
    if isinstance(thing, str):
        raise ConfigError(
            f"@heed.register takes no name; leave it out, and give its Config kind: Literal[{thing!r}] = {thing!r}"
        )
    config = _config_of(thing) if isinstance(thing, type) and issubclass(thing, Mixer) else thing
    if not isinstance(config, type) or not issubclass(config, MixerConfig):
        raise ConfigError(
            f"{thing!r} is not a mixer with a configuration; needed is a class like: class Average(Mixer[Cell]) with "
            "a nested class Config(MixerConfig)"
        )
    kind = config.model_fields["kind"].default if "kind" in config.model_fields else None
    if not isinstance(kind, str):
        name = config.__qualname__
        raise ConfigError(f'{name} has no kind; give it a name for files: kind: Literal["average"] = "average"')
    return kind, config


def _after(first: Where, order: Tensor, position: Tensor) -> Where:
    """The tokens that follow those of these orders and positions, row by row."""
    rows, tokens = first.shape
    start = int(order[0]) + 1 if rows else 0
    if bool((order == start - 1).all() & (position == start - 1).all()):
        return Where.run(rows, tokens, start=start, device=first.order.device)
    return Where(first.order + order[:, None] + 1, first.position + position[:, None] + 1)


def real_of(mask: Tensor) -> Tensor:
    """True where an attention mask of other libraries has a token. [rows, tokens]"""
    if mask.dim() != 2:  # rows and tokens
        raise InputError(
            f"an attention mask has the shape [rows, tokens], with 1 = a token and 0 = padding; this one has "
            f"{list(mask.shape)}. Who sees whom is the business of a mixer's mask: Attention.Config(mask=...)"
        )
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise InputError(
            "an attention mask holds 1 for a token and 0 for padding, and nothing else; this one holds "
            f"{float(mask.min()):g} to {float(mask.max()):g}. If it is made to be added to scores, write mask == 0"
        )
    return mask.bool()


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _larger(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)


def _smaller(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
