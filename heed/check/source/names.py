"""What things are called where: the expression that a name stands for, and a name for a size."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..foreign.build import Recipe
from .code import Code
from .home import Home, own_targets
from .watch import Event, Place

HEADISH = re.compile(
    r"head_?(dim|size)|(dim|size|d|features|channels)_?(per_)?head|^(self\.)?_?(d_?[kqh]|hd|hs|dh)$", re.I
)
STEPS = 4  # names that stand for names


@dataclass(frozen=True, eq=False)
class Spot:
    """An expression in the user's code, with the whole numbers that have names there."""

    code: Code
    node: ast.expr
    names: Mapping[str, int]


def numbers(place: Place) -> dict[str, int]:
    """Whole numbers that have a name at a place that was run."""
    owned = {} if place.owner is None else {f"self.{name}": value for name, value in vars(place.owner).items()}
    return {n: v for n, v in {**place.scope, **owned}.items() if _whole(v)}


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def called(names: Mapping[str, int], size: int, heads: int) -> str | None:
    """How the size of a head can be written with the names that there are."""
    told = [name for name, value in names.items() if value == size]
    told.sort(key=lambda name: (not HEADISH.search(name), name.startswith("self."), len(name)))
    if told:
        return told[0]
    wide = [name for name, value in names.items() if value == size * heads and heads > 1]
    many = [
        name for name, value in names.items() if value == heads and re.search(r"head|^(self\.)?n?h$|nh", name, re.I)
    ]
    return f"({wide[0]} // {many[0]})" if wide and many else None


def tensor_size(place: Place, node: ast.expr, size: int) -> str | None:
    """The size of a head as the last axis of a tensor that has a name."""
    value = place.value(node)
    if isinstance(node, ast.Name) and isinstance(value, Tensor) and value.dim() and value.shape[-1] == size:
        return f"{node.id}.shape[-1]"
    return None


