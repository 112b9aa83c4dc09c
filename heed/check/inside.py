"""Looking inside: which projections a module makes, what it makes of them, and which form of attention that is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import torch
from torch import Tensor

from .equal import places
from .foreign.calls import Axes, Face
from .reference import COARSE, SAME, WRONG, Conventions, Parts, attention, distance, scale_of, scales_of
from .signs import NUDGED, Looks, looked
from .subject import QUIET, Subject
from .trace import Projected, Trace

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
    heads: int = 1
    scale: float = 1.0  # the number that scores are multiplied by


@dataclass(frozen=True)
class Core:
    """What stands between the projections and the output projection."""

    streams: tuple[tuple[str, Tensor], ...]  # projections before anything is mixed, by the name of their weight
    made: Tensor  # [B, T, H·d]
    trace: Trace


def core(subject: Subject) -> Core | None:
    """The projections of a call without a mask, and what was made of them; None if they cannot be seen."""
    looks = looked(subject)
    if looks is None:
        return None
    if subject.call.face is Face.HEADS:
        return _function_core(subject, looks)
    first, second, x, source = looks.first, looks.second, looks.x, looks.source
    if len(first.projections) != len(second.projections) or not first.projections:
        return None
    early, mixed, swapped = list[tuple[str, Tensor]](), None, False
    for one, two in zip(first.projections, second.projections, strict=True):
        rows = _changed(one, two)
        laid = [t for t in (_laid(one, rows, x), _laid(one, rows, source)) if t is not None]
        if laid:
            early.append((one.name, laid[0]))
            swapped = rows == [len(x)]
        elif len(rows) > 1 and mixed is None and early:
            mixed = one
    if not early:
        return None
    made = looks.y if mixed is None else _context(mixed, x, swapped)
    size = None if looks.flow is None else looks.flow.size
    return None if made is None else Core(tuple(_gathered(early, size)), made, first)


def _gathered(streams: list[tuple[str, Tensor]], size: int | None) -> list[tuple[str, Tensor]]:
    """Heads that are modules of their own, side by side: the projections of one kind, however they are counted."""
    kinds: dict[str, list[Tensor]] = {}
    for name, stream in streams:
        kinds.setdefault(re.sub(r"\d+", "#", name), []).append(stream)
    many = {name: parts for name, parts in kinds.items() if len(parts) > 1}
    if len(many) == 1 and size is not None and all(p.shape[-1] == 3 * size for parts in many.values() for p in parts):
        (name, parts), *_ = many.items()
        three = list(zip(*(part.chunk(3, -1) for part in parts), strict=True))
        return [(f"{name}.{word}", torch.cat(heads, -1)) for word, heads in zip(NAMED, three, strict=True)]
    if len(many) >= 3 and len({len(parts) for parts in many.values()}) == 1:
        return [(name, torch.cat(parts, -1)) for name, parts in many.items()]
    return streams


def _function_core(subject: Subject, looks: Looks) -> Core:
    call = subject.call
    three = [_joined(call.split(looks.x, place), call.axes) for place in range(3)]
    return Core(tuple(zip(NAMED, three, strict=True)), looks.y, looks.first)


def _joined(x: Tensor, axes: Axes) -> Tensor:
    if axes is Axes.BARE:
        return x[None]
    if axes is Axes.NONE:
        return x
    return (x if axes is Axes.TOKENS_FIRST else x.transpose(1, 2)).flatten(2)


def _changed(one: Projected, two: Projected) -> list[int]:
    """Which rows of a projection's input changed."""
    if one.given.shape != two.given.shape or one.given.dim() < 2:
        return []
    gap = (one.given - two.given).abs().nan_to_num(1.0).flatten(0, -2).amax(-1)
    return [int(row) for row in (gap > QUIET).nonzero().flatten()]


