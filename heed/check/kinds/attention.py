"""Whether a target attends at all, and in which layout: asked before anything is said about how it does so."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..foreign.adapt import Adapted, Ours
from ..foreign.calls import Axes, Face
from ..foreign.candidates import NAMED
from ..foreign.sizes import cut
from ..foreign.target import CannotCheck
from ..probes.rows import moved_by_one
from ..reference import distance, only_down
from ..signs import looked
from ..subject import QUIET, Subject


def must_attend(subject: Subject) -> None:
    """What neither says that it attends nor does anything of the kind is not asked about it.

    Of what is only called so, some token must at least be influenced by another.
    """
    if isinstance(subject.target, Adapted | Ours) or (NAMED.search(subject.name) and not apart(subject)):
        return
    if not subject.watched(subject.stream(), subject.source())[1].attends:
        raise CannotCheck(
            f"there is no attention in {subject.name}: no softmax, no product of two things that come from the input;"
            " if there is, name the class or function that attends"
        )


def attends(subject: Subject) -> bool:
    """What is not called attention, and has neither a softmax nor a product of two streams, is something else."""
    if set(cut(subject.name)) & {"attention", "attn", "mha", "attend"}:
        return True
    try:
        looks = looked(subject)
    except Exception:  # a probe will run into it, and tell
        return True
    return looks is None or bool(looks.first.softmaxes or looks.first.fused or looks.first.products)


def pools(subject: Subject) -> bool:
    """Whether a stream turned round gives the same vectors in the same order: then they are not those of its tokens."""
    if subject.call.face is not Face.SELF or subject.random:
        return False
    x = subject.stream()
    y = subject.run(x)
    return distance(y, y[:, :1].expand_as(y)) > 1e-3 and distance(subject.run(x.flip(1)), y) <= QUIET


def must_answer(subject: Subject, name: str) -> None:
    """What gives one output whatever it is given was called in a way that asks nothing of it."""
    try:
        one, other = (subject.run(subject.stream(seed=n), subject.source(seed=n + 5)) for n in (0, 3))
    except Exception:  # a probe will run into it, and tell
        return
    if torch.equal(one, other):
        raise CannotCheck(f"{name} gives the same output whatever it is given, in the way that it was called")


def oriented(subject: Subject) -> Subject:
    """The same, called in the layout in which tokens attend to tokens, where nothing else was declared."""
    call = subject.call
    if isinstance(subject.target, Adapted) or subject.sizes.rows == subject.sizes.tokens or not call.plain:
        return subject
    if call.face is Face.HEADS and call.axes is Axes.HEADS_FIRST:
        other = replace(subject, call=call.with_(axes=Axes.TOKENS_FIRST))
        return other if apart(subject) and not apart(other) else subject
    if call.face is Face.HEADS or subject.declared.layout is not None or not call.rows_first:
        return subject
    down = not subject.random and only_down(moved_by_one(subject))
    return replace(subject, call=call.with_(rows_first=False)) if down else subject


def apart(subject: Subject) -> bool:
    """Whether no token is influenced by another; a layout that cannot be called has none that could be."""
    try:
        moves = subject.map > QUIET
    except Exception:  # foreign code may raise anything
        return True
    return not bool((moves & ~torch.eye(*moves.shape, dtype=torch.bool)).any())
