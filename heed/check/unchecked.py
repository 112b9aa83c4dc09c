"""What was not asked, and what to do about it: told before anything is cleared.

Only what a reader would otherwise take for checked is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .foreign.calls import Face
from .foreign.returned import Gives
from .foreign.words import Role
from .outcome import Outcome, Status
from .probes.written import found
from .signs import looked
from .subject import Subject

MOST = 3  # probes with trouble that are told one by one


def unchecked(subject: Subject, outcomes: Sequence[Outcome]) -> list[str]:
    """A line for everything that could not be asked."""
    told = troubled(outcomes)
    if subject.random:
        return [*told, "its output is random: nothing that compares one output with another was asked"]
    asked = {outcome.probe: outcome for outcome in outcomes}
    told += _outputs(subject)
    told += [*_form(subject, asked), *_masks(subject, asked), *_cache(subject, asked), *_lengths(subject, asked)]
    return told


def troubled(outcomes: Sequence[Outcome]) -> list[str]:
    """Probes that ran into trouble, with what it was."""
    lines = [f"{outcome.probe} {outcome.words}" for outcome in outcomes if outcome.unasked]
    more = [f"{len(lines) - MOST} more probes could not be asked"] if len(lines) > MOST else []
    help_ = ["if the call is at fault, say how it is called: --init, --adapter; to leave a probe out: --skip"]
    return [*lines[:MOST], *more, *(help_ if lines else [])]


def _moot(asked: Mapping[str, Outcome], probe: str) -> bool:
    return probe in asked and asked[probe].status is Status.NONE


def _outputs(subject: Subject) -> Iterator[str]:
    """What gives no vector for every token can be asked less."""
    call = subject.call
    if call.face is Face.POOLED:
        yield (
            f"it gives {call.sizes.tokens} vector(s) for each row, not one for every token: "
            "what order and causality would do to single tokens was not checked"
        )
    if call.gives is not Gives.VECTORS:
        yield f"it gives {call.gives} and no output: what its caller makes of them was not checked"


def _form(subject: Subject, asked: Mapping[str, Outcome]) -> Iterator[str]:
    if not _moot(asked, "written-out") or found(subject)[1] is not None:
        return
    looks = looked(subject)
    lacking = [] if looks is not None and looks.scale is not None else ["scale"]
    lacking += [] if looks is not None and looks.summed is not None else ["softmax axis"]
    if lacking:
        were = "were" if len(lacking) > 1 else "was"
        yield f"the form of attention was not recognised: {' and '.join(lacking)} {were} not checked"
    else:
        yield "the form of attention was recognised in part: what each projection is used for was not checked"


def _masks(subject: Subject, asked: Mapping[str, Outcome]) -> Iterator[str]:
    if not _moot(asked, "mask"):
        return
    if not subject.masks:
        yield "it takes no mask: masks were not checked"
        return
    names = ", ".join(subject.masks)
    if any(one.taken for one in subject.masks.values()):
        yield f"{names}: not used in this call, so masks were not checked"
    else:
        yield f"{names}: no usual form of a mask is taken, so masks were not checked; give one by an --adapter"


def _cache(subject: Subject, asked: Mapping[str, Outcome]) -> Iterator[str]:
    if _moot(asked, "cache") and subject.has(Role.CACHE, Role.PLACE) and not subject.crossed:
        yield "no usual way to hand its cache on works: the cache was not checked"


def _lengths(subject: Subject, asked: Mapping[str, Outcome]) -> Iterator[str]:
    if _moot(asked, "same") and not subject.takes(1) and not subject.any_length:
        yield f"it takes texts of certain lengths only, such as {subject.sizes.tokens}: others were not compared"
    if _moot(asked, "extent") and "it sees all" in asked["extent"].words:
        yield f"its window was not checked: {asked['extent'].words}"