def _laid(projected: Projected, rows: list[int], x: Tensor | None) -> Tensor | None:
    """A projection as [B, T, width]: which flat rows changed tells how rows, tokens and heads are laid out."""
    if x is None or x.shape[1] <= NUDGED or not rows or not _alike(projected, rows):
        return None
    flat = projected.made.flatten(0, -2) if projected.made.dim() > 1 else projected.made[None]
    batch, tokens, heads = *x.shape[:2], len(rows)  # a stream that is projected once for every head
    if flat.shape[0] != batch * tokens * heads:
        return None
    sizes = {"b": batch, "t": tokens, "h": heads}
    for axes in ("bt", "tb") if heads == 1 else ("bht", "hbt", "bth", "thb", "tbh"):
        grid = torch.arange(len(flat)).reshape([sizes[axis] for axis in axes])
        place = [slice(None) if axis == "h" else NUDGED if axis == "t" else 0 for axis in axes]
        if grid[tuple(place)].flatten().tolist() == rows:
            laid = flat.reshape(*grid.shape, -1)
            order = [axes.index(axis) for axis in "bth" if axis in axes]
            return laid.permute(*order, len(axes)).flatten(2).detach()
    return None


def _alike(projected: Projected, rows: list[int]) -> bool:
    """Whether what changed is one token, once or for every head."""
    flat = projected.given.flatten(0, -2)
    return all(torch.equal(flat[row], flat[rows[0]]) for row in rows)


def _context(projected: Projected, x: Tensor, swapped: bool) -> Tensor | None:
    """What the output projection was given, as [B, T, width]; it may come tokens first, or head by head."""
    flat = projected.given.flatten(0, -2)
    batch, tokens = x.shape[:2]
    if flat.shape[0] % (batch * tokens):
        return None
    if flat.shape[0] > batch * tokens:
        return flat.reshape(batch, -1, tokens, flat.shape[-1]).transpose(1, 2).flatten(2).detach()
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
    if stream.shape[-1] != 3 * width or width % heads:
        return None
    parts = stream.reshape(*stream.shape[:-1], heads, 3, -1).unbind(-2)
    return parts[0].flatten(-2), parts[1].flatten(-2), parts[2].flatten(-2)


def matches(subject: Subject, inner: Core) -> Iterator[Match]:
    """Forms that the output equals: the right ones first; if there are none, wrong ones."""
    bound = COARSE if inner.trace.coarse or _rounded(subject) else SAME
    made, shown = _shown(inner.made)
    turned, placed = places(subject)
    given, looks = list(_given(subject, inner)), looked(subject)
    scale = None if looks is None or looks.flow is None or not looks.flow.known else looks.flow.factor
    for words, parts in given:
        alive = shown & parts.sees.any(-1).all(0)  # what sees nothing may give anything
        if not bool(alive.any()):
            continue
        for how in conventions(parts, _scales(parts, scale), turned=turned, placed=placed):
            error = distance(attention(parts, how)[:, alive], inner.made[:, alive])
            if error <= bound:
                told, number = f"attention, {words}", scale_of(parts, how)
                yield Match(None, told, how, error, words, _blind(parts), parts.heads, number)
                return
    if given and given[0][0] == "q, k, v":  # their names tell which is which
        given = [(words, parts) for words, parts in given if words == "q, k, v"]
    for slug, told, form in WRONG:
        if looks is not None and _ruled_out(looks, slug, told):
            continue
        for words, parts in given:
            for how in conventions(parts, _few(parts, scale), few=True, turned=turned):
                error = distance(form(parts, how)[:, shown], made)
                if error <= bound:
                    yield Match(slug, told, how, error, words, heads=parts.heads, scale=scale_of(parts, how))
                    return


def _rounded(subject: Subject) -> bool:
    """Whether tables that were made in float32, such as those of a rotation, are part of it."""
    buffers = () if subject.module is None else subject.module.buffers()
    return any(b.is_floating_point() and not torch.equal(b.float().to(b), b.round()) for b in buffers)


def _ruled_out(looks: Looks, slug: str, told: str) -> bool:
    """Whether what was seen inside says that it is not this: tokens stay apart, or weights sum to one."""
    another_axis = slug == "no-softmax" or (slug == "softmax-axis" and "with the softmax over" in told)
    return (slug == "head-mixing" and looks.apart is True) or (another_axis and looks.summed is True)


