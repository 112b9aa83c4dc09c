"""Adapters of the library peft: read with the checkpoint below them, written from runs that learnt by LoRA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import HeedError, RunError, WeightsError
from ..parts.outputs.heads import HeadConfig, several
from ..tasks import Task
from ..text import holds, pretrained
from ..weights import Folder, Opened
from ..weights.adapters.read import PeftAdapter, adapted
from ..weights.adapters.write import Tuned, write_adapter
from ..weights.formats.sidecars import bring
from ..weights.home.fit import Trained, at_base
from ..weights.home.heads import TASKS
from . import resolve
from .folder import BASE, Run

if TYPE_CHECKING:
    from ..pipelines import Pipeline

GENERATED = {"causal": "CAUSAL_LM", "translate": "SEQ_2_SEQ_LM", "rewrite": "SEQ_2_SEQ_LM", "denoise": "SEQ_2_SEQ_LM"}


def opened_with(folder: Path, base: Path | str | None = None, *, offline: bool | None = None) -> tuple[Opened, Path]:
    """A checkpoint with the adapters of a folder, and where its tokenizer lies.

    The base is the one that is named, else the one that the folder names: a path, there or beside it, or an id.
    """
    adapter = PeftAdapter.open(folder)
    named = str(base) if base is not None else adapter.config.base_model_name_or_path
    if not named:
        raise WeightsError(
            f"{folder} does not say which checkpoint it is for; name it: heed.load(BASE, adapter=FOLDER), or "
            "--set base=BASE to convert it"
        )
    inside = folder / named
    revision = adapter.config.revision if base is None else None
    place = inside if base is None and inside.is_dir() else resolve(named, revision=revision, offline=offline)
    return adapted(Folder.open(place).checkpoint, adapter), folder if holds(folder) else place


def load_adapted(folder: Path, base: Path | str | None = None, *, offline: bool | None = None) -> Pipeline:
    """The pipeline of a checkpoint with the adapters of a folder."""
    from ..pipelines.checkpoint import pipeline_for

    opened, beside = opened_with(folder, base, offline=offline)
    return pipeline_for(opened, beside, pretrained.read(beside) if holds(beside) else None)


def write_run(source: Path, target: Path, base: str | None = None) -> None:
    """The adapters of a run, with its head, for the checkpoint that it was fine-tuned from, or for that at `base`."""
    run = Run.open(source)
    origin, named = run.base, base or run.recipe.base
    if origin is None or named is None:
        raise RunError(f"{source} was not fine-tuned from a checkpoint, so there is none that an adapter could be for")
    try:
        below = Folder.open(resolve(named)).checkpoint
    except HeedError as error:
        raise RunError(
            f"the checkpoint below {source} is needed, to see that nothing else of it has changed: {error}. "
            "Name where it is now: --set base=PATH"
        ) from None
    model, task = run.model(), run.recipe.task
    told, config = at_base(Trained(run.shape, run.recipe.edits, origin, task.classes), origin)
    write_adapter(
        Tuned(model, told.table, config, below.tensors, named, _kind(task)),
        target,
        lambda fresh: bring(run.path / BASE, fresh),
    )


def _kind(task: Task) -> str | None:
    """What peft calls a task."""
    heads: tuple[HeadConfig, ...] = several(task.head() or ())
    if heads:
        return TASKS.get(type(heads[0]))
    return GENERATED.get(str(task.dump()["kind"]))
