"""Finding out how a foreign module or function is called: from its signature, by trial, and from what it raises."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..build import called
from ..calls import Axes, Call, Face, OtherLength
from ..contain.budget import Budget
from ..layouts import Layout, Query, grid
from ..returned import WEIGHTED, NoStream, few, gives_weights
from ..said import rows_first
from ..signature import Signature, function_of
from ..sizes import Sizes
from ..target import CannotCheck
from ..words import Role
from .beside import beside
from .hints import Tries, lengths_of, raised_by, resized
from .settle import NoSense, hides_all, sample, sane, settled

WAYS, GLANCES = 400, 60  # ways that are tried, and in a brief look
SECONDS = 10.0  # of computing, after which no other way is tried
LEAST = 24  # ways that are tried however long that takes
MOST = 40  # errors whose source is read
HINTED = 6  # sizes that are tried because an error asked for them
PICTURE = 16  # tokens of an image, unless it has a size of its own
LAYOUTS = (Layout.ROWS, Layout.TOKENS, Layout.CHANNELS, Layout.IMAGE, Layout.GRID, Layout.FLAT)
IDS = re.compile(r"argument #1 'indices'|tensors used as indices must be|expected .*scalar types: Long, Int")


class WantsIds(CannotCheck):
    """A target that takes token ids where a stream was passed."""


def discover(
    target: Any,
    trials: Sequence[Sizes],
    tables: Callable[[int], Any] | None = None,
    tries: Tries | None = None,
    brief: bool = False,
) -> Call:
    """The first way to call the target that gives a stream; `tables` makes the rotations that belong to it.

    A brief look tries only the plainest layout, and leaves the rest to a second one. What gives weights alone, or a few
    vectors for each row, is taken for that if nothing gives a stream.
    """
    tries, budget = tries or Tries(), Budget(GLANCES if brief else WAYS, SECONDS, LEAST)
    other, late = list[Call](), list[Call]()
    lazy = isinstance(target, nn.Module) and any(is_lazy(weight) for weight in target.parameters())
    for single in (False, True):
        if single and not _asks_single(tries):
            break
        body = copy.deepcopy(target).float() if single and isinstance(target, nn.Module) and not lazy else target
        for call in _calls(body, trials, tables, tries, other, brief):
            if budget.spent() or (brief and tries.stuck):
                break
            if (found := _tried(call.with_(single=single), tries, other, late)) is not None:
                return settled(found)
        if other or (late and not brief):
            return settled([*other, *late][0])
    raise uncalled(target, trials[0], tries)


def uncalled(target: Any, sizes: Sizes, tries: Tries) -> CannotCheck:
    """What to say of a target that cannot be called."""
    signature = Signature.of(target)
    if any(IDS.search(str(error)) for _, error in tries.found):
        return WantsIds(f"{_named(target)} looks its input up in a table: it takes token ids")
    if (words := tries.undefined()) is not None:
        return CannotCheck(f"{_named(target)} could not be called: {words}")
    needed = ", ".join(f"{name}=..." for name in signature.roles if name in signature.needed)
    return CannotCheck(
        f"{_named(target)}({', '.join(signature.roles)}) could not be called. Tried:\n  {tries.words()}\n"
        "Write in a file, say adapter.py, how it is called, and name that: --adapter adapter.py:call\n"
        f"  def call(target, x):  # x: [{sizes.rows}, tokens, {sizes.width}], as the result should be\n"
        f"      return target({needed})"
    )


def _asks_single(tries: Tries) -> bool:
    """Whether something was raised about the type of numbers."""
    return any(re.search(r"dtype|Float\b|Double\b|Half\b|scalar type", str(error)) for _, error in tries.found) or any(
        re.search(r"FloatTensor|float32", raised_by(error)) for _, error in tries.found[:MOST]
    )


def _calls(
    target: Any,
    trials: Sequence[Sizes],
    tables: Callable[[int], Any] | None,
    tries: Tries,
    other: Sequence[Call],
    brief: bool,
) -> Iterator[Call]:
    """All ways to call it, layout by layout, at the sizes that it has and those that its errors ask for."""
    signature = Signature.of(target)
    own = dict.fromkeys(signature.all(Role.TABLES)[:1], tables) if tables is not None else {}
    # Two streams, perhaps with tokens first unless the source says otherwise, before any rarer form of what is beside.
    for layout in LAYOUTS[: 1 if rows_first(target) else 2]:
        glance = [call for call in islice(ways(target, signature, trials[0], {}), 1) if call.face is Face.CROSS]
        yield from (call.with_(layout=layout) for call in glance if not own)
    for layout in LAYOUTS[:1] if brief else LAYOUTS:
        for read in readings(signature):
            yield from _resized(target, read, trials, own, layout, tries, brief)
            if other:
                break
        if other or layout is Layout.ROWS:
            faces = (Face.HEADS,) if other else (Face.CROSS,) if brief else (Face.CROSS, Face.THREE, Face.HEADS)
            yield from _one_by_one(target, signature, trials, tries, faces)
        if other:
            return
    if len(signature.needed) == 1:
        yield Call(target, signature, trials[0], Face.SELF, bagged=True)
    if brief:
        return
    pictured = replace(trials[0], tokens=PICTURE)
    for layout, sizes in ((LAYOUTS[0], trials[0]), (LAYOUTS[1], trials[0]), (Layout.IMAGE, pictured)):
        for read in readings(signature):
            for call in ways(target, read, sizes, {}, loose=True):
                yield call.with_(layout=layout)
    square = replace(trials[0], rows=trials[0].tokens)  # for targets that take rows for tokens
    yield from _laid_out(target, signature, square, own, Layout.ROWS, brief)


def _one_by_one(
    target: Any, signature: Signature, trials: Sequence[Sizes], tries: Tries, faces: tuple[Face, ...]
) -> Iterator[Call]:
    """One query of each row at a time, beside a source, as recurrent decoders ask; of one face, by names only."""

    def asked(sizes: Sizes) -> Iterator[Call]:
        for read in islice(readings(signature), 1 if len(faces) == 1 else None):
            for call in ways(target, read, sizes, {}):
                if call.face in faces and call.axes is Axes.NONE:
                    for query, layout in product(Query, LAYOUTS[:2]):
                        yield call.with_(query=query, layout=layout)

    yield from _at_sizes(trials[:1], asked, tries)


def _resized(
    target: Any,
    signature: Signature,
    trials: Sequence[Sizes],
    own: Mapping[str, Any],
    layout: Layout,
    tries: Tries,
    brief: bool,
) -> Iterator[Call]:
    """One layout, at every size."""
    queue = [*trials, *_stretched(target, trials[0], layout)]
    yield from _at_sizes(queue, lambda sizes: _laid_out(target, signature, sizes, own, layout, brief), tries)


def _at_sizes(trials: Sequence[Sizes], calls: Callable[[Sizes], Iterator[Call]], tries: Tries) -> Iterator[Call]:
    """Calls at the sizes to be tried, and at those that errors ask for."""
    seen, queue = list[Sizes](), list(trials)
    while queue:
        sizes = queue.pop(0)
        if sizes in seen or len(seen) > len(trials) + HINTED:
            continue
        seen.append(sizes)
        before = len(tries.found)
        yield from calls(sizes)
        raised = [error for _, error in tries.found[before:] if not isinstance(error, NoStream)]
        told = {str(error): error for error in raised}
        queue += [other for error in list(told.values())[:40] for other in resized(error, sizes)]


def _stretched(target: Any, sizes: Sizes, layout: Layout) -> Iterator[Sizes]:
    """Other numbers of tokens: those of the target's windows and images."""
    for length in lengths_of(target):
        yield replace(sizes, tokens=length, rows=2 if length == sizes.rows else sizes.rows)  # rows are no tokens
    if layout in (Layout.IMAGE, Layout.GRID):
        yield replace(sizes, tokens=PICTURE)


