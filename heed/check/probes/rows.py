"""Rows, heads and tokens are not mixed up: batches, equal tokens, shuffled tokens, sources."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..equal import equal, rotates
from ..foreign.adapt import Beside, Ours
from ..foreign.calls import Axes, Face
from ..foreign.said import rows_first
from ..foreign.words import Role
from ..outcome import Clue, Outcome, Sure
from ..reference import distance, only_down
from ..signs import looked
from ..subject import QUIET, Subject
from ..trouble import Fault, Trouble


def layout(subject: Subject) -> Outcome:
    """One token of one row is replaced: only that row may move."""
    if subject.call.face is Face.HEADS and subject.call.axes is Axes.BARE:
        return Outcome.moot("layout", "it takes one row")
    moved = moved_by_one(subject)  # [B, T]
    if only_down(moved):
        words = "replacing one token moves the same token of the other rows, and no other token of its own row"
        seen = f"{words}; declared: {subject.declared.layout}" if subject.declared.layout else words
        return Outcome.broken("layout", words, Clue("batch-first-confusion", Sure.CERTAIN, seen))
    if bool(moved[1:].any()):
        row = int(moved.any(1).nonzero()[-1])
        words = f"replacing a token of row 0 moves row {row}"
        return Outcome.broken("layout", words, Clue("batch-mixing", Sure.HINT, words))
    if subject.call.rows_first or subject.declared.layout is not None:
        return Outcome.held("layout", "one row moves, the others do not")
    words = "it takes [tokens, rows, width]: tokens stand first"
    if (said := rows_first(subject.origin)) is not None:
        words += f", though its source says {said}"
        return Outcome.broken("layout", words, Clue("batch-first-confusion", Sure.LIKELY, words))
    if subject.recipe is not None and subject.recipe.flags.get("batch_first"):
        words += ", though it was built with batch_first=True"
        return Outcome.broken("layout", words, Clue("batch-first-confusion", Sure.CERTAIN, words))
    return Outcome.held("layout", words, 0.0, 0.0, Clue("batch-first-confusion", Sure.CONVENTION, words))


def moved_by_one(subject: Subject) -> Tensor:
    """What moves if token 0 of row 0 is replaced. [B, T]"""
    x, source = subject.stream(), subject.source()
    y = subject.run(x, source)
    other, beside = x.clone(), None if source is None else source.clone()
    (other if beside is None else beside)[0, 0] = subject.stream(seed=9)[0, 0] * 2
    after = subject.run(other, beside)
    change = (after - y).abs().masked_fill(after.isnan() & y.isnan(), 0.0)  # what is never a number does not move
    gap = change.amax(-1) / y.nan_to_num(0.0).abs().max().clamp(min=1e-30)
    return gap.nan_to_num(float("inf")) > QUIET


def independent(subject: Subject) -> Outcome:
    """f(rows together) = rows by themselves, also with a mask of its own for each row."""
    if subject.call.face is Face.HEADS and subject.call.axes is Axes.BARE:
        return Outcome.moot("rows", "it takes one row")
    if subject.fewest > 1:
        return Outcome.moot("rows", "its constructor is told how many rows there are")
    x, source = subject.stream(), subject.source()
    together = subject.run(x, source)
    for row in range(len(x)):
        part = slice(row, row + 1)
        alone = subject.run(x[part], None if source is None else source[part])
        gap = distance(alone, together[part])
        if gap > subject.bound:
            words = f"row {row} gives something else among others than alone ({gap:.1e})"
            return Outcome.broken(
                "rows", words, Clue("batch-mixing", Sure.LIKELY, words), error=gap, bound=subject.bound
            )
    return _masked_rows(subject, x, source)


def _masked_rows(subject: Subject, x: Tensor, source: Tensor | None) -> Outcome:
    form = subject.padding
    if form is None:
        return Outcome.held("rows", "rows are independent; there is no mask to give each its own")
    keys = subject.keys(x)
    sees = torch.ones(len(x), x.shape[1], keys, dtype=torch.bool)
    for row in range(len(x)):
        sees[row, :, keys - row :] = row == 0
    together = subject.run(x, source, sees=sees, form=form)
    for row in range(len(x)):
        part = slice(row, row + 1)
        alone = subject.run(x[part], None if source is None else source[part], sees=sees[part], form=form)
        real = slice(0, x.shape[1] - row) if source is None else slice(None)
        gap = distance(alone[:, real], together[part, real])
        if gap > subject.bound:
            words = f"row {row} with a mask of its own gives something else among others than alone ({gap:.1e})"
            return Outcome.broken(
                "rows", words, Clue("batch-mixing", Sure.LIKELY, words), error=gap, bound=subject.bound
            )
    return Outcome.held("rows", "rows are independent, with a mask each")


def same(subject: Subject) -> Outcome:
    """All tokens equal: every output is that of one token alone. So weights sum to one, and heads stay apart."""
    one = subject.stream(tokens=1)
    many = one.expand(-1, subject.sizes.source if subject.crossed else subject.sizes.tokens, -1).contiguous()
    asks = subject.stream() if subject.crossed else None
    try:
        alone, together = (subject.run(x) if asks is None else subject.run(asks, x) for x in (one, many))
    except Exception as error:  # foreign code may raise anything
        return refused(subject, "same", "one token alone", error)
    inside = 0.0 if subject.crossed else distance(together, together[:, :1].expand_as(together))
    gap = distance(together, alone.expand_as(together))
    if max(inside, gap) <= subject.bound * 10:
        return Outcome.held("same", "equal tokens give equal outputs", gap, subject.bound)
    words = f"{many.shape[1]} equal tokens give other outputs than one of them alone ({gap:.1e})"
    clue = _culprit(subject, words, inside > subject.bound * 10)
    if clue is None:
        return Outcome.moot("same", "it knows where a token stands")
    return Outcome.broken("same", words, clue, error=gap, bound=subject.bound)


def refused(subject: Subject, probe: str, what: str, error: Exception) -> Outcome:
    """A text of another length that raises: the target's fault, unless few lengths are taken, or it says no."""
    trouble = Trouble.of(error)
    words = f"{what} raises {trouble.words}"
    if trouble.fault is Fault.TARGET and subject.any_length:
        return Outcome.broken(probe, words, Clue("raises", Sure.LIKELY, words))
    if trouble.fault is Fault.HEED:
        return trouble.outcome(probe)
    return Outcome.moot(probe, f"it does not take {what}")


