"""Causality: no token looks ahead, each looks back as far as it is said."""

from __future__ import annotations

import torch
from torch import Tensor

from ..equal import equal, places
from ..foreign.layouts import Layout
from ..foreign.words import Role
from ..outcome import Clue, Outcome, Sure
from ..reference import distance
from ..signs import looked
from ..subject import QUIET, Subject, hints_at_masks
from .rows import refused


def prefix(subject: Subject) -> Outcome:
    """f(x)[:t] = f(x[:t]) for every t."""
    if not subject.meant_causal or subject.crossed:
        return Outcome.moot("prefix", _both_ways(subject))
    x = subject.stream()
    whole, worst = subject.run(x), (0.0, 0)
    for t in range(1, x.shape[1]):
        if not subject.any_length and not subject.takes(t):
            continue
        try:
            part = subject.run(x[:, :t])
        except Exception as error:  # foreign code may raise anything
            return refused(subject, "prefix", f"a text of {t} tokens", error)
        gap = distance(part, whole[:, :t])
        worst = max(worst, (gap, t))
        if gap > subject.bound:
            words = f"the first {t} tokens give something else alone than before {x.shape[1] - t} more ({gap:.1e})"
            return Outcome.broken("prefix", words, _ahead_or_length(subject, words), error=gap, bound=subject.bound)
    if not worst[1]:
        return Outcome.moot("prefix", f"it takes no text that is shorter than {x.shape[1]} tokens")
    return Outcome.held("prefix", f"equal for every t < {x.shape[1]}", worst[0], subject.bound)


def _both_ways(subject: Subject) -> str:
    if subject.named_causal and subject.led_by_masks and subject.pairs is not None:
        return f"it looks both ways, and back only where {subject.pairs.argument} is a causal mask"
    return "it looks both ways"


def future(subject: Subject) -> Outcome:
    """Later tokens, replaced by large noise, change nothing."""
    if (told := _switched(subject)) is not None:
        return Outcome.broken("future", told, Clue("future-leak", Sure.LIKELY, told))
    if not subject.meant_causal or subject.crossed:
        return Outcome.moot("future", _both_ways(subject))
    ahead, back = subject.looks_ahead, (subject.map > QUIET).tril(-1)
    if bool(ahead.any()):
        i, j = (int(place) for place in ahead.nonzero()[0])
        size = float(subject.map[i, j])
        words = f"token {i} changes by {size:.1e} when token {j}, which comes later, is replaced"
        slug = "mask-inverted" if subject.backwards or not bool(back.any()) else "future-leak"
        return Outcome.broken("future", words, Clue(slug, Sure.LIKELY, words), error=size, bound=subject.bound)
    x = subject.stream()
    y, worst = subject.run(x), 0.0
    for t in range(x.shape[1] - 1):
        loud = x.clone()
        loud[:, t + 1 :] = subject.stream(seed=77)[:, t + 1 :] * 1e3
        worst = max(worst, distance(subject.run(loud)[:, : t + 1], y[:, : t + 1]))
        if worst > subject.bound:
            words = f"token {t} changes by {worst:.1e} when all later tokens are a thousand times as large"
            if _finite_triangle(subject):
                return Outcome.held("future", words, worst, subject.bound, Clue("finite-mask", Sure.CONVENTION, words))
            return Outcome.broken(
                "future", words, Clue("future-leak", Sure.LIKELY, words), error=worst, bound=subject.bound
            )
    return Outcome.held("future", "later tokens change nothing", worst, subject.bound)


def _finite_triangle(subject: Subject) -> bool:
    """Whether what comes later is hidden by a number that larger scores could pass."""
    _, trace = subject.watched(subject.stream(), subject.source())
    square = [s.scores for s in trace.softmaxes if s.scores.dim() > 1 and s.scores.shape[-1] == s.scores.shape[-2] > 1]
    later = torch.ones(square[0].shape[-2:], dtype=torch.bool).triu(1) if square else None
    return later is not None and bool(torch.isfinite(square[0][..., later]).all())


