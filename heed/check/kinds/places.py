"""Codes of positions: sinusoids against their formula and its usual distortions, slopes and shifts against theirs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..foreign.said import rows_first
from ..foreign.signature import Signature
from ..foreign.words import Role
from ..outcome import Clue, Outcome, Status, Sure
from ..reference import distance
from ..reference import slopes as right_slopes

TOKENS, WIDTH = 50, 24
CLOSE = 1e-5  # tables are made in float32
TOKENS_FIRST = "it takes [tokens, rows, width]: tokens stand first"


Way = Callable[[int], Tensor | None]  # a number of tokens -> the code of each place [T, D], if it gives one


def asked(target: Any, name: str) -> list[Outcome]:
    """A table [tokens, width], or a module that adds one: places differ, and sinusoids have their wavelengths.

    Which argument is the length and which the width, and whether rows stand first, is no fault: the reading counts in
    which it is understood best.
    """
    readings = [
        [_differ(target, table, words), _waves(target, table), _beyond(way)]
        for words, way in _ways(target)
        if (table := way(TOKENS)) is not None
    ]
    if not readings:
        return [Outcome.moot("table", f"{name} gives no code for each of {TOKENS} places")]
    return max(readings, key=_understood)


def _understood(outcomes: list[Outcome]) -> int:
    """A right code, then a wrong one that is known for certain, then one of which nothing is known to be wrong."""
    wrong = any(outcome.status is Status.FAIL for outcome in outcomes)
    known = any(clue.sure is Sure.CERTAIN for outcome in outcomes for clue in outcome.clues)
    if wrong:
        return 2 if known else 0
    return 3 if all(outcome.status is Status.PASS for outcome in outcomes) else 1


def tabled(target: Any, tokens: int = TOKENS) -> Tensor | None:
    """The code of each place, in the first way that gives one. [T, D]"""
    return next((table for _, way in _ways(target) if (table := way(tokens)) is not None), None)


def _ways(target: Any) -> Iterator[tuple[str, Way]]:
    if isinstance(target, nn.Module):
        yield "", lambda tokens: _added(target, _stream(2, tokens))
        yield TOKENS_FIRST, lambda tokens: _added(target, _stream(2, tokens).transpose(0, 1))
        return
    for place in range(len(list(_tries(target, TOKENS)))):
        for turned in (False, True):
            yield "", partial(_made, target, place, turned)


def _stream(rows: int, tokens: int) -> Tensor:
    return torch.randn(rows, tokens, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _made(function: Any, place: int, turned: bool, tokens: int) -> Tensor | None:
    """What one order of the arguments gives, as it is or transposed."""
    try:
        made = function(**list(_tries(function, tokens))[place])
        table = torch.as_tensor(made, dtype=torch.float64)
    except Exception:  # not its way
        return None
    flat = _flat(table.mT if turned and table.dim() >= 2 else table, tokens)
    return flat if flat is not None and (flat.shape[1] == WIDTH or len(Signature.of(function).needed) == 1) else None


def _tries(function: Any, tokens: int) -> Iterator[dict[str, Any]]:
    signature = Signature.of(function)
    names = [n for n in signature.roles if n in signature.needed] or list(signature.roles)[:2]
    sizes = {Role.LENGTH: tokens, Role.WIDTH: WIDTH, Role.PLACES: torch.arange(tokens)}
    yield {name: sizes.get(signature.roles[name], tokens if place == 0 else WIDTH) for place, name in enumerate(names)}
    if len(names) == 2:
        yield {names[0]: tokens, names[1]: WIDTH}
        yield {names[0]: WIDTH, names[1]: tokens}
        yield {names[0]: torch.arange(tokens), names[1]: WIDTH}
    if len(names) == 1:
        yield {names[0]: torch.zeros(2, tokens, WIDTH, dtype=torch.float64)}


def _flat(table: Tensor | None, tokens: int) -> Tensor | None:
    if table is None:
        return None
    while table.dim() > 2 and table.shape[0] in (1, 2):
        table = table[0]
    return table if table.dim() == 2 and table.shape[0] == tokens else None


def _added(module: nn.Module, x: Tensor) -> Tensor | None:
    """What a module adds to a stream, or gives for it."""
    with torch.no_grad():
        for given in (x, torch.zeros_like(x)):
            try:
                first = module(given)
            except Exception:  # not its way
                continue
            made = first[0] if isinstance(first, tuple | list) else first
            if not isinstance(made, Tensor):
                continue
            if made.shape == given.shape:
                factor = _factor(module, given)
                codes = (made - factor * given).double()
                return codes[0] if x.shape[0] == 2 else codes[:, 0]
            flat = _flat(made.double(), max(x.shape[:2]))
            if flat is not None:
                return flat
    return None


def _factor(module: nn.Module, x: Tensor) -> float:
    """By what a stream is multiplied before codes are added: 1, or √width."""
    gap = (module(2 * x) - module(x)).double()
    return round(float((gap * x).sum() / (x * x).sum()), 6)


def _differ(target: Any, table: Tensor, words: str = "") -> Outcome:
    same = [t for t in range(1, len(table)) if distance(table[t], table[0]) <= 1e-9]
    if len(same) == len(table) - 1:
        words = "every place has the same code"
        return Outcome.broken("places", words, Clue("position-sliced", Sure.LIKELY, words))
    if same:
        words = f"place {same[0]} has the code of place 0"
        return Outcome.broken("places", words, Clue("position-exponent", Sure.HINT, words))
    told = f"{len(table)} places have codes of their own"
    if words and (said := rows_first(target)) is not None:
        words += f", though its source says {said}"
        return Outcome.broken("places", words, Clue("batch-first-confusion", Sure.LIKELY, words))
    if words:
        clue = Clue("batch-first-confusion", Sure.CONVENTION, words)
        return Outcome.held("places", f"{told}; {words}", 0.0, 0.0, clue)
    return Outcome.held("places", told)


def _waves(target: Any, table: Tensor) -> Outcome:
    """Whether it is made of waves, and whether they are the paper's."""
    if isinstance(target, nn.Module) and any(p.dim() >= 2 for p in target.parameters()):
        return Outcome.moot("waves", "its codes are learnt")
    if float(table.abs().max()) > 1.0 + 1e-3:
        scaled = table / table.abs().max()
        if distance(scaled, _sinusoids(*table.shape)) > 1e-3:
            return Outcome.moot("waves", "its codes are no sinusoids")
    for words in ("sines and cosines in turn", "sines, then cosines"):
        for start in (0, 1, 2):
            if distance(table, _later(table.shape, start, words)) <= CLOSE:
                return Outcome.held("waves", f"the paper's sinusoids, {words}, from place {start}")
    if distance(table, _inclusive(*table.shape)) <= CLOSE:
        return Outcome.held(
            "waves", "sinusoids, sines then cosines, frequencies to the end of the range (as tensor2tensor)"
        )
    for words, wrong in _distorted(*table.shape):
        if distance(table, wrong) <= CLOSE or distance(table, _halves(wrong)) <= CLOSE:
            return Outcome.broken("waves", f"sinusoids with {words}", Clue("position-exponent", Sure.CERTAIN, words))
    return _unknown_waves(table)


