"""The command that turns checkpoints into checkpoints."""

from __future__ import annotations

from dataclasses import asdict
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
    quantise: Annotated[
        str | None,
        typer.Option(
            help="Quantise the weights: int8, int4 ..., or keep (those of a GGUF file). Only heed reads that."
        ),
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="With --quantise: a text to measure on what is lost (language models).")
    ] = None,
    changes: Sets = None,
    as_json: Json = False,
) -> None:
    """Convert a checkpoint to safetensors that heed and others load. Pickles are opened in a process of their own.

    A run of heed's is edited: --set edits.kind=packed; without edits, its adapters (LoRA) are worked in. With
    --quantise the folder holds quantised weights (codes, one scale per row or block), and heed loads them so.
    """
    from ..runs.convert import convert as run
    from ..runs.convert import measured

    if text is not None and quantise is None:
        raise typer.BadParameter("--text measures what --quantise loses; name a precision, too: --quantise int8")
    measure = None if text is None else measured(source, text)
    size, settings = int(shard * (1 << 30)), changes or ()
    made = run(source, target, tokenizer=tokenizer, shard=size, settings=settings, quantise=quantise)
    cost = None if measure is None else measure(target)
    if as_json:
        found = {"folder": str(target), "tensors": made.tensors, "bytes": made.bytes, "family": made.family}
        print_json(found if cost is None else {**found, "cost": asdict(cost)})
        return
    print(f"{target} holds {made.tensors} tensors, {made.bytes:,} bytes: heed run {target} ...")
    if cost is not None:
        print(cost.told())
    elif quantise is not None:
        print("What it lost is measured on a text of yours: --text FILE. Only heed reads this folder.")
