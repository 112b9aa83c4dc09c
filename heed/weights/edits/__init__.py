"""Edits: changes to a built model from outside. `EDITS` is the table.

    edit(model, LoRA(rank=8, on="*.query"))
    edit(model, BitLinear(on="*.feedforward.*"))

No model class knows of them. They are part of a run's configuration, so that a trained run rebuilds itself; where
layers stand in a model is told by patterns over their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import BeforeValidator

from ...core.config import OneOf
from ...core.tables import Table, later
from .base import Edit as Edit
from .base import Swap as Swap
from .base import edit as edit

EDITS: Table[type[Edit]] = Table(
    __name__,
    {
        "lora": "lora:LoRA",
        "bitlinear": "bits:BitLinear",
        "bitlinear_v1": "bits:BitLinearV1",
        "packed": "bits:Packed",
        "quantised": "quantised:Quantised",
        "share": "share:Share",
    },
)

AnyEdit: TypeAlias = Annotated[Edit, OneOf(lambda: EDITS)]

if TYPE_CHECKING:
    from .bits import BitLinear as BitLinear
    from .bits import BitLinearV1 as BitLinearV1
    from .bits import Packed as Packed
    from .lora import LoRA as LoRA
    from .lora import load_adapters as load_adapters
    from .lora import merge as merge
    from .lora import save_adapters as save_adapters
    from .lora import unmerge as unmerge
    from .quantised import Quantised as Quantised
    from .share import Share as Share
else:
    __getattr__, __dir__ = later(
        __name__, dict.fromkeys(("load_adapters", "merge", "save_adapters", "unmerge"), "lora"), EDITS
    )


def _several(value: object) -> object:
    return (value,) if isinstance(value, Edit | dict) else value


SomeEdits: TypeAlias = Annotated[tuple[AnyEdit, ...], BeforeValidator(_several)]