def _unknown_waves(table: Tensor) -> Outcome:
    """Waves of another kind: each channel must be a wave, the first of period 2π, the last nearly still."""
    bounded = float(table.abs().max()) <= 1.001
    first = [float((table[:, c] - torch.arange(len(table)).double().sin()).abs().max()) for c in range(table.shape[1])]
    if bounded and min(first) <= 1e-3:
        words = "its first channel is the paper's sine, but the wavelengths of the others are not"
        return Outcome.broken("waves", words, Clue("position-exponent", Sure.LIKELY, words))
    if bounded and _is_waves(table):
        words = "its channels are waves, but with none of the paper's wavelengths"
        return Outcome.broken("waves", words, Clue("position-exponent", Sure.HINT, words))
    return Outcome.moot("waves", "its codes are no sinusoids")


def _is_waves(table: Tensor) -> bool:
    """Whether most channels obey f(t+1) + f(t-1) = 2 cos(ω) f(t), as waves do."""
    good = 0
    for channel in table.T:
        middle, sides = channel[1:-1], channel[2:] + channel[:-2]
        factor = (middle * sides).sum() / (middle * middle).sum().clamp(min=1e-12)
        good += int(float((sides - factor * middle).abs().max()) < 1e-3)
    return good >= table.shape[1] // 2


def _angles(tokens: int, width: int, base: float = 10000.0) -> Tensor:
    place = torch.arange(tokens, dtype=torch.float64)[:, None]
    return place * base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def _waved(angle: Tensor) -> Tensor:
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)


def _sinusoids(tokens: int, width: int) -> Tensor:
    return _waved(_angles(tokens, width))


def _halves(table: Tensor) -> Tensor:
    return torch.cat((table[:, ::2], table[:, 1::2]), -1)


def _later(shape: torch.Size, start: int, words: str) -> Tensor:
    """The paper's table, whose first row is that of a later place."""
    table = _sinusoids(shape[0] + start, shape[1])[start:]
    return table if words.startswith("sines and") else _halves(table)


def _inclusive(tokens: int, width: int) -> Tensor:
    half = width // 2
    speed = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / max(half - 1, 1))
    angle = torch.arange(tokens, dtype=torch.float64)[:, None] * speed
    return torch.cat((angle.sin(), angle.cos()), -1)


