"""Chats as ids. Special tokens are what the template writes; a message that spells one is text, as everywhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken

from ..core.errors import InputError
from .guard import understood

# None of these is a character, so no text needs them.
BROKEN = "\ufffe"  # put into names of special tokens in messages
OPEN, CLOSE = "\ufdd0", "\ufdd1"  # around those that the template wrote
NAMES = {"role", "type"}  # keys whose values are names, not texts


class Prompter:
    """Encodes what a template makes of messages that went through `hidden`."""

    def __init__(self, twin: tokenizers.Tokenizer, added: Mapping[int, AddedToken]) -> None:
        """`twin`: the tokenizer without the tokens that were added to it, which get other names here."""
        special = sorted((token.content for token in added.values() if token.special), key=len, reverse=True)
        self._spelt = re.compile("|".join(map(re.escape, special)) or "(?!)")
        self._begun = {name[:size] for name in special if not name[0].isalnum() for size in range(1, len(name))}
        self._longest = max(map(len, special), default=0)
        renamed = {index: _renamed(token) if token.special else token for index, token in sorted(added.items())}
        twin.add_tokens(list(renamed.values()))
        self._twin = twin
        self._ids = {twin.token_to_id(token.content): index for index, token in renamed.items()}

    def hidden(self, value: Any) -> Any:
        """Plain data in which no text spells a special token."""
        try:
            return self._hidden(value)
        except RecursionError:
            raise InputError("messages and tools are nested too deeply") from None

    def encode(self, text: str, as_text: Callable[[int], int | None]) -> list[int]:
        """The ids of a rendered chat. `as_text`: what becomes of an id that came out of a text."""
        marked = self._spelt.sub(rf"{OPEN}\g<0>{CLOSE}", text)
        with understood("this tokenizer cannot read the chat"):
            found = self._twin.encode(marked.replace(BROKEN, ""), add_special_tokens=False).ids
        kept = (self._ids[index] if index in self._ids else as_text(index) for index in found)
        return [index for index in kept if index is not None]

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            bare = value.translate(dict.fromkeys(map(ord, (BROKEN, OPEN, CLOSE))))
            broken = self._spelt.sub(lambda found: found[0][0] + BROKEN + found[0][1:], bare)
            # A template may put texts together, so a name that begins at the end of a text is broken off there.
            end = len(broken.rstrip())
            begins = any(broken[end - size : end] in self._begun for size in range(1, min(end, self._longest) + 1))
            return f"{broken[:end]}{BROKEN}{broken[end:]}" if begins else broken
        if isinstance(value, Mapping):
            return {self._key(key): self._key(one) if key in NAMES else self._hidden(one) for key, one in value.items()}
        return [self._hidden(one) for one in value] if isinstance(value, Sequence) else value

    def _key(self, value: Any) -> Any:
        """A name stays as it is, even if some special token is called so: templates compare it."""
        return value if isinstance(value, str) and value.isidentifier() else self._hidden(value)


def _renamed(token: AddedToken) -> AddedToken:
    name = f"{OPEN}{token.content}{CLOSE}"
    return AddedToken(name, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False)
