"""Images and texts that belong together, learnt by telling them from those that do not (CLIP)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import MinLen
from torch import Tensor

from ... import engine
from ...core.config import Size, Text
from ...core.errors import ConfigError, InputError
from ...core.interfaces import Matches
from ...data.base import Example, Examples
from ...parts.outputs.loss import NO_LABEL, Loss
from ...pipelines.base import AnyModel, Ids, Padded, Pipeline
from ...pipelines.media.vision import ZeroShotImageClassification
from ...pipelines.settings import GenerationConfig
from ...text.kinds import framing
from ..base import Batch, Item, Notify, places
from ..labels.base import LabelTask
from ..labels.scores import Numbers
from ..metrics import Metrics
from .base import MediaCorpus, Pixels
from .images import PictureTask

if TYPE_CHECKING:
    from ...text import Tokenizer

AT_ONCE = 64  # images or texts that are encoded together
MOST_CLASSES = 1000  # different texts, up to which each is a class of its own
NEAREST = (1, 5)  # among so many the partner is looked for


class ImageText(PictureTask):
    """Which text belongs to which image: L = ½ ( CE over texts + CE over images ) of the logits of a batch.

        logit_ij = e^s · cos( image_i, text_j ),   -log softmax_j( logit_ij )_i  and  -log softmax_i( logit_ij )_j

    Radford et al. 2021, Learning Transferable Visual Models From Natural Language Supervision, fig. 3. What an image is
    told apart from are the other texts of its piece of a batch, so that the loss depends on what stands together
    (training.accumulate, processes).
    """

    wordless: ClassVar[bool] = False

    kind: Literal["image_text"] = "image_text"
    template: Annotated[Text, MinLen(2)] = "{}"  # what a text becomes: "a photo of a {}" where the texts are names
    longest: Size = 77  # tokens of a text, its frame included; longer ones are cut

    @property
    def main(self) -> str:
        return "recall@1"

    @property
    def columns(self) -> tuple[str, ...]:
        return ("image", "text")

    def texts(self, example: Example) -> Sequence[str]:
        return (self.said(example[1]),)

    def said(self, text: str) -> str:
        """A text as it is read."""
        return self.template.replace("{}", text.strip())

    def equip(self, tokenizer: Tokenizer) -> Tokenizer:
        return framing(tokenizer)

    def must_fit(self, model: AnyModel) -> None:
        if not isinstance(model, Matches):
            raise ConfigError(
                f"an image_text task compares images with texts, which {type(model).__name__} cannot; use "
                "model.kind=clip"
            )
        if self.pairing is not None:
            raise ConfigError("task.augment: mixup makes one image of two, and no text says that; leave it out here")
        if "{}" not in self.template:
            raise ConfigError(f"task.template is {self.template!r}; {{}} stands for the text: 'a photo of a {{}}'")
        if (longest := places(model)) is not None and longest < self.longest:
            raise ConfigError(
                f"task.longest is {self.longest} tokens, the model has places for {longest}; set task.longest={longest}"
            )

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> MediaCorpus:
        known: dict[str, Ids] = {}

        def ids(row: Example) -> Ids:
            if row[1] not in known:
                framed = tokenizer.framed(self.said(row[1])).ids
                cut = framed if len(framed) <= self.longest else [*framed[: self.longest - 1], framed[-1]]
                known[row[1]] = np.array(cut, np.int32)
            return known[row[1]]

        return self.seen(examples, ids)

    def batch(self, items: Sequence[Item]) -> Batch:
        loaded = self.loaded(items)
        pixels = Pixels.of_images([one.numbers for one in loaded])
        labels = torch.arange(len(loaded))[:, None]
        return Batch(Padded.of([one.label for one in loaded]), labels, pixels, len(loaded))

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        if not isinstance(model, Matches) or batch.source is None:
            raise InputError("images and texts are compared by a model of both")
        texts = model.texts(batch.inputs.tokens, batch.inputs.where)
        logits = model.scores(model.images(batch.source.tokens), texts)
        real = batch.labels[:, 0] != NO_LABEL
        label = torch.arange(len(logits), device=logits.device).masked_fill(~real, NO_LABEL)
        ways = [F.cross_entropy(side, label, ignore_index=NO_LABEL, reduction="sum") for side in (logits, logits.mT)]
        total = (ways[0] + ways[1]) / 2
        return Loss(total, total.detach())

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> ZeroShotImageClassification:
        return ZeroShotImageClassification(model, tokenizer, self.prepared, self.longest)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        """Recall of the partner among all, either way; where texts come back, how often the right one is nearest."""
        LabelTask.no_generation(config)
        if not isinstance(pipeline, ZeroShotImageClassification):
            raise InputError(f"images and texts are to be compared, and this cannot: it is {pipeline.what}")
        corpus = self.corpus(examples, pipeline.tokenizer)
        kept = {sample.cell for sample in corpus.samples}
        texts = [self.said(row[1]) for row in examples if row[0] in kept]
        model, images = engine.compile(pipeline.model), list[Tensor]()
        if not isinstance(model, Matches):
            raise InputError("images and texts are compared by a model of both")
        with torch.no_grad():
            for begin in range(0, len(corpus.samples), AT_ONCE):
                batch = self.batch([self.fetch(one) for one in corpus.samples[begin : begin + AT_ONCE]])
                if batch.source is not None:
                    images.append(
                        model.images(batch.source.to(pipeline.model.device or torch.device("cpu")).tokens)
                        .double()
                        .cpu()
                    )
                if notify is not None:
                    notify(min(begin + AT_ONCE, len(texts)), len(texts))
        names = list(dict.fromkeys(texts))
        vectors = torch.cat(
            [pipeline.embed(names[begin : begin + AT_ONCE]).double().cpu() for begin in range(0, len(names), AT_ONCE)]
        )
        near = (torch.cat(images) @ vectors.mT).numpy()
        wanted = _places(names, texts)
        return {**recalls(near, wanted), **_as_classes(near, wanted), **corpus.unreadable.metrics()}

    def floors(self, train: Examples, examples: Examples) -> dict[str, Metrics]:
        """Always the text that most images of the training data have, and by chance among so many."""
        texts = [self.said(row[1]) for row in examples]
        names = list(dict.fromkeys(texts))
        wanted, known = _places(names, texts), [self.said(row[1]) for row in train]
        most = max(names, key=known.count) if len(names) <= MOST_CLASSES else names[0]
        right = 100 * float((wanted == names.index(most)).mean())
        told: dict[str, Metrics] = {"one text for all": {"recall@1": right}}
        if len(names) * 2 <= len(texts):
            told["one text for all"]["zero_shot_accuracy"] = right
        return told


def recalls(near: Numbers, wanted: Numbers) -> Metrics:
    """How often the partner is among the nearest, either way, in percent. [images, texts], [images]

    Several images may have one text: then any of them is right.
    """
    order = np.argsort(-near, axis=1, kind="stable")
    back = wanted[np.argsort(-near, axis=0, kind="stable")]  # of each text, whose text the nearest images have
    found: Metrics = {}
    for count in NEAREST:
        found[f"recall@{count}"] = 100 * float((order[:, :count] == wanted[:, None]).any(1).mean())
    for count in NEAREST:
        right = (back[:count] == np.arange(near.shape[1])).any(0)
        found[f"recall@{count} of images"] = 100 * float(right.mean())
    return {**found, "images": len(near), "texts": near.shape[1]}


def _as_classes(near: Numbers, wanted: Numbers) -> Metrics:
    """Where each text stands for many images it names a class, none of which a head was trained for."""
    if near.shape[1] * 2 > len(near) or near.shape[1] > MOST_CLASSES:
        return {}
    return {"zero_shot_accuracy": 100 * float((near.argmax(1) == wanted).mean())}


def _places(names: Sequence[str], texts: Sequence[str]) -> Numbers:
    """The number of each text."""
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers[text] for text in texts])
