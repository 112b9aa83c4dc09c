"""Models that look at images, in use: classes of an image, and which of some texts says what is on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ..core.abilities import Asked, Matches, Sees
from ..core.contract import Where
from ..core.errors import InputError
from ..media.images import Preparation
from ..parts.heads import Pool
from ..text import Tokenizer
from .base import AnyModel
from .ready import Guess, Ready, Response

BATCH = 16  # images that are looked at together


class Looker(Ready):
    """A classifier of images that somebody else trained."""

    what: ClassVar[str] = "a model that looks at images, without such a head"

    def __init__(self, model: AnyModel, prepare: Preparation, labels: Sequence[str] = ()) -> None:
        self.model: AnyModel = model.eval()
        self.prepare, self.labels = prepare, tuple(labels)

    @torch.no_grad()
    def classify(self, given: Sequence[str | tuple[str, str]], labels: Sequence[str] = ()) -> list[list[Guess]]:
        heads = dict(self.model.heads.items()) if isinstance(self.model, Asked) else {}
        head = heads.get("pooled", heads.get("distilled"))
        if head is None or not isinstance(self.model, Sees):
            raise self._cannot("classify")
        if labels:
            raise InputError("the classes of this checkpoint are fixed; leave labels out")
        found = list[list[Guess]]()
        for images in _batches(self.prepare, given):
            seen = self.model.see(images.to(_floats(self.model)))
            found += [ranked(p, self.labels) for p in head(seen.parts[0], seen).double().softmax(-1)]
        return found

    def respond(self, text: str) -> Response:
        (classes,) = self.classify([text])
        told = "\n".join(f"{one.p:6.1%}  {one.label}" for one in classes[:5])
        return Response(told, {"classes": [vars(one) for one in classes]})


class Matcher(Ready):
    """CLIP in use: texts and images as vectors of one room, and classes that are named when they are needed."""

    what: ClassVar[str] = "a model of images and texts"

    def __init__(self, model: AnyModel, tokenizer: Tokenizer, prepare: Preparation, longest: int | None = None) -> None:
        self.model: AnyModel = model.eval()
        self.tokenizer, self.prepare, self.longest = tokenizer, prepare, longest

    @torch.no_grad()
    def embed(self, texts: Sequence[str], *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        if pool is not None or unit is False:
            raise InputError("the vectors of this model have one form, of length one; leave pool and unit out")
        rows = [one.ids for one in self.tokenizer.framed_all(list(texts))]
        if self.longest is not None:
            rows = [[*row[: self.longest - 1], row[-1]] if len(row) > self.longest else row for row in rows]
        width = max(map(len, rows), default=0)
        tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=self.model.device)
        where = Where.ragged(torch.tensor([len(row) for row in rows], device=self.model.device))
        return self._matches().texts(tokens, where)

    @torch.no_grad()
    def embed_images(self, images: Sequence[str]) -> Tensor:
        """One vector per image file: [images, channels]."""
        model, kind = self._matches(), _floats(self.model)
        return torch.cat([model.images(some.to(kind)) for some in _batches(self.prepare, images)])

    @torch.no_grad()
    def classify(self, given: Sequence[str | tuple[str, str]], labels: Sequence[str] = ()) -> list[list[Guess]]:
        if not labels:
            raise InputError('name the classes: classify(["photo.jpg"], ["a photo of a cat", "a photo of a dog"])')
        images = self.embed_images([one for one in given if isinstance(one, str)])
        scores = self._matches().scores(images, self.embed(labels))
        return [ranked(p, labels) for p in scores.double().softmax(-1)]

    def respond(self, text: str) -> Response:
        vector = self.embed([text])[0].tolist()
        return Response(" ".join(f"{number:.4f}" for number in vector), {"vector": vector})

    def _matches(self) -> Matches:
        if not isinstance(self.model, Matches):
            raise self._cannot("match")
        return self.model


def ranked(p: Tensor, labels: Sequence[str]) -> list[Guess]:
    """Every class with its chance, the likeliest first. Classes that nobody named have numbers."""
    names = labels if len(labels) == len(p) else [f"LABEL_{number}" for number in range(len(p))]
    return sorted((Guess(name, one) for name, one in zip(names, p.tolist(), strict=True)), key=lambda one: -one.p)


def _batches(prepare: Preparation, given: Sequence[str | tuple[str, str]]) -> list[Tensor]:
    paths = [one for one in given if isinstance(one, str)]
    if len(paths) != len(given):
        raise InputError("the paths of images are needed, not pairs of texts")
    return [prepare.batch(paths[begin : begin + BATCH]) for begin in range(0, len(paths), BATCH)]


def _floats(model: AnyModel) -> torch.dtype:
    return next(model.parameters()).dtype
