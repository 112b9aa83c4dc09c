"""One table of names per family of checkpoints: it reads their tensors into a heed model and writes them back.

    TABLE = (
        Same("layers.{i}.fc1.weight", "stack.blocks.{i}.feedforward.up.weight"),
        Fused("layers.{i}.in_proj", ("stack.blocks.{i}.mixer.query", ...)),
        Ignored("pe"),
    )
    load(model, tensors, TABLE)
    tensors = export(model, TABLE)

`{i}` stands for any number, the same on both sides. Adding a way to store weights = a subclass of `Rule` that says how
one of their tensors becomes some of ours (`split`) and back (`join`); shapes and errors follow from the two.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from ..core.config import nearest
from ..core.errors import WeightsError
from .formats.checkpoint import Checkpoint
from .formats.folder import Folder
from .formats.safetensors import Held, Tensors
from .outline import FUSED, outlined

SHOWN = 40  # problems that a message lists; a checkpoint of another model has thousands
EQUAL = 1e-6  # relative: what float32 leaves of two ways to compute the same constant


@dataclass(frozen=True)
class Rule(ABC):
    """One tensor of theirs is one or several of ours."""

    theirs: str  # a name with placeholders

    @property
    @abstractmethod
    def targets(self) -> tuple[str, ...]:
        """Our names, with the same placeholders."""

    @abstractmethod
    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        """Ours from theirs, in the order of `targets`."""

    @abstractmethod
    def join(self, ours: Sequence[Tensor]) -> Tensor:
        """Theirs from ours: undoes `split`."""


@dataclass(frozen=True)
class Same(Rule):
    """The same tensor under another name."""

    ours: str

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (theirs,)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0]


@dataclass(frozen=True)
class Fused(Rule):
    """Several of ours below one another: equal parts of their rows."""

    ours: tuple[str, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        return self.ours

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return theirs.chunk(len(self.ours))

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return torch.cat(tuple(ours))


@dataclass(frozen=True)
class Ignored:
    """A tensor of theirs that says nothing new. It may be there or not, and is not written back."""

    theirs: str


@dataclass(frozen=True, eq=False)
class Computed:
    """A constant that heed computes: theirs must hold the same. It is written back once for each `beside` of ours."""

    theirs: str
    beside: str
    value: Tensor


Table: TypeAlias = "tuple[Rule | Ignored | Computed, ...]"
M = TypeVar("M", bound=nn.Module)


def both(theirs: str, ours: str) -> tuple[Same, Same]:
    """The weight and the bias of one layer."""
    return Same(f"{theirs}.weight", f"{ours}.weight"), Same(f"{theirs}.bias", f"{ours}.bias")


@dataclass(frozen=True)
class Inside(Rule):
    """A rule of a part of a model: the same, below the name of that part."""

    rule: Rule
    ours: str  # what stands before our names

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(f"{self.ours}{target}" for target in self.rule.targets)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return self.rule.split(theirs)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return self.rule.join(ours)


def inside(table: Table, theirs: str, ours: str) -> Table:
    """A table of a part of a model: `theirs` and `ours` stand before its names."""

    def moved(rule: Rule | Ignored | Computed) -> Rule | Ignored | Computed:
        name = f"{theirs}{rule.theirs}"
        match rule:
            case Ignored():
                return Ignored(name)
            case Computed():
                return Computed(name, f"{ours}{rule.beside}", rule.value)
        return Inside(name, rule, ours)

    return tuple(map(moved, table))


def load(model: nn.Module, tensors: Mapping[str, Tensor], table: Table) -> None:
    """Put their tensors into a model, one at a time. Every tensor of theirs and of ours is accounted for.

    All that is missing, unknown, misshapen or tied in name only is listed in one error, before anything is changed. A
    model built under `torch.device("meta")` gets its memory here; weights that it ties stay tied.
    """
    tensors = tensors if isinstance(tensors, Tensors) else Held(tensors)
    plan = must_fit(model, tensors, table)
    with torch.no_grad():
        for link in plan.links:
            if link.theirs in tensors:
                for name, part in zip(link.ours, link.rule.split(tensors[link.theirs]), strict=True):
                    plan.place(name, part, keep=not isinstance(tensors, Held))


def must_fit(model: nn.Module, tensors: Tensors, table: Table) -> Plan:
    """Raise unless every tensor has its place in the model, and every place its tensor."""
    plan = Plan(model, table)
    problems = list(islice(plan.problems(tensors), SHOWN + 1))
    if problems:
        shown = "\n  - ".join(problems[:SHOWN])
        more = f"\n  and more than {SHOWN} in all" if len(problems) > SHOWN else ""
        raise WeightsError(f"the tensors do not fit the model:\n  - {shown}{more}")
    return plan


def export(model: nn.Module, table: Table) -> dict[str, Tensor]:
    """The model's weights under their names. Tied weights are written once, under the first of their names.

    Nothing is copied that need not be: what is stored as it is shares its memory with the model.
    """
    return dict(exported(model, table))


def exported(model: nn.Module, table: Table) -> Iterator[tuple[str, Tensor]]:
    """The same, one by one."""
    plan = Plan(model, table)
    homeless = next((name for name, tensor in plan.held.items() if not plan.sources[id(tensor)]), None)
    if homeless is not None:
        raise WeightsError(
            f"{homeless} has no place in this layout: the model was edited since it was loaded; undo that first, or "
            "work it in (merge)"
        )
    written: set[int] = set()
    for link in plan.links:
        parts = [plan.held[name] for name in link.ours]
        if not written.issuperset(map(id, parts)):
            yield link.theirs, link.rule.join([part.detach() for part in parts])
        written.update(map(id, parts))
    for name, (constant, beside) in plan.constants.items():
        like, value = plan.held[beside], constant.value
        yield name, value.to(like.device, value.dtype if value.is_complex() else like.dtype, copy=True)


def restore(
    build: Callable[[], M], checkpoint: Checkpoint | Folder, table: Table | Callable[[M], Table], each: int = FUSED
) -> M:
    """The model of a checkpoint, ready to use, in the precision of its weights, but at least float32.

    It is built without memory first: sizes that only its config claims cost nothing. `each`: see `outlined`.
    """
    held = checkpoint.checkpoint if isinstance(checkpoint, Folder) else checkpoint
    model = outlined(build, held, each)
    try:
        load(model, held.tensors, table if isinstance(table, tuple) else table(model))
    except WeightsError as error:
        raise WeightsError(f"{held.place}: {error}") from None
    return model.eval()


@dataclass(frozen=True)
class Link:
    """A rule with its placeholders filled in."""

    rule: Rule
    theirs: str
    ours: tuple[str, ...]


class Plan:
    """A table applied to a model: which tensor goes where."""

    def __init__(self, model: nn.Module, table: Table) -> None:
        self.model, self.table = model, table
        self.held: dict[str, Tensor] = model.state_dict(keep_vars=True)
        names: dict[int, list[str]] = {}
        self.tied = {name: names.setdefault(id(tensor), []) for name, tensor in self.held.items()}
        for name, alike in self.tied.items():
            alike.append(name)

    @cached_property
    def links(self) -> list[Link]:
        """Every rule, once for each of our tensors that it is about."""
        return [
            Link(rule, rule.theirs.format(**found), tuple(target.format(**found) for target in rule.targets))
            for rule in self.table
            if isinstance(rule, Rule)
            for found, _ in _matches(rule.targets[0], self.held)
        ]

    @cached_property
    def constants(self) -> dict[str, tuple[Computed, str]]:
        """Their computed tensors by name, each with the tensor of ours that it stands beside."""
        return {
            rule.theirs.format(**found): (rule, name)
            for rule in self.table
            if isinstance(rule, Computed)
            for found, name in _matches(rule.beside, self.held)
        }

    @cached_property
    def sources(self) -> dict[int, list[tuple[Link, int]]]:
        """Whence each of our tensors, by identity, may come: a link and which part of it. Tied ones have several."""
        found: dict[int, list[tuple[Link, int]]] = {id(tensor): [] for tensor in self.held.values()}
        for link in self.links:
            for part, name in enumerate(link.ours):
                found[id(self.held[name])].append((link, part))
        return found

    def problems(self, tensors: Tensors) -> Iterator[str]:
        """All that does not fit, in words."""
        yield from self._missing(tensors)
        known = {link.theirs for link in self.links} | self.constants.keys()
        ignored = [_pattern(rule.theirs) for rule in self.table if isinstance(rule, Ignored)]
        for name in sorted(tensors.keys() - known):
            if not any(pattern.fullmatch(name) for pattern in ignored):
                near = nearest(name, known) if len(known) < 1000 else ""
                yield f"{name} {_shape(tensors.like(name))} is unknown{near}"
        fitting = {link.theirs for link in self.links if link.theirs in tensors}
        for link in self.links:
            for problem in self._unfit(link, tensors.like(link.theirs)) if link.theirs in tensors else ():
                fitting.discard(link.theirs)
                yield problem
        yield from self._untied(tensors, fitting)
        for name, (constant, _) in self.constants.items():
            if name in tensors and not _close(tensors[name], constant.value):
                given, needed = _shape(tensors.like(name)), _shape(constant.value)
                yield f"{name} {given} is not the constant {needed} that heed computes"

    def place(self, name: str, value: Tensor, *, keep: bool) -> None:
        """Copy into one of our tensors. If it has no memory yet, it and those tied to it are given some.

        With `keep` nothing else holds `value`, a tensor of a file or a view of one: it becomes that memory itself.
        """
        old = self.held[name]
        if old.is_meta:
            fits = keep and value.dtype == old.dtype
            new = value if fits else torch.empty_like(old, device=value.device)
            fresh = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
            for tied in self.tied[name]:
                owner, _, leaf = tied.rpartition(".")
                setattr(self.model.get_submodule(owner), leaf, fresh)
                self.held[tied] = fresh
            if fits:
                return
        self.held[name].copy_(value)

    def _missing(self, tensors: Mapping[str, Tensor]) -> Iterator[str]:
        told: set[str] = set()
        for name, tensor in self.held.items():
            sources = self.sources[id(tensor)]
            if not sources:
                yield f"{name} {_shape(tensor)} of heed's model has no rule in the table"
            elif not any(link.theirs in tensors for link, _ in sources) and sources[0][0].theirs not in told:
                link = sources[0][0]
                told.add(link.theirs)
                yield f"{link.theirs} {list(self._needed(link))} is missing"

    def _unfit(self, link: Link, tensor: Tensor) -> Iterator[str]:
        if not self._fits(link, tensor):
            yield f"{link.theirs} has the shape {_shape(tensor)}, needed is {list(self._needed(link))}"
        elif self.held[link.ours[0]].is_floating_point() and not tensor.is_floating_point():
            yield f"{link.theirs} holds {tensor.dtype}, needed are floating-point numbers"

    def _untied(self, tensors: Tensors, fitting: Set[str]) -> Iterator[str]:
        for sources in self.sources.values():
            stored = [(link, part) for link, part in sources if link.theirs in fitting]
            for (first, here), (other, there) in pairwise(stored):
                one = first.rule.split(tensors[first.theirs])[here]
                two = other.rule.split(tensors[other.theirs])[there]
                if not torch.equal(one, two):
                    gap = (one.double() - two.double()).abs().max().item()
                    yield f"{first.theirs} and {other.theirs} are tied in this model, but differ by up to {gap:.3g}"

    def _fits(self, link: Link, tensor: Tensor) -> bool:
        """Whether its parts have our shapes. Views of meta tensors are cheap; joining them makes torch import sympy."""
        try:
            parts = link.rule.split(tensor)
        except (RuntimeError, IndexError, ValueError):
            return False
        return [part.shape for part in parts] == [self.held[name].shape for name in link.ours]

    def _needed(self, link: Link) -> torch.Size:
        return link.rule.join([torch.empty(self.held[name].shape, device="meta") for name in link.ours]).shape


def _matches(pattern: str, names: Mapping[str, Tensor]) -> Iterator[tuple[dict[str, str], str]]:
    """The names that a pattern fits, each with what its placeholders stand for."""
    for name in names:
        found = _pattern(pattern).fullmatch(name)
        if found:
            yield found.groupdict(), name


@lru_cache
def _pattern(name: str) -> re.Pattern[str]:
    text, *rest = re.split(r"\{(\w+)\}", name)
    groups = (f"(?P<{label}>[0-9]+){re.escape(after)}" for label, after in zip(rest[::2], rest[1::2], strict=True))
    return re.compile(re.escape(text) + "".join(groups))


def _close(given: Tensor, value: Tensor) -> bool:
    if given.shape != value.shape or given.is_complex() != value.is_complex():
        return False
    widest = torch.complex128 if value.is_complex() else torch.float64
    return torch.allclose(given.to(widest), value.to(widest), rtol=EQUAL, atol=0.0)


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)
