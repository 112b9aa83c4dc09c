"""Configurations explained: every key with its type, its default and one line that says what it does.

The line is the comment at the end of the line where a class declares the key, so that it is written once and read by
people who read the code, too. A name that means the same wherever it stands is explained once, in `USUAL`.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import tomli_w
from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic.fields import FieldInfo

from ..core.config import Config, ManyOf, OneOf, configs_in, kind_of, nearest
from ..core.errors import ConfigError

USUAL = {  # names that mean the same in every class; a comment beside a field says more
    "activation": "the nonlinearity",
    "base": "of the wavelengths: the longest is about 2π · base tokens",
    "bias": "linear layers have a bias",
    "causal": "no token attends to later ones",
    "depth": "how many blocks",
    "dropout": "share of numbers that training sets to zero, at random",
    "eps": "added to the divisor, so that it is never zero",
    "feedforward": "the feed-forward of each block; several are tiled over the depth",
    "final": "a last norm at the end of the stack",
    "heads": "attention heads",
    "learned": "trained with the weights, instead of fixed",
    "mask": "which token sees which",
    "mixer": "what carries information along the sequence; several are tiled over the depth",
    "norm": "the normalisation before or after each part of a block",
    "position": "how tokens are told where they stand",
    "seed": "of the random numbers",
    "tied": "the head's weights are the embeddings",
    "width": "channels of the hidden states",
    "wiring": "where norms and residual connections sit",
}
FEW = 4  # kinds that are named in a line; of more there is only their number
SCALARS = {int: "integer", float: "number", bool: "true or false", str: "text", Any: "anything"}
UNTOLD = re.compile(r"\s*(type:|noqa|pragma)")  # comments for tools


@dataclass(frozen=True)
class Setting:
    """One key: where it stands, what it may be, what it is here and by default, and what it does."""

    place: str
    must: str  # what it may be, in words
    value: Any
    default: Any  # None for what is required
    required: bool
    about: str
    choices: Mapping[str, type[Config]]  # by kind, where one of several classes may stand

    @property
    def name(self) -> str:
        return self.place.rpartition(".")[2]

    def sections(self) -> list[Section]:
        """The nodes at this key and below it. A list of one stands for its item."""
        match self.value:
            case Config() as only:
                return list(sections(only, self.place))
            case (Config() as only,):
                return list(sections(only, self.place))
            case (Config(), *_):
                several = enumerate(self.value)
                return [each for number, one in several for each in sections(one, f"{self.place}.{number}")]
        return []

    def plain(self) -> dict[str, Any]:
        """For machines."""
        told = {"key": self.place, "type": self.must, "value": plain(self.value), "default": plain(self.default)}
        return {**told, "required": self.required, "about": self.about, "kinds": list(self.choices)}


class Inner(NamedTuple):
    """A node within another: the key that holds it, where it stands, and whether it stands in a list."""

    name: str
    place: str
    config: Config
    listed: bool


@dataclass(frozen=True)
class Section:
    """A node of the tree with its keys."""

    place: str
    config: Config

    @property
    def kind(self) -> str:
        """Which of several classes stands here; empty where there is only one."""
        return kind_of(type(self.config)) if "kind" in type(self.config).model_fields else ""

    @property
    def about(self) -> str:
        return summary(owner(type(self.config)))

    def settings(self) -> Iterator[Setting]:
        for name in type(self.config).model_fields:
            if name != "kind":
                yield _setting(type(self.config), name, _below(self.place, name), getattr(self.config, name))

    def inside(self) -> Iterator[Inner]:
        """The nodes below. A list of one stands for its item."""
        for name in type(self.config).model_fields:
            place = _below(self.place, name)
            match value := getattr(self.config, name):
                case Config():
                    yield Inner(name, place, value, False)
                case (Config() as only,):
                    yield Inner(name, place, only, True)
                case (Config(), *_):
                    yield from (Inner(name, f"{place}.{number}", item, True) for number, item in enumerate(value))


def sections(config: Config, place: str = "") -> Iterator[Section]:
    """A node and all nodes below it, from the outside in."""
    section = Section(place, config)
    yield section
    for inner in section.inside():
        yield from sections(inner.config, inner.place)


def find(config: Config, place: str) -> Setting:
    """The key at a dotted place of a configuration, as `--set` names it."""
    node: Any = config
    found: Setting | None = None
    steps = place.split(".")
    for number, step in enumerate(steps):
        here = ".".join(steps[:number])
        if isinstance(node, tuple) and len(node) == 1 and not step.isdecimal():
            (node,) = node  # a list of one stands for its item
        if isinstance(node, tuple) and step.isdecimal() and int(step) < len(node) and found is not None:
            found = replace(found, place=_below(here, step), value=node[int(step)])
        elif not isinstance(node, Config):
            raise ConfigError(f"{here} is {_short(node)}, which has no {step} inside; {_remedy(config, here)}")
        elif step not in type(node).model_fields:
            raise ConfigError(f"{_below(here, step)} is unknown{nearest(step, type(node).model_fields)}")
        else:
            found = _setting(type(node), step, _below(here, step), getattr(node, step))
        node = found.value
    if found is None:
        raise ConfigError("name a place in the tree, such as training.steps")
    return found


def declared(config: type[Config]) -> Iterator[Setting]:
    """The keys of a class, with their defaults as values."""
    for name, field in config.model_fields.items():
        if name != "kind":
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield _setting(config, name, name, default)


def explained(config: type[Config], name: str) -> str:
    """What a key does, in a line."""
    for base in config.__mro__:
        told = _comments(base.__module__).get(base.__qualname__, {}).get(name)
        if told:
            return told.replace("None", "unset")  # files have no None
    field = config.model_fields[name]
    annotation = field.annotation
    if field.description or name in USUAL:
        return field.description or USUAL[name]
    return summary(annotation) if isinstance(annotation, type) and issubclass(annotation, Config) else ""


def owner(config: type[Config]) -> type:
    """The class a nested `Config` belongs to; a configuration that stands alone is its own."""
    outer = config.__qualname__.rpartition(".")[0]
    if not outer or "<locals>" in outer:  # a class of a function's has no place to be found at
        return config
    found: type = attrgetter(outer)(inspect.getmodule(config))
    return found


def summary(thing: Any) -> str:
    """The first paragraph of the docstring, in a line."""
    text = inspect.getdoc(thing) or ""
    return " ".join(text.split("\n\n")[0].split())


def paragraphs(text: str) -> str:
    """A docstring with each paragraph in a line; equations, which are set in, stay as they are."""
    blocks = text.split("\n\n")
    return "\n\n".join(block if block.startswith(" ") else " ".join(block.split()) for block in blocks)


def plain(value: Any) -> Any:
    """As a file holds it."""
    if isinstance(value, Config):
        return value.dump()
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def commented(config: Config) -> str:
    """The whole configuration as TOML, every key explained: a file to edit. What is not set is commented out."""
    return "\n".join(_node(Section("", config), "")).strip() + "\n"


def type_words(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What may stand in a place, in words."""
    tables = [item for item in metadata if isinstance(item, OneOf)]
    if tables:
        return ("one or several of " if isinstance(tables[0], ManyOf) else "one of ") + _listed(
            list(tables[0].choices())
        )
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_words(inner[0], [*inner[1:], *metadata])
    if origin is Literal:
        return _listed([str(choice) for choice in inner], most=len(inner))
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(type_words(arg, metadata) for arg in inner if arg is not NoneType))
    if origin is tuple:
        return _tuple_words(inner, metadata)
    if origin in (dict, Mapping):
        return f"table of {type_words(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return "table"
    return SCALARS.get(annotation, str(annotation)) + _range_words(metadata)


