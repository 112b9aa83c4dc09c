"""What is checked, behind one face: a stream goes in, a stream comes out, and a mask says who sees whom.

Facts about it are found by experiment when they are first asked for, and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..core.config import Config, Flag, Positive, Size
from .foreign.adapt import Adapted, Ours
from .foreign.build import Recipe, copied, forget, sown
from .foreign.calls import Axes, Call, Face, OtherLength, Sized, default_type, in_single
from .foreign.layouts import Layout
from .foreign.sizes import Sizes, size_word
from .foreign.words import Role, says_causal
from .masks import Form, Found, explore
from .trace import Trace, Tracer

MORE = range(3, 7)  # seeds by which code is run that draws random numbers: two of few outcomes may be alike by chance
SOFT = 0.1  # of the usual size: where scores are so large that one key takes all, smaller ones let others through
QUIET = 1e-9  # relative: an output that moves less than this has not moved (float64)
ROUGH = 1e-5  # the same where a module computes some of it in float32, whatever it is given: 100 roundings of 2^-24


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
    dtype: torch.dtype = torch.float64
    weights_kept: bool = True  # of one built anew: whether all its weights are those of the first
    notes: tuple[str, ...] = ()  # what was guessed to build and call it

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
        return self.call.crossed

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
        beside, extra = self._beside(x, source, sees, form)
        with default_type(self.dtype):  # theirs may write into what it is given
            return self.call(x.clone(), beside, None if value is None else value.clone(), extra)

    def watched(
        self, x: Tensor, source: Tensor | None = None, *, sees: Tensor | None = None, form: Form | None = None
    ) -> tuple[Tensor, Trace]:
        """The output, and what happened inside; projections that heed makes for a function are no part of it."""
        beside, extra = self._beside(x, source, sees, form)
        with default_type(self.dtype):
            tracer = Tracer.of(self.target)
            return self.call.with_(watch=tracer.watching)(x, beside, None, extra), tracer.trace

    def _beside(
        self, x: Tensor, source: Tensor | None, sees: Tensor | None, form: Form | None
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """The source, and the masks, of a call that nothing of earlier calls leads into."""
        if self.module is not None:
            forget(self.module)
        beside = source.clone() if source is not None else self.source(rows=len(x)) if self.crossed else None
        extra = self.needed(x, beside)
        if sees is not None:
            used = form or self.pairs or self.padding
            assert used is not None  # a caller that gives a mask has asked whether there is a form
            extra[used.argument] = self._written(used, sees, x)
        return beside, extra

    def needed(self, x: Tensor, source: Tensor | None = None) -> dict[str, Tensor]:
        """Masks that must be given: for as many rows as there are, hiding nothing."""
        names = [name for name in self.call.made if self.call.signature.roles[name] in (Role.MASK, Role.PADDING)]
        used = [self.masks[name].forms[0] for name in names if name in self.masks and self.masks[name].forms]
        keys = self.keys(x) if source is None else source.shape[1]
        every = torch.ones(len(x), x.shape[1], keys, dtype=torch.bool)
        return {form.argument: self._written(form, every, x) for form in used}

    def _written(self, form: Form, sees: Tensor, x: Tensor) -> Tensor:
        mask = form.write(sees, self.sizes.heads)
        return mask.to(x.dtype) if mask.is_floating_point() else mask

    def keys(self, x: Tensor) -> int:
        """How many tokens there are to look at."""
        return self.sizes.source if self.crossed else x.shape[1]

    @cached_property
    def coarse(self) -> bool:
        """Whether it computes some of it in less than float64, whatever it is given."""
        return self.watched(self.stream(), self.source())[1].coarse

    @property
    def bound(self) -> float:
        """How far two ways to the same result may be apart: what rounding explains, ten times over."""
        return ROUGH if self.coarse else QUIET

    # --- what it takes, and whether it gives the same for the same ---

    @cached_property
    def thrice(self) -> tuple[Tensor, Tensor, Tensor]:
        """Three calls with the same input, of which the first and the last draw the same random numbers."""
        return self._drawn(1), self._drawn(2), self._drawn(1)

    @property
    def random(self) -> bool:
        """Whether the same input gives something else the next time: then nothing can be compared with anything."""
        first, second, third = (y.nan_to_num(9.0) for y in self.thrice)
        if not (torch.equal(first, second) and torch.equal(first, third)):
            return True
        return self._draws and any(not torch.equal(first, self._drawn(seed).nan_to_num(9.0)) for seed in MORE)

    def _drawn(self, seed: int) -> Tensor:
        sown(seed)
        return self.run(self.stream(), self.source())

    @cached_property
    def _draws(self) -> bool:
        return self.watched(self.stream(), self.source())[1].drew

    def takes(self, tokens: int) -> bool:
        """Whether a text of so many tokens is taken; where it looks at a source, one of so many."""
        kept: dict[int, bool] = self.__dict__.setdefault("_taken", {})
        if tokens not in kept:
            try:
                many = self.stream(tokens=tokens)
                self.run(*((self.stream(), many) if self.crossed else (many,)))
                kept[tokens] = True
            except (Exception, OtherLength):  # foreign code may raise anything
                kept[tokens] = False
        return kept[tokens]

    @property
    def any_length(self) -> bool:
        """Whether most lengths are taken: then one that is not is a fault. Windows want lengths of their own."""
        near = range(2, self.sizes.tokens + 2)
        return sum(self.takes(tokens) for tokens in near) > len(near) // 2

    @cached_property
    def fewest(self) -> int:
        """The smallest number of rows: one, unless the constructor was told how many there are."""
        arguments = {} if self.recipe is None else self.recipe.arguments
        return self.sizes.rows if any(size_word(name) == "rows" for name in arguments) else 1

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
        found = self.influence(self.run)
        if bool((found > QUIET).all()):
            return found
        return torch.maximum(found, self.influence(self.run, times=SOFT))

    def influence(self, run: Callable[..., Tensor], tokens: int | None = None, times: float = 1.0) -> Tensor:
        """The same for another way to run, for another length, or for smaller tokens."""
        x = times * self.stream(tokens=tokens, rows=self.fewest)
        source = self.source(rows=self.fewest)
        source = None if source is None else times * source
        y = run(x, source)
        size = y.nan_to_num(0.0).abs().max().clamp(min=1e-30)
        found = torch.zeros(x.shape[1], self.keys(x), dtype=torch.float64)
        for j in range(found.shape[1]):
            moved_x, moved = x.clone(), None if source is None else source.clone()
            other = self.stream(tokens=1, seed=50 + j, rows=self.fewest)[:, 0]
            (moved_x if moved is None else moved)[:, j] = 2 * times * other
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
        if self.call.layout in (Layout.IMAGE, Layout.GRID):  # which of its tokens are later is nobody's business
            return self._promised
        ahead, back = self.looks_ahead, (self.map > QUIET).tril(-1)
        possible = ahead.shape[0] * (ahead.shape[0] - 1) // 2
        if not bool(ahead.any()):
            return True
        few = int(ahead.sum()) <= possible // 2 and int(back.sum()) == possible  # a window is cut off behind, too
        return few or self.backwards or self._promised

    @property
    def backwards(self) -> bool:
        """Whether it looks ahead only, as by a triangle upside down; the last token, left with nothing, may see all."""
        back, tokens = (self.map > QUIET).tril(-1), len(self.map)
        return tokens > 2 and int(self.looks_ahead.sum()) == tokens * (tokens - 1) // 2 and not bool(back[:-1].any())

    @cached_property
    def _promised(self) -> bool:
        """Whether a switch says causal, or a name that no mask can make come true: a name alone is a question.

        So is `is_causal`, which torch and transformers have as a hint that a causal mask is given, too.
        """
        flags = {} if self.recipe is None else self.recipe.flags
        said = {name: value for name, value in flags.items() if "causal" in name.lower()}
        if any(value for name, value in said.items() if name != "is_causal"):
            return True
        asked = any(said.values()) or (not said and self.named_causal)
        return asked and not self.led_by_masks

    @property
    def named_causal(self) -> bool:
        """Whether its name says that it looks back only."""
        return says_causal(self.name)

    @cached_property
    def led_by_masks(self) -> bool:
        """Whether it looks ahead by itself, and not where a causal mask is given: the caller chooses."""
        form, many = self.pairs, self.looks_ahead.shape[0]
        if self.crossed or form is None or not bool(self.looks_ahead.any()):
            return False
        triangle = torch.ones(self.fewest, many, many, dtype=torch.bool).tril()
        seen = self.influence(lambda x, _: self.run(x, sees=triangle, form=form))
        return not bool((seen > QUIET).triu(1).any())

    # --- copies ---

    def with_target(self, target: Any) -> Subject:
        """The same face in front of another target: a copy, or one built with other settings."""
        other = replace(self, call=self.call.with_(target=target))
        if "masks" in self.__dict__:
            other.__dict__["masks"] = self.masks
        return other

    def copied(self) -> Subject:
        return self.with_target(copied(self.module) if self.module is not None else self.target)

    def single(self) -> Subject:
        """A copy in float32, with all that is passed beside the stream in float32, too."""
        other = self.copied()
        if other.module is not None:
            other.module.float()
        made = {name: _in_single(make) for name, make in other.call.made.items()}
        other.call, other.dtype = other.call.with_(made=made), torch.float32
        return other

    def rebuilt(self, **changed: Any) -> Subject | None:
        """Built anew with arguments changed, with the same weights where they fit; None if that cannot be."""
        if self.recipe is None or self.module is None:
            return None
        try:
            other = self.with_target(self._behind(self.recipe.build(self.seed, **changed)))
            assert other.module is not None
            ours, theirs = self.module.state_dict(), other.module.state_dict()
            fits = {name: value for name, value in ours.items() if name in theirs and value.shape == theirs[name].shape}
            other.module.load_state_dict(fits, strict=False)
        except Exception:  # a combination that the constructor refuses
            return None
        other.weights_kept = _alike(self.module, other.module)
        return other

    def _behind(self, module: Any) -> Any:
        """A module of the same making behind what stands in front of this one: the user's adapter, or heed's."""
        if isinstance(self.target, Adapted):
            return Adapted(module, self.target.adapter)
        return Ours(module) if isinstance(self.target, Ours) else module

    def has(self, *roles: Role) -> bool:
        return bool(self.call.signature.all(*roles))


def hints_at_masks(subject: Subject) -> bool:
    """Whether torch's own module is inside: its `is_causal` is documented as a hint beside a mask, not as a switch."""
    return subject.module is not None and any(isinstance(m, nn.MultiheadAttention) for m in subject.module.modules())


def _alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether two builds have the same weights: all of them, and equal; and equal tensors where both hold one."""
    left, right = dict(one.named_parameters()), dict(other.named_parameters())
    held = dict(other.named_buffers())
    drawn = [(value, held[name]) for name, value in one.named_buffers() if name in held]  # some are drawn by chance
    pairs = [*zip(left.values(), right.values(), strict=False), *drawn]
    return left.keys() == right.keys() and all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


def _in_single(make: Callable[[int], Any]) -> Callable[[int], Any]:
    if isinstance(make, Sized):
        return replace(make, make=lambda rows, tokens, keys: in_single(make.make(rows, tokens, keys)))
    return lambda tokens: in_single(make(tokens))