def _switched(subject: Subject) -> str | None:
    """Whether a switch of the call that asks for a causal mask is not obeyed."""
    for name in subject.call.signature.all(Role.CAUSAL):
        if subject.crossed or hints_at_masks(subject):
            return None
        try:
            moves = subject.influence(lambda x, _, name=name: _with(subject, x, {name: True}))
        except Exception:  # it wants something else beside it
            continue
        ahead = (moves > QUIET).triu(1)
        if bool(ahead.any()):
            i, j = (int(place) for place in ahead.nonzero()[0])
            return f"with {name}=True, token {i} changes when token {j}, which comes later, is replaced"
    return None


def _with(subject: Subject, x: Tensor, extra: dict[str, bool]) -> Tensor:
    with torch.no_grad():
        return subject.call(x, extra=extra)


def gradient(subject: Subject) -> Outcome:
    """∂y_t/∂x_s = 0 exactly, for s > t."""
    if not subject.meant_causal or subject.crossed:
        return Outcome.moot("gradient", _both_ways(subject))
    x = subject.stream(rows=subject.fewest).requires_grad_()
    y = subject.live(1.0 * x)  # what comes from a layer may be written to
    if not y.requires_grad:
        return Outcome.moot("gradient", "its output has no gradient")
    for t in range(x.shape[1] - 1):
        (gradient,) = torch.autograd.grad(
            y[:, t].square().sum(), [x], retain_graph=True, allow_unused=True, materialize_grads=True
        )
        later = gradient[:, t + 1 :].abs().nan_to_num(float("inf"))
        if float(later.max()) > 0 and bool(torch.isfinite(later).all()):
            s = t + 1 + int(later.amax((0, 2)).argmax())
            words = f"token {t} has a gradient of {float(later.max()):.1e} towards token {s}, which comes later"
            return Outcome.broken("gradient", words, Clue("future-leak", Sure.HINT, words), error=float(later.max()))
    return Outcome.held("gradient", "no gradient leads ahead")


def past(subject: Subject) -> Outcome:
    """Every output moves when the token itself moves, or one before it within the window."""
    moves = subject.map > QUIET
    tokens, keys = moves.shape
    if tokens != keys:
        return _source_seen(subject)
    numbers = torch.isfinite(subject.run(subject.stream(rows=subject.fewest))).all(-1)[
        0
    ]  # what is never a number never moves
    blind = [i for i in range(tokens) if not bool(moves[i, i]) and bool(numbers[i])]
    if blind:
        i = blind[-1]
        words = f"token {i} does not change when it is replaced itself"
        if bool(moves.any()) and not subject.meant_causal and len(blind) == tokens:
            words += ": attention to all others, as some mean it"
            return Outcome.held("past", words, 0.0, 0.0, Clue("excludes-self", Sure.CONVENTION, words))
        if bool(moves.any()):
            image = subject.call.layout in (Layout.IMAGE, Layout.GRID)  # of which a stride leaves places out
            every = len(blind) >= max(int(numbers.sum()) - 1, 1) and not image
            sure = Sure.LIKELY if every else Sure.HINT
            return Outcome.broken("past", words, Clue("excludes-self", sure, words))
        return Outcome.broken("past", "no output depends on any input", Clue("parameter-unused", Sure.HINT, words))
    if subject.meant_causal and subject.declared.window is None:
        back = [(i, j) for i in range(tokens) for j in range(i) if not bool(moves[i, j])]
        if len(back) == tokens * (tokens - 1) // 2:
            return Outcome.broken("past", "no token is influenced by one before it", _nobody_seen(subject))
    return Outcome.held("past", "every token matters where it should")


def _nobody_seen(subject: Subject) -> Clue:
    """Why no token sees one before it: a triangle upside down, heads that attend to heads, or nothing that is known."""
    words = "no token is influenced by one before it"
    if bool(subject.looks_ahead.any()):
        return Clue("mask-inverted", Sure.HINT, words)
    looks, tokens = looked(subject), subject.sizes.tokens
    shapes = [] if looks is None else [s.scores.shape[-2:] for s in looks.first.softmaxes if s.flow.size is not None]
    shapes += [] if looks is None else [torch.Size((f.query.shape[-2], f.key.shape[-2])) for f in looks.first.fused]
    heads = next((shape for shape in shapes if shape[0] == shape[1] == subject.sizes.heads != tokens), None)
    if heads is None:
        return Clue("parameter-unused", Sure.HINT, words)
    words = f"no token is influenced by another: scores are [..., {heads[0]}, {heads[1]}], heads attend to heads"
    return Clue("head-mixing", Sure.LIKELY, words)


