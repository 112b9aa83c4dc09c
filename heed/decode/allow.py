"""Constrained decoding: which tokens may come next, by what a row has written so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from ..core.errors import InputError

# The number of the prompt and the tokens written after it -> the ids that may come next; None = all of them.
Allow: TypeAlias = Callable[[int, tuple[int, ...]], Collection[int] | None]
Trie: TypeAlias = "dict[int, Trie]"


class Choices:
    """One of these answers, then the end token: a trie over their tokens."""

    def __init__(self, answers: Collection[Sequence[int]], end: int) -> None:
        if not answers:
            raise InputError("there are no answers to choose from; give at least one")
        self._trie: Trie = {}
        for answer in answers:
            node = self._trie
            for token in (*answer, end):
                node = node.setdefault(token, {})

    def __call__(self, row: int, written: tuple[int, ...]) -> Collection[int]:
        node = self._trie
        for token in written:
            node = node.get(token, {})
        return node.keys()


class Begin:
    """The answer to prompt i begins with `prefixes[i]`; what follows is free, or as `then` allows.

    The tokens of a prefix are written and scored like others. `then` is asked about what comes after the prefix.
    """

    def __init__(self, prefixes: Sequence[Sequence[int]], then: Allow | None = None) -> None:
        self._prefixes, self._then = prefixes, then

    def __call__(self, row: int, written: tuple[int, ...]) -> Collection[int] | None:
        if row >= len(self._prefixes):
            raise InputError(f"there are {len(self._prefixes)} prefixes and none for prompt {row}; () forces nothing")
        prefix = self._prefixes[row]
        if len(written) < len(prefix):
            return (prefix[len(written)],)
        return None if self._then is None else self._then(row, written[len(prefix) :])


def restrict(scores: Tensor, allowed: Sequence[Collection[int] | None]) -> Tensor:
    """Scores with -inf at every token that its row does not allow. [R, V]"""
    bound = [row for row, ids in enumerate(allowed) if ids is not None]
    if not bound:
        return scores
    rows = [row for row in bound for _ in allowed[row] or ()]
    tokens = [token for row in bound for token in allowed[row] or ()]
    if tokens and not 0 <= min(tokens) <= max(tokens) < scores.shape[1]:
        found, most = f"{min(tokens)} to {max(tokens)}", scores.shape[1] - 1
        raise InputError(f"`allow` names tokens from {found}; the vocabulary is 0 to {most}")
    strict = scores.clone()
    strict[torch.tensor(bound, device=scores.device)] = -torch.inf
    index = torch.tensor([rows, tokens], dtype=torch.long, device=scores.device)
    strict[index[0], index[1]] = scores[index[0], index[1]]
    return strict
