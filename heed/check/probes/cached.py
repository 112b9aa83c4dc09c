"""A text in pieces: with what is kept between calls, the outputs are those of one call."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..foreign.build import recipe
from ..foreign.words import Role
from ..outcome import Clue, Outcome, Sure
from ..reference import distance
from ..subject import QUIET, Subject

REORDERS = ("reorder_cache", "_reorder_cache", "reorder", "reorder_beams", "reorder_state", "batch_select_indices")
CUTS = ((3, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1), (2, 3, 2), (6, 1))


class Piece(NamedTuple):
    """Some tokens of a text."""

    x: Tensor
    done: int  # tokens before it
    guided: bool  # whether a mask says who sees whom

    @property
    def end(self) -> int:
        return self.done + self.x.shape[1]


Step = Callable[[Subject, Piece, Any], tuple[Tensor, Any]]  # piece, cache -> output, cache


@dataclass(frozen=True)
class Protocol:
    """One way in which a cache is handed on."""

    name: str
    begin: Callable[[], Any]
    step: Step


def equal(subject: Subject) -> Outcome:
    """Several cuttings of a text, with the cache handed on, against one call."""
    if not subject.has(Role.CACHE, Role.PLACE) or subject.crossed:
        return Outcome.moot("cache", "it keeps no cache")
    protocol = _found(subject)
    if protocol is None:
        return Outcome.moot("cache", "no usual way to hand its cache on works; see --adapter")
    x = subject.stream()
    whole = _whole(subject, x)
    for cuts in CUTS if not _one_at_a_time(subject) else CUTS[1:2]:
        try:
            pieces = _run(subject, protocol, x, cuts)
        except Exception:  # foreign code may raise anything
            if max(cuts[1:]) == 1:
                raise
            continue  # it goes on one token at a time
        if distance(pieces, whole) > 10 * subject.bound and not _right_if_guided(subject, protocol, x, cuts, whole):
            return _broken(subject, protocol, x, cuts, pieces, whole)
    again = _run(subject, protocol, x, CUTS[1 if _one_at_a_time(subject) else 0])
    if distance(again, whole) > 10 * subject.bound:
        words = "after other texts the cache of a new one is not empty"
        return Outcome.broken("cache", words, Clue("state-between-calls", Sure.LIKELY, words))
    return _reordered(subject, protocol, x)


def _right_if_guided(subject: Subject, protocol: Protocol, x: Tensor, cuts: Sequence[int], whole: Tensor) -> bool:
    """Whether several tokens at once are right where a mask says who sees whom: then that is the caller's to say."""
    if subject.pairs is None or max(cuts[1:]) == 1:
        return False
    try:
        return distance(_run(subject, protocol, x, cuts, guided=True), whole) <= 10 * subject.bound
    except Exception:  # foreign code may raise anything
        return False


def _whole(subject: Subject, x: Tensor) -> Tensor:
    """One call over it all, with a causal mask; or the last token of each beginning, where no mask hides the rest."""
    if _one_at_a_time(subject):
        return torch.cat([subject.run(x[:, : t + 1])[:, -1:] for t in range(x.shape[1])], 1)
    if not _guided(subject):
        return subject.run(x)
    sees = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril().expand(len(x), -1, -1)
    return subject.run(x, sees=sees)


def _one_at_a_time(subject: Subject) -> bool:
    """Whether it looks ahead within a call, and no mask can keep it from that: then it is meant for single tokens."""
    return not _guided(subject) and not subject.meant_causal and bool(subject.looks_ahead.any())


def _guided(subject: Subject) -> bool:
    """Whether a causal mask must be given."""
    return subject.pairs is not None and (not subject.meant_causal or subject.led_by_masks)


def _run(subject: Subject, protocol: Protocol, x: Tensor, cuts: Sequence[int], guided: bool | None = None) -> Tensor:
    cache, done, outputs = protocol.begin(), 0, list[Tensor]()
    guided = _guided(subject) if guided is None else guided
    with torch.no_grad():
        for many in cuts:
            y, cache = protocol.step(subject, Piece(x[:, done : done + many], done, guided), cache)
            outputs.append(y)
            done += many
    return torch.cat(outputs, 1)


