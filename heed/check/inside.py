"""Looking inside: which projections a module makes, what it makes of them, and which form of attention that is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations

import torch
from torch import Tensor

from .equal import places
from .foreign.calls import Axes, Face
from .reference import COARSE, SAME, WRONG, Conventions, Parts, attention, distance
from .subject import QUIET, Subject
from .trace import Projected, Trace, traced

ROTATIONS = ("none", "half", "pairs")
_WORDS = "{0} {1} {1}s w{0} w_{0} to_{0} {0}_proj {0}_linear linear_{0} {0}_lin fc_{0} {1}_proj w_{0}s w{1} {1}_layer"
NAMED = {
    word: rf"(^|[._])({'|'.join(_WORDS.format(word[0], word).split())})([._]|$)" for word in ("query", "key", "value")
}


@dataclass(frozen=True)
class Match:
    """A form that the module's output equals."""

    slug: str | None  # None: it is right
    words: str
    how: Conventions
    error: float
    order: str = "q, k, v"  # which projection served as what
    blind: bool = False  # whether no token sees itself


@dataclass(frozen=True)
class Core:
    """What stands between the projections and the output projection."""

    streams: tuple[tuple[str, Tensor], ...]  # projections before anything is mixed, by the name of their weight
    made: Tensor  # [B, T, H·d]
    trace: Trace


def core(subject: Subject) -> Core | None:
    """The projections of a call without a mask, and what was made of them; None if they cannot be seen."""
    x, source = subject.stream(), subject.source()
    if subject.call.face is Face.HEADS:
        return _function_core(subject, x)
    if subject.module is None:
        return None
    plain = unbiased(subject)
    with torch.enable_grad(), traced(plain.target) as first:
        y = plain.call(x, source).detach()
    moved = subject.nudged(x, 1, 0)
    beside = None if source is None else subject.nudged(source, 1, 0)
    with traced(plain.target) as second:
        plain.call(moved, beside)
    if len(first.projections) != len(second.projections) or not first.projections:
        return None
    early, mixed, swapped = list[tuple[str, Tensor]](), None, False
    for one, two in zip(first.projections, second.projections, strict=True):
        rows = _changed(one, two)
        laid = [t for t in (_laid(one, rows, x), _laid(one, rows, source)) if t is not None] if len(rows) == 1 else []
        if len(rows) == 1 and laid:
            early.append((one.name, laid[0]))
            swapped = rows == [len(x)]
        elif len(rows) > 1 and mixed is None and early:
            mixed = one
    if not early:
        return None
    made = y if mixed is None else _context(mixed, x, swapped)
    return None if made is None else Core(tuple(_gathered(early, made.shape[-1], subject.sizes.heads)), made, first)


def _gathered(streams: list[tuple[str, Tensor]], width: int, heads: int) -> list[tuple[str, Tensor]]:
    """Heads that are modules of their own, side by side: the projections of one kind, however they are counted."""
    kinds: dict[str, list[Tensor]] = {}
    for name, stream in streams:
        kinds.setdefault(re.sub(r"\d+", "#", name), []).append(stream)
    whole = {
        name: torch.cat(parts, -1)
        for name, parts in kinds.items()
        if len(parts) == heads > 1 and all(part.shape[-1] * heads == width for part in parts)
    }
    return list(whole.items()) if len(whole) >= 3 else streams


def _function_core(subject: Subject, x: Tensor) -> Core:
    call = subject.call
    three = [_joined(call.split(x, place), call.axes) for place in range(3)]
    with traced(subject.target) as trace, torch.no_grad():
        y = call(x)
    streams = tuple(zip(("query", "key", "value"), three, strict=True))
    return Core(streams, y, trace)


def _joined(x: Tensor, axes: Axes) -> Tensor:
    if axes is Axes.BARE:
        return x[None]
    if axes is Axes.NONE:
        return x
    return (x if axes is Axes.TOKENS_FIRST else x.transpose(1, 2)).flatten(2)


