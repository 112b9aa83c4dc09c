"""Tokens as responses tell them: their texts, their bytes, their log-probabilities, in the shapes of both APIs."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...text import Tokenizer
from .shapes.responses import ChatLogprobs, CompletionLogprobs, TokenLogprobs, TopLogprob


class Told(NamedTuple):
    """A token, its log-probability by the model itself, and the most probable tokens at its place."""

    index: int  # type: ignore[assignment]  # of the vocabulary; nobody looks a token up here
    logprob: float | None  # None: the first token of a prompt, which follows nothing
    top: Sequence[tuple[int, float]]


class Namer:
    """What tokens are called."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._stream = tokenizer, tokenizer.stream()

    def bytes(self, index: int) -> bytes:
        """What a token adds to a text; of a special one nothing."""
        return self._stream.alone(index) if index < self._tokenizer.size else b""

    def name(self, index: int) -> str:
        """Its text; the name of a special one; bytes that are no whole character as `bytes:\\xe4`, as OpenAI has it."""
        raw = self.bytes(index)
        if not raw:
            return self._tokenizer.name(index) if index < self._tokenizer.size else f"<{index}>"
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def special(self, text: str) -> int | None:
        """The special token of that name, which has no text; None if there is none."""
        ids = self._tokenizer.encode_marked(text)
        return ids[0] if len(ids) == 1 and not self.bytes(ids[0]) else None

    def completion(self, tokens: Iterable[Told], offset: int, *, top: int) -> CompletionLogprobs:
        """In the shape of /v1/completions; the token itself is always among the most probable, as lm_eval expects."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character ends with its last token
        told = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[] if top else None, text_offset=[])
        for token in tokens:
            told.tokens.append(self.name(token.index))
            told.token_logprobs.append(token.logprob)
            told.text_offset.append(offset)
            offset += len(decoder.decode(self.bytes(token.index)))
            if told.top_logprobs is not None:
                told.top_logprobs.append(self._named(token, top))
        return told

    def chat(self, tokens: Iterable[Told], *, top: int) -> ChatLogprobs:
        """In the shape of /v1/chat/completions."""
        content = []
        for token in tokens:
            others = [TopLogprob(token=self.name(i), logprob=p, bytes=list(self.bytes(i))) for i, p in token.top[:top]]
            raw, logprob = list(self.bytes(token.index)), token.logprob or 0.0
            own = TokenLogprobs(token=self.name(token.index), logprob=logprob, bytes=raw, top_logprobs=others)
            content.append(own)
        return ChatLogprobs(content=content)

    def _named(self, token: Told, top: int) -> dict[str, float] | None:
        if token.logprob is None:
            return None
        named = {self.name(token.index): token.logprob}
        for index, logprob in token.top[:top]:
            named.setdefault(self.name(index), logprob)
        return named
