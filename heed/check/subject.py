"""What is checked, behind one face: a stream goes in, a stream comes out, and a mask says who sees whom.

Facts about it are found by experiment when they are first asked for, and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..core.config import Config, Flag, Positive, Size
from .foreign.build import Recipe, copied, forget
from .foreign.calls import Axes, Call, Face
from .foreign.words import Role, Sizes, says_causal
from .masks import Form, Found, explore
from .trace import traced

QUIET = 1e-9  # relative: an output that moves less than this has not moved (float64)
ROUGH = (
    1e-5  # the same where a module computes some of it in float32, whatever it is given: some 100 roundings of 2^-24
)


class Declared(Config):
    """What the user says about the target; what is None is found out, and not judged unless it contradicts itself."""

    causal: Flag | None = None  # with a causal mask
    mask_true: Literal["attend", "block"] | None = None  # what True or 1 means in a mask
    layout: Literal["bsd", "sbd"] | None = None  # rows or tokens first
    scale: Literal["head", "none"] | Positive | None = None  # by what scores are scaled
    window: Size | None = None  # how many tokens a token sees, itself included
    gqa: Literal["interleave", "tile"] | None = None  # which query heads share a key head
    rope: Literal["half", "pairs"] | None = None  # which channels turn together


@dataclass
class Subject:
    """A target that can be called, and what is known about it."""

    name: str
    call: Call
    declared: Declared = field(default_factory=Declared)
    recipe: Recipe | None = None
    seed: int = 0
    origin: Any = None  # the class or function that the user named

    @property
    def target(self) -> Any:
        return self.call.target

    @property
    def module(self) -> nn.Module | None:
        return self.target if isinstance(self.target, nn.Module) else None

    @property
    def sizes(self) -> Sizes:
        return self.call.sizes

    @property
    def crossed(self) -> bool:
        """Whether it looks at a source of its own."""
        return self.call.face is Face.CROSS

    @property
    def three(self) -> bool:
        """Whether queries, keys and values can be given apart."""
        return self.call.face in (Face.THREE, Face.HEADS)

    # --- inputs ---

    def stream(self, *, tokens: int | None = None, seed: int = 1, rows: int | None = None) -> Tensor:
        """Random tokens. [B, T, D]"""
        bare = self.call.axes is Axes.BARE and self.call.face is Face.HEADS
        count = 1 if bare else rows or self.sizes.rows
        draw = torch.Generator().manual_seed(1000 * self.seed + seed)
        shape = (count, tokens or self.sizes.tokens, self.sizes.width)
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    def source(self, seed: int = 2, rows: int | None = None) -> Tensor | None:
        """What a cross-attention looks at; None if it looks at the stream itself."""
        return self.stream(tokens=self.sizes.source, seed=seed, rows=rows) if self.crossed else None

    def nudged(self, x: Tensor, token: int | slice, row: int | slice = slice(None)) -> Tensor:
        """A copy with a token moved at random: a norm would not notice if all of its channels moved alike."""
        moved = x.clone()
        part = moved[row, token]
        moved[row, token] = part + torch.randn(part.shape, generator=torch.Generator().manual_seed(7), dtype=x.dtype)
        return moved

    # --- calls ---

    def run(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        value: Tensor | None = None,
        sees: Tensor | None = None,
        form: Form | None = None,
    ) -> Tensor:
        """The output, without gradients; `sees` [B, T, S] is told in a form that the target understands."""
        with torch.no_grad():
            return self.live(x, source, value=value, sees=sees, form=form)

    def live(
        self,
        x: Tensor,
        source: Tensor | None = None,
        *,
        value: Tensor | None = None,
        sees: Tensor | None = None,
        form: Form | None = None,
    ) -> Tensor:
        """The same with gradients."""
        if self.module is not None:
            forget(self.module)
        beside = source if source is not None or not self.crossed else self.source(rows=len(x))
        extra = {}
        if sees is not None:
            used = form or self.pairs or self.padding
            assert used is not None  # a caller that gives a mask has asked whether there is a form
            mask = used.write(sees, self.sizes.heads)
            extra = {used.argument: mask.to(x.dtype) if mask.is_floating_point() else mask}
        return self.call(x, beside, value, extra)

    def keys(self, x: Tensor) -> int:
        """How many tokens there are to look at."""
        return self.sizes.source if self.crossed else x.shape[1]

    @cached_property
    def coarse(self) -> bool:
        """Whether it computes some of it in less than float64, whatever it is given."""
        with torch.enable_grad(), traced(self.target) as trace:
            self.call(self.stream(), self.source())
        return trace.coarse

    @property
    def bound(self) -> float:
        """How far two ways to the same result may be apart: what rounding explains, ten times over."""
        return ROUGH if self.coarse else QUIET

    # --- masks ---

    @cached_property
    def masks(self) -> dict[str, Found]:
        """What was found about every argument that should be a mask."""
        return explore(self.call)

    @property
    def pairs(self) -> Form | None:
        """A form that says who sees whom."""
        good = [form for found in self.masks.values() for form in found.forms if form.shape.pairs]
        return next((form for form in good if form.shape.by_row), next(iter(good), None))

    @property
    def padding(self) -> Form | None:
        """A form that says who is there."""
        good = [form for found in self.masks.values() for form in found.forms if form.shape.by_row]
        return next((form for form in good if not form.shape.pairs), next(iter(good), None))

    # --- who is influenced by whom ---

    @cached_property
    def map(self) -> Tensor:
        """How far output i moves when token j is replaced, relative to the output. [T, S]"""
        return self.influence(self.run)

    def influence(self, run: Callable[..., Tensor], tokens: int | None = None) -> Tensor:
        """The same for another way to run, or another length."""
        x = self.stream(tokens=tokens, rows=1)
        source = self.source(rows=1)
        y = run(x, source)
        size = y.nan_to_num(0.0).abs().max().clamp(min=1e-30)
        found = torch.zeros(x.shape[1], self.keys(x), dtype=torch.float64)
        for j in range(found.shape[1]):
            moved_x, moved = x.clone(), None if source is None else source.clone()
            (moved_x if moved is None else moved)[:, j] = self.stream(tokens=1, seed=50 + j, rows=1)[:, 0] * 2
            after = run(moved_x, moved)
            same = (after == y) | (after.isnan() & y.isnan())  # what is never a number does not move
            change = (after - y).abs().masked_fill(same, 0.0).amax((0, 2)) / size
            found[:, j] = change.nan_to_num(float("inf"))
        return found

    @cached_property
    def looks_ahead(self) -> Tensor:
        """Which pairs (i, j > i) move. [T, S]"""
        return (self.map > QUIET).triu(1)

    @cached_property
    def meant_causal(self) -> bool:
        """Whether it should be causal: it was declared, the name says so, or it almost is."""
        if self.declared.causal is not None:
            return self.declared.causal
        if self.crossed:
            return False
        ahead = self.looks_ahead
        possible = ahead.shape[0] * (ahead.shape[0] - 1) // 2
        if not bool(ahead.any()):
            return True
        told = self._told_causal() and not self.led_by_masks
        back = bool((self.map > QUIET).tril(-1).any())
        few = int(ahead.sum()) <= possible // 2 and back
        backwards = int(ahead.sum()) == possible and not back  # a triangle, upside down
        return told or few or backwards

    @property
    def led_by_masks(self) -> bool:
        """Whether its library hands it a mask for everything: then a bare call says nothing about who looks ahead."""
        kind = type(self.target) if self.module is not None else self.target
        return str(getattr(kind, "__module__", "")).startswith("transformers.")

    def _told_causal(self) -> bool:
        flags = {} if self.recipe is None else self.recipe.flags
        said = [value for name, value in flags.items() if "causal" in name.lower()]
        return any(said) or (not said and says_causal(self.name))

    # --- copies ---

    def with_target(self, target: Any) -> Subject:
        """The same face in front of another target: a copy, or one built with other settings."""
        other = Subject(self.name, self.call.with_(target=target), self.declared, self.recipe, self.seed, self.origin)
        if "masks" in self.__dict__:
            other.__dict__["masks"] = self.masks
        return other

    def copied(self) -> Subject:
        """A deep copy of the module, or the function itself."""
        return self.with_target(copied(self.module) if self.module is not None else self.target)

    def single(self) -> Subject:
        """A copy in float32, with all that is passed beside the stream in float32, too."""
        other = self.copied()
        if other.module is not None:
            other.module.float()
        other.call = other.call.with_(made={name: _in_single(make) for name, make in other.call.made.items()})
        return other

    def rebuilt(self, **changed: Any) -> Subject | None:
        """Built anew with arguments changed, with the same weights where they fit; None if that cannot be."""
        if self.recipe is None or self.module is None:
            return None
        try:
            module = self.recipe.build(self.seed, **changed)
            module.load_state_dict(self.module.state_dict(), strict=False)
            return self.with_target(module)
        except Exception:  # a combination that the constructor refuses
            return None

    def has(self, *roles: Role) -> bool:
        """Whether the call has an argument of one of these roles."""
        return bool(self.call.signature.all(*roles))


def torchs_own(subject: Subject) -> bool:
    """Whether torch's own module does it: what is known there, and documented, is not in the user's hands."""
    return subject.module is not None and any(isinstance(m, nn.MultiheadAttention) for m in subject.module.modules())


def _in_single(make: Callable[[int], Any]) -> Callable[[int], Any]:
    def made(tokens: int) -> Any:
        value = make(tokens)
        if isinstance(value, tuple):
            return tuple(part.float() for part in value)
        return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value

    return made