def unbiased(subject: Subject) -> Subject:
    """A copy whose biases are zero: then a projection is all there is between a weight and the scores."""
    plain = subject.copied()
    assert plain.module is not None
    with torch.no_grad():
        for name, weight in plain.module.named_parameters():
            if weight.dim() == 1 and name.endswith("bias"):
                weight.zero_()
    return plain


def _changed(one: Projected, two: Projected) -> list[int]:
    """Which rows of a projection's input changed."""
    if one.given.shape != two.given.shape:
        return []
    gap = (one.given - two.given).abs().nan_to_num(1.0).flatten(0, -2).amax(-1)
    return [int(row) for row in (gap > QUIET).nonzero().flatten()]


def _laid(projected: Projected, rows: list[int], x: Tensor | None) -> Tensor | None:
    """A projection as [B, T, width]: which flat row changed tells whether rows or tokens come first."""
    if x is None:
        return None
    flat = projected.made.flatten(0, -2) if projected.made.dim() > 1 else projected.made[None]
    batch, tokens = x.shape[:2]
    if flat.shape[0] != batch * tokens:
        return None
    if rows == [1]:
        return flat.reshape(batch, tokens, -1).detach()
    return flat.reshape(tokens, batch, -1).transpose(0, 1).detach() if rows == [batch] else None


def _context(projected: Projected, x: Tensor, swapped: bool) -> Tensor | None:
    """What the output projection was given, as [B, T, width]; it may come tokens first."""
    flat = projected.given.flatten(0, -2)
    batch, tokens = x.shape[:2]
    if flat.shape[0] != batch * tokens:
        return None
    if swapped:
        return flat.reshape(tokens, batch, -1).transpose(0, 1).detach()
    return flat.reshape(batch, tokens, -1).detach()


def triples(inner: Core) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Which projections may be queries, keys and values: by their names first, then in every order."""
    named = {}
    for word, pattern in NAMED.items():
        found = [stream for name, stream in inner.streams if re.search(pattern, name.lower())]
        if found:
            named[word] = found[0]
    if len(named) == 3:
        yield "q, k, v", named["query"], named["key"], named["value"]
    for name, stream in inner.streams:
        for parts, words in _cut(stream, inner.made.shape[-1]):
            yield f"{name} as {words}", *parts
    for (_, query), (name, both) in permutations(inner.streams, 2):
        if query.shape[-1] == inner.made.shape[-1] and both.shape[-1] % 2 == 0:
            key, value = both.chunk(2, -1)
            yield f"{name} as keys and values side by side", query, key, value
    alike = [s for _, s in inner.streams if s.shape[-1] <= inner.made.shape[-1]][:4]
    for a, b, c in permutations(range(len(alike)), 3):
        if alike[b].shape == alike[c].shape:
            yield f"projections {a + 1}, {b + 1}, {c + 1}", alike[a], alike[b], alike[c]


def _cut(stream: Tensor, width: int) -> Iterator[tuple[tuple[Tensor, Tensor, Tensor], str]]:
    """One projection that holds all three, or keys and values."""
    wide = stream.shape[-1]
    if wide <= width:
        return
    if wide == 3 * width:
        three = stream.chunk(3, -1)
        for order in permutations(range(3)):
            yield (three[order[0]], three[order[1]], three[order[2]]), "three side by side"
    elif (wide - width) % 2 == 0:
        each = (wide - width) // 2
        query, key, value = torch.split(stream, [width, each, each], -1)
        yield (query, key, value), "queries, then fewer keys and values"


def _by_head(stream: Tensor, width: int, heads: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """All three, head by head."""
    if stream.shape[-1] != 3 * width:
        return None
    parts = stream.reshape(*stream.shape[:-1], heads, 3, -1).unbind(-2)
    return parts[0].flatten(-2), parts[1].flatten(-2), parts[2].flatten(-2)


def matches(subject: Subject, inner: Core) -> Iterator[Match]:
    """Forms that the output equals: the right ones first; if there are none, wrong ones."""
    sees, bound = (subject.map > QUIET)[None], COARSE if inner.trace.coarse else SAME
    heads = subject.sizes.heads if inner.made.shape[-1] % subject.sizes.heads == 0 else 1
    heads = 1 if subject.call.face is Face.HEADS and subject.call.axes in (Axes.NONE, Axes.BARE) else heads
    made, shown = _shown(inner.made)
    turned, placed = places(subject)
    options = list(triples(inner))
    options += [
        (f"{name} head by head", *three)
        for name, stream in inner.streams
        if (three := _by_head(stream, inner.made.shape[-1], heads)) is not None
    ]
    given = [
        (words, Parts(query, key, value, visible, heads))
        for words, query, key, value in options
        if query.shape == inner.made.shape and _fits(query, key, value, heads)
        for visible in _sights(sees)
        if visible.shape[1:] == (query.shape[1], key.shape[1])
    ]
    right = (
        Match(None, f"attention, {words}", how, error, words, _blind(parts))
        for words, parts in given
        if parts.sees is sees or subject.meant_causal  # what looks both ways is seen to do so
        for how in conventions(parts, turned=turned, placed=placed)
        if (error := distance(attention(parts, how)[:, shown], made)) <= bound
    )
    if (first := next(right, None)) is not None:
        yield first
        return
    if given and given[0][0] == "q, k, v":  # their names tell which is which
        given = [(words, parts) for words, parts in given if words == "q, k, v"]
    for slug, told, form in WRONG:
        for words, parts in given:
            for how in conventions(parts, few=True, turned=turned):
                error = distance(form(parts, how)[:, shown], made)
                if error <= bound:
                    yield Match(slug, told, how, error, words)
                    return


def _shown(made: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens whose outputs are numbers, and which those are; what sees nothing may be anything."""
    finite = torch.isfinite(made).all(-1).all(0)
    if not bool(finite.any()):
        return made.nan_to_num(0.0), torch.ones_like(finite)
    return made[:, finite], finite


