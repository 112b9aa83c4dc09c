"""What is passed beside the stream: nothing where there is a default, otherwise what a name asks for, in every form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor

from ..calls import Face, Laid, Sized
from ..layouts import grid
from ..signature import Signature
from ..sizes import Sizes, cut, listed
from ..words import Role


class Owner:
    """The module for which a function attends, as far as such functions ask: sizes, and as many keys as queries."""

    def __init__(self, sizes: Sizes) -> None:
        self.training = False
        self.num_key_value_groups, self.num_heads, self.head_dim = 1, sizes.heads, sizes.head
        self.scaling, self.attention_dropout, self.layer_idx, self.is_causal = max(sizes.head, 1) ** -0.5, 0.0, 0, False


DRAWN = 64  # tokens of which pairs are drawn at once
MOST = 240  # combinations of what is passed beside
_OWN = listed("tgt trg target look ahead causal self slf own dec decoder future subsequent")  # masks of what asks
_LOOKED = listed("src source enc encoder memory mem cross context second e")  # masks of what is looked at
Made = dict[str, Callable[[int], Any]]


def beside(
    signature: Signature, sizes: Sizes, face: Face, given: Mapping[str, Any], loose: bool = False
) -> Iterator[tuple[dict[str, Any], Made]]:
    """What else is passed, the most likely first: what is fixed, and what depends on the number of tokens.

    `loose` fills what is not understood with zeros, in the shape of the stream.
    """
    taken = {Role.INPUT, Role.QUERY, Role.KEY, Role.VALUE} | ({Role.SOURCE} if face is Face.CROSS else set())
    free = [n for n in signature.roles if signature.roles[n] not in taken and n not in given]
    open_ = [n for n in free if n in signature.needed]
    tables = [n for n in free if signature.roles[n] in (Role.TABLES, Role.PLACES) and n not in signature.needed]
    masks = [n for n in free if signature.roles[n] in (Role.MASK, Role.PADDING) and n not in signature.needed]
    scales = [n for n in free if signature.roles[n] is Role.SCALE and n not in signature.needed]
    for more in dict.fromkeys((tuple[str, ...](), tuple(tables), tuple(scales), tuple(masks) if loose else ())):
        yield from islice(_combined([*open_, *more], signature, sizes, face, given, loose), MOST)


def _combined(
    names: list[str], signature: Signature, sizes: Sizes, face: Face, given: Mapping[str, Any], loose: bool
) -> Iterator[tuple[dict[str, Any], Made]]:
    """Every combination; tables have one form together."""
    tables = [name for name in names if signature.roles[name] is Role.TABLES]
    others = [name for name in names if name not in tables]
    choices = [choices_of(signature.roles[name], sizes, _looks_at(name, signature, face)) for name in others]
    if loose:
        filled = _filling(sizes)
        choices = [
            [*found, *filled] if signature.roles[name] in (Role.OTHER, Role.SOURCE, Role.PLACES, Role.PAIRS) else found
            for name, found in zip(others, choices, strict=True)
        ]
    if tables:
        choices.insert(0, list(range(len(table_forms(sizes, tables[0])))))
    masks = {name for name in others if signature.roles[name] in (Role.MASK, Role.PADDING)}
    stepped = _in_step(others, choices, masks, sizes, face) if not tables else ()
    for combination in (*stepped, *islice(product(*choices), MOST)):
        fixed, made = dict(given), Made()
        pairs = list(zip(others, combination[1:] if tables else combination, strict=True))
        if tables:
            pairs += [(name, table_forms(sizes, name)[combination[0]]) for name in tables]
        for name, choice in pairs:
            (made if callable(choice) else fixed)[name] = choice
        yield fixed, made


def _looks_at(name: str, signature: Signature, face: Face) -> Face:
    """A mask that is named after what asks is as long as that, not as what is looked at."""
    asks = signature.named(Role.INPUT) or signature.named(Role.QUERY)
    own = face is Face.CROSS and asks is not None and set(cut(name)) & set(cut(asks))
    return Face.SELF if own or (face is Face.CROSS and set(cut(name)) & _OWN) else face


def _in_step(
    names: list[str], choices: list[list[Any]], masks: set[str], sizes: Sizes, face: Face
) -> Iterator[tuple[Any, ...]]:
    """Several masks in one form, and the most likely of all else: most have one form together.

    Beside a source some are as long as what asks: by their names, else in their order and the other way round.
    """
    if len(masks) < 2:
        return
    faces = list(_mask_faces([name for name in names if name in masks], face))
    formed = [{name: _masks(sizes, told) for name, told in one.items()} for one in faces]
    for place in range(len(_masks(sizes, face))):
        for forms in formed:
            yield tuple(
                forms[name][place] if name in masks else found[0] for name, found in zip(names, choices, strict=True)
            )


def _mask_faces(names: list[str], face: Face) -> Iterator[dict[str, Face]]:
    """What each mask is as long as: what is looked at, or what asks."""
    if face is not Face.CROSS:
        yield dict.fromkeys(names, face)
        return
    named = [name for name in names if set(cut(name)) & (_OWN | _LOOKED)]
    open_ = [name for name in names if name not in named]
    own = {name for name in named if set(cut(name)) & _OWN}
    for one in (*([""] if named or not open_ else []), *open_):  # all others are as long as what is looked at
        yield {name: Face.SELF if name in own or name == one else Face.CROSS for name in names}


def _filling(sizes: Sizes) -> list[Any]:
    """What no name tells: a stream that is the same in every row, a number, or pairs."""
    return [
        Laid(lambda b, t, s: _drawn(t, t, sizes.width)[0].expand(b, -1, -1), sizes.rows),
        1,
        *_pairs(sizes)[:2],
    ]


def _drawn(tokens: int, keys: int, width: int) -> Tensor:
    """Vectors for pairs of tokens: those of a text's beginning are those of the beginning alone. [T, S, D]"""
    side = max(tokens, keys, DRAWN)
    return _all_drawn(side, width)[:tokens, :keys]


