"""Rotary positions: tables of cosines and sines, and functions that turn with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..foreign.calls import Signature
from ..foreign.returned import tensors
from ..foreign.words import Role
from ..outcome import Clue, Outcome, Status, Sure
from ..reference import distance

FAR, SIZE, TOKENS = 20_000, 6, 9


def tables(target: Any, name: str) -> list[Outcome]:
    """Cosines and sines of the paper's angles, also at place 20,000."""
    found = _tables(target, FAR + 1)
    where = FAR
    if found is None:
        found, where = _tables(target, 60), 59
    if found is None:
        again = turned(target.double() if isinstance(target, nn.Module) else target, name)  # or it turns by itself
        if again[0].status is not Status.NONE:
            return again
        return [Outcome.moot("tables", f"{name} gives no cosines and sines for a number of tokens")]
    cos, sin = found
    size = cos.shape[-1]
    unit = float((cos.square() + sin.square() - 1).abs().max())
    if unit > 0.02:
        words = f"cos² + sin² differs from 1 by {unit:.1e}"
        return [Outcome.broken("tables", words, Clue("rope-mismatch", Sure.LIKELY, words))]
    half = torch.arange(0, size, 2, dtype=torch.float64)
    speeds = {size: 10000.0 ** (-half / size), 2 * size: 10000.0 ** (-torch.arange(size, dtype=torch.float64) / size)}
    worst = min(_off(cos, sin, angle, where) for angle in _layouts(speeds[size], speeds[2 * size], size))
    words = f"at place {where:,} the table is off by {worst:.1e}"
    if worst > 0.05 and _near_right(cos, sin, speeds, size):
        return [Outcome.broken("tables", words, Clue("rope-precision", Sure.LIKELY, words), error=worst)]
    if worst > 0.05:
        told = "the angles are not those of 10000^(-2c/d), in neither layout"
        return [Outcome.broken("tables", told, Clue("rope-mismatch", Sure.HINT, told), error=worst)]
    if worst > 1e-2 or (where < 100 and worst > 1e-4):
        return [Outcome.broken("tables", words, Clue("rope-precision", Sure.LIKELY, words), error=worst)]
    return [Outcome.held("tables", words)]


def _layouts(speed: Tensor, whole: Tensor, size: int) -> Iterator[Tensor]:
    yield speed.repeat(2)  # halves
    yield speed.repeat_interleave(2)  # neighbours
    yield whole  # each angle once
    del size


def _off(cos: Tensor, sin: Tensor, speed: Tensor, where: int) -> float:
    if speed.shape[-1] != cos.shape[-1]:
        return float("inf")
    angle = where * speed
    return float(max((cos[where] - angle.cos()).abs().max(), (sin[where] - angle.sin()).abs().max()))


def _near_right(cos: Tensor, sin: Tensor, speeds: dict[int, Tensor], size: int) -> bool:
    return any(_off(cos, sin, s, 3) < 0.05 for s in _layouts(speeds[size], speeds[2 * size], size))


def _tables(target: Any, tokens: int) -> tuple[Tensor, Tensor] | None:
    module = target.float() if isinstance(target, nn.Module) else target
    x = torch.zeros(1, 1, tokens, 24)
    places = torch.arange(tokens)
    for arguments in (
        (x, places[None]),
        (x, tokens),
        (x[:, 0], places[None]),
        (tokens,),
        (x,),
        (places,),
        (24, tokens),
    ):
        try:
            with torch.no_grad():
                made = module(*arguments)
        except Exception:  # not its way
            continue
        flat = [t.double().squeeze() for t in tensors(made) if t.is_floating_point()]
        flat = [t for t in flat if t.dim() == 2 and t.shape[0] == tokens]
        if len(flat) >= 2:
            return flat[0], flat[1]
        turned = [t.squeeze() for t in tensors(made) if t.is_complex()]
        if turned and turned[0].dim() == 2:
            return turned[0].real.double(), turned[0].imag.double()
    return None


def turned(target: Any, name: str) -> list[Outcome]:
    """A function that turns queries and keys: their product depends on the distance alone, and lengths are kept."""
    made = [out for way in _ways(target) if (out := _try(target, way)) is not None]
    if not made:
        return [Outcome.moot("turn", f"no usual way to call {name} works")]
    gaps = [_uneven(query, key) for query, key in made]
    gap = min(gaps)
    words = f"products of equal vectors at equal distances differ by {gap:.1e} of the largest"
    if gap > 3e-2:
        return [Outcome.broken("turn", words, Clue("rope-mismatch", Sure.LIKELY, words), error=gap)]
    if gap > 1e-5:
        return [Outcome.broken("turn", words, Clue("rope-precision", Sure.LIKELY, words), error=gap)]
    return [Outcome.held("turn", "products depend on the distance alone", gap)]


def _angle_tables() -> list[tuple[Tensor, Tensor]]:
    angle = torch.arange(TOKENS)[:, None] * 10000.0 ** (-torch.arange(0, SIZE, 2, dtype=torch.float64) / SIZE)
    return [(a.cos(), a.sin()) for a in (angle.repeat(1, 2), angle.repeat_interleave(2, -1), angle)]


def _ways(target: Any) -> Iterator[dict[str, Any]]:
    """Arguments for both layouts of tables, heads first or tokens first."""
    signature = Signature.of(target)
    both = signature.named(Role.QUERY) is not None and signature.named(Role.KEY) is not None
    draw = torch.Generator().manual_seed(0)
    one, other = (torch.randn(1, 2, 1, SIZE, generator=draw, dtype=torch.float64) for _ in range(2))
    streams = (one.expand(-1, -1, TOKENS, -1).contiguous(), other.expand(-1, -1, TOKENS, -1).contiguous())
    for cos, sin in _angle_tables():
        for lead in ((), (None,), (None, None)):
            given: dict[str, Any] = {}
            for name, role in signature.roles.items():
                if role is Role.TABLES:
                    table = sin if "sin" in name.lower() else cos
                    given[name] = (
                        torch.polar(torch.ones_like(cos), torch.atan2(sin, cos)) if "fre" in name else table[lead]
                    )
                elif role in (Role.PLACES, Role.PLACE) and name in signature.needed:
                    given[name] = torch.arange(TOKENS)
            for flip in (False, True):
                laid = [s.transpose(1, 2) if flip else s for s in streams]
                first = signature.named(Role.QUERY) or signature.named(Role.INPUT) or next(iter(signature.roles))
                call = {**given, first: laid[0]}
                if both:
                    call[signature.named(Role.KEY) or ""] = laid[1]
                yield {"call": call, "flip": flip, "both": both, "second": laid[1], "first": first}


def _try(target: Any, way: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    try:
        made = [t for t in tensors(target(**way["call"])) if t.shape == way["second"].shape]
        if not way["both"]:
            made += [t for t in tensors(target(**{**way["call"], way["first"]: way["second"]})) if t.dim() == 4]
    except Exception:  # not its way
        return None
    if len(made) < 2:
        return None
    query, key = (t.transpose(1, 2) if way["flip"] else t for t in made[:2])
    still = distance(query, query[..., :1, :].expand_as(query)) <= 1e-9
    length = query.norm(dim=-1)
    return None if still or distance(length, length[..., :1].expand_as(length)) > 0.5 else (query, key)


def _uneven(query: Tensor, key: Tensor) -> float:
    score = query @ key.mT
    gaps = [score.diagonal(-g, -2, -1) for g in range(TOKENS - 1)]
    worst = max(float((g.amax(-1) - g.amin(-1)).max()) for g in gaps)
    return worst / float(score.abs().max())
