"""Typed, frozen, hashable configuration trees, and the one place where a string chooses a class.

In Python a configuration is a value: `Attention.Config(heads=8, mask=Window(back=255))`. In a file it is the same tree,
TOML or JSON, with a `kind` tag wherever one of several classes may stand. Reading reports every problem at once: the
dotted place, what was given, what is allowed and, for a misspelt name, what was probably meant.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias, get_args
from warnings import warn

import tomli_w
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, Strict, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, SchemaValidator, core_schema

from .atomic import replacing
from .errors import ConfigError
from .tables import Named, Origin, Outside, Table

Data: TypeAlias = "dict[str, Any]"  # what a TOML or JSON file holds
LARGEST, LEVELS = 1 << 26, 100  # bytes of such a file, and tables in tables that it may hold
PACKAGE = "package"  # beside a kind that another package brings: which one

# The scalars of a configuration. Strict: "8" is not 8, and 1 is not true. Plain int, float, bool and str are not used.
Size = Annotated[int, Strict(), Gt(0)]  # a width, a number of heads
Parts = Annotated[int, Strict(), Gt(0), Le(1 << 16)]  # layers, experts: what is built one by one, and takes its time
Count = Annotated[int, Strict(), Ge(0)]
Number = Annotated[float, Strict()]
Positive = Annotated[float, Strict(), Gt(0)]
Share = Annotated[float, Strict(), Ge(0), Lt(1)]  # a dropout rate
Seed = Annotated[int, Strict(), Ge(0), Lt(2**62)]  # of a random generator; what is added to it still fits into 64 bits
Fraction = Annotated[float, Strict(), Gt(0), Le(1)]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, Strict()]


class Config(BaseModel):
    """A node of the tree. Subclasses that share a place in the tree tell themselves apart by `kind: Literal[...]`."""

    # A schema is built when it is first needed: there are hundreds, and a program needs few.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True)

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigError(*explain(error, type(self))) from None

    # Tells pydantic that this __init__ only rewords errors: nested nodes are validated in one go, with all problems.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __repr_name__(self) -> str:
        return type(self).__qualname__

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Only what differs from the defaults."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name != "kind" and (field.is_required() or value != field.default):
                yield name, value

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Self:
        """From plain data, as a file holds it."""
        must_be_shallow(data, cls.__qualname__)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ConfigError(*explain(error, cls)) from None

    @classmethod
    def read(cls, path: Path | str, overrides: Iterable[str] = ()) -> Self:
        """From a .toml or .json file, with `a.b=value` overrides."""
        return cls.load(override(read_data(Path(path)), overrides))

    def dump(self) -> Data:
        """As plain data; `load` gives back an equal configuration."""
        return self.model_dump(mode="json", exclude_none=True)

    def write(self, path: Path | str) -> None:
        """To a .toml or .json file, all of it or nothing: a crash leaves the old file."""
        target = Path(path)
        text = tomli_w.dumps(self.dump()) if target.suffix == ".toml" else json.dumps(self.dump(), indent=1) + "\n"
        with replacing(target) as fresh:
            fresh.write_text(text, encoding="utf-8")


class Theirs(Config):
    """The part of another library's file that matters here; what else it holds is passed over."""

    model_config = ConfigDict(extra="ignore")


class OneOf:
    """`Annotated[Mask, OneOf(table)]`: one of the classes of a table, chosen by `kind` when it comes from a file.

    Each class validates what is its own, so that only those that are met are imported and have a schema built.
    """

    def __init__(self, table: Callable[[], Iterable[type[Config]]]) -> None:
        self._table = table  # a function, because a table may hold classes that themselves hold one of it

    def choices(self) -> Mapping[str, type[Config]]:
        """The classes by kind."""
        table = self._table()
        return table.named if isinstance(table, Table) else {kind_of(choice): choice for choice in table}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        found = self.choices()
        own = found.places if isinstance(found, Named) else found
        union = _tagged(found, own)
        if isinstance(found, Named) and found.outside is not None:
            union = core_schema.no_info_wrap_validator_function(
                partial(_or_outside, found), union, serialization=_with_package(found.outside)
            )
        renamed = found.renamed if isinstance(found, Named) else {}
        return core_schema.no_info_before_validator_function(partial(_current, renamed), union) if renamed else union


