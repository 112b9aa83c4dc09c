"""Run folders: written by training, taken by `heed.load`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Never

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

ADAPTER = "adapter_config.json"  # of a folder that holds an adapter, not a model


@gc_paused()
def load(
    path: Path | str,
    device: torch.device | str | None = None,
    *,
    dtype: torch.dtype | str | None = None,
    quantise: Bits | Literal["keep", 8, 4] | None = None,
    adapter: Path | str | None = None,
    revision: str | None = None,
    offline: bool | None = None,
    **unknown: Never,
) -> Pipeline:
    """The pipeline of a model: of a run folder, a checkpoint folder, a GGUF file, or of the hub by its id ("gpt2").

    What it can do depends on it: generate, chat, translate, embed, fill, classify, tag, transcribe. What is on this
    machine comes first; else `path` is an id, "org/name" or "org/name:file.gguf", whose files are fetched once and
    kept in the usual cache: at a `revision`, or with `offline` not at all. `dtype` is what to compute in: "auto" = as
    the weights are stored, None = at least float32. `quantise` makes int8 or int4 codes and scales of its weights:
    smaller, quicker on a CPU, a little less exact; "keep" leaves those of a GGUF file as they are stored (q8_0, q4_0).
    A quantised folder (`heed convert --quantise`) stays quantised. `adapter` is a folder of peft's (LoRA) that was
    learnt for the checkpoint at `path`; such a folder may also be the `path` itself, if it names its checkpoint.
    """
    if unknown:
        from ..core.foreign_names import refuse_unknown

        refuse_unknown("heed.load", unknown, ("device", "dtype", "quantise", "adapter", "revision", "offline"))
    target = None if device is None else _device(device)  # before anything is fetched
    if not isinstance(path, str | Path):
        raise RunError(f"heed.load takes a path or the id of a model as text, not {type(path).__name__}")
    place = resolve(path, revision=revision, offline=offline)
    if adapter is not None or (place / ADAPTER).is_file():
        pipeline = _adapted(place, adapter, offline=offline)
    else:
        pipeline = _kept(place) if quantise == "keep" else _loaded(place)
    if dtype is not None:
        _cast(pipeline, dtype)
    if quantise is not None and quantise != "keep":
        _quantise(pipeline, quantise, place)
    if target is not None:
        pipeline.model.to(target)
    return pipeline


def resolve(
    path: Path | str, *, revision: str | None = None, offline: bool | None = None, pickles: bool = False
) -> Path:
    """The path of a model: one that is here, or that of the files of an id, which are fetched from the hub once."""
    given = Path(path).expanduser()
    if revision is None and given.exists():
        return given  # needs nothing of the hub
    from ..weights.hub import resolve as of_hub

    return of_hub(path, revision=revision, offline=offline, pickles=pickles)


def save(pipeline: Pipeline, folder: Path | str) -> None:
    """Write a model as a folder that Hugging Face's libraries load: `pipeline.save(folder)`."""
    pipeline.save(folder)


def _device(given: torch.device | str) -> torch.device:
    from ..core.devices import device_of

    return device_of(given)


def _quantise(pipeline: Pipeline, given: Bits | Literal[8, 4], place: Path) -> None:
    from ..weights.edits import Quantised, edit
    from ..weights.edits.quantised import bits_of, is_quantised

    change = Quantised(bits=bits_of(given))
    if any(map(is_quantised, pipeline.model.modules())):
        raise WeightsError(f"{place} is quantised already; load it without quantise, or quantise what it was made of")
    edit(pipeline.model, change)
    if pipeline.opened is not None:
        pipeline.opened = replace(pipeline.opened, edits=(*pipeline.opened.edits, change))


def _cast(pipeline: Pipeline, given: torch.dtype | str) -> None:
    """Compute in this precision, and write so, too."""
    from ..core.devices import dtype_of

    opened = pipeline.opened
    stored = None if opened is None else next((one for one in opened.dtypes.values() if one.is_floating_point), None)
    if given == "auto":
        if stored is not None:
            pipeline.model.to(stored)
        return
    dtype = dtype_of(given)
    pipeline.model.to(dtype)
    if opened is not None:
        name = "torch_dtype" if "torch_dtype" in opened.config else "dtype"
        told = {**opened.config, name: str(dtype).removeprefix("torch.")}
        pipeline.opened = replace(opened, dtypes={}, config=told)


def _kept(place: Path) -> Pipeline:
    from ..pipelines.checkpoint import load as load_checkpoint
    from ..weights.formats import gguf_quantised as ggufkept
    from ..weights.formats.folder import CONFIG

    inside = place if place.is_file() or not place.is_dir() else next(place.glob("*.gguf"), place)
    if not inside.is_file() or inside.suffix != ".gguf" or (place / CONFIG).is_file():
        raise WeightsError(f'quantise="keep" is for the q8_0 and q4_0 matrices of a GGUF file; {place} is none')
    return load_checkpoint(inside, ggufkept.read)


def _loaded(place: Path) -> Pipeline:
    if place.is_file() or _is_checkpoint(place):
        from ..pipelines.checkpoint import load as load_checkpoint  # loading a run needs none of it

        return load_checkpoint(place)
    from .folder import Run

    return Run.open(place).pipeline()


def _adapted(place: Path, adapter: Path | str | None, *, offline: bool | None) -> Pipeline:
    from .adapters import load_adapted

    if adapter is None:
        return load_adapted(place, offline=offline)
    return load_adapted(Path(adapter).expanduser(), place, offline=offline)


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
