"""Vision pipelines: embeddings and classes of images (ViT, Swin, DINO), zero-shot classification (CLIP)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ... import engine
from ...core.contract import Where
from ...core.errors import InputError
from ...core.interfaces import Asked, Matches, Sees
from ...core.state import Seen
from ...media.images import Preparation
from ...parts.outputs.heads import Pool, Pooled, pooled
from ...text import Tokenizer
from ..attentions import Inspected, numbered
from ..base import AnyModel, Pipeline, one_or_many
from ..results import Problem, Response, classes_told, predictions, vector_told
from ..verbs import Many

if TYPE_CHECKING:
    from ...media.images import Source


BATCH = 16  # images that are encoded together
SIDE = 224  # of an image whose size nothing tells


class ImageEmbedding(Pipeline):
    """An image encoder without classes: it gives embeddings."""

    what = "an image encoder without such a head"
    reads = "image"

    def __init__(self, model: AnyModel, prepare: Preparation) -> None:
        self.model: AnyModel = model.eval()
        self.prepare = prepare
        _must_fit(model, prepare)

    @property
    def can(self) -> tuple[str, ...]:
        return ("embed_images",)

    @torch.no_grad()
    def embed_images(self, images: Source | Sequence[Source], *, unit: bool = True) -> Tensor:
        """The embedding of an image: its hidden states pooled by the head, or their mean. [channels]

        Of a list, one for each: [images, channels].
        """
        one, given = _images(images)
        vectors = torch.cat([self._vectors(seen) for seen in self._seen(given or [_blank(self.prepare)])])
        vectors = vectors[: len(given)]
        vectors = nn.functional.normalize(vectors, dim=-1) if unit else vectors
        return vectors[0] if one else vectors

    def respond(self, text: str) -> Response:
        return vector_told(self.embed_images(text))

    def inspect(self, text: Any, target: str | None = None) -> Inspected:
        """An image, whose tokens are called by row and column."""
        single, images = _images(text)
        if target is not None or not single:
            raise InputError("one image at a time is looked into, and there is no target; loop over the images")
        (batch,) = _batches(self.model, self.prepare, images)
        return Inspected(source=batch, sources=patches)

    def _seen(self, images: Sequence[Source]) -> Iterable[Seen]:
        if not isinstance(self.model, Sees):
            raise self._cannot("encode images")
        return map(engine.compile(self.model).see, _batches(self.model, self.prepare, images))

    def _heads(self) -> dict[str, nn.Module]:
        return dict(self.model.heads.items()) if isinstance(self.model, Asked) else {}

    def _vectors(self, seen: Seen) -> Tensor:
        head = self._heads().get("pooled")
        return pooled("mean", seen.parts[0], seen) if head is None else head(seen.parts[0], seen)


class ImageClassification(ImageEmbedding):
    """An image classifier, as a checkpoint has it."""

    what = "an image classifier"

    def __init__(
        self, model: AnyModel, prepare: Preparation, labels: Sequence[str] = (), problem: Problem | None = None
    ) -> None:
        super().__init__(model, prepare)
        self.labels, self.problem = tuple(labels), problem

    @property
    def can(self) -> tuple[str, ...]:
        return ("classify", *super().can)

    @torch.no_grad()
    def classify(self, given: Any, labels: Sequence[str] = ()) -> Any:  # overloads of `Verbs` tell what
        heads = self._heads()
        head = heads.get("pooled", heads.get("distilled"))
        if head is None:
            raise self._cannot("classify")
        if labels:
            raise InputError("the classes of this checkpoint are fixed; leave labels out")
        single, images = _images(given)
        logits = (head(seen.parts[0], seen) for seen in self._seen(images))
        found = [predictions(one, self.labels, self.problem) for some in logits for one in some]
        return found[0] if single else found

    def respond(self, text: str) -> Response:
        return classes_told(self.classify(text), most=5)

    def _vectors(self, seen: Seen) -> Tensor:
        """What the logits are made of."""
        head = self._heads().get("pooled")
        return head.vector(seen.parts[0], seen) if isinstance(head, Pooled) else pooled("mean", seen.parts[0], seen)


class TextEmbedding(Pipeline):
    """CLIP's text encoder: texts as embeddings of length one. `vectors` makes them of ids, of any length."""

    what = "a text encoder, which makes embeddings of texts"

    def __init__(
        self,
        model: AnyModel,
        tokenizer: Tokenizer,
        vectors: Callable[[Any, Tensor, Where], Tensor],
        longest: int | None = None,
    ) -> None:
        self.model: AnyModel = model.eval()
        self.tokenizer, self.vectors, self.longest = tokenizer, vectors, longest

    @property
    def can(self) -> tuple[str, ...]:
        return ("embed",)

    @torch.no_grad()
    def embed(self, texts: str | Many[str], *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        if pool is not None or unit is False:
            raise InputError("the embeddings of this model have one form, of length one; leave pool and unit out")
        single, given = one_or_many(texts, "text")
        rows = [one.ids for one in self.tokenizer.framed_all(given)]
        if self.longest is not None:
            rows = [[*row[: self.longest - 1], row[-1]] if len(row) > self.longest else row for row in rows]
        tokens = torch.zeros(len(rows), max(map(len, rows), default=1), dtype=torch.long)
        for place, row in enumerate(rows):
            tokens[place, : len(row)] = torch.tensor(row)
        model = engine.compile(self.model)
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.long, device=model.device)
        found = nn.functional.normalize(self.vectors(model, tokens.to(model.device), Where.ragged(lengths)), dim=-1)
        return found[0] if single else found

    def respond(self, text: str) -> Response:
        return vector_told(self.embed(text))