def _culprit(subject: Subject, words: str, uneven: bool) -> Clue | None:
    """What makes equal tokens unequal: mixed heads, a softmax along another axis, values turned by their place.

    None if nothing is wrong to be seen: then something in it tells places apart, as it may.
    """
    seen, looks = equal(subject), looked(subject)
    if looks is not None and looks.apart is False:
        return Clue("head-mixing", Sure.LIKELY, f"{words}: tokens are mixed up when heads are cut or merged")
    if looks is not None and looks.summed is False:
        return Clue("softmax-axis", Sure.LIKELY, f"{words}: weights do not sum to one over the keys")
    if isinstance(subject.module, Ours) or (seen is not None and not seen.flat):
        return None  # places are told before the projections
    if isinstance(subject.module, Beside) or subject.call.filled:
        return None  # where a token stands decides what it sees of that which is passed beside it
    value = None if seen is None else seen.values
    if value is not None and rotates(subject) and distance(value, value[..., :1, :].expand_as(value)) > 1e-9:
        return Clue("rope-mismatch", Sure.LIKELY, f"{words}: values are turned by their place, too")
    if looks is not None and looks.apart and looks.summed:
        if uneven:
            return None
        return Clue("scale-after-softmax", Sure.HINT, f"{words}: their number matters, though the weights sum to one")
    if has_positions(subject) and seen is None:
        return None
    across = (seen is not None and seen.across) or not uneven or subject.meant_causal
    return Clue("softmax-axis" if across else "head-mixing", Sure.HINT, words)


def scrambled(subject: Subject) -> str | None:
    """The bug that unequal outputs of equal tokens point to; None if they are equal. Asked once."""
    if "_scrambled" not in subject.__dict__:
        clues = same(subject).clues
        subject.__dict__["_scrambled"] = next((clue.slug for clue in clues if clue.slug != "raises"), None)
    kept: str | None = subject.__dict__["_scrambled"]
    return kept


def order(subject: Subject) -> Outcome:
    """Without positions and looking both ways, shuffled tokens give shuffled outputs."""
    if subject.crossed:
        return Outcome.moot("order", "it looks at a source")
    if subject.meant_causal or bool(((subject.map <= QUIET) & ~torch.eye(len(subject.map), dtype=torch.bool)).any()):
        return Outcome.moot("order", "who sees whom depends on the order")
    x = subject.stream()
    places = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(5))
    gap = distance(subject.run(x[:, places]), subject.run(x)[:, places])
    if gap <= subject.bound * 10:
        return Outcome.held("order", "shuffled tokens give shuffled outputs", gap, subject.bound)
    if has_positions(subject) or scrambled(subject) is None:
        return Outcome.moot("order", "it knows where a token stands")
    words = f"shuffled tokens do not give shuffled outputs ({gap:.1e}), though nothing tells where a token stands"
    return Outcome.broken("order", words, Clue("head-mixing", Sure.HINT, words), error=gap, bound=subject.bound)