class ManyOf(OneOf):
    """`Annotated[Mixer | tuple[Mixer, ...], ManyOf(table)]`: one or several of a table, held as a tuple."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        one = super().__get_pydantic_core_schema__(source, handler)
        several = core_schema.tuple_variable_schema(one, min_length=1)
        alone = lambda value: (value,) if isinstance(value, Config | dict) else value  # noqa: E731
        return core_schema.no_info_before_validator_function(alone, several)


def kind_of(config: type[Config]) -> str:
    """The name by which files call this class."""
    return str(config.model_fields["kind"].default)


def read_data(path: Path) -> Data:
    """The plain data in a .toml or .json file."""
    if not path.is_file():
        raise ConfigError(f"{path} is not a file; give the path of a .toml or .json file")
    if path.stat().st_size > LARGEST:
        raise ConfigError(f"{path} has {path.stat().st_size:,} bytes; a configuration has at most {LARGEST:,}")
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also of text that is not UTF-8, or a number of a million digits
        raise ConfigError(f"{path} is not valid {'toml' if path.suffix == '.toml' else 'json'}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds a {type(data).__name__}; a configuration is a table of named values")
    must_be_shallow(data, str(path))
    return data


def must_be_shallow(data: object, what: str) -> None:
    """Raise if tables and lists are nested so deeply that whoever goes through them would run out of stack."""
    level: Any = [data]
    for _ in range(LEVELS):
        held = (node.values() if isinstance(node, Mapping) else node for node in level)
        if not (level := [node for nodes in held for node in nodes if isinstance(node, Mapping | list | tuple)]):
            return
    raise ConfigError(f"{what} is nested more than {LEVELS} levels deep; no configuration is")


def override(data: Mapping[str, Any], changes: Iterable[str] | Mapping[str, Any]) -> Data:
    """`a.b.0.c=value` set in a copy of the data; in Python also {"a.b.0.c": value}.

    Setting `kind` starts that node anew, without the old kind's keys.
    """
    must_be_shallow(data, "the configuration")
    changed: Data = deepcopy(dict(data))
    for place, value in sorted(settings_of(changes).items(), key=_kinds_first):
        _set(changed, place, value)
    must_be_shallow(changed, "the configuration")
    return changed


def settings_of(changes: Iterable[str] | Mapping[str, Any]) -> Data:
    """Changes by their places in the tree."""
    if not isinstance(changes, Mapping):
        return dict(map(_change, changes))
    for place in changes:
        if not isinstance(place, str) or not all(place.split(".")):
            raise ConfigError(f"{place!r} is not a setting; write it as place.in.the.tree")
    return dict(changes)


def explain(error: ValidationError, root: type[Config]) -> Iterator[str]:
    """Every problem in words: dotted place, what was given, what is allowed, what was probably meant."""
    problems = error.errors(include_url=False)
    places = [problem["loc"] for problem in problems]
    for problem in problems:
        place = problem["loc"]
        if problem["type"] == "too_short" and any(other[: len(place)] == place != other for other in places):
            continue  # what is inside was wrong, so nothing of it was left to count
        trail = _Trail(root, problem["loc"])
        yield _worded(problem, ".".join(trail.path) or root.__qualname__, trail)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean x?` or, if nothing is near, `; known: ...`."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(names)}"


def _worded(problem: ErrorDetails, place: str, trail: _Trail) -> str:
    given, context = problem["input"], problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"{place} is unknown{nearest(place.rpartition('.')[2], trail.owner.model_fields)}"
        case "missing":
            return f"{place} is missing"
        case "union_tag_invalid":
            expected, tag = str(context["expected_tags"]).replace("'", "").split(", "), str(context["tag"])
            known = trail.choices or {kind: {} for kind in expected}
            return f"{place}.kind is {tag!r}{_unknown_kind(given, tag, known)}"
        case "union_tag_not_found":
            return f"{place} is {_short(given)}, which has no kind; name one of {', '.join(sorted(trail.choices))}"
        case "value_error":
            return f"{place}: {context['error']}"
        case _:
            must = problem["msg"].replace("Input should be", "it must be", 1)
            if trail.choices and problem["type"] != "too_short":  # something else stands where a kind belongs
                must = f"give a table with kind = one of {', '.join(sorted(trail.choices))}"
            return f"{place} is {_short(given)}; {must[0].lower()}{must[1:]}"


class _Trail:
    """A location followed through the tree: the path without kind tags, the class it ends in, the kinds to choose.

    Kinds are kept with the table of each, so that only the one that was chosen is imported.
    """

    def __init__(self, root: type[Config], loc: tuple[int | str, ...]) -> None:
        self.path: list[str] = []
        self.owner, self.choices = root, dict[str, Mapping[str, type[Config]]]()
        for step in loc:
            if isinstance(step, str) and step in self.choices:
                self.owner, self.choices = self.choices[step][step], {}
                continue
            self.path.append(str(step))
            if isinstance(step, str) and step in self.owner.model_fields:
                self._enter(self.owner.model_fields[step])

    def _enter(self, field: FieldInfo) -> None:
        found = list(configs_in(field.annotation, field.metadata))
        self.choices = {kind: table for table in found for kind in table if kind}
        self.owner = next((table[""] for table in found if "" in table), self.owner)


def configs_in(annotation: Any, metadata: Iterable[Any] = ()) -> Iterator[Mapping[str, type[Config]]]:
    """The classes that an annotation allows: tables by kind, or a class alone under the empty name."""
    tables = [item for item in metadata if isinstance(item, OneOf)]
    for table in tables:
        yield table.choices()
    if not tables and isinstance(annotation, type) and issubclass(annotation, Config):
        yield {"": annotation}
    args = get_args(annotation)
    for arg in args:
        yield from configs_in(arg, [other for other in args if isinstance(other, OneOf)] if arg is args[0] else ())


def _tagged(found: Mapping[str, type[Config]], kinds: Iterable[str]) -> CoreSchema:
    """One of these kinds, each validated by its own class."""
    own, plain = (lambda kind, value: found[kind].model_validate(value)), core_schema.no_info_plain_validator_function
    choices: dict[Any, CoreSchema] = {kind: plain(partial(own, kind)) for kind in kinds}
    each = core_schema.simple_ser_schema("any")  # written as its own class says
    return core_schema.tagged_union_schema(choices, discriminator="kind", serialization=each)


def _or_outside(found: Named[type[Config]], value: Any, own: Callable[[Any], Config]) -> Config:
    """One of heed's own kinds or, if it is none of them, one that another package brings."""
    kind = _kind_in(value)
    if kind is None or kind in found.places or found.outside is None:
        return own(value)
    brought = found.outside.find(kind)
    if brought is None:
        return own(value)
    if isinstance(value, Config) and not isinstance(value, brought):
        other = f"{type(value).__qualname__} is not the class that {brought.__module__} registered as {kind!r}"
        raise ValueError(other)  # noqa: TRY004  # pydantic words a ValueError, and no TypeError
    kept = {key: held for key, held in value.items() if key != PACKAGE} if isinstance(value, dict) else value
    made: Config = SchemaValidator(_tagged(found, [kind])).validate_python(kept)
    return made