def _broken(
    subject: Subject, protocol: Protocol, x: Tensor, cuts: Sequence[int], pieces: Tensor, whole: Tensor
) -> Outcome:
    off = ((pieces - whole).abs().amax((0, 2)) > subject.bound * whole.abs().max()).nonzero().flatten().tolist()
    told = "+".join(map(str, cuts))
    words = f"{x.shape[1]} tokens in pieces of {told}: token {off[0]} differs by {distance(pieces, whole):.1e}"
    only_places = _placed(subject) and _reaches_back(subject, protocol, x) and _equal_ones(subject, protocol, cuts)
    slug = "cache-offset" if only_places else "cache-mismatch"
    gap = distance(pieces, whole)
    return Outcome.broken("cache", words, Clue(slug, Sure.LIKELY, words), error=gap, bound=subject.bound)


def _equal_ones(subject: Subject, protocol: Protocol, cuts: Sequence[int]) -> bool:
    """Whether equal tokens in pieces give what they give at once: what is kept is right, only places are not."""
    x = subject.stream(tokens=1).expand(-1, subject.sizes.tokens, -1).contiguous()
    return distance(_run(subject, protocol, x, cuts), _whole(subject, x)) <= 10 * subject.bound


def _reaches_back(subject: Subject, protocol: Protocol, x: Tensor) -> bool:
    """Whether the last token, by itself, is influenced by every token in the cache."""
    cuts = (x.shape[1] - 1, 1)
    last = _run(subject, protocol, x, cuts)[:, -1]
    for j in range(x.shape[1] - 1):
        other = subject.nudged(x, j)
        if distance(_run(subject, protocol, other, cuts)[:, -1], last) <= QUIET:
            return False
    return True


def _placed(subject: Subject) -> bool:
    from .rows import has_positions
    from .written import found

    match = found(subject)[1]
    return has_positions(subject) or (match is not None and (match.how.rotation != "none" or match.how.alibi))


def _reordered(subject: Subject, protocol: Protocol, x: Tensor) -> Outcome:
    """Rows chosen anew in the middle: the module's own way to do it, if it has one."""
    name, reorder = _reorders(subject.target, protocol.begin())
    if reorder is None:
        return Outcome.held("cache", f"equal in {len(CUTS)} cuttings, and again after another text ({protocol.name})")
    rows, middle = torch.tensor([2, 0, 1])[: len(x)], x.shape[1] // 2
    with torch.no_grad():
        _, cache = protocol.step(subject, Piece(x[:, :middle], 0, _guided(subject)), protocol.begin())
        try:
            cache = reorder(cache, rows)
        except Exception as error:  # foreign code may raise anything
            return Outcome.moot("cache", f"{name} raises {type(error).__name__}: {error}")
        y, _ = protocol.step(subject, Piece(x[rows, middle : middle + 1], middle, _guided(subject)), cache)
    gap = distance(y, _whole(subject, x[rows])[:, middle : middle + 1])  # one token: several may want a mask
    if gap > 10 * subject.bound:
        words = f"after {name} the rows continue other texts than they should ({gap:.1e})"
        return Outcome.broken("cache", words, Clue("cache-reorder", Sure.LIKELY, words), error=gap)
    return Outcome.held("cache", f"equal in {len(CUTS)} cuttings, and with rows reordered ({protocol.name})")


def _reorders(target: Any, cache: Any) -> tuple[str, Callable[[Any, Tensor], Any] | None]:
    """How rows are chosen anew: by a method of the module, or of the cache itself, which may write into it."""
    for name in REORDERS:
        if callable(method := getattr(target, name, None)):
            return name, method

        def reorder(kept: Any, rows: Tensor, name: str = name) -> Any:
            made = getattr(kept, name)(rows)
            return made if isinstance(made, type(kept)) else kept

        if callable(getattr(cache, name, None)):
            return name, reorder
    return "", None


# --- ways to hand a cache on ---


def _found(subject: Subject) -> Protocol | None:
    """The first that runs and keeps something: one more token must be influenced by those before it."""
    x = subject.stream()
    for protocol in _protocols(subject):
        try:
            first = _run(subject, protocol, x, (3, 1))
            second = _run(subject, protocol, subject.nudged(x, 0), (3, 1))
        except Exception:  # not its way
            continue
        if distance(second[:, 3:], first[:, 3:]) > QUIET:
            return protocol
    return None


