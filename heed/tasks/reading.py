"""An encoder in use: vectors of texts, words for a mask, classes of texts and of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..core.abilities import Asked, Reads
from ..core.contract import Where
from ..core.errors import InputError
from ..core.state import Seen
from ..parts.heads import Pool, pooled
from ..text import Framed, Tokenizer
from .base import AnyModel
from .looking import ranked
from .ready import Guess, Ready, Response

V = TypeVar("V")
Make: TypeAlias = "Callable[[Seen, Sequence[Framed]], Sequence[V]]"
BUDGET = 8192  # tokens that are read at once, padding counted


@dataclass(frozen=True)
class Pooling:
    """How the vector of a text is made of those of its tokens."""

    pool: Pool = "mean"
    unit: bool = True  # vectors have length one: their product is the cosine


class Reader(Ready):
    """An encoder that somebody else trained."""

    what: ClassVar[str] = "an encoder without such a head"

    def __init__(
        self,
        model: AnyModel,
        tokenizer: Tokenizer,
        labels: Sequence[str] = (),
        pooling: Pooling | None = None,
        longest: int | None = None,
    ) -> None:
        self.model: AnyModel = model.eval()
        self.tokenizer, self.labels = tokenizer, tuple(labels)
        self.pooling, self.longest = pooling or Pooling(), longest

    def embed(self, texts: Sequence[str], *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        rule = pool or self.pooling.pool
        vectors = self._each(texts, lambda seen, _: list(pooled(rule, seen.parts[0], seen)), truncate=True)
        found = torch.stack(vectors) if vectors else torch.zeros(0, 0)
        return torch.nn.functional.normalize(found, dim=-1) if self._is_unit(unit) else found

    def fill(self, text: str, best: int = 5) -> list[list[Guess]]:
        head, mask = self._head("masked", "fill"), self.tokenizer.mask
        if mask is None:
            raise InputError("the tokenizer of this checkpoint has no mask token, so there is nothing to fill")
        framed = self.tokenizer.framed(text, marked=True)
        places = [place for place, token in enumerate(framed.ids) if token == mask]
        if not places:
            raise InputError(f"the text holds no {self.tokenizer.tokens([mask])[0]}; write it where a word is missing")

        def guess(seen: Seen, rows: Sequence[Framed]) -> list[list[list[Guess]]]:
            p = head(seen.parts[0][:, places], seen).double().softmax(-1)[0]
            return [[self._tokens(one, best) for one in p]]

        return self._each([framed], guess)[0]

    def classify(self, given: Sequence[str | tuple[str, str]], labels: Sequence[str] = ()) -> list[list[Guess]]:
        head = self._head("pooled", "classify")
        if getattr(head, "scores", None) is None:
            raise self._cannot("classify")
        if labels:
            raise InputError("the classes of this checkpoint are fixed; leave labels out")

        def guess(seen: Seen, rows: Sequence[Framed]) -> list[list[Guess]]:
            return [self._classes(p) for p in head(seen.parts[0], seen).double().softmax(-1)]

        return self._each(given, guess, truncate=True)

    def tag(self, texts: Sequence[str]) -> list[list[tuple[str, Guess]]]:
        head = self._head("tagged", "tag")

        def guess(seen: Seen, rows: Sequence[Framed]) -> list[list[tuple[str, Guess]]]:
            p = head(seen.parts[0], seen).double().softmax(-1)
            named = [self.tokenizer.tokens(row.ids) for row in rows]
            return [
                [(token, self._classes(one)[0]) for token, one in zip(tokens, some, strict=False)]
                for tokens, some in zip(named, p, strict=True)
            ]

        return self._each(texts, guess)

    def respond(self, text: str) -> Response:
        """A text with a mask is filled in; otherwise classes if there are any, else the vector."""
        heads = self._heads()
        mask = None if self.tokenizer.mask is None else self.tokenizer.tokens([self.tokenizer.mask])[0]
        if "masked" in heads and mask is not None and mask in text:
            filled = self.fill(text)
            told = "\n\n".join("\n".join(f"{one.p:6.1%}  {one.label}" for one in some) for some in filled)
            return Response(told, {"masks": [[vars(one) for one in some] for some in filled]})
        if self.labels and "pooled" in heads:
            (classes,) = self.classify([text])
            told = "\n".join(f"{one.p:6.1%}  {one.label}" for one in classes)
            return Response(told, {"classes": [vars(one) for one in classes]})
        if self.labels and "tagged" in heads:
            (tagged,) = self.tag([text])
            told = "\n".join(f"{token}\t{one.label}\t{one.p:.1%}" for token, one in tagged)
            return Response(told, {"tokens": [{"token": token, **vars(one)} for token, one in tagged]})
        vector = self.embed([text])[0].tolist()
        return Response(" ".join(f"{number:.4f}" for number in vector), {"vector": vector})

    # --- reading ---

    @torch.no_grad()
    def _each(self, given: Sequence[object], make: Make[V], *, truncate: bool = False) -> list[V]:
        """`make` of everything that was read, in batches of similar lengths, in the order given."""
        framed = [self._framed(one, truncate) for one in given]
        order = sorted(range(len(framed)), key=lambda place: len(framed[place].ids))
        found: dict[int, V] = {}
        begin = 0
        while begin < len(order):
            end = begin + 1
            while end < len(order) and (end - begin + 1) * len(framed[order[end]].ids) <= BUDGET:
                end += 1
            places = order[begin:end]
            rows = [framed[place] for place in places]
            found |= zip(places, make(self._read(rows), rows), strict=True)
            begin = end
        return [found[place] for place in range(len(framed))]

    def _framed(self, given: object, truncate: bool) -> Framed:
        match given:
            case Framed():
                framed = given
            case str():
                framed = self.tokenizer.framed(given)
            case (str() as text, str() as pair):
                framed = self.tokenizer.framed(text, pair)
            case _:
                raise InputError(f"a text or a pair of texts is needed, not {given!r}")
        if self.longest is None or len(framed.ids) <= self.longest:
            return framed
        if not truncate:
            raise InputError(f"the text has {len(framed.ids)} tokens, the model has places for {self.longest}")
        return Framed(  # the end of a frame is kept
            [*framed.ids[: self.longest - 1], framed.ids[-1]],
            [*framed.segments[: self.longest - 1], framed.segments[-1]],
        )

    def _read(self, rows: Sequence[Framed]) -> Seen:
        if not isinstance(self.model, Reads):
            raise self._cannot("read")
        width = max(len(row.ids) for row in rows)
        tokens = np.zeros((len(rows), width, 2), np.int64)
        for place, row in enumerate(rows):
            tokens[place, : len(row.ids), 0] = row.ids
            tokens[place, : len(row.ids), 1] = row.segments
        fields = min(2, self._fields())
        device = self.model.device
        where = Where.ragged(torch.tensor([len(row.ids) for row in rows], device=device))
        return self.model.read(torch.from_numpy(tokens[..., :fields]).to(device), where)

    def _fields(self) -> int:
        return int(getattr(self.model.get_submodule("front"), "fields", 1))

    # --- heads ---

    def _heads(self) -> dict[str, torch.nn.Module]:
        return dict(self.model.heads.items()) if isinstance(self.model, Asked) else {}

    def _head(self, kind: str, verb: str) -> torch.nn.Module:
        heads = self._heads()
        if kind not in heads:
            raise self._cannot(verb)
        return heads[kind]

    def _is_unit(self, unit: bool | None) -> bool:
        return self.pooling.unit if unit is None else unit

    def _tokens(self, p: Tensor, best: int) -> list[Guess]:
        top = p.topk(min(best, p.numel()))
        return [
            Guess(self.tokenizer.decode([token]) or self.tokenizer.tokens([token])[0], chance)
            for token, chance in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ]

    def _classes(self, p: Tensor) -> list[Guess]:
        return ranked(p, self.labels)
