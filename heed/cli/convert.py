"""The command that turns checkpoints into checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Json, Sets, print_json


def convert(
    source: Annotated[
        Path, typer.Argument(help="A checkpoint: a folder, a .gguf file, a llama2.c .bin, a .pt; or a run.")
    ],
    target: Annotated[Path, typer.Argument(help="The folder to make, in the Hugging Face layout.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer file to bring along, for formats that keep it apart (llama2.c).")
    ] = None,
    shard: Annotated[float, typer.Option(min=0.001, help="Gigabytes of a weights file, at most.")] = 5.0,
    changes: Sets = None,
    as_json: Json = False,
) -> None:
    """Convert a checkpoint to safetensors that heed and others load. Pickles are opened in a process of their own.

    A run of heed's is edited: --set edits.kind=packed; without edits, its adapters (LoRA) are worked in.
    """
    from ..runs.convert import convert as run

    made = run(source, target, tokenizer=tokenizer, shard=int(shard * (1 << 30)), settings=changes or ())
    if as_json:
        print_json({"folder": str(target), "tensors": made.tensors, "bytes": made.bytes, "family": made.family})
    else:
        print(f"{target} holds {made.tensors} tensors, {made.bytes:,} bytes: heed run {target} ...")
