"""The command that turns checkpoints into checkpoints."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import counted
from .options import Group, HubOptions, Json, Sets, print_json, spread


@dataclass(frozen=True)
class ConvertOptions(Group):
    """How a checkpoint is written."""

    panel = "Writing"

    layout: Annotated[
        str,
        typer.Option(
            help="Of a run: huggingface, which others load; heed, which keeps it a run; peft, its adapters alone."
        ),
    ] = "huggingface"
    type: Annotated[str | None, typer.Option(help="Of a .gguf file: f32, f16 (the default) or q8_0.")] = None
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer file to bring along, for formats that keep it apart (llama2.c).")
    ] = None
    shard: Annotated[float, typer.Option(min=0.001, help="Gigabytes of a weights file, at most.")] = 5.0
    quantise: Annotated[
        str | None,
        typer.Option(
            help="Quantise the weights: int8, int4 ..., or keep (those of a GGUF file). Only heed reads that."
        ),
    ] = None
    text: Annotated[
        Path | None, typer.Option(help="With --quantise: a text to measure on what is lost (language models).")
    ] = None


@spread
def convert(
    source: Annotated[
        str,
        typer.Argument(help="A run; a checkpoint: a folder, a .gguf file, a llama2.c .bin, a .pt; or a hub id."),
    ],
    target: Annotated[Path, typer.Argument(help="The folder to make, in the Hugging Face layout; or a .gguf file.")],
    options: ConvertOptions,
    hub: HubOptions,
    changes: Sets = None,
    as_json: Json = False,
) -> None:
    """Convert a run or a checkpoint to a folder, or a GGUF file, that others load. Pickles are opened apart.

    A run of heed's goes home: adapters (LoRA) are worked in; weights, tokenizer and configs are laid out as the family
    that it came from, or fits, has them. It stays a run with --layout heed, or edited: --set edits.kind=packed. With
    --quantise the folder holds quantised weights (codes, one scale per row or block), and heed loads them so.
    """
    from ..runs.convert import convert as run
    from ..runs.convert import measured

    if options.text is not None and options.quantise is None:
        raise typer.BadParameter("--text measures what --quantise loses; name a precision, too: --quantise int8")
    place = hub.resolve(source, pickles=True)
    measure = None if options.text is None else measured(place, options.text)
    made = run(
        place,
        target,
        tokenizer=options.tokenizer,
        shard=int(options.shard * (1 << 30)),
        settings=changes or (),
        quantise=options.quantise,
        layout=options.layout,
        kind=options.type,
    )
    cost = None if measure is None else measure(target)
    if as_json:
        found = {"folder": str(target), **asdict(made)}
        print_json(found if cost is None else {**found, "cost": asdict(cost)})
        return
    held = f"{counted(made.tensors, 'tensor')}, {made.bytes:,} bytes ({made.family})"
    print(f"{target} holds {held}: heed run {target} ...")
    if made.layout == "peft":
        print("peft loads it onto the base that adapter_config.json names.")
    if cost is not None:
        print(cost.told())
    elif options.quantise is not None:
        print("What it lost is measured on a text of yours: --text FILE. Only heed reads this folder.")
