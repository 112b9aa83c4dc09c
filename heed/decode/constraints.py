"""Constrained decoding: which tokens may come next, by what a row has written so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from ..core.errors import InputError

# What may come next: these ids, those where a mask over the vocabulary is True, or (None) all of them.
Next: TypeAlias = "Collection[int] | Tensor | None"
Constraint: TypeAlias = Callable[
    [int, tuple[int, ...]], Next
]  # of the number of the prompt and the tokens written after it
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

    def __init__(self, prefixes: Sequence[Sequence[int]], then: Constraint | None = None) -> None:
        self._prefixes, self._then = prefixes, then

    def __call__(self, row: int, written: tuple[int, ...]) -> Next:
        if row >= len(self._prefixes):
            raise InputError(f"there are {len(self._prefixes)} prefixes and none for prompt {row}; () forces nothing")
        prefix = self._prefixes[row]
        if len(written) < len(prefix):
            return (prefix[len(written)],)
        return None if self._then is None else self._then(row, written[len(prefix) :])


class Never:
    """Everything but these tokens, and but `first` at the first step (Whisper must not begin with silence)."""

    def __init__(self, tokens: Collection[int], vocabulary: int, first: Collection[int] = ()) -> None:
        self._first, self._later = _mask({*tokens, *first}, vocabulary), _mask(tokens, vocabulary)

    def __call__(self, row: int, written: tuple[int, ...]) -> Tensor:
        return self._later if written else self._first


def _mask(tokens: Collection[int], vocabulary: int) -> Tensor:
    mask = torch.ones(vocabulary, dtype=torch.bool, device="cpu")
    mask[[token for token in tokens if 0 <= token < vocabulary]] = False
    return mask


def restrict(logits: Tensor, allowed: Sequence[Next]) -> Tensor:
    """Logits with -inf at every token that its row does not allow. [R, V]"""
    masks = {row: mask for row, mask in enumerate(allowed) if isinstance(mask, Tensor)}
    if masks:
        logits = logits.clone()
        for row, mask in masks.items():
            logits[row].masked_fill_(~mask.to(logits.device), -torch.inf)
    listed = {row: ids for row, ids in enumerate(allowed) if ids is not None and not isinstance(ids, Tensor)}
    if not listed:
        return logits
    bound = list(listed)
    rows = [row for row, ids in listed.items() for _ in ids]
    tokens = [token for ids in listed.values() for token in ids]
    if tokens and not 0 <= min(tokens) <= max(tokens) < logits.shape[1]:
        found, most = f"{min(tokens)} to {max(tokens)}", logits.shape[1] - 1
        raise InputError(f"`constraint` names tokens from {found}; the vocabulary is 0 to {most}")
    strict = logits.clone()
    strict[torch.tensor(bound, device=logits.device)] = -torch.inf
    index = torch.tensor([rows, tokens], dtype=torch.long, device=logits.device)
    strict[index[0], index[1]] = logits[index[0], index[1]]
    return strict