def _laid_out(
    target: Any, signature: Signature, sizes: Sizes, own: Mapping[str, Any], layout: Layout, brief: bool
) -> Iterator[Call]:
    if layout in (Layout.IMAGE, Layout.GRID) and min(grid(sizes.tokens)) < 2:
        return
    for call in _all_ways(target, signature, sizes, own, brief):
        if layout is Layout.ROWS or call.face is not Face.HEADS:
            yield call.with_(layout=layout)


def readings(signature: Signature) -> Iterator[Signature]:
    """What the arguments may be: by their names; by their places, where names say nothing; the other way round."""
    ids = signature.named(Role.IDS)
    if ids in signature.needed and not signature.all(Role.INPUT, Role.QUERY):
        signature = replace(signature, roles={**signature.roles, ids: Role.INPUT})  # ids that are vectors
    yield signature
    streams = (Role.INPUT, Role.OTHER, Role.SOURCE, Role.QUERY, Role.KEY, Role.PLACES, Role.BIAS, Role.PAIRS)
    open_ = [n for n in signature.roles if n in signature.needed and signature.roles[n] in streams]
    first = open_[:3]
    if len(first) == 3 and first == list(signature.roles)[:3]:
        yield signature.read(**dict(zip(first, (Role.QUERY, Role.KEY, Role.VALUE), strict=True)))
    if len(first) >= 2:
        yield signature.read(**{first[0]: Role.INPUT, first[1]: Role.SOURCE})
        yield signature.read(**{first[0]: Role.SOURCE, first[1]: Role.INPUT})


