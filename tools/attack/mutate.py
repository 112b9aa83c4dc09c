"""Mutations of bytes, of trees (JSON, TOML) and of folders. All draw from a `Random`: a seed gives the same again."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, TypeAlias

import tomli_w

from .case import Content, Files, Special

Tree: TypeAlias = Any
Mutator: TypeAlias = Callable[[Random, bytes], bytes]

INTEGERS = (
    *(0, 1, 2, 3, 7, 8, 255, 256, -1, -2, 1000, 65535, 65536, 10**6, 10**9, 2**31 - 1, 2**31, -(2**31)),
    *(2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**19, 10**30),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-300, 1e300, 3.5e38, math.inf, -math.inf, math.nan, 1 / 3)
TEXTS = (
    *("", " ", "\0", "a", "../../outside/canary", "/etc/passwd", "..", ".", "\n", "%s%n", "null", "nan", "1e999"),
    *("\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"), "\u202e\u0301\ufeff", "𝔘𝔫𝔦", "ﷺ" * 9),
    *("A" * 1000, "9" * 5000, "(a+)+$", "(" * 300, "\\", "{{ 7*7 }}", "$(id)", "__class__", "\uffff\ufffe", "é" * 300),
)
DEPTHS = (3, 50, 900, 1100, 5000, 100_000)


# --- bytes ---


def mutated_bytes(draw: Random, data: bytes) -> bytes:
    """One change to bytes of any kind."""
    return draw.choice(BYTES)(draw, data)


def _flip(draw: Random, data: bytes) -> bytes:
    if not data:
        return b"\1"
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 4, 32))):
        changed[_place(draw, len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _cut(draw: Random, data: bytes) -> bytes:
    return data[: draw.choice((0, 1, len(data) // 2, max(0, len(data) - 1), draw.randrange(len(data) + 1)))]


def _lengthen(draw: Random, data: bytes) -> bytes:
    return data + draw.choice((b"\0", b"\n", draw.randbytes(64), bytes(100_000), data[:1000]))


def _splice(draw: Random, data: bytes) -> bytes:
    """A piece of it, somewhere else."""
    begin, to = draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)
    piece = data[begin : begin + draw.choice((1, 4, 16, 256, 4096))]
    return data[:to] + piece + data[to + draw.choice((0, len(piece))) :]


def _noise(draw: Random, data: bytes) -> bytes:
    at = _place(draw, max(1, len(data)))
    return data[:at] + draw.randbytes(draw.choice((1, 4, 16))) + data[at + 4 :]


def _number(draw: Random, data: bytes) -> bytes:
    """A nasty number where one may stand."""
    width = draw.choice((1, 2, 4, 8))
    at = _place(draw, max(1, len(data) - width))
    value = draw.choice(INTEGERS) % (1 << 8 * width)
    return data[:at] + value.to_bytes(width, draw.choice(("little", "big"))) + data[at + width :]


def _without(draw: Random, data: bytes) -> bytes:
    at = _place(draw, max(1, len(data)))
    return data[:at] + data[at + draw.choice((1, 2, 8, 100)) :]


def _place(draw: Random, length: int) -> int:
    """Headers are where decisions are made: the beginning and the end are drawn more often."""
    near = min(length, 200)
    return draw.choice((draw.randrange(length), draw.randrange(near), length - 1 - draw.randrange(near)))


BYTES: tuple[Mutator, ...] = (_flip, _flip, _cut, _lengthen, _splice, _noise, _number, _number, _without)


# --- trees ---


def nasty(draw: Random, value: Tree = None) -> Tree:
    """A value to stand in the place of this one: of its kind but strange, or of another kind."""
    if draw.random() < 0.6:
        match value:
            case bool():
                return not value
            case int():
                return draw.choice((value + 1, value - 1, -value, value * 2, value * 10**9, draw.choice(INTEGERS)))
            case float():
                return draw.choice((-value, value * 1e30, draw.choice(FLOATS)))
            case str():
                return draw.choice((value[:-1], value * 2, value.upper(), value + "\0", draw.choice(TEXTS)))
            case list():
                return draw.choice((value[:-1], value * 2, value[::-1], [value], [], [draw.choice(INTEGERS)] * 50))
            case dict():
                return draw.choice(({}, list(value), list(value.items()), dict(list(value.items())[:-1])))
    simple = (None, True, False, draw.choice(INTEGERS), draw.choice(FLOATS), draw.choice(TEXTS))
    return draw.choice((*simple, [], {}, [draw.choice(simple)] * 3, {"": draw.choice(simple)}, {"kind": "x"}))


def mutated_tree(draw: Random, tree: Tree) -> Tree:
    """One change somewhere in a tree, which is changed in place where it can be."""
    places = list(_places(tree))
    if not places:
        return nasty(draw, tree)
    node, key = draw.choice(places)
    how = draw.random()
    if how < 0.6:
        node[key] = nasty(draw, node[key])
    elif how < 0.75:
        del node[key]
    elif how < 0.85:
        other, theirs = draw.choice(places)
        if theirs in other if isinstance(other, dict) else theirs < len(other):
            node[key] = deepcopy(other[theirs])  # a copy: no tree holds itself
    elif isinstance(node, dict):
        node[draw.choice((*TEXTS, str(key) + "_", str(key).upper()))] = nasty(draw, node[key])
    else:
        node.insert(draw.randrange(len(node) + 1), nasty(draw, node[key]))
    return tree


def _places(tree: Tree) -> Any:
    """Every node and key of a tree, not too many of a long list."""
    pending = [tree]
    while pending:
        node = pending.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys[:300]:
            yield node, key
            pending.append(node[key])


def mutated_json(draw: Random, data: bytes) -> bytes:
    """One change to a JSON text: to its tree, or to how it is written."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return mutated_bytes(draw, data)
    if draw.random() < 0.12:
        return _miswritten(draw, data, tree)
    tree = mutated_tree(draw, tree)
    try:
        return json.dumps(tree, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return _nested(draw, data)


def _miswritten(draw: Random, data: bytes, tree: Tree) -> bytes:
    text = data.decode("utf-8", "replace")
    digits = "9" * draw.choice((20, 400, 5000, 200_000))
    places = [at for at, letter in enumerate(text) if letter.isdigit()] or [0]
    at = draw.choice(places)
    return draw.choice(
        (
            lambda: _nested(draw, data),
            (text[:at] + digits + text[at + 1 :]).encode,
            (text[:at] + digits[:300] + "e" + digits[:3] + text[at + 1 :]).encode,
            lambda: b"\xef\xbb\xbf" + data,
            lambda: text.encode("utf-16"),
            lambda: data + data,
            lambda: b"[" + data + b"]",
            lambda: data.replace(b":", b":" + data[:2000] + b",", 1),
            lambda: (text[:-1] + "," + text[1:]).encode() if isinstance(tree, dict) else data[1:],  # every key twice
            lambda: data.replace(b'"', b"'"),
            lambda: b"null",
            lambda: b"",
        )
    )()


def _nested(draw: Random, data: bytes) -> bytes:
    depth = draw.choice(DEPTHS)
    text = data.decode("utf-8", "replace")
    opening, closing = draw.choice((("[", "]"), ('{"a":', "}")))
    deep = opening * depth + "1" + closing * draw.choice((depth, 0))
    cut = text.rfind("}")
    return (deep if cut < 0 or draw.random() < 0.3 else text[:cut] + ', "deep": ' + deep + "}").encode()


def mutated_jsonl(draw: Random, data: bytes) -> bytes:
    """One line of several."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    lines[at] = mutated_json(draw, lines[at])
    return b"\n".join(lines)


def mutated_toml(draw: Random, data: bytes) -> bytes:
    """One change to a TOML text."""
    try:
        tree = tomllib.loads(data.decode())
    except ValueError:
        return mutated_bytes(draw, data)
    if draw.random() < 0.2:
        deep = draw.choice(DEPTHS[:-1])
        forms = (
            f"deep = {'[' * deep}{']' * deep}\n",
            f"deep = {'{a=' * deep}1{'}' * deep}\n",
            ".".join(["a"] * deep) + " = 1\n",
            f"[{'.'.join(['a'] * deep)}]\n",
            f"[model{'.mixer' * min(deep, 5000)}]\n",
            f"big = {'9' * deep}\n",
            "when = 9999-12-31T23:59:59.999999+23:59\n",
            "nan = nan\ninf = -inf\n",
        )
        return draw.choice((draw.choice(forms).encode() + data, data + b"\n" + draw.choice(forms).encode()))
    try:
        return tomli_w.dumps(mutated_tree(draw, tree)).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, AttributeError, RecursionError):  # what TOML cannot say
        return mutated_bytes(draw, data)


def mutated_text(draw: Random, data: bytes) -> bytes:
    """One change to lines and cells."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    strange = draw.choice(TEXTS).encode("utf-8", "surrogatepass")
    forms: tuple[Callable[[], bytes], ...] = (
        lambda: lines[at] + b"\t" + strange,
        lambda: lines[at].replace(b"\t", b",").replace(b",", b"\t"),
        lambda: strange,
        lambda: b'"' + lines[at],
        lambda: lines[at] + b"\r",
        lambda: b"\xff\xfe" + lines[at],
        lambda: lines[at] * draw.choice((2, 1000)),
        lambda: b",".join([b"x"] * draw.choice((100, 20_000))),
        lambda: b"\0" * 9,
        lambda: b"",
    )
    if draw.random() < 0.2:
        return mutated_bytes(draw, data)
    lines[at] = draw.choice(forms)()
    return b"\n".join(lines)


# --- folders ---

LINKS = ("../outside/canary", "/dev/zero", "/dev/null", "/proc/self/mem", "/etc/passwd", "..", ".", "loop", "missing")
NAMES = ("a\nb", "\u202egnp.json", "-rf", "a b", "%2e%2e", "CON", ".hidden", "é" * 60, "x" * 255, "~", "*", "a\\b")


def mutated_folder(draw: Random, files: Files, *, pipes: bool = True) -> None:
    """One change to what lies in a folder."""
    name = draw.choice(sorted(files))
    content: Content = files[name]
    match draw.randrange(9):
        case 0:
            del files[name]
        case 1:
            files[name] = Special("symlink", draw.choice((*LINKS, name)))
        case 2:
            files[name] = Special("hardlink", "../outside/canary")
        case 3:
            files[name] = Special("pipe" if pipes else "folder")
        case 4:
            files[name] = Special("folder")
        case 5:
            files[name] = b""
        case 6:
            files[draw.choice(NAMES)] = content
        case 7:
            files[draw.choice(sorted(files))] = content
        case _:
            files[name + draw.choice((".new", ".bak", "/x"))] = content