def _source_seen(subject: Subject) -> Outcome:
    moves = subject.map > QUIET
    if not bool(moves.any()):
        words = "no output changes when the source is replaced"
        return Outcome.broken("past", words, Clue("shared-self-cross", Sure.LIKELY, words))
    return Outcome.held("past", "every output looks at the source")


def extent(subject: Subject) -> Outcome:
    """The tokens that matter are those of the declared window, counted exactly."""
    declared, named = subject.declared.window, _named_window(subject)
    if declared is None and named is None:
        return Outcome.moot("extent", "no window is declared (--window N) or in the constructor")
    if subject.crossed:
        return Outcome.moot("extent", "it looks at a source")
    wanted = declared if declared is not None else named
    assert wanted is not None
    tokens = max(subject.sizes.tokens, 2 * wanted + 3)
    if not subject.takes(tokens):
        return Outcome.moot("extent", f"it does not take {tokens} tokens")
    moves = subject.influence(subject.run, tokens=tokens) > QUIET
    back = max((i - j for i in range(tokens) for j in range(i + 1) if moves[i, j]), default=0)
    ahead = max((j - i for i in range(tokens) for j in range(i, tokens) if moves[i, j]), default=0)
    seen = back + 1
    if declared is None and seen == tokens:
        why = f"it sees all that it is given: if the caller does not cut its windows of {wanted}, say --window {wanted}"
        return Outcome.moot("extent", why)
    told = f"a token sees {seen} tokens back, itself included" + (f", and {ahead} ahead" if ahead else "")
    allowed = {wanted} if declared is not None else {wanted, wanted + 1, wanted // 2 + 1, wanted // 2, 2 * wanted}
    if seen not in allowed:
        words = f"{told}; the window is {wanted}"
        return Outcome.broken("extent", words, Clue("window-extent", Sure.LIKELY, words), error=abs(seen - wanted))
    if declared is None and seen != wanted:
        words = f"{told}; the constructor's window is {wanted}"
        return Outcome.held("extent", words, 0.0, 0.0, Clue("window-extent", Sure.CONVENTION, words))
    return Outcome.held("extent", told)


def _named_window(subject: Subject) -> int | None:
    from ..foreign.sizes import size_word

    arguments = {} if subject.recipe is None else subject.recipe.arguments
    windows = [v for name, v in arguments.items() if size_word(name) == "window" and isinstance(v, int)]
    if subject.call.only is not None or any(subject.sizes.tokens == v * v for v in windows):
        return None  # the side of a window that is cut out of an image, and given whole
    return windows[0] if windows else None


def _ahead_or_length(subject: Subject, words: str) -> Clue:
    """Later tokens are seen; or they are not, but how many there are matters: places are counted from the end."""
    if (seen := _first_ahead(subject)) is not None:
        return Clue("future-leak", Sure.HINT, seen)
    known = equal(subject)
    if subject.call.filled:
        words = f"{words}: what is passed beside the stream is as long as it is"
        return Clue("future-leak", Sure.CONVENTION, words)
    if known is not None and any(places(subject)):
        slug = "relative-shift" if known.flat else "position-sliced"
        return Clue(slug, Sure.LIKELY, f"{words}, though no later token is seen: places depend on the length")
    return Clue("future-leak", Sure.HINT, words)


def _first_ahead(subject: Subject) -> str | None:
    ahead = subject.looks_ahead
    if not bool(ahead.any()):
        return None
    i, j = (int(place) for place in ahead.nonzero()[0])
    return f"token {i} changes by {float(subject.map[i, j]):.1e} when token {j}, which comes later, is replaced"