def _protocols(subject: Subject) -> Iterator[Protocol]:
    names = subject.call.signature
    cache, use, place = names.named(Role.CACHE), names.named(Role.USE_CACHE), names.named(Role.PLACE)
    if cache is not None:
        for switch in ({use: True} if use else {}, {}):
            yield Protocol("a cache that is returned", lambda: None, _returned(cache, switch, place))
            yield Protocol("a dict that is filled", dict, _filled(cache, switch, place))
            yield Protocol("a cache of transformers", _dynamic, _filled(cache, switch, place))
            for kind in _kinds(subject, cache):
                yield Protocol(f"a {kind.__name__} that is filled", recipe(kind).build, _filled(cache, switch, place))
    if place is not None:
        yield Protocol("a cache inside, by the place of the first token", lambda: None, _inside(place))


def _kinds(subject: Subject, cache: str) -> Iterator[type]:
    """Classes that may be meant by a cache: that of its annotation, then those beside the target that are called so."""
    kind = type(subject.target) if subject.module is not None else subject.target
    beside = vars(sys.modules.get(kind.__module__, sys))
    noted = (
        inspect.signature(subject.module.forward if subject.module is not None else kind).parameters[cache].annotation
    )
    named = [n for n in re.findall(r"\w+", str(noted)) if n in beside]
    for name in dict.fromkeys([*named, *(n for n in beside if n.lower().endswith("cache"))]):
        if inspect.isclass(beside[name]) and beside[name].__module__ == kind.__module__:
            yield beside[name]


def _returned(cache: str, switch: dict[str, Any], place: str | None) -> Step:
    def step(subject: Subject, piece: Piece, kept: Any) -> tuple[Tensor, Any]:
        extra = {cache: kept, **switch, **_places(subject, piece, place)}
        returned = subject.call.raw(piece.x, None, None, extra)
        y = subject.call.back(subject.call.picked(returned, piece.x), piece.x)
        rest = [part for part in returned if not (isinstance(part, Tensor) and part is returned[0])]
        fresh = next((part for part in rest[::-1] if part is not None), None)
        if fresh is None:
            raise ValueError("nothing is handed on")
        return y, fresh

    return step


def _filled(cache: str, switch: dict[str, Any], place: str | None) -> Step:
    def step(subject: Subject, piece: Piece, kept: Any) -> tuple[Tensor, Any]:
        extra = {cache: kept, **switch, **_places(subject, piece, place)}
        return subject.call(piece.x, None, None, extra), kept

    return step


def _inside(place: str) -> Step:
    def step(subject: Subject, piece: Piece, kept: Any) -> tuple[Tensor, Any]:
        return subject.call(piece.x, None, None, _places(subject, piece, place)), kept

    return step


def _dynamic() -> Any:
    from transformers.cache_utils import DynamicCache  # type: ignore[import-not-found,unused-ignore]

    return DynamicCache()


def _places(subject: Subject, piece: Piece, place: str | None) -> dict[str, Any]:
    """Where the piece stands, for whatever asks for it; and its triangle, where masks are given from outside."""
    extra: dict[str, Any] = {} if place is None else {place: piece.done}
    for name, make in subject.call.made.items():
        role = subject.call.signature.roles[name]
        if role in (Role.PLACES, Role.TABLES):
            extra[name] = _later(make(piece.end), piece.done, piece.end)
    if piece.guided and subject.pairs is not None:
        rows, tokens = piece.x.shape[:2]
        sees = torch.ones(tokens, piece.end, dtype=torch.bool).tril(piece.done).expand(rows, -1, -1)
        extra[subject.pairs.argument] = subject.pairs.write(sees, subject.sizes.heads)
    return extra


def _later(value: Any, done: int, end: int) -> Any:
    """What belongs to the tokens from `done` on: along the axis that has as many entries as there are tokens."""
    if isinstance(value, tuple):
        return tuple(_later(part, done, end) for part in value)
    if not isinstance(value, Tensor) or end not in value.shape:
        return value
    axis = list(value.shape).index(end)
    return value.narrow(axis, done, end - done)
