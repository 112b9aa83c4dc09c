"""Schemas as people write them for answers: records of texts, numbers and choices, nested, with alternatives.

Each is made from its number alone. Texts and lists are bounded, so that a model without sense comes to an end.
"""

from __future__ import annotations

from random import Random
from typing import Any

WORDS = ("name", "city", "état", "価格", "tags", "items", "unit", "note", "is_open", "kind", "id", "x y", "emoji🎉")
PATTERNS = ("^[a-f0-9]{4}$", "^[A-Z]{2}-[0-9]{3}$", "^(yes|no|né)$", "^\\d{4}-(0[1-9]|1[0-2])$")
FORMATS = ("date", "uuid", "ipv4")


def schema(number: int) -> dict[str, Any]:
    """An object, with all that it refers to."""
    draw = Random(number)
    made = _object(draw, 3)
    if draw.random() < 0.3:
        made["$defs"] = {"part": _object(draw, 1)}
        made["properties"]["part"] = {"$ref": "#/$defs/part"}
        made["required"].append("part")
    return {**made, "x-guidance": {"whitespace_flexible": False}}


def _object(draw: Random, depth: int) -> dict[str, Any]:
    names = draw.sample(WORDS, draw.randint(1, 4))
    needed = [name for name in names if draw.random() < 0.7]
    return {
        "type": "object",
        "properties": {name: _value(draw, depth - 1) for name in names},
        "required": needed,
        "additionalProperties": False,
    }


def _value(draw: Random, depth: int) -> dict[str, Any]:
    kinds = [_text, _whole, _real, _choice, _flag]
    return draw.choice([*kinds, _list, _either, _nested] if depth > 0 else kinds)(draw, depth)


def _text(draw: Random, depth: int) -> dict[str, Any]:
    match draw.randrange(3):
        case 0:
            return {"type": "string", "maxLength": draw.randint(0, 12)}
        case 1:
            return {"type": "string", "pattern": draw.choice(PATTERNS)}
        case _:
            return {"type": "string", "format": draw.choice(FORMATS)}


def _whole(draw: Random, depth: int) -> dict[str, Any]:
    least = draw.randint(-100, 100)
    return {"type": "integer", "minimum": least, "maximum": least + draw.randint(0, 1000)}


def _real(draw: Random, depth: int) -> dict[str, Any]:
    return {"type": "number", "minimum": 0, draw.choice(("maximum", "exclusiveMaximum")): draw.randint(1, 9)}


def _choice(draw: Random, depth: int) -> dict[str, Any]:
    return {"enum": draw.sample(("red", "né", "🎉", 3, -1.5, True, None, 'a"b\\c'), draw.randint(1, 4))}


def _flag(draw: Random, depth: int) -> dict[str, Any]:
    return draw.choice(({"type": "boolean"}, {"type": "null"}, {"const": "fixed"}, {"type": ["boolean", "null"]}))


def _list(draw: Random, depth: int) -> dict[str, Any]:
    least = draw.randint(0, 2)
    return {"type": "array", "items": _value(draw, depth - 1), "minItems": least, "maxItems": least + 2}


def _either(draw: Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_value(draw, depth - 1) for _ in range(2)]}


def _nested(draw: Random, depth: int) -> dict[str, Any]:
    return _object(draw, depth)