def _tuple_words(inner: tuple[Any, ...], metadata: Iterable[Any]) -> str:
    some = "non-empty list" if any(isinstance(item, MinLen) for item in metadata) else "list"
    if len(inner) == 2 and inner[1] is ...:
        return f"{some} of {type_words(inner[0])}"
    each = list(dict.fromkeys(type_words(arg) for arg in inner))
    return f"{some} of {len(inner)}: {', '.join(each)}"


def _range_words(metadata: Iterable[Any]) -> str:
    low: list[tuple[str, Any]] = []
    high: list[tuple[str, Any]] = []
    for item in metadata:
        match item:
            case Gt(gt=bound):
                low.append((">", bound))
            case Ge(ge=bound):
                low.append(("≥", bound))
            case Lt(lt=bound):
                high.append(("<", bound))
            case Le(le=bound):
                high.append(("≤", bound))
    told = [f"{sign} {_bound(bound)}" for sign, bound in (*low, *high)]
    return f" {' and '.join(told)}" if told else ""


def _bound(value: Any) -> str:
    exact = isinstance(value, int) and value > 1 << 20 and value & (value - 1) == 0
    return f"2^{value.bit_length() - 1}" if exact else f"{value:g}"


def _listed(names: list[str], most: int = FEW) -> str:
    if len(names) > most:
        return f"{len(names)} kinds"
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _setting(config: type[Config], name: str, place: str, value: Any) -> Setting:
    field = config.model_fields[name]
    required = field.is_required()
    return Setting(
        place,
        type_words(field.annotation, field.metadata),
        value,
        None if required else field.get_default(call_default_factory=True),
        required,
        explained(config, name),
        _choices(field),
    )