def has_positions(subject: Subject) -> bool:
    """Whether equal tokens at different places are told apart: by learned places, or by a scramble of the tokens."""
    if subject.module is None or isinstance(subject.module, Ours):
        return subject.module is not None  # a mixer may know places, and the contract says how
    tables = [name for name, _ in (*subject.module.named_parameters(), *subject.module.named_buffers())]
    words = ("pos", "rope", "rotary", "freq", "alibi", "rel", "time", "bias_table", "inv_")
    named = any(word in name.lower() for name in tables for word in words)
    seen = equal(subject)
    told = {subject.call.signature.roles[name] for name in subject.call.made}
    given = bool(told - {Role.MASK, Role.PADDING})
    return named or given or _beside(subject.module) or (seen is not None and not seen.flat) or rotates(subject)


def _beside(module: nn.Module) -> bool:
    """Whether a layer knows which tokens are neighbours: it is padded at the ends, or goes from one to the next."""
    kernels = [part.kernel_size for part in module.modules() if isinstance(part, nn.modules.conv._ConvNd)]
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    return recurrent or any(max(kernel) > 1 for kernel in kernels)


def sourced(subject: Subject) -> Outcome:
    """Every output depends on the source, and a cross-attention has weights of its own."""
    if subject.three:
        return _three(subject)
    if not subject.crossed:
        return Outcome.moot("source", "it looks at its own stream")
    x, source = subject.stream(), subject.source()
    assert source is not None
    gap = distance(subject.run(x, subject.nudged(source, slice(None))), subject.run(x, source))
    if gap <= QUIET:
        words = "replacing the whole source changes nothing"
        return Outcome.broken("source", words, Clue("shared-self-cross", Sure.LIKELY, words))
    equal_ones = (subject.stream(tokens=1, seed=seed).expand(-1, source.shape[1], -1) for seed in (3, 4))
    if distance(*(subject.run(x, one) for one in equal_ones)) <= QUIET:
        words = "a source of equal tokens gives the same output whatever these are: the values do not come from it"
        return Outcome.broken("source", words, Clue("value-is-key", Sure.LIKELY, words))
    shared = _shared(subject.module)
    if shared:
        words = f"{shared[0]} and {shared[1]} are the same object"
        return Outcome.broken("source", words, Clue("shared-self-cross", Sure.CERTAIN, words))
    return Outcome.held("source", "the source matters")


def _three(subject: Subject) -> Outcome:
    """Queries, keys and values that are given apart: each of them matters."""
    x, key, value = (subject.stream(seed=seed) for seed in (1, 3, 4))
    y = subject.run(x, key, value=value)
    if distance(subject.run(x, key, value=subject.nudged(value, slice(None))), y) <= QUIET:
        words = "replacing all values changes nothing"
        return Outcome.broken("source", words, Clue("value-is-key", Sure.LIKELY, words))
    if distance(subject.run(x, subject.nudged(key, slice(None)), value=value), y) <= QUIET:
        words = "replacing all keys changes nothing"
        return Outcome.broken("source", words, Clue("value-is-key", Sure.LIKELY, words))
    bent = {name: _bent(subject, x, name) for name in ("key", "value")}
    if bent["value"] > 1e-6 and bent["key"] <= 1e-9:
        words = "the output is linear in the keys and not in the values: what is given as keys is used as values"
        return Outcome.broken("source", words, Clue("value-is-key", Sure.LIKELY, words))
    return Outcome.held("source", "queries, keys and values matter, each by itself")


def _bent(subject: Subject, x: Tensor, name: str) -> float:
    """How far the output of a mean lies from the mean of the outputs: zero for what is summed, not for scores."""
    one, two, other = (subject.stream(seed=seed) for seed in (3, 4, 5))

    def made(given: Tensor) -> Tensor:
        return subject.run(x, given, value=other) if name == "key" else subject.run(x, other, value=given)

    return distance(made((one + two) / 2), (made(one) + made(two)) / 2)


def _shared(module: nn.Module | None) -> tuple[str, str] | None:
    if module is None:
        return None
    seen: dict[int, str] = {}
    for name, child in module.named_modules(remove_duplicate=False):
        if not any(True for _ in child.parameters(recurse=True)) or not name:
            continue
        if id(child) in seen and any(True for _ in child.children()):
            return seen[id(child)], name
        seen.setdefault(id(child), name)
    return None