def _tried(call: Call, tries: Tries, other: list[Call], late: list[Call]) -> Call | None:
    """The call, if it gives a stream; what it gives instead, if that can be read, goes to `other`.

    What runs, though it hardly can be meant, goes to `late`: it counts if nothing else runs.
    """
    try:
        with torch.no_grad():
            y = call(*sample(call))
            if _are_weights(call, y):
                raise NoStream(WEIGHTED)
            if call.signature.guessed and not sane(call):
                raise NoSense("read in this way, rows would touch each other, or the source would not matter")
            doubtful = call.query is not None or (call.crossed and call.layout is not Layout.ROWS)
            if (hides_all(call) and not bool(torch.isfinite(y).all())) or (doubtful and not sane(call)):
                late.append(call)
                raise NoSense("called in this way, rows would touch each other, or a mask would hide everything")
    except OtherLength:
        return None
    except NoStream as error:
        tries.add(str(call.face), error)
        if call.axes in (Axes.HEADS_FIRST, Axes.TOKENS_FIRST) and _runs(turned := call.with_(turned=True)):
            return turned
        other += [found for found in _instead(call) if _runs(found)]
        return None
    except Exception as error:  # foreign code may raise anything
        tries.add(str(call.face), error)
        return None
    return call if y.is_floating_point() else None


def _are_weights(call: Call, y: Tensor) -> bool:
    """Whether what came out is the weights: as wide as there are keys, and each row sums to one."""
    keys = call.sizes.source if call.crossed else call.sizes.tokens
    return y.shape[-1] == keys != call.sizes.width and gives_weights(y, len(y), keys) is not None


def _instead(call: Call) -> Iterator[Call]:
    """What gives no stream, understood as giving weights, or a few vectors for each row."""
    x, source = sample(call)
    keys = call.sizes.source if call.crossed else call.sizes.tokens
    asks = x if call.query is None else x[:, :1]
    with torch.no_grad():
        returned = call.raw(asks, x if source is None and call.query is not None else source)
    weighs = gives_weights(returned, len(x), keys)
    pools = call.face is Face.SELF and call.query is None and call.layout is not Layout.FLAT
    pooled = call.with_(face=Face.POOLED, sizes=replace(call.sizes, source=call.sizes.tokens))
    if weighs is not None:
        many = weighs.weights(returned, len(x), keys).shape[-2]
        yield call.with_(gives=weighs)
        if pools and many != x.shape[1]:
            yield pooled.with_(gives=weighs, sizes=replace(pooled.sizes, tokens=many))
    if pools and (found := few(returned, len(x))) is not None:
        yield pooled.with_(sizes=replace(pooled.sizes, tokens=found.shape[1]))


def _runs(call: Call) -> bool:
    """Whether it gives as many vectors for sources of any length that it takes, and others for other sources."""
    x, source = sample(call)
    try:
        with torch.no_grad():
            y = call(x, source)
            if source is not None and not _other_lengths(call, x, source, y):
                return False
            other = call(*((x, source + 1) if source is not None else (x + 1, None)))
    except (Exception, OtherLength):  # foreign code may raise anything
        return False
    return y.shape[:2] == x.shape[:2] and not torch.equal(y, other)


def _other_lengths(call: Call, x: Tensor, source: Tensor, y: Tensor) -> bool:
    """Whether a shorter source gives as many vectors, if it is taken at all."""
    shorter = 4 if call.layout in (Layout.IMAGE, Layout.GRID) else source.shape[1] - 1
    try:
        return call(x, source[:, :shorter]).shape == y.shape
    except NoStream:
        return False
    except Exception:  # foreign code may raise anything
        return True


def _all_ways(target: Any, signature: Signature, sizes: Sizes, own: Mapping[str, Any], brief: bool) -> Iterator[Call]:
    """With the target's own tables, if there are any, then with ours; of a brief look, with its own only."""
    for call in ways(target, signature, sizes, dict.fromkeys(own)) if own else ():
        yield call.with_(made={**call.made, **own})
    if not (own and brief):
        yield from ways(target, signature, sizes, {})


def ways(
    target: Any, signature: Signature, sizes: Sizes, given: Mapping[str, Any], loose: bool = False
) -> Iterator[Call]:
    """Ways to call the target, the most likely first."""
    for face, axes in _faces(target, signature):
        for fixed, made in beside(signature, sizes, face, given, loose):
            yield Call(target, signature, sizes, face, axes, fixed=fixed, made=made)


def _faces(target: Any, signature: Signature) -> Iterator[tuple[Face, Axes]]:
    three = all(signature.named(role) for role in (Role.QUERY, Role.KEY, Role.VALUE))
    weights = isinstance(target, nn.Module) and any(True for _ in target.parameters())
    if three and weights:
        yield Face.THREE, Axes.NONE
    if three:
        for axes in Axes:
            yield Face.HEADS, axes
        return
    source = signature.named(Role.SOURCE) or (signature.named(Role.KEY) if signature.named(Role.QUERY) else None)
    if source is not None and (source in signature.needed or not signature.named(Role.INPUT)):
        yield Face.CROSS, Axes.NONE
    yield Face.SELF, Axes.NONE
    if source is not None:
        yield Face.CROSS, Axes.NONE


def _named(target: Any) -> str:
    function = function_of(target)
    return type(target).__name__ if function is not target else called(target)