def _kind_in(value: Any) -> str | None:
    if isinstance(value, dict):
        kind = value.get("kind")
        return kind if isinstance(kind, str) else None
    return kind_of(type(value)) if isinstance(value, Config) and "kind" in type(value).model_fields else None


def _with_package(outside: Outside[type[Config]]) -> core_schema.SerSchema:
    """What another package brought is written with the name of that package: a reader who lacks it is told."""

    def written(value: Any, write: Callable[[Any], Any]) -> Any:
        data, kind = write(value), _kind_in(value)
        origin = None if kind is None else outside.origin(kind)
        return data if origin is None or not isinstance(data, dict) else {**data, PACKAGE: str(origin)}

    return core_schema.wrap_serializer_function_ser_schema(written, schema=core_schema.any_schema())


def _unknown_kind(given: Any, kind: str, known: Mapping[str, Mapping[str, Any]]) -> str:
    """What to do about a kind that nobody brings: a misspelling, a class that is not registered, a missing package."""
    is_open = any(isinstance(table, Named) and table.outside is not None for table in known.values())
    if is_open and isinstance(given, Config):
        return f"; write @heed.register above the class that {type(given).__qualname__} belongs to"
    if is_open and isinstance(given, dict) and isinstance(given.get(PACKAGE), str):
        return f"; {Origin(*given[PACKAGE].split(' ')[:2]).missing}"
    said = nearest(kind, known)
    return f"{said}; another package may bring it: install that" if is_open and "known:" in said else said