def _given(subject: Subject, inner: Core) -> Iterator[tuple[str, Parts]]:
    """Queries, keys and values in every way in which they may be meant, beside who may see whom."""
    sights = _sights((subject.map > QUIET)[None], subject.meant_causal)
    options = list(triples(inner))
    options += [
        (f"{name} head by head", *three)
        for name, stream in inner.streams
        for heads in {subject.sizes.heads, 1}
        if (three := _by_head(stream, inner.made.shape[-1], heads)) is not None
    ]
    for words, query, key, value in options:
        for heads in _heads(subject, inner, query):
            if not _fits(query, key, value, heads, inner.made.shape[-1]):
                continue
            for visible in sights:
                if visible.shape[1:] == (query.shape[1], key.shape[1]):
                    q, k, v = (part.double() for part in (query, key, value))  # some may have been computed in less
                    yield words, Parts(q, k, v, visible, heads, subject.sizes.width)


def _heads(subject: Subject, inner: Core, query: Tensor) -> list[int]:
    """How many heads there may be: over as many channels as scores are sums, or as the constructor was told, or one."""
    sizes = [flow.size for flow in inner.trace.scores if flow.size is not None]
    if sizes:
        return [query.shape[-1] // sizes[0]] if query.shape[-1] % sizes[0] == 0 else []
    if subject.call.face is Face.HEADS and subject.call.axes in (Axes.NONE, Axes.BARE):
        return [1]
    return [heads for heads in dict.fromkeys((subject.sizes.heads, 1)) if query.shape[-1] % heads == 0]


def _scales(parts: Parts, found: float | None) -> list[Conventions]:
    """The scale that was followed through the call, or all that have a name."""
    usual = scales_of(parts.size, parts.heads, parts.key.shape[1], parts.model)
    if found is None:
        return [Conventions(scale=name) for name in usual]
    named = [name for name, number in usual.items() if math.isclose(number, found, rel_tol=1e-6)]
    return [Conventions(scale=named[0])] if named else [Conventions(scale="other", number=found)]


def _few(parts: Parts, found: float | None) -> list[Conventions]:
    usual = [Conventions(scale="head"), Conventions(scale="none")]
    return usual if found is None else list(dict.fromkeys((*_scales(parts, found), *usual)))


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


def _fits(query: Tensor, key: Tensor, value: Tensor, heads: int, width: int) -> bool:
    size = query.shape[-1] // heads
    if key.shape[:2] != value.shape[:2] or query.shape[-1] % heads or key.shape[-1] % size:
        return False
    shared = key.shape[-1] // size
    return heads % shared == 0 and value.shape[-1] % shared == 0 and value.shape[-1] // shared * heads == width


def _sights(sees: Tensor, causal: bool) -> list[Tensor]:
    """Who may see whom: as measured; all; those before; and each of them without the token itself."""
    tokens, keys = sees.shape[1:]
    every = torch.ones(1, tokens, keys, dtype=torch.bool)
    found = [sees, every]
    if tokens == keys:
        itself = torch.eye(tokens, dtype=torch.bool)
        found += [every.tril(), every.tril() & ~itself] if causal else [every & ~itself]
    return [s for place, s in enumerate(found) if not any(torch.equal(s, t) for t in found[:place])]


def conventions(
    parts: Parts, scales: Sequence[Conventions], *, few: bool = False, turned: bool = True, placed: bool = True
) -> Iterator[Conventions]:
    """Ways to do it that are all right, or that are a matter of scale; rotations and slopes where there can be any."""
    even = parts.size % 2 == 0 and parts.key.shape[1] == parts.query.shape[1]
    for rotation in ROTATIONS if even and turned else ("none",):
        for alibi in (False, True) if even and placed and not few else (False,):
            for scale in scales:
                how = replace(scale, rotation=rotation, alibi=alibi)  # type: ignore[arg-type]
                yield how
                if parts.kv_heads not in (1, parts.heads):
                    yield replace(how, tiled=True)
                if parts.heads > 1 and not few and parts.kv_heads == parts.heads:
                    yield replace(how, merged_so=True)
                    yield replace(how, channels_first=True)
                    yield replace(how, channels_first=True, merged_so=True)
