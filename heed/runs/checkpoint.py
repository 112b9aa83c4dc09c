"""Other people's checkpoints, ready for use: the model, its tokenizer, and what its files say about how it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from ..core.abilities import Matches, Reads, Sees, Writes
from ..core.config import Data, read_data
from ..core.contract import Mixer
from ..core.errors import ConfigError, InputError, WeightsError
from ..media.images import Preparation
from ..models import Listener, Seq2seq
from ..tasks import Ready, Response
from ..tasks.loaded import Continuer, Rewriter, target_of
from ..tasks.looking import Looker, Matcher
from ..tasks.reading import Pooling, Reader
from ..tasks.spell import Speller, Spelling
from ..tasks.transcribe import Dictation, Transcriber
from ..text import Tokenizer, foreign
from ..weights import AUTHORS, Folder, Opened, gguf, open_
from ..weights.folder import CONFIG

GENERATION, PREPROCESSOR = "generation_config.json", "preprocessor_config.json"
MODULES, SETTINGS = "modules.json", "tokenizer_config.json"
POOLS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first", "pooling_mode_max_tokens": "max"}


class Bare(Ready):
    """A model without a tokenizer: whoever uses it calls `.model` with ids and stamps."""

    what: ClassVar[str] = "a checkpoint without a tokenizer; its .model takes ids (tokens, Where.run(rows, length))"

    def __init__(self, model: Mixer[Any]) -> None:
        self.model = model

    def respond(self, text: str) -> Response:
        raise self._cannot("answer")


def load(path: Path) -> Ready:
    """The checkpoint of a folder or of a GGUF file, ready for use."""
    if path.is_file():
        return _file(path)
    inside = sorted(path.glob("*.gguf"))
    if not (path / CONFIG).is_file() and len(inside) == 1:
        return _file(inside[0])
    folder = Folder.open(path)
    if folder.family in AUTHORS:
        return Bare(AUTHORS[folder.family](folder))
    return ready(open_(folder.checkpoint), path, _tokenizer(path))


def _file(path: Path) -> Ready:
    if path.suffix != ".gguf":
        raise WeightsError(
            f"{path} is not a checkpoint that heed opens; it opens folders with a config.json, and .gguf files. "
            f"Others may be converted first: heed convert {path} OUT"
        )
    metadata = gguf.metadata(path)
    named = any(key.startswith("tokenizer.ggml.") for key in metadata)
    return ready(open_(gguf.read(path)), path, foreign.from_gguf(metadata) if named else None)


def _tokenizer(folder: Path) -> Tokenizer | None:
    return foreign.read(folder) if foreign.holds(folder) else None


def ready(opened: Opened, path: Path, tokenizer: Tokenizer | None) -> Ready:
    """The model in the form that its shape, its heads and the files beside it allow."""
    model, labels = opened.model, _labels(opened.config)
    if isinstance(model, Sees):
        return Looker(model, Preparation.of_folder(path), labels)
    if isinstance(model, Listener):
        return Speller(model, Spelling.of(*(_side(path, name) for name in (PREPROCESSOR, "vocab.json", SETTINGS))))
    if tokenizer is None:
        return Bare(model)
    if isinstance(model, Matches):
        return Matcher(model, tokenizer, Preparation.of_folder(path), _longest(model.get_submodule("text")))
    generation = _side(path, GENERATION)
    if isinstance(model, Seq2seq) and isinstance(model.encoder, Listener):
        heard = Dictation.of(_side(path, PREPROCESSOR), generation or opened.config, tokenizer)
        return Transcriber(model, tokenizer, heard)
    if isinstance(model, Seq2seq):
        return Rewriter(model, tokenizer, target_of(opened.config, generation), _longest(model.encoder))
    if isinstance(model, Writes):
        return Continuer(model, tokenizer)
    if isinstance(model, Reads):
        return Reader(model, tokenizer, labels, _pooling(path), _longest(model))
    return Bare(model)


def _side(path: Path, name: str) -> Data:
    """A file beside the weights that may be missing."""
    place = path / name
    if not place.is_file():
        return {}
    try:
        return read_data(place)
    except ConfigError as error:
        raise InputError(str(error)) from None


def _labels(config: Data) -> list[str]:
    """The names of the classes, in order."""
    named = config.get("id2label")
    if not isinstance(named, dict):
        return []
    try:
        return [str(named[key]) for key in sorted(named, key=int)]
    except (ValueError, TypeError):
        return []


def _pooling(path: Path) -> Pooling:
    """As sentence-transformers writes it down; without that, the mean, of length one."""
    settings = _side(path, "1_Pooling/config.json")
    pool: Any = next((ours for theirs, ours in POOLS.items() if settings.get(theirs)), "mean")
    listed = (path / MODULES).is_file()
    return Pooling(pool, unit=not listed or (path / "2_Normalize").is_dir() or "Normalize" in _text(path / MODULES))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[: 1 << 20]


def _longest(model: nn.Module) -> int | None:
    position = getattr(getattr(model, "front", None), "position", None)
    return getattr(position, "longest", None)