class ZeroShotImageClassification(TextEmbedding):
    """CLIP: texts and images as embeddings of one space, and classes that are named when they are needed."""

    what = "a model of images and texts"
    reads = "image"

    def __init__(self, model: AnyModel, tokenizer: Tokenizer, prepare: Preparation, longest: int | None = None) -> None:
        if not isinstance(model, Matches):
            raise InputError(f"a model of images and texts is needed; {type(model).__name__} is none")
        super().__init__(model, tokenizer, type(model).texts, longest)
        self.prepare, self._matches = prepare, model
        _must_fit(self.model, prepare)

    @property
    def can(self) -> tuple[str, ...]:
        return ("classify", "embed_images", *super().can)

    @torch.no_grad()
    def embed_images(self, images: Source | Sequence[Source]) -> Tensor:
        """The embedding of an image, of length one: [channels]; of a list, one for each: [images, channels]."""
        one, given = _images(images)
        batches = _batches(self.model, self.prepare, given or [_blank(self.prepare)])
        found = torch.cat(list(map(engine.compile(self._matches).images, batches)))[: len(given)]
        return found[0] if one else found

    @torch.no_grad()
    def classify(self, given: Any, labels: Sequence[str] = ()) -> Any:  # overloads of `Verbs` tell what
        _, named = one_or_many(labels, "text")
        if not named:
            raise InputError('name the classes: classify("photo.jpg", ["a photo of a cat", "a photo of a dog"])')
        single, images = _images(given)
        logits = self._matches.scores(self.embed_images(images), self.embed(named))
        found = [predictions(one, named, "single_label_classification") for one in logits]
        return found[0] if single else found

    def respond(self, text: str) -> Response:
        """The embedding of the image of that name, if there is one, otherwise of the text."""
        return vector_told(self.embed_images(text)) if _is_file(text) else super().respond(text)


# --- what is given ---


def patches(count: int) -> tuple[str, ...]:
    """The names of so many tokens of an image: row and column of a square, behind those that stand for all of it."""
    side = isqrt(count)
    before = count - side**2
    if before > 2:  # [CLS], and the token of a distilled model
        return numbered(count)
    return (*("[CLS]", "[DIST]")[:before], *(f"{row},{column}" for row in range(side) for column in range(side)))


def _images(given: Any) -> tuple[bool, list[Any]]:
    """Whether it is one image, and all images as a list: paths, or what else an image can be."""
    if isinstance(given, list | tuple):
        if any(isinstance(one, tuple) for one in given):
            raise InputError("the paths of images are needed, not pairs of texts")
        return False, list(given)
    if given is None or isinstance(given, Mapping | int | float):
        raise InputError(f"an image or a list of images (paths, for example) is needed, not {type(given).__name__}")
    return True, [given]


def _batches(model: AnyModel, prepare: Preparation, images: Sequence[Source]) -> Iterable[Tensor]:
    """Images as the weights are."""
    for begin in range(0, len(images), BATCH):
        yield prepare.batch(images[begin : begin + BATCH]).to(next(model.parameters()))


def _blank(prepare: Preparation) -> Tensor:
    """A stand-in where there is nothing to encode: of no images, too, the embeddings have a width."""
    height, width = prepare.crop or prepare.size or (prepare.shortest or SIDE,) * 2
    return torch.zeros(height, width, prepare.channels, dtype=torch.uint8)


def _must_fit(model: AnyModel, prepare: Preparation) -> None:
    """Raise unless images are prepared with the channels that the model takes."""
    if isinstance(model, Sees | Matches) and model.shown[0] != prepare.channels:
        raise InputError(
            f"the model takes images of {model.shown[0]} channels (num_channels), preprocessor_config.json "
            f"makes them of {prepare.channels}; give image_mean and image_std one number for each channel of the model"
        )


def _is_file(text: str) -> bool:
    """Whether a text is the path of a file; one that no path can be is not."""
    try:
        return Path(text).is_file()
    except OSError:  # too long for a name
        return False
