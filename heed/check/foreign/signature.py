"""What a target's call takes: its arguments, and the role of each."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from .said import masks_in
from .sizes import cut
from .words import ROLES, Role, role_of, says_called


class Bag(dict[str, Any]):
    """What a call is given, as one dict, or as one object with attributes: asked by any usual name."""

    def __missing__(self, name: str) -> Any:
        if role_of(name) in (Role.QUERY, Role.KEY, Role.VALUE, Role.INPUT):
            return self["input"]
        raise KeyError(name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Signature:
    """The arguments of a call and what they are for."""

    roles: Mapping[str, Role]
    needed: frozenset[str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    placed: tuple[str, ...] = ()  # those that can be passed by their place only
    guessed: bool = False  # whether some of it is read by its place, whatever its name says

    @classmethod
    def of(cls, target: Any) -> Signature:
        try:
            parameters = parameters_of_call(function_of(target))
        except (TypeError, ValueError):  # built in: what torch's own attention takes
            names = ("query", "key", "value", "attn_mask")
            return cls({name: role_of(name) for name in names}, frozenset(names[:3]))
        plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if not plain and any(p.kind is p.VAR_POSITIONAL for p in parameters):
            return cls({"q": Role.QUERY, "k": Role.KEY, "v": Role.VALUE}, frozenset("qkv"), placed=("q", "k", "v"))
        roles = _paired({p.name: role_of(p.name) for p in plain})
        used = masks_in(function_of(target)) if Role.OTHER in roles.values() else frozenset[str]()
        left = [p for p in plain[1:] if (p.default is None or p.default is p.empty) and p.annotation is not int]
        open_ = [p.name for p in left if not says_called(p.name)]
        roles |= {name: Role.MASK for name in open_ if name in used and roles[name] is Role.OTHER}
        needed = frozenset(p.name for p in plain if p.default is p.empty)
        tensors = {Role.INPUT, Role.QUERY, Role.KEY, Role.VALUE}
        if tensors & {roles[name] for name in needed}:  # what may be left out is one of these only if it says just so
            roles |= {n: Role.OTHER for n in roles if n not in needed and roles[n] in tensors and n not in ROLES}
        first = next(iter(roles), None)
        # beside `s` or `m`, as of proteins; beside `h`, as of graphs
        roles |= {n: Role.PAIRS for n in ("z", "e") if n in needed and n != first}
        values = [n for n, role in roles.items() if role is Role.VALUE and n in needed]
        joint = next((n for n in roles if n in needed and "qk" in cut(n)), None)  # queries and keys in one
        if joint is not None and values:
            roles |= {joint: Role.INPUT}
        elif values and not {Role.KEY, Role.SOURCE} & set(roles.values()):  # what is summed is what is looked at
            roles |= {values[0]: Role.SOURCE}
        if first in needed and roles[first] is Role.MASK and len(needed) > 1:  # a mask is not what comes first
            roles = {n: Role.OTHER if role is Role.INPUT else role for n, role in roles.items()} | {first: Role.INPUT}
        if not {Role.INPUT, Role.QUERY, Role.IDS} & set(roles.values()):
            first = next((name for name in roles if name in needed or len(roles) == 1), next(iter(roles), None))
            if first is not None:
                roles[first] = Role.INPUT
        handed = isinstance(target, nn.Module) and function_of(target) != target.forward  # which may look at its first
        placed = tuple(p.name for p in plain if p.kind is p.POSITIONAL_ONLY or (handed and p is plain[0]))
        return cls(roles, needed, {p.name: p.default for p in plain if p.default is not p.empty}, placed)

    def named(self, role: Role) -> str | None:
        """The first argument of this role."""
        return next((name for name, found in self.roles.items() if found is role), None)

    def all(self, *roles: Role) -> list[str]:
        """The arguments of these roles, in order."""
        return [name for name, found in self.roles.items() if found in roles]

    def read(self, **changed: Role) -> Signature:
        """The same with some arguments understood otherwise, by a guess."""
        return replace(self, roles={**self.roles, **changed}, guessed=True)


def function_of(target: Any) -> Any:
    """What is really called: the forward of a module, or of a class that has no __call__; or what that hands on to."""
    if not isinstance(target, nn.Module) and (callable(target) or not callable(getattr(target, "forward", None))):
        return target
    inner = getattr(target, "call", None)
    return inner if callable(inner) and _hands_on(target.forward) else target.forward


def parameters_of_call(function: Any) -> list[inspect.Parameter]:
    """What a call takes; of a method that hands on whatever it is given to that of its base, what that takes."""
    own = list(inspect.signature(function).parameters.values())
    anything = [p for p in own if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    above = inherited(function) if anything else None
    if above is None:
        return own
    named = {p.name: p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in own if p not in anything}
    taken = [p for p in list(inspect.signature(above).parameters.values())[1:] if p.name not in named]
    positional = any(p.kind is p.VAR_POSITIONAL for p in anything)
    return [*taken, *named.values()] if positional else [*named.values(), *taken]


def inherited(method: Any) -> Any:
    """The method of a base that a method calls by `super()`; None if it does not."""
    function, kind = getattr(method, "__func__", None), type(getattr(method, "__self__", None))
    if function is None or "super" not in function.__code__.co_names:
        return None
    homes = [vars(base)[function.__name__] for base in kind.__mro__ if function.__name__ in vars(base)]
    later = homes[homes.index(function) + 1 :] if function in homes else []
    return next((found for found in later if inspect.isfunction(found) and found.__name__ == function.__name__), None)


def _hands_on(function: Any) -> bool:
    """Whether it takes anything, and names nothing."""
    parameters = inspect.signature(function).parameters.values()
    return bool(parameters) and all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _paired(roles: dict[str, Role]) -> dict[str, Role]:
    """`h` and `w` behind a stream are height and breadth."""
    names = list(roles)
    for high, wide in (("h", "w"), ("height", "width"), ("h", "W"), ("nh", "nw"), ("Hp", "Wp")):
        if high in names[1:] and wide in names[1:]:
            roles |= {high: Role.HEIGHT, wide: Role.BREADTH}
    return roles