@lru_cache(maxsize=4)
def _all_drawn(side: int, width: int) -> Tensor:
    return torch.randn(side, side, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _pairs(sizes: Sizes) -> list[Any]:
    """A vector for every pair of tokens, or a number, or one for every head."""
    wide, heads = sizes.width, sizes.heads
    return [
        lambda n: _drawn(n, n, wide),
        _sized(sizes, lambda b, t, s: _drawn(t, s, wide).expand(b, -1, -1, -1)),
        lambda n: _drawn(n, n, wide)[..., 0],
        _sized(sizes, lambda b, t, s: _drawn(t, s, wide)[..., 0].expand(b, -1, -1)),
        _sized(sizes, lambda b, t, s: _drawn(t, s, wide)[..., :heads].permute(2, 0, 1).expand(b, -1, -1, -1)),
    ]


def _looked(sizes: Sizes, face: Face) -> list[Any]:
    """Weights of an earlier step: the same for every key; once, or beside their sum over all steps."""
    shapes: tuple[Callable[[int, int], tuple[int, ...]], ...] = (
        lambda b, s: (b, s),
        lambda b, s: (b, 2, s),
        lambda b, s: (b, 1, s),
        lambda b, s: (b, s, 1),
    )
    return [_sized(sizes, _even(shape), face) for shape in shapes]


def _even(shape: Callable[[int, int], tuple[int, ...]]) -> Callable[[int, int, int], Tensor]:
    return lambda rows, tokens, keys: torch.full(shape(rows, keys), 1 / keys, dtype=torch.float64)


def _zeros(sizes: Sizes) -> Sized:
    return Laid(lambda b, t, s: torch.zeros(b, t, sizes.width, dtype=torch.float64), sizes.rows)


def choices_of(role: Role, sizes: Sizes, face: Face) -> list[Any]:
    """What one argument may be given."""
    if role in (Role.MASK, Role.PADDING):
        return _masks(sizes, face)
    if role in (Role.LOOKED, Role.PAIRS):
        return _looked(sizes, face) if role is Role.LOOKED else _pairs(sizes)
    if role is Role.PLACES:
        ids = [lambda n: torch.arange(n)[None], torch.arange, None, _sized(sizes, lambda b, t, s: _run(b, t))]
        return [*ids, *(_coordinates(sizes, axes) for axes in (3, 2))]
    plain: dict[Role, list[Any]] = {
        Role.PLACE: [0, torch.arange],
        Role.BIAS: [
            lambda n: torch.zeros(1, 1, n, dtype=torch.float64),
            None,
            lambda n: torch.zeros(sizes.heads, n, n, dtype=torch.float64),
            torch.zeros(sizes.heads, sizes.head, dtype=torch.float64),
        ],
        Role.RESIDUAL: [_zeros(sizes), None],
        Role.CAUSAL: [False, True],
        Role.WEIGHTS: [False],
        Role.USE_CACHE: [False],
        Role.CACHE: [None, {}, (None, None)],
        Role.LENGTHS: [None, *_lengths(sizes, face)],
        Role.EDGES: [lambda n: torch.cartesian_prod(torch.arange(n), torch.arange(n)).T],
        Role.HEADS: [sizes.heads],
        Role.WIDTH: [sizes.width],
        Role.LENGTH: [lambda n: n],
        Role.HEIGHT: [lambda n: grid(n)[0]],
        Role.BREADTH: [lambda n: grid(n)[1]],
        Role.SHAPE: [grid, lambda n: torch.tensor([grid(n)])],
        Role.SCALE: [max(sizes.head, 1) ** -0.5],
        Role.DROPPED: [0.0],
        Role.VECTOR: [_vector(sizes, many) for many in (1, 2, 6)],
        Role.OWNER: [Owner(sizes), None],
        Role.OTHER: [None, False],
    }
    return plain.get(role, [None])


def _vector(sizes: Sizes, many: int) -> Sized:
    """A vector that is the same in every row, once or as many times as wide. [B, D]"""
    return _sized(sizes, lambda b, t, s: _drawn(1, 1, many * sizes.width)[0].expand(b, -1))


def _coordinates(sizes: Sizes, axes: int) -> Sized:
    """Where tokens stand in space or in the plane, the same in every row. [B, T, 3] or [B, T, 2]"""
    return Laid(lambda b, t, s: _drawn(t, t, sizes.width)[0, :, :axes].expand(b, -1, -1), sizes.rows)


def _run(rows: int, tokens: int) -> Tensor:
    return torch.arange(tokens).expand(rows, -1)


def _lengths(sizes: Sizes, face: Face) -> list[Any]:
    """How many there are: of each row, or where each of several texts in one stream begins and ends; here it is one."""
    return [
        _sized(sizes, lambda b, t, s: torch.full((b,), s), face),
        _sized(sizes, lambda b, t, s: [s] * b, face),
        _sized(sizes, lambda b, t, s: torch.tensor([0, s], dtype=torch.int32), face),
    ]


def _sized(sizes: Sizes, make: Callable[[int, int, int], Any], face: Face = Face.SELF) -> Sized:
    return Sized(make, sizes.rows, sizes.source if face is Face.CROSS else None)


def _masks(sizes: Sizes, face: Face) -> list[Any]:
    """No mask, then those that hide nothing, in every usual shape: of switches, or of numbers that are added."""
    heads = sizes.heads
    shapes: tuple[Callable[[int, int, int], tuple[int, ...]], ...] = (
        lambda b, t, s: (t, s),
        lambda b, t, s: (b, s),
        lambda b, t, s: (b, 1, t, s),
        lambda b, t, s: (b, t, s),
        lambda b, t, s: (b, 1, 1, s),
        lambda b, t, s: (b, 1, s),
        lambda b, t, s: (b, heads, t, s),
        lambda b, t, s: (b * heads, t, s),
        lambda b, t, s: (1, t, s),
        lambda b, t, s: (b, t, 1),
    )
    found: list[Any] = [None]
    for dtype, fill in ((torch.bool, 1), (torch.float64, 0), (torch.int64, 1), (torch.bool, 0)):
        for shape in shapes:
            found.append(_sized(sizes, _filled(shape, dtype, fill), face))
    return found


def _filled(
    shape: Callable[[int, int, int], tuple[int, ...]], dtype: torch.dtype, fill: int
) -> Callable[[int, int, int], Tensor]:
    return lambda rows, tokens, keys: torch.full(shape(rows, tokens, keys), fill, dtype=dtype)


def table_forms(sizes: Sizes, name: str) -> list[Any]:
    """Rotations as they are handed on: both tables, one of them, complex numbers, bare angles."""
    size = sizes.head
    which = 0 if "cos" in name.lower() else 1
    alone = ("cos" in name.lower()) != ("sin" in name.lower())

    def turns(n: int) -> Tensor:
        return torch.polar(torch.ones(n, size // 2).double(), _angles(n, size))

    both = [_table(size, repeats, place) for repeats, place in TABLES]
    one = [_one_of(make, which) for make in both]
    more: list[Any] = [
        turns,
        lambda n: _angles(n, size).repeat(1, 2),
        lambda n: turns(n)[None, :, None],
        lambda n: _angles(n, size),
        lambda n: torch.stack((_angles(n, size).cos(), _angles(n, size).sin()), -1),
        lambda n: torch.stack((_angles(n, size).cos(), _angles(n, size).sin())),
        lambda n: torch.cat((_angles(n, size).cos(), _angles(n, size).sin()), -1),
        lambda n: _distances(n, sizes.width),
    ]
    return [*one, *both, *more, None] if alone else [both[0], more[0], more[1], *both[1:], *more[2:], *one, None]


Place = tuple[slice | None, ...]
_EVERY = slice(None)
PLACES: tuple[Place, ...] = (  # where the tokens stand in a table
    (None, _EVERY),
    (_EVERY,),
    (_EVERY, None),
    (None, _EVERY, None),
    (None, None, _EVERY),
)
TABLES = tuple((repeats, place) for place in PLACES for repeats in (2, 1))  # for all channels, or for half of them


def _table(size: int, repeats: int, place: Place) -> Callable[[int], tuple[Tensor, Tensor]]:
    def make(n: int) -> tuple[Tensor, Tensor]:
        angle = _angles(n, size).repeat(1, repeats)[place]
        return angle.cos(), angle.sin()

    return make


def _one_of(make: Callable[[int], tuple[Tensor, Tensor]], which: int) -> Callable[[int], Tensor]:
    return lambda n: make(n)[which]


def _distances(tokens: int, width: int) -> Tensor:
    """Codes of distances, from the farthest before to the farthest behind, as wide as the stream. [1, 2 T - 1, D]"""
    places = torch.arange(tokens - 1, -tokens, -1, dtype=torch.float64)
    angles = places[:, None] * 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[None, :, :width]


def _angles(tokens: int, size: int) -> Tensor:
    speed = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    return torch.arange(tokens, dtype=torch.float64)[:, None] * speed
