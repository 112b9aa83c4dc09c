"""Which pipeline a checkpoint gets: by its model, its heads, its tokenizer and the files beside it.

A pipeline is imported when a model is found that has it: text needs nothing of vision or speech.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import nn

from ..core.config import Data
from ..core.contract import Mixer
from ..core.errors import WeightsError
from ..core.interfaces import Asked, Encodes, LanguageModel, Matches, Sees
from ..text import holds
from ..weights import AUTHORS, Folder, Opened, open_
from ..weights.formats.folder import CONFIG
from .base import Pipeline, sidecar
from .results import Problem, Response

if TYPE_CHECKING:
    from ..models import AudioEncoder
    from ..text import Tokenizer
    from ..text.batch import Numbers
    from .attentions import Attentions, Inspected

GENERATION, PREPROCESSOR = "generation_config.json", "preprocessor_config.json"
SETTINGS, VOCABULARY = "tokenizer_config.json", "vocab.json"


class Bare(Pipeline):
    """A model without a file or a head that a pipeline needs: its `.model` is called with tensors and stamps."""

    def __init__(self, model: Mixer[Any], lack: str = "a tokenizer") -> None:
        self.model, self.lack = model.eval(), lack

    @property
    def what(self) -> str:  # what is missing is known when a folder is opened
        return f"a checkpoint without {self.lack}; its .model takes {self._takes()}"

    @property
    def can(self) -> tuple[str, ...]:
        from .attentions import shows_weights

        return ("attentions",) if self._reads_ids() and shows_weights(self.model) else ()

    def attentions(self, text: str | Numbers, target: str | None = None) -> Attentions:
        """The attention weights of every layer and head on these ids."""
        from .attentions import attentions_of

        return attentions_of(self.model, self.inspect(text, target))

    def inspect(self, text: str | Numbers, target: str | None = None) -> Inspected:
        """These ids, as they are."""
        from .attentions import Inspected, ids_in

        ids = ids_in(text)
        if ids is None or target is not None or not self._reads_ids():
            raise self._cannot("show attention weights of this")
        return Inspected(torch.tensor([ids], device=self.device), tuple(map(str, ids)))

    def _reads_ids(self) -> bool:
        """Whether ids alone are enough for a call."""
        return isinstance(self.model, LanguageModel) != (isinstance(self.model, Encodes) and not self._is_media())

    def _is_media(self) -> bool:
        from ..models import AudioEncoder

        return isinstance(self.model, Sees | Matches | AudioEncoder)

    def _takes(self) -> str:
        from ..models import AudioEncoder, Seq2seq

        match self.model:
            case Sees():
                return "images: see(images), [images, channels, height, width]"
            case Matches():
                return "images and ids: match(images, tokens, Where.run(rows, length))"
            case AudioEncoder():
                return "sounds: encode(sound, Where.run(rows, length))"
            case Seq2seq(encoder=AudioEncoder()):
                return "sounds and then ids: encode(sound, Where.run(rows, length))"
        return "ids (tokens, Where.run(rows, length))"

    def respond(self, text: str) -> Response:
        raise self._cannot("respond")


def _gguf(path: Path) -> Opened:
    from ..weights.formats import gguf

    return open_(gguf.read(path))


def load(path: Path, read: Callable[[Path], Opened] = _gguf) -> Pipeline:
    """The pipeline of a checkpoint folder or of a GGUF file; `read` reads the latter."""
    if path.is_file():
        return _file(path, read)
    inside = sorted(path.glob("*.gguf"))
    if not (path / CONFIG).is_file() and len(inside) == 1:
        return _file(inside[0], read)
    folder = Folder.open(path)
    if folder.family in AUTHORS:
        return Bare(AUTHORS[folder.family](folder))
    return pipeline_for(open_(folder.checkpoint), path, _tokenizer(path))


def _file(path: Path, read: Callable[[Path], Opened]) -> Pipeline:
    if path.suffix != ".gguf":
        raise WeightsError(
            f"{path} is not a checkpoint that heed opens; it opens folders with a config.json, and .gguf files. "
            f"Others may be converted first: heed convert {path} OUT"
        )
    from ..text import pretrained
    from ..weights.formats import gguf

    metadata = gguf.metadata(path)
    named = any(key.startswith("tokenizer.ggml.") for key in metadata)
    return pipeline_for(read(path), path, pretrained.from_gguf(metadata) if named else None)


def _tokenizer(folder: Path) -> Tokenizer | None:
    if not holds(folder):
        return None
    from ..text import pretrained

    return pretrained.read(folder)


def pipeline_for(opened: Opened, path: Path, tokenizer: Tokenizer | None) -> Pipeline:
    """The pipeline that a model, its heads and the files beside it allow."""
    pipeline = _pipeline(opened, path, tokenizer)
    pipeline.family = type(opened.family).__name__
    pipeline.opened, pipeline.beside = opened, path
    return pipeline


def _pipeline(opened: Opened, path: Path, tokenizer: Tokenizer | None) -> Pipeline:
    model = opened.model
    if isinstance(model, Sees):
        return _vision(opened, path)
    asked = isinstance(model, Asked) and len(model.heads) > 0
    if isinstance(model, LanguageModel) and not asked:
        return Bare(model) if tokenizer is None else _text(opened, path, tokenizer)
    from ..models import AudioEncoder

    if isinstance(model, AudioEncoder):
        return _sounds(opened, model, path)
    return Bare(model) if tokenizer is None else _encoder(opened, path, tokenizer)


def _text(opened: Opened, path: Path, tokenizer: Tokenizer) -> Pipeline:
    from .text import Text2TextGeneration, TextGeneration, target_of

    model, generation = opened.model, sidecar(path / GENERATION)
    encodes = isinstance(model, Encodes)
    if not encodes:  # a decoder alone needs no class of an encoder
        return TextGeneration(model, tokenizer)
    from ..models import AudioEncoder, Seq2seq

    if isinstance(model, Seq2seq) and isinstance(model.encoder, AudioEncoder):
        from .media.speech import SpeechRecognition
        from .media.speech_settings import SpeechSettings, features_told

        features = {"feature_size": opened.config.get("num_mel_bins"), **features_told(path)}
        told = {name: value for name, value in features.items() if value is not None}
        return SpeechRecognition(model, tokenizer, SpeechSettings.of(told, generation or opened.config, tokenizer))
    if isinstance(model, Seq2seq):
        target = target_of(opened.config, generation)
        return Text2TextGeneration(model, tokenizer, longest=_longest(model.encoder), target=target)
    return TextGeneration(model, tokenizer)


def _encoder(opened: Opened, path: Path, tokenizer: Tokenizer) -> Pipeline:
    from ..models import ClipTextEncoder
    from .encoder import EncoderPipeline
    from .media.pages import PageEncoder
    from .media.vision import TextEmbedding, ZeroShotImageClassification
    from .sentences import Sentences

    model, config = opened.model, opened.config
    if isinstance(model, ClipTextEncoder):
        return TextEmbedding(model, tokenizer, type(model).embed, _longest(model))
    if isinstance(model, Matches):
        from ..media.images import Preparation

        prepare, longest = Preparation.find(path), _longest(model.get_submodule("text"))
        if prepare is None:
            return Bare(model, f"a {PREPROCESSOR}")
        return ZeroShotImageClassification(model, tokenizer, prepare, longest)
    sidecar(path / GENERATION)  # which must be whole if it is there
    if isinstance(model, Encodes | LanguageModel):  # a decoder that is asked about a text reads it whole
        said = Sentences.of(path)
        kind = PageEncoder if _reads_boxes(model) else EncoderPipeline
        longest = min((limit for limit in (_longest(model), said.longest) if limit), default=None)
        return kind(model, tokenizer, _labels(config), said.pooling, longest, _problem(config))
    return Bare(model, "anything that heed can ask it")


def _vision(opened: Opened, path: Path) -> Pipeline:
    from ..media.images import Preparation
    from ..parts.outputs.heads import Pooled
    from ..weights.families.clip import ClipVision
    from .media.vision import ImageClassification, ImageEmbedding

    prepare, model = Preparation.find(path), opened.model
    if prepare is None:
        return Bare(model, f"a {PREPROCESSOR}")
    heads = dict(model.heads.items()) if isinstance(model, Asked) else {}
    head = heads.get("pooled")
    classes = isinstance(head, Pooled) and head.scores is not None
    if "distilled" in heads or (classes and not isinstance(opened.family, ClipVision)):  # CLIP's are no classes
        return ImageClassification(model, prepare, _labels(opened.config), _problem(opened.config))
    return ImageEmbedding(model, prepare)


def _sounds(opened: Opened, model: AudioEncoder, path: Path) -> Pipeline:
    from .media.ctc import CTCRecognition, CTCSettings
    from .media.hearing import SoundClassification
    from .media.speech_settings import features_of, features_told

    if "pooled" in model.heads:
        features = features_of(path)
        if features is None:
            return Bare(model, f"a {PREPROCESSOR}")
        return SoundClassification(model, features, _labels(opened.config), _problem(opened.config))
    if "tagged" not in model.heads:
        return Bare(model, "a head that labels frames (CTC)")
    if not (path / VOCABULARY).is_file():
        return Bare(model, f"a {VOCABULARY}")
    told = features_told(path), sidecar(path / VOCABULARY), sidecar(path / SETTINGS)
    return CTCRecognition(model, CTCSettings.of(*told))


def _labels(config: Data) -> list[str]:
    """The names of the classes, in order."""
    named = config.get("id2label")
    if not isinstance(named, dict):
        return []
    try:
        return [str(named[key]) for key in sorted(named, key=int)]
    except (ValueError, TypeError):
        return []


def _problem(config: Data) -> Problem | None:
    """What the logits of classes mean, if it is told."""
    named = config.get("problem_type")
    return next((known for known in get_args(Problem) if known == named), None)


def _reads_boxes(model: Mixer[Any]) -> bool:
    """Whether its tokens stand on a page."""
    from ..models.backbone import TokenBackbone

    return isinstance(model, TokenBackbone) and model.config.boxes is not None


def _longest(model: nn.Module) -> int | None:
    position = getattr(getattr(model, "embeddings", None), "position", None)
    return getattr(position, "longest", None)