def _blind(parts: Parts) -> bool:
    """Whether no token sees itself, though there is one to be seen."""
    tokens, keys = parts.sees.shape[1:]
    return tokens == keys and not bool(parts.sees.diagonal(dim1=1, dim2=2).any())


def _fits(query: Tensor, key: Tensor, value: Tensor, heads: int) -> bool:
    size = query.shape[-1] // heads
    return key.shape == value.shape and key.shape[-1] % size == 0 and heads % (key.shape[-1] // size) == 0


def _sights(sees: Tensor) -> list[Tensor]:
    """Who may see whom: as measured; all; causal."""
    tokens, keys = sees.shape[1:]
    every = torch.ones(1, tokens, keys, dtype=torch.bool)
    found = [sees, every]
    if tokens == keys:
        triangle = every.tril()
        found += [triangle, triangle & ~torch.eye(tokens, dtype=torch.bool)]
    return [s for place, s in enumerate(found) if not any(torch.equal(s, t) for t in found[:place])]


def conventions(parts: Parts, *, few: bool = False, turned: bool = True, placed: bool = True) -> Iterator[Conventions]:
    """Ways to do it that are all right, or that are a matter of scale; rotations and slopes where there can be any."""
    even = parts.size % 2 == 0 and parts.key.shape[1] == parts.query.shape[1]
    scales = ("head", "none") if few else ("head", "none", "width", "heads", "times", "size", "tokens", "value")
    for rotation in ROTATIONS if even and turned else ("none",):
        for alibi in (False, True) if even and placed and not few else (False,):
            for scale in scales:
                how = Conventions(rotation, alibi, scale)  # type: ignore[arg-type]
                yield how
                if parts.kv_heads not in (1, parts.heads):
                    yield replace(how, tiled=True)
                if parts.heads > 1 and not few and parts.kv_heads == parts.heads:
                    yield replace(how, channels_first=True)
