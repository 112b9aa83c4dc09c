"""Peers, one file each. `PEERS` is the table: a new one is a file and a line.

Nothing of a peer is imported before it is asked for, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.config import nearest
from ...core.errors import InputError
from ..base import Contestant
from ..limits import Limits
from ..ours import Heed, Twin
from .bare import Bare
from .ctranslate2 import CTranslate2
from .llamacpp import LlamaCpp
from .onnxruntime import OnnxRuntime
from .rwkv import Rwkv
from .torch import Compiled, Torch
from .transformers import Transformers
from .xtransformers import XTransformers

PEERS: tuple[Contestant, ...] = (
    Twin(),
    Transformers(),
    CTranslate2(),
    LlamaCpp(),
    OnnxRuntime(),
    XTransformers(),
    Rwkv(),
    Torch(),
    Compiled(),
    Bare(),
)
EVERYONE: tuple[Contestant, ...] = (Heed(), *PEERS, Limits())


def named(name: str) -> Contestant:
    """The one of this name."""
    found = {contestant.name: contestant for contestant in EVERYONE}
    if name not in found:
        raise InputError(f"no peer is called {name!r}{nearest(name, found)}; there are {', '.join(found)}")
    return found[name]


def chosen(names: str | None) -> Sequence[Contestant]:
    """Peers by names with commas between them; all of them if none is named."""
    if names is None:
        return PEERS
    return [named(name.strip()) for name in names.split(",") if name.strip()]
