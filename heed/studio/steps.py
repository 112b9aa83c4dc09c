"""Attention step by step, for one head and one token, in the model's numbers: x → q, k, v → scores → softmax → z.

For a mixer that remembers by a state instead: the state after each token, and what each token changed in it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.contract import Mixer, Where
from ..core.errors import InputError
from ..core.state import Cell, Seen, leaves, remember
from ..mixers import Attention, Cross
from ..parts.attention.sdpa import How
from ..parts.layers.linear import matrix_of
from ..parts.masks import Sight, Whole
from ..parts.positions import Takes

KEYS = 512  # of a softmax whose every step is shown
EMPTY = 1e30  # a running maximum begins below any number that a model makes; it is shown as nothing
CELLS = 48  # numbers of a state that are shown, of those that change most


def attention_steps(mixer: Mixer[Any], x: Tensor, where: Where, head: int, token: int) -> dict[str, Any]:
    """What one query does: all numbers from its stream to what it takes away."""
    if not isinstance(mixer, Attention | Cross):
        raise InputError(f"{type(mixer).__name__} is not softmax attention with queries and keys; its state is shown")
    if isinstance(mixer, Attention) and isinstance(mixer.position, Takes):
        raise InputError("the position code of this attention adds to the values; its steps are not taken apart")
    if not 0 <= head < mixer.heads or not 0 <= token < x.shape[1]:
        raise InputError(f"there is no head {head} or token {token}; there are {mixer.heads} and {x.shape[1]}")
    with torch.no_grad():
        query, seen, sight, how = _projected(mixer, x, where)
        key, value = (mixer.each_head(part) for part in seen.parts)
        if key.shape[1] > KEYS:
            raise InputError(
                f"{key.shape[1]:,} keys are too many to show one by one; give a text of at most {KEYS} tokens"
            )
        visible = sight.pairs(mixer.heads).expand(1, mixer.heads, x.shape[1], key.shape[1])[0, head, token]
        added = how.added(query, key, sight)
        bias = None if added is None else added.expand(1, mixer.heads, x.shape[1], key.shape[1])[0, head, token]
        q, k, v = query[0, token, head], key[0, :, head], value[0, :, head]
        dots = k @ q  # [N]
        score = dots * how.scale
        bent = how.capped(score)
        whole = bias if how.score is not None and bias is not None else bent if bias is None else bent + bias
        weight = torch.softmax(whole.masked_fill(~visible, float("-inf")), -1).nan_to_num(0.0)
        out = _rows(mixer, head)
        taken = weight @ v
    told = {
        "x": x[0, token], "q": q, "k": k, "v": v, "dots": dots, "scaled": score, "scores": whole, "weights": weight,
        "z": taken, "out": taken @ out.T,
    }  # fmt: skip
    return {
        "form": "softmax",
        "head": head,
        "token": token,
        "scale": how.scale,
        "cap": how.cap,
        "score": "dots" if how.score is None else type(mixer.score).__name__,
        "bias": None if bias is None or how.score is not None else _plain(bias),
        "visible": visible.tolist(),
        **{name: _plain(one) for name, one in told.items()},
    }


def _projected(mixer: Attention | Cross, x: Tensor, where: Where) -> tuple[Tensor, Seen, Sight, How]:
    """Queries, what they see, and how the two are compared: the mixer's own parts in its own order."""
    if isinstance(mixer, Cross):
        source = where.given.encoder_output
        if source is None:
            raise InputError("this cross-attention was called without a source")
        read = source.blank(source.parts[0])
        seen = Seen.of(source, mixer.keys(read), mixer.values(read))
        how = How(None, mixer.scale, score=mixer.pairwise)
        return mixer.queries(where.blank(x)), seen, Whole()(where, seen), how
    query, key, value = mixer.project(where.blank(x), where)
    seen, _ = remember(None, where, key, value)
    query, key = mixer.position.meet(query, seen.parts[0], where, seen)
    how = How(mixer.position.bias, mixer.scale, cap=mixer.cap, score=mixer.pairwise)
    return query, Seen.of(seen, key, value), mixer.mask(where, seen), how


def _rows(mixer: Attention | Cross, head: int) -> Tensor:
    """The columns of the output matrix that belong to a head: what it adds to the stream, where no norm is between."""
    return matrix_of(mixer.out)[:, head * mixer.head_size : (head + 1) * mixer.head_size]


def state_steps(mixer: Mixer[Any], x: Tensor, where: Where) -> dict[str, Any]:
    """The state after each token, of a mixer that keeps a fixed amount: its size, its change, its busiest numbers."""
    mixer.must_stream()
    before = _numbers(mixer.start(1, where.given))
    if not before.numel():
        raise InputError(f"{type(mixer).__name__} remembers its tokens one by one; it has no state of a fixed size")
    kept, rows = mixer.start(1, where.given), [before]
    with torch.no_grad():
        for place in range(x.shape[1]):
            _, after = mixer(x[:, place : place + 1], where.cut(place, place + 1), kept)
            kept = after
            rows.append(_numbers(kept))
    states = torch.stack(rows)  # [T + 1, numbers]
    finite = states.where(states.abs() < EMPTY, 0.0)
    moved = (finite[1:] - finite[:-1]).norm(dim=1)
    busiest = finite[1:].std(0, correction=0).topk(min(CELLS, finite.shape[1])).indices.sort().values
    return {
        "form": "state",
        "numbers": finite.shape[1],
        "bytes": sum(t.numel() * t.element_size() for leaf in leaves(kept) for t in leaf.tensors()),
        "size": _plain(finite[1:].norm(dim=1)),
        "change": _plain(moved),
        "places": busiest.tolist(),
        "values": _plain(finite[1:, busiest]),
    }


def _numbers(state: Any) -> Tensor:
    """All cells of a state in one row."""
    parts = [t.flatten() for leaf in leaves(state) if isinstance(leaf, Cell) for t in leaf.tensors()]
    return torch.cat([part.double() for part in parts]) if parts else torch.zeros(0)


def _plain(values: Tensor) -> Any:
    return values.double().cpu().tolist()
