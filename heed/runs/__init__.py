"""Run folders: written by training, taken by `heed.load`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..core.errors import ConfigError, RunError, WeightsError
from ..core.tables import gc_paused, later

if TYPE_CHECKING:
    import torch

    from ..pipelines import Pipeline
    from ..weights.edits.quantised import Bits
    from .folder import Run as Run
    from .recipe import Recipe as Recipe
    from .recipe import find as find
    from .training import Training as Training
else:
    __getattr__, __dir__ = later(
        __name__, {"Run": "folder", "Recipe": "recipe", "find": "recipe", "Training": "training"}
    )


@gc_paused()
def load(
    path: Path | str, device: torch.device | str | None = None, *, quantise: Bits | Literal["keep"] | None = None
) -> Pipeline:
    """The pipeline of a model: of a run folder, of a checkpoint folder (Hugging Face's or authors'), of a GGUF file.

    What it can do depends on it: generate, chat, translate, embed, fill, classify, tag, transcribe. `quantise` makes
    int8 or int4 codes and scales of its weights: smaller, quicker on a CPU, a little less exact; "keep" leaves those
    of a GGUF file as they are stored (q8_0, q4_0). A quantised folder (`heed convert --quantise`) stays quantised.
    """
    if quantise == "keep":
        return _kept(Path(path), device)
    return _loaded(path, device) if quantise is None else _quantised(path, device, quantise)


def _quantised(path: Path | str, device: torch.device | str | None, bits: Bits) -> Pipeline:
    from ..weights.edits import Quantised, edit
    from ..weights.edits.quantised import bits_of, is_quantised

    change = Quantised(bits=bits_of(bits))
    pipeline = _loaded(path, device)
    if any(map(is_quantised, pipeline.model.modules())):
        raise WeightsError(f"{path} is quantised already; load it without quantise, or quantise what it was made of")
    edit(pipeline.model, change)
    return pipeline


def _kept(place: Path, device: torch.device | str | None) -> Pipeline:
    from ..pipelines.checkpoint import load as load_checkpoint
    from ..weights.formats import gguf_quantised as ggufkept
    from ..weights.formats.folder import CONFIG

    inside = place if place.is_file() or not place.is_dir() else next(place.glob("*.gguf"), place)
    if not inside.is_file() or inside.suffix != ".gguf" or (place / CONFIG).is_file():
        raise WeightsError(f'quantise="keep" is for the q8_0 and q4_0 matrices of a GGUF file; {place} is none')
    return _moved(load_checkpoint(inside, ggufkept.read), device)


def _loaded(path: Path | str, device: torch.device | str | None) -> Pipeline:
    place = Path(path)
    if not place.exists():
        raise RunError(f"{path} is not a folder or a file; give a run folder, a checkpoint folder or a .gguf file")
    if place.is_file() or _is_checkpoint(place):
        from ..pipelines.checkpoint import load as load_checkpoint  # loading a run needs none of it

        return _moved(load_checkpoint(place), device)
    from .folder import Run

    run = Run.open(place)
    return run.recipe.task.pipeline(run.model().to(device), run.tokenizer)


def _moved(pipeline: Pipeline, device: torch.device | str | None) -> Pipeline:
    if device is not None:
        pipeline.model.to(device)
    return pipeline


def _is_checkpoint(folder: Path) -> bool:
    """A run's config.json has a task; other people's have a model_type."""
    from ..core.config import read_data
    from ..weights.formats.folder import CONFIG

    if not (folder / CONFIG).is_file():
        return any(folder.glob("*.gguf"))
    try:
        return "model_type" in read_data(folder / CONFIG)
    except ConfigError:
        return False
