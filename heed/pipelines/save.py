"""A pipeline as a folder in the Hugging Face layout: config, weights, tokenizer, generation config and what else.

A checkpoint is written back as it came, a model that heed trained in the layout of the family that it fits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.config import Data
from ..core.errors import InputError
from ..decode import AnyStrategy, Beam, Greedy, Sample
from ..text import holds
from ..weights import Opened, write
from ..weights.edits.quantised import is_quantised
from ..weights.formats.export import SHARD, new_folder
from ..weights.formats.quantised import laid_out
from ..weights.formats.sidecars import bring
from ..weights.home.fit import at_home, without_adapters
from .base import Pipeline
from .checkpoint import GENERATION
from .generation import GenerationPipeline
from .media import letters
from .media.ctc import CTCRecognition
from .text import Text2TextGeneration, TextGeneration

if TYPE_CHECKING:
    from ..text import Tokenizer

LEAST = 512  # positions that a config promises at least, where the model has no last one


def save(
    pipeline: Pipeline,
    folder: Path | str,
    shard: int = SHARD,
    further: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Write a pipeline as a new folder; files of weights have at most `shard` bytes, `further` writes what else."""

    def beside(fresh: Path) -> None:
        write_beside(pipeline, fresh)
        further(fresh)

    place = new_folder(folder)
    write(at_rest(pipeline), place, shard, beside)


def at_rest(pipeline: Pipeline) -> Opened:
    """The pipeline's model as a checkpoint that can be written."""
    if pipeline.opened is not None:
        opened = replace(pipeline.opened, model=without_adapters(pipeline.model))
        return laid_out(opened) if any(map(is_quantised, pipeline.model.modules())) else opened
    if pipeline.trained is None:
        raise InputError(
            "there is no Hugging Face layout to write this in: it was loaded from its authors' own layout, or the "
            "pipeline was made by hand; what heed.load gives of runs, GGUF files and Hugging Face folders can be saved"
        )
    return at_home(pipeline.model, pipeline.trained, length=_length(pipeline), tokens=_tokens(pipeline))


def write_beside(pipeline: Pipeline, fresh: Path) -> None:
    """Tokenizer, generation config, preprocessors: copied where there are files, else written."""
    if pipeline.beside is not None and pipeline.beside.is_dir():
        bring(pipeline.beside, fresh)
    if isinstance(pipeline, GenerationPipeline):
        if not holds(fresh):
            told(pipeline).save_all(fresh)
        _generation(pipeline, fresh / GENERATION)
    if isinstance(pipeline, CTCRecognition) and pipeline.trained is not None:
        letters.write(pipeline.tokenizer, fresh)


def told(pipeline: GenerationPipeline) -> Tokenizer:
    """The tokenizer as other libraries use it: it puts around a text what the pipeline would."""
    tokenizer = pipeline.tokenizer
    if pipeline.trained is None or tokenizer.told.roles is not None:
        return tokenizer
    from ..text.tokenizer_config import Frame, declared

    names = {
        key: tokenizer.convert_ids_to_tokens(index) for key, index in _special(pipeline).items() if index is not None
    }
    seq2seq = isinstance(pipeline, Text2TextGeneration)
    return declared(tokenizer, names, Frame("$A eos_token", "$A eos_token $B eos_token") if seq2seq else None)


def _special(pipeline: Pipeline) -> dict[str, int | None]:
    """Special tokens of a model that heed trained. A language model reads an end token before every text."""
    if pipeline.reads:  # images: what they are beside is told by the base
        return {}
    tokenizer = pipeline.tokenizer
    if not isinstance(pipeline, GenerationPipeline):
        return {"pad_token": tokenizer.pad}
    begin = tokenizer.begin if isinstance(pipeline, Text2TextGeneration) else tokenizer.end
    found = {"bos": begin, "eos": tokenizer.end, "pad": tokenizer.pad, "unk": tokenizer.unknown}
    return {f"{name}_token": index for name, index in found.items()}


def _tokens(pipeline: Pipeline) -> Data:
    """The same as a config.json has it."""
    found = _special(pipeline)
    named = {f"{key}_id": index for key, index in found.items() if index is not None and key != "unk_token"}
    if not isinstance(pipeline, Text2TextGeneration):
        return named
    return {**named, "decoder_start_token_id": found["bos_token"], "forced_eos_token_id": None}


def _length(pipeline: Pipeline) -> int:
    match pipeline:
        case TextGeneration():
            return pipeline.context
        case Text2TextGeneration():
            return max(pipeline.longest, LEAST)
    return LEAST


def _generation(pipeline: GenerationPipeline, path: Path) -> None:
    """How texts are generated, unless a file says so already."""
    if path.exists() or pipeline.trained is None:
        return
    tokens = {name: index for name, index in _tokens(pipeline).items() if index is not None}
    ends = list(pipeline.tokenizer.ends)
    several = {"eos_token_id": ends} if len(ends) > 1 else {}
    longest = {"max_new_tokens": pipeline.longest} if isinstance(pipeline, Text2TextGeneration) else {}
    data = {**tokens, **several, **longest, **_strategy(pipeline.strategy)}
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _strategy(strategy: AnyStrategy) -> Data:
    """A strategy in the words of a generation_config.json."""
    match strategy:
        case Beam():
            return {
                "num_beams": strategy.beams,
                "length_penalty": strategy.length_penalty,
                "early_stopping": strategy.early,
            }
        case Sample():
            limits = {"top_k": strategy.top_k or 0, "top_p": strategy.top_p, "min_p": strategy.min_p}
            given = {name: value for name, value in limits.items() if value is not None}
            return {"do_sample": True, "temperature": strategy.temperature, **given, **_repetition(strategy.repetition)}
        case Greedy():
            return {"do_sample": False, **_repetition(strategy.repetition)}
    return {}


def _repetition(penalty: float) -> Data:
    return {} if penalty == 1.0 else {"repetition_penalty": penalty}