@dataclass(frozen=True, eq=False)
class Names:
    """Follows names through the user's code."""

    home: Home
    recipe: Recipe | None
    module: nn.Module | None

    def defined(self, event: Event, node: ast.expr) -> Spot | None:
        """The expression behind a name: of a local variable, an argument, an attribute or a constant."""
        return self._from(event.stack, node, STEPS)

    def _from(self, stack: tuple[Place, ...], node: ast.expr, steps: int) -> Spot | None:
        place = stack[0]
        if steps and isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return None if place.owner is None else self.attribute(place.owner, node.attr, steps - 1)
        if not steps or not isinstance(node, ast.Name):
            return Spot(place.code, node, numbers(place))
        function = place.code.function(place.node)
        if function is None:
            return None
        found = _last_assigned(function, node)
        if found is not None:
            return self._from(stack, found, steps - 1)
        passed = _passed(function, node.id, stack[1]) if len(stack) > 1 else None
        if passed is not None:
            return self._from(stack[1:], passed, steps - 1)
        for statement in place.code.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == node.id:
                    return Spot(place.code, value, {})
        return None

    def passed_on(self, event: Event, node: ast.expr) -> Iterator[tuple[Place, ast.expr]]:
        """An expression, and what stands for it where the function around it is called, and so on outwards."""
        for place, caller in zip(event.stack, (*event.stack[1:], None), strict=True):
            yield place, node
            function = place.code.function(place.node)
            if not isinstance(node, ast.Name) or function is None or caller is None:
                return
            passed = _passed(function, node.id, caller)
            if passed is None:
                return
            node = passed

    def attribute(self, owner: nn.Module, name: str, steps: int = STEPS) -> Spot | None:
        """The one expression that an attribute is set to in the constructor."""
        sets = [
            (c, n) for c, n in self.home.assigned(type(owner), name) if getattr(c.function(n), "name", "") == "__init__"
        ]
        if len(sets) != 1:
            return self._registered(owner, name)
        code, statement = sets[0]
        return self._in_init(owner, code, own_targets(statement)[name], steps)

    def _registered(self, owner: nn.Module, name: str) -> Spot | None:
        """What `register_buffer` was given."""
        for code, node in self.home.nodes(ast.Call):
            match node:
                case ast.Call(func=ast.Attribute(attr="register_buffer"), args=[ast.Constant(value=said), value, *_]):
                    holder = code.owner(node)
                    if said == name and holder is not None and holder.name in _bases(owner):
                        return self._in_init(owner, code, value, 1)
        return None

    def _in_init(self, owner: nn.Module, code: Code, node: ast.expr, steps: int) -> Spot | None:
        function = code.function(node)
        if function is None:
            return None
        if isinstance(node, ast.Name) and steps:
            found = _last_assigned(function, node)
            if found is not None:
                return self._in_init(owner, code, found, steps - 1)
            return self._instantiated(type(owner), node.id, steps - 1) if _parameter(function, node.id) else None
        return Spot(code, node, self._known(owner, code, function, node))

    def _instantiated(self, kind: type, parameter: str, steps: int) -> Spot | None:
        """What the one call of a class gives for a parameter of its constructor."""
        calls = [(c, n) for c, n in self.home.nodes(ast.Call) if _called_name(n) == kind.__name__]
        if len(calls) != 1:
            return None
        code, call = calls[0]
        node = _argument(call, parameter, list(inspect.signature(kind).parameters))
        holder = code.owner(call)
        owner = None if holder is None else self._instance(holder.name)
        return None if node is None or owner is None else self._in_init(owner, code, node, steps)

    def _instance(self, name: str) -> nn.Module | None:
        parts = [] if self.module is None else list(self.module.modules())
        return next((part for part in parts if name in _bases(part)), None)

    def _known(
        self, owner: nn.Module, code: Code, function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.expr
    ) -> dict[str, int]:
        """Whole numbers that have a name in a constructor, before a line of it."""
        found: dict[str, Any] = {}
        if self.recipe is not None and type(owner) is self.recipe.make:
            found |= self.recipe.arguments
        before = [s for s in ast.walk(function) if isinstance(s, ast.Assign | ast.AnnAssign) and s.lineno < node.lineno]
        for statement in sorted(before, key=lambda s: s.lineno):
            for name, value in own_targets(statement).items():
                held = vars(owner).get(name)
                found[f"self.{name}"] = held
                if isinstance(value, ast.Name) and _parameter(function, value.id):
                    found[value.id] = held
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found[name] = _computed(value, found, owner)
        return {name: value for name, value in found.items() if _whole(value)}


def _computed(node: ast.expr, known: Mapping[str, Any], owner: nn.Module) -> Any:
    plain = ast.Name | ast.BinOp | ast.operator | ast.Constant | ast.Load | ast.Attribute
    if not all(isinstance(part, plain) for part in ast.walk(node)):
        return None
    try:
        return eval(compile(ast.Expression(node), "<size>", "eval"), {}, {**known, "self": owner})
    except Exception:  # a name that is not known here
        return None


def _last_assigned(function: ast.AST, name: ast.Name) -> ast.expr | None:
    """What a local name was last set to before it is used, by a statement that sets it alone or beside others."""
    found = None
    for node in sorted((n for n in ast.walk(function) if isinstance(n, ast.Assign)), key=lambda n: n.lineno):
        if node.lineno >= name.lineno and not (node.lineno == name.lineno and node.col_offset < name.col_offset):
            continue
        if any(inner is name for inner in ast.walk(node)):
            continue
        for target in node.targets:
            match target, node.value:
                case ast.Name(id=said), value if said == name.id:
                    found = value
                case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                    for one, value in zip(targets, values, strict=True):
                        found = value if isinstance(one, ast.Name) and one.id == name.id else found
    return found


def _parameter(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    arguments = function.args
    return any(one.arg == name for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def _passed(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, caller: Place) -> ast.expr | None:
    """What a caller gives for a parameter."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] == ["self"] else names
    return _argument(caller.node, name, names) if isinstance(caller.node, ast.Call) else None


def _argument(call: ast.Call, name: str, names: list[str]) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    place = names.index(name) if name in names else len(call.args)
    return call.args[place] if place < len(call.args) else None


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _bases(thing: nn.Module) -> set[str]:
    return {kind.__name__ for kind in inspect.getmro(type(thing))}