def _distorted(tokens: int, width: int) -> Iterator[tuple[str, Tensor]]:
    place = torch.arange(tokens, dtype=torch.float64)[:, None]
    even = torch.arange(0, width, 2, dtype=torch.float64)
    yield "base 1000 instead of 10000", _waved(_angles(tokens, width, 1000.0))
    yield "base 100000 instead of 10000", _waved(_angles(tokens, width, 100000.0))
    yield "the 2 of the exponent twice", _waved(place * 10000.0 ** (-2 * even / width))
    yield "the 2 of the exponent missing", _waved(place * 10000.0 ** (-even / 2 / width))
    yield "frequencies multiplied where they should be divided", _waved(place * 10000.0 ** (even / width))
    yield "an exponent cut to whole numbers", _waved(place * 10000.0 ** (-(even // width)))
    log = torch.log(torch.tensor(10000.0, dtype=torch.float64))
    yield "a division that binds too late (log(10000) / d // 2)", _waved(place * torch.exp(even * (-log / width // 2)))
    yield (
        "a division that binds too late (-log(10000) // d)",
        _waved(place * torch.exp(even * torch.floor(-log / width))),
    )
    whole = torch.arange(width, dtype=torch.float64)
    each = place * 10000.0 ** (-2 * whole / width)
    yield "another frequency for the cosine than for the sine (2i of the channel)", _alternating(each)
    each = place * 10000.0 ** (-whole / width)
    yield "another frequency for the cosine than for the sine", _alternating(each)
    yield "sines only", place.mul(10000.0 ** (-whole / width)).sin()
    yield (
        "sine and cosine exchanged",
        torch.stack((_angles(tokens, width).cos(), _angles(tokens, width).sin()), -1).flatten(-2),
    )


def _alternating(angle: Tensor) -> Tensor:
    even = torch.arange(angle.shape[1]) % 2 == 0
    return torch.where(even, angle.sin(), angle.cos())


def _beyond(way: Way) -> Outcome:
    """Shorter texts get the beginning of the table."""
    short, long = way(9), way(TOKENS)
    if short is None or long is None:
        return Outcome.moot("beginning", "a shorter text is not taken")
    gap = distance(short, long[:9])
    if gap > 1e-9:
        words = f"the first 9 places of a text of 9 have other codes than those of a text of {TOKENS} ({gap:.1e})"
        return Outcome.broken("beginning", words, Clue("position-sliced", Sure.LIKELY, words))
    return Outcome.held("beginning", "a place has one code, however long the text")


def slopes(target: Any, name: str) -> list[Outcome]:
    """ALiBi's slopes for 1 to 12 heads."""
    for heads in (8, 4, 2, 1, 16, 3, 5, 6, 12):
        try:
            found = torch.as_tensor(target(heads), dtype=torch.float64).flatten()
        except Exception as error:  # foreign code may raise anything
            words = f"{name}({heads}) raises {type(error).__name__}: {error}"
            return [Outcome.broken("slopes", words, Clue("alibi-slopes", Sure.HINT, words))]
        right = right_slopes(heads)
        if found.shape != right.shape or distance(found.abs(), right) > CLOSE:
            shown = ", ".join(f"{v:.4g}" for v in found.tolist()[:6])
            words = f"{heads} heads: {shown}; the paper's: {', '.join(f'{v:.4g}' for v in right.tolist()[:6])}"
            return [Outcome.broken("slopes", words, Clue("alibi-slopes", Sure.CERTAIN, words))]
    return [Outcome.held("slopes", "the paper's, for powers of two and for others")]


def shifted(target: Any, name: str) -> list[Outcome]:
    """A relative shift: entry (i, j) of the result is that of distance i - j, below the diagonal."""
    rows, heads, tokens = 2, 3, 5
    distances = torch.arange(tokens - 1, -1, -1, dtype=torch.float64)  # column n stands for the distance T - 1 - n
    for shape in ((rows, heads, tokens, tokens), (tokens, tokens, rows, heads), (tokens, tokens)):
        x = _laid(distances, shape)
        try:
            made = target(x)
        except Exception:  # not its layout
            continue
        if not isinstance(made, Tensor) or made.shape != x.shape:
            continue
        table = made[0, 0] if shape[0] == rows else made[..., 0, 0] if len(shape) == 4 else made
        wrong = [(i, j) for i in range(tokens) for j in range(i + 1) if float(table[i, j]) != i - j]
        if wrong:
            i, j = wrong[0]
            words = f"entry ({i}, {j}) is that of distance {float(table[i, j]):g}, not {i - j}"
            return [Outcome.broken("shift", words, Clue("relative-shift", Sure.CERTAIN, words))]
        return [Outcome.held("shift", "every entry below the diagonal is that of its distance")]
    return [Outcome.moot("shift", f"{name} takes no square of scores: {inspect.signature(target)}")]


def _laid(distances: Tensor, shape: tuple[int, ...]) -> Tensor:
    tokens = len(distances)
    square = distances.expand(tokens, tokens)
    if len(shape) == 2:
        return square.clone()
    return (
        square.expand(shape).clone()
        if shape[-1] == tokens and shape[0] != tokens
        else square[..., None, None].expand(shape).clone()
    )
