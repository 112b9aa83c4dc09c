"""Encoder pipelines (BERT and its kin): embeddings, masks filled in, classes of texts and of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor

from .. import engine
from ..core.contract import Where
from ..core.errors import InputError
from ..core.interfaces import Asked
from ..core.state import Seen
from ..core.tables import renamed_arguments
from ..parts.outputs.heads import Pool, Pooled, pooled
from ..text import Framed, Tokenizer
from ..text.alignment import Spanned, framed_words, joined, pieces, windows, words_in
from ..text.batch import Numbers, shortened
from ..text.tokenizer import MASKS
from .attentions import Attentions, Inspected, attentions_of, ids_in, shows_weights
from .base import AnyModel, Pipeline, must_be_one, one_or_many
from .labels.answering import Reading, answered, best
from .labels.tagging import TaggedWords, scheme_of, sentences
from .results import Prediction, Problem, Response, classes_told, predictions, vector_told
from .streams import fields_of, stream_of
from .verbs import Many

V = TypeVar("V")
Make: TypeAlias = "Callable[[Seen, Sequence[Framed]], Sequence[V]]"
BUDGET = 8192  # tokens that are encoded in one batch, padding counted


@dataclass(frozen=True)
class Pooling:
    """How the embedding of a text is made of the hidden states of its tokens."""

    pool: Pool = "mean"
    unit: bool = True  # embeddings have length one: their product is the cosine


class EncoderPipeline(Pipeline):
    """An encoder with the heads that its checkpoint has."""

    what = "an encoder without such a head"

    def __init__(
        self,
        model: AnyModel,
        tokenizer: Tokenizer,
        labels: Sequence[str] = (),
        pooling: Pooling | None = None,
        longest: int | None = None,
        problem: Problem | None = None,
        reading: Reading | None = None,
    ) -> None:
        self.model: AnyModel = model.eval()
        self.tokenizer, self.labels = tokenizer, tuple(labels)
        self.reading = reading or Reading.within(longest)
        self.pooling, self.longest, self.problem = pooling or Pooling(), longest, problem

    @property
    def can(self) -> tuple[str, ...]:
        heads = self._heads()
        found = {
            "embed": True,
            "fill": "masked" in heads,
            "classify": self._classifies(),
            "tag": "tagged" in heads,
            "answer": "spans" in heads,
            "attentions": shows_weights(self.model),
        }
        return tuple(verb for verb, able in found.items() if able)

    def embed(self, texts: str | Many[str], *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        rule = self.pooling.pool if pool is None else pool
        if rule not in get_args(Pool):
            raise InputError(f"pool must be one of {', '.join(get_args(Pool))}, not {rule!r}")
        one, given = one_or_many(texts, "text")
        found = self.embed_framed([self._framed(text, truncate=True) for text in given], rule, unit)
        return found[0] if one else found

    def embed_framed(self, rows: Sequence[Framed], pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        """One embedding per row of ids, which stand in their frame already: [rows, channels]."""
        rule = self.pooling.pool if pool is None else pool
        vectors = self._each(rows, lambda seen, _: list(pooled(rule, seen.parts[0], seen)))
        found = torch.stack(vectors) if vectors else torch.zeros(0, 0)
        return torch.nn.functional.normalize(found, dim=-1) if self._is_unit(unit) else found

    @renamed_arguments(best="top_k")
    def fill(self, text: str | Many[str], top_k: int = 5) -> Any:  # overloads of `Verbs` tell what
        head, mask = self._head("masked", "fill"), self.tokenizer.mask
        if type(top_k) is not int or top_k < 1:
            raise InputError(f"top_k must be 1 at least, not {top_k!r}: so many tokens are told for each mask")
        if mask is None:
            raise InputError("the tokenizer of this checkpoint has no mask token, so there is nothing to fill")
        one, given = one_or_many(text, "text")
        found = [self._filled(some, head, mask, top_k) for some in given]
        return found[0] if one else found

    def _filled(self, text: str, head: torch.nn.Module, mask: int, top_k: int) -> list[list[Prediction]]:
        framed = self.tokenizer.framed(text, marked=True)
        places = [place for place, token in enumerate(framed.ids) if token == mask]
        if not places:
            raise InputError(f"the text holds no {self.tokenizer.tokens([mask])[0]}; write it where a word is missing")

        def predicted(seen: Seen, rows: Sequence[Framed]) -> list[list[list[Prediction]]]:
            p = head(seen.parts[0][:, places], seen).double().softmax(-1)[0]
            return [[self._tokens(one, top_k) for one in p]]

        return self._each([framed], predicted)[0]

    def classify(self, given: Any, labels: Sequence[str] = ()) -> Any:  # overloads of `Verbs` tell what
        if not self._classifies():
            raise self._cannot("classify")
        head = self._head("pooled", "classify")
        if labels:
            raise InputError("the classes of this checkpoint are fixed; leave labels out")

        def predicted(seen: Seen, rows: Sequence[Framed]) -> list[list[Prediction]]:
            return [predictions(one, self.labels, self.problem) for one in head(seen.parts[0], seen)]

        pair = isinstance(given, tuple) and len(given) == 2 and all(isinstance(text, str) for text in given)
        one, texts = (True, [given]) if pair else one_or_many(given, "text", (str, tuple))
        found = self._each(texts, predicted, truncate=True)
        return found[0] if one else found

    def tag(self, texts: Any = None, *, words: Any = None) -> Any:  # overloads of `Verbs` tell what
        head = self._head("tagged", "tag")
        if words is not None:
            if texts is not None:
                raise InputError("give texts or words, not both")
            one, split = sentences(words)
            tagged = self.tag_words(split)
            return tagged[0] if one else tagged

        def predicted(seen: Seen, rows: Sequence[Framed]) -> list[list[tuple[str, Prediction]]]:
            logits = head(seen.parts[0], seen)
            named = [self.tokenizer.tokens(row.ids) for row in rows]
            return [
                [(token, self._tagged(one)) for token, one in zip(tokens, some, strict=False)]
                for tokens, some in zip(named, logits, strict=True)
            ]

        one, given = one_or_many(texts, "text")
        found = self._each(given, predicted)
        return found[0] if one else found

    def tag_words(self, given: Sequence[Spanned]) -> list[TaggedWords]:
        """The words of texts by the labels of their first tokens; read as a tagger learns to read them, with spaces
        between them. Long texts are read in pieces."""
        head, scheme = self._head("tagged", "tag"), scheme_of(self.labels)
        framed = framed_words(self.tokenizer, [joined(one.words) for one in given if one.spans])
        cut = [list(pieces(one, self.longest or len(one.framed.ids))) for one in framed]
        flat = [piece for some in cut for piece in some]
        logits = iter(self._each([piece.framed for piece in flat], lambda seen, _: list(head(seen.parts[0], seen))))
        found = iter([[self._tagged(one) for piece in some for one in next(logits)[piece.firsts]] for some in cut])
        return [TaggedWords(one, next(found) if one.spans else [], scheme) for one in given]

    def answer(self, question: Any, context: Any) -> Any:  # overloads of `Verbs` tell what
        head = self._head("spans", "answer")
        one, asked = one_or_many(question, "text")
        texts = [context] * len(asked) if isinstance(context, str) else one_or_many(context, "text")[1]
        if len(texts) != len(asked):
            raise InputError(f"{len(asked)} questions and {len(texts)} contexts; give one context, or one for each")
        how = self.reading
        aligned = self.tokenizer.aligned_all(asked, texts)
        each = [windows(pair, how.longest, how.stride, how.question) for pair in aligned]
        frames = [window.framed for asking in each for window in asking.windows]
        logits = iter(self._each(frames, lambda seen, _: list(head(seen.parts[0], seen))))
        found = [
            answered(asking, text, best(asking, [next(logits) for _ in asking.windows], how))
            for asking, text in zip(each, texts, strict=True)
        ]
        return found[0] if one else found

    def attentions(self, text: str | Numbers, target: str | None = None) -> Attentions:
        """The attention weights of every layer and head on a text, special tokens included, or on ids as they are."""
        return attentions_of(self.model, self.inspect(text, target))

    def inspect(self, text: str | Numbers, target: str | None = None) -> Inspected:
        """A text between its special tokens, or these ids."""
        ids = ids_in(text)
        if ids is None:
            must_be_one(text)
        if target is not None:
            raise InputError("a target is what an encoder-decoder answers with; this is an encoder: leave it out")
        framed = self._framed(text, False) if ids is None else Framed(ids, [0] * len(ids))
        fields = torch.tensor([list(zip(*framed, strict=True))], device=self.device)  # [1, T, 2]
        return Inspected(fields[..., : min(2, self._fields())], tuple(self.tokenizer.tokens(framed.ids)))

    def _encoded_texts(self, texts: list[str]) -> Mapping[str, Any]:
        rows = self.tokenizer.framed_all(texts)
        return {"input_ids": [row.ids for row in rows], "token_type_ids": [row.segments for row in rows]}

    @property
    def fills(self) -> bool:
        """Whether it predicts masked tokens."""
        return "masked" in self._heads() and self.tokenizer.mask is not None

    @property
    def classifies(self) -> bool:
        """Whether it tells classes of texts."""
        return self._classifies() and self.problem != "regression"

    @torch.no_grad()
    def masked_logits(self, rows: Sequence[Framed], places: Sequence[int]) -> Tensor:
        """The logits of the masked token at one place of each row: [rows, vocabulary]."""
        head, seen = self._head("masked", "fill"), self._encoded(rows)
        at = torch.tensor(places, device=seen.parts[0].device)
        hidden = seen.parts[0].take_along_dim(at[:, None, None], 1)  # [B, 1, D]
        logits: Tensor = head(hidden, seen)
        return logits[:, 0]

    def respond(self, text: str) -> Response:
        """A text with a mask is filled in; otherwise classes if there is a head for them, else the embedding."""
        heads = self._heads()
        mask = None if self.tokenizer.mask is None else self.tokenizer.tokens([self.tokenizer.mask])[0]
        if "masked" in heads and mask is not None and mask in text:
            filled = self.fill(text)
            told = "\n\n".join("\n".join(f"{one.told()}  {one.label}" for one in some) for some in filled)
            return Response(told, {"masks": [[one.data() for one in some] for some in filled]})
        if "masked" in heads and mask is not None and (foreign := next((name for name in MASKS if name in text), None)):
            raise InputError(f"the mask of this model is {mask}, not {foreign}; write {mask} where a word is missing")
        if self._classifies() and "masked" not in heads:  # beside that, it tells whether one text follows another
            return classes_told(self.classify(text))
        if "tagged" in heads:
            tagged = self.tag(text)
            told = "\n".join(f"{token}\t{one.label}\t{one.told().strip()}" for token, one in tagged)
            return Response(told, {"tokens": [{"token": token, **one.data()} for token, one in tagged]})
        if "spans" in heads:
            raise InputError(
                "this model answers questions by a part of a text: give that, too, with --context FILE_OR_TEXT, in "
                "Python answer(question, context)"
            )
        return vector_told(self.embed(text))

    # --- encoding ---

    @torch.no_grad()
    def _each(self, given: Sequence[object], make: Make[V], *, truncate: bool = False) -> list[V]:
        """`make` of everything that was encoded, in batches of similar lengths, in the order given."""
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
            found |= zip(places, make(self._encoded(rows), rows), strict=True)
            begin = end
        return [found[place] for place in range(len(framed))]

    def _framed(self, given: object, truncate: bool) -> Framed:
        match given:
            case Framed():
                framed, texts = given, list[str]()
            case str():
                framed, texts = self.tokenizer.framed(given), [given]
            case (str() as text, str() as pair):
                framed, texts = self.tokenizer.framed(text, pair), [text, pair]
            case _:
                raise InputError(f"a text or a pair of texts is needed, not {given!r}")
        if self.longest is None or len(framed.ids) <= self.longest:
            return framed
        if not truncate:
            raise InputError(
                f"the text has {len(framed.ids)} tokens, the model has places for {self.longest}; cut it into "
                "shorter ones, sentences for example"
            )
        return shortened(framed, self.tokenizer.encode_all(texts), self.longest)

    def _encoded(self, rows: Sequence[Framed]) -> Seen:
        width = max(len(row.ids) for row in rows)
        tokens = np.zeros((len(rows), width, 2), np.int64)
        for place, row in enumerate(rows):
            tokens[place, : len(row.ids), 0] = row.ids
            tokens[place, : len(row.ids), 1] = row.segments
        device = self.model.device
        where = Where.ragged(torch.tensor([len(row.ids) for row in rows], device=device))
        return stream_of(engine.compile(self.model), torch.from_numpy(tokens).to(device), where)

    def _fields(self) -> int:
        return fields_of(self.model)

    # --- heads ---

    def _heads(self) -> dict[str, torch.nn.Module]:
        return dict(self.model.heads.items()) if isinstance(self.model, Asked) else {}

    def _head(self, kind: str, verb: str) -> torch.nn.Module:
        heads = self._heads()
        if kind not in heads:
            raise self._cannot(verb)
        return heads[kind]

    def _classifies(self) -> bool:
        """A pooled head without classes gives a vector."""
        head = self._heads().get("pooled")
        return isinstance(head, Pooled) and head.scores is not None

    def _is_unit(self, unit: bool | None) -> bool:
        return self.pooling.unit if unit is None else unit

    def _tokens(self, p: Tensor, top_k: int) -> list[Prediction]:
        named = p[: self.tokenizer.size]  # a model may have logits of more tokens than there are, for round sizes
        top = named.topk(min(top_k, named.numel()))
        return [
            Prediction(self.tokenizer.decode([token]) or self.tokenizer.tokens([token])[0], chance)
            for token, chance in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ]

    def _tagged(self, logits: Tensor) -> Prediction:
        return predictions(logits, self.labels, "single_label_classification")[0]


class WordTagger(EncoderPipeline):
    """An encoder that was trained to label words: a text is taken apart into words first."""

    what = "a tagger, which tells a label of each word"

    def tag(self, texts: Any = None, *, words: Any = None) -> Any:  # overloads of `Verbs` tell what
        if words is not None:
            return super().tag(texts, words=words)
        one, given = one_or_many(texts, "text")
        found = self.tag_words([words_in(text) for text in given])
        return found[0] if one else found

    def respond(self, text: str) -> Response:
        tagged: TaggedWords = self.tag(text)
        return tagged.told()