def _choices(field: FieldInfo) -> Mapping[str, type[Config]]:
    """The classes that may stand in a field, by kind; none is imported before it is asked for."""
    return next((table for table in configs_in(field.annotation, field.metadata) if "" not in table), {})


def _short(value: Any) -> str:
    return "not set" if value is None else repr(plain(value))


def _remedy(config: Config, place: str) -> str:
    choices = find(config, place).choices
    return f"name a kind first: {place}.kind = {_listed(list(choices), len(choices))}" if choices else "it is a value"


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


@cache
def _comments(module: str) -> Mapping[str, Mapping[str, str]]:
    """The comments at the ends of lines where classes of a module declare their fields: by class, by field."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError, KeyError):  # typed in by hand, or shipped without its source
        return {}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    told = {token.start[0]: _told(token.string) for token in tokens if token.type == tokenize.COMMENT}
    return {name: _fields(node, told) for name, node in _classes(ast.parse(source), "")}


def _told(comment: str) -> str:
    return next((part.strip() for part in comment.split("#") if part.strip() and not UNTOLD.match(part)), "")


def _classes(node: ast.AST, place: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef):
            yield _below(place, inner.name), inner
            yield from _classes(inner, _below(place, inner.name))


def _fields(node: ast.ClassDef, told: Mapping[int, str]) -> Mapping[str, str]:
    lines = {}
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            lines[field.target.id] = told.get(field.end_lineno or field.lineno) or told.get(field.lineno, "")
    return lines


def _node(section: Section, header: str) -> Iterator[str]:
    """The lines of a node: its header, its own keys, then the nodes below."""
    if header:
        yield f"\n{header}  # {section.about}"
    if section.kind:
        yield f"kind = {_toml(section.kind)}"
    path = header.strip("[]")
    inner = list(section.inside())
    for setting in section.settings():
        if setting.name not in {each.name for each in inner}:
            yield _line(setting)
    for each in inner:
        place = _below(path, each.name)
        yield from _node(Section(each.place, each.config), f"[[{place}]]" if each.listed else f"[{place}]")


def _line(setting: Setting) -> str:
    default = "" if setting.required or setting.default is None else f"; default {_toml(plain(setting.default))}"
    if setting.value is not None:
        line = f"{setting.name} = {_toml(plain(setting.value))}  # "
    else:
        example = f" {{ kind = {_toml(next(iter(setting.choices)))} }}" if setting.choices else ""
        line = f"# {setting.name} ={example}  # not set; "
    return f"# {setting.about}\n{line}{setting.must}{default}"


def _toml(value: Any) -> str:
    match value:
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{ {', '.join(f'{name} = {_toml(item)}' for name, item in value.items())} }}"
        case _:
            return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
