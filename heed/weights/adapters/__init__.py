"""Adapters (LoRA) in the layout of the library peft: adapter_config.json and adapter_model.safetensors.

    opened = adapted(Folder.open("base").checkpoint, PeftAdapter.open("adapter"))     # the base with its adapters
    write_adapter(Tuned(model, base, named="base"), "adapter")                       # and back

A layer of theirs that is several of ours (query, key and value of GPT-2) has one adapter there and several here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.tables import later

if TYPE_CHECKING:
    from .config import AdapterConfig as AdapterConfig
    from .read import PeftAdapter as PeftAdapter
    from .read import adapted as adapted
    from .write import Tuned as Tuned
    from .write import write_adapter as write_adapter
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            "AdapterConfig": "config",
            "PeftAdapter": "read",
            "adapted": "read",
            "Tuned": "write",
            "write_adapter": "write",
        },
    )