def _current(renamed: Mapping[str, str], value: Any) -> Any:
    """What was written when a kind had another name."""
    old = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(old, str) or old not in renamed:
        return value
    warn(f"kind {old!r} is called {renamed[old]!r} now; the old name will go", DeprecationWarning, stacklevel=2)
    return {**value, "kind": renamed[old]}


def renamed_keys(**now: str) -> Any:
    """A validator of a Config: keys of the last release, and what they are called now."""

    def current(cls: type[Config], value: Any) -> Any:
        old = [key for key in now if isinstance(value, dict) and key in value]
        for key in old:
            message = f"{cls.__qualname__}: {key} is called {now[key]} now; the old name will go"
            warn(message, DeprecationWarning, stacklevel=2)
        return {now.get(key, key): held for key, held in value.items()} if old else value

    return model_validator(mode="before")(classmethod(current))  # type: ignore[arg-type]  # as its decorator is used


def _set(data: Data, place: str, value: Any) -> None:
    *path, last = place.split(".")
    node: Any = data
    for step in path:
        node = _inside(node, step)
        inner = node[_index(node, step, place)] if isinstance(node, list) else node.setdefault(step, {})
        if not isinstance(inner, dict | list):
            raise ConfigError(f"{place}: {step} is {inner!r}, which has nothing inside to set")
        node = inner
    node = _inside(node, last)
    if isinstance(node, list):
        node[_index(node, last, place)] = value
    elif last == "kind" and node.get("kind") != value:
        node.clear()
        node["kind"] = value
    else:
        node[last] = value


def _change(text: str) -> tuple[str, Any]:
    place, equals, value = str(text).partition("=")
    if not equals or not all(place.split(".")):
        raise ConfigError(f"{text!r} is not an override; write it as place.in.the.tree=value")
    return place, _parsed(value)


def _kinds_first(change: tuple[str, Any]) -> tuple[bool, int]:
    """A new kind starts its node anew, so it comes before what is set inside; outer nodes before inner ones."""
    place = change[0]
    return place.rpartition(".")[2] != "kind", place.count(".") if place.endswith("kind") else 0


def _inside(node: Any, step: str) -> Any:
    """A list of one stands for its item, as one mixer stands for a tuple of one."""
    return node[0] if isinstance(node, list) and len(node) == 1 and not step.isdecimal() else node


def _index(node: list[Any], step: str, place: str) -> int:
    if step.isdecimal() and int(step) < len(node):
        return int(step)
    needed = f"use 0 to {len(node) - 1}" if node else "it is empty"
    raise ConfigError(f"{place}: {step!r} does not name one of {len(node)} items; {needed}")


def _parsed(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _short(value: Any) -> str:
    return text if len(text := repr(value)) <= 60 else text[:57] + "..."
