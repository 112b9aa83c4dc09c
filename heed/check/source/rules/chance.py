"""Chance: dropout, of torch or by hand, asks whether its module is training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType

from torch import nn

from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import FUSED, named_node
from ..home import own_targets
from ..watch import Event, Place
from ..write import given_keyword, mentions

DRAWS = {"rand", "rand_like", "bernoulli", "bernoulli_", "randn", "randn_like", "uniform_", "randint"}
WORDS = "chance is asked in every call, whether the module is training or not"


def dropout_in_eval(case: Case) -> Iterator[Fix | None]:
    """Dropout asks whether its module is training."""
    words = "this dropout does not ask whether the module is training"
    for event in (*case.dropping, *case.events):
        place = event.place
        if place is None or not isinstance(place.node, ast.Call):
            continue
        if event.name == FUSED and event.argument(4, "dropout_p"):
            node = named_node(place.node, "dropout_p")
            if node is not None and place.owner is not None:
                text = f"{place.words(node)} if self.training else 0.0"
                yield place.code.fix([place.code.replaced(node, text)], words)
        elif re.fullmatch(r"(feature_)?(alpha_)?dropout\dd?|dropout", event.name) and event.argument(
            2, "training", "train"
        ):
            yield from _dropout(case, place, place.node, words)
            if place.owner is None:
                yield from _told_from_above(event, place.node, words)
    for code, call in case.home.nodes(ast.Call):
        rate = named_node(call, "dropout_p")
        if rate is not None and code.owner(call) is not None and "training" not in code.words(rate):
            yield code.fix([code.replaced(rate, f"{code.words(rate)} if self.training else 0.0")], words)


def _told_from_above(event: Event, call: ast.Call, words: str) -> Iterator[Fix | None]:
    """A function does not know whether anything is training; the module that calls it does."""
    for inner, outer in pairwise(event.stack):
        function = inner.code.function(inner.node)
        if outer.owner is None or not isinstance(outer.node, ast.Call) or function is None:
            continue
        switches = [one.arg for one in function.args.args if one.arg in ("training", "train", "is_training")]
        told = given_keyword(outer.code, outer.node, switches[0] if switches else "training", "self.training")
        if switches:
            yield outer.code.fix([told], words)
        elif inner.code is outer.code and inner.node is call and function.args.args:
            last = [*function.args.args, *function.args.defaults][-1]
            end = max(inner.code.span(one)[1] for one in (*function.args.args, *function.args.defaults, last))
            edits = [Edit(end, end, ", training=False"), given_keyword(inner.code, call, "training", "training")]
            yield inner.code.fix([*edits, told], words)
        return


def _dropout(case: Case, place: Place, call: ast.Call, words: str) -> Iterator[Fix | None]:
    code = place.code
    if isinstance(call.func, ast.Call) and place.owner is not None:  # nn.Dropout(p)(x)
        made, given = call.func, ", ".join(code.words(node) for node in call.args)
        rate = ", ".join(code.words(node) for node in (*made.args, *(k.value for k in made.keywords if k.arg == "p")))
        text = f"{_functional(place)}.dropout({given}, {rate}, self.training)"
        yield code.fix([code.replaced(call, text)], words)
    elif isinstance(place.value(call.func), nn.Module):
        return
    elif place.owner is not None:
        node = named_node(call, "training", "train") or next(iter(call.args[2:]), None)
        edit = given_keyword(code, call, "training", "self.training")
        yield code.fix([edit if node is None else code.replaced(node, "self.training")], words)
    yield from _in_lists(case, place)


def _functional(place: Place) -> str:
    """How torch.nn.functional is called in this file."""
    for name, value in place.known.items():
        if isinstance(value, ModuleType) and value.__name__ == "torch.nn.functional":
            return name
    return "nn.functional" if "nn" in place.known else "torch.nn.functional"


def _in_lists(case: Case, place: Place) -> Iterator[Fix | None]:
    """Layers in a plain list are not told to stop training."""
    words = "layers in a plain list belong to no module: eval() does not reach them, and they are not saved"
    holder = "nn.ModuleList" if "nn" in place.known else "torch.nn.ModuleList"
    for name, value in () if place.owner is None else list(vars(place.owner).items()):
        if isinstance(value, list) and value and all(isinstance(one, nn.Module) for one in value):
            for code, statement in case.home.assigned(type(place.owner), name):
                made = own_targets(statement)[name]
                yield code.fix([code.replaced(made, f"{holder}({code.words(made)})")], words)


def by_hand(case: Case) -> Iterator[Fix | None]:
    """What is drawn by hand is drawn in training only: the helper returns what it was given, or a line asks first."""
    for event in (*case.dropping, *case.events):
        for place in event.stack if event.name in DRAWS else ():
            function = place.code.function(place.node)
            if place.owner is None or function is None:
                continue
            yield from _asks_first(place)
            names = [one.arg for one in function.args.args if one.arg != "self"]
            if function.name != "forward" and names:
                lines = place.code.before(function.body[0], "if not self.training:", f"    return {names[0]}")
                yield place.code.fix([lines], WORDS)


def _asks_first(place: Place) -> Iterator[Fix | None]:
    """A condition on chance, or the line behind it that makes a tensor of itself."""
    code, statement = place.code, place.code.statement(place.node)
    if isinstance(statement, ast.If):
        yield code.fix([code.replaced(statement.test, f"self.training and {code.words(statement.test)}")], WORDS)
        return
    for body in [getattr(code.parents[statement], name, []) for name in ("body", "orelse")]:
        later = body[body.index(statement) :] if statement in body else []
        for one in later:
            match one:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if mentions(value, name):
                    yield code.fix([code.replaced(value, f"{code.words(value)} if self.training else {name}")], WORDS)
                    return
                case ast.AugAssign():
                    yield code.fix([code.before(one, "if self.training:"), _deeper(code, one)], WORDS)
                    return


def _deeper(code: Code, statement: ast.stmt) -> Edit:
    start = code.span(statement)[0]
    return Edit(start, start, "    ")
