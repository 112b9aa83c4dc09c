"""What a mechanism is, in the words of its own documentation; masks and position codes drawn as `heed plot` does."""

from __future__ import annotations

import inspect
from typing import Any, Literal

from .. import mixers
from ..core.config import Config, kind_of, nearest
from ..core.errors import InputError
from ..parts.masks import MASKS, And, Or, Without
from ..parts.positions import POSITIONS
from ..views.plotting import plot
from .reading import Layer

MOST = 128  # tokens of a picture; a position code has one map for each of four heads
# Mixers with patterns of their own.
PATTERNS = ("bigbird", "longformer", "dilated", "transient_global", "local", "lsh", "clustered", "convolution")
# Settings without which a kind is none, for a picture of about 32 tokens.
EXAMPLES = {
    "window": "back=4",
    "atrous": "step=3",
    "sparse": "step=3",
    "strided": "stride=4",
    "fixed": "context=8 block=2",
    "prefix": "length=6",
    "segments": "length=8",
    "summaries": "context=8 block=2",
    "blocks": 'size=8 layouts=[["1000","1100","1110","1011"]]',
    "bigbird": "block=4 random=1",
    "longformer": "window=6 marks=[0]",
    "dilated": "segments=[8,16,32] dilations=[1,2,4]",
    "transient_global": "radius=3 block=8",
    "learned": "length=64",
    "unit": "length=64",
    "axial": "shape=[8,8] sizes=[64,64]",
}
KINDS: dict[str, tuple[str, ...]] = {
    "mask": (*(kind_of(one) for one in MASKS if one not in (And, Or, Without)), *PATTERNS),
    "position": tuple(kind_of(one) for one in POSITIONS),
}


class Drawn(Config):
    """What a page asks to be drawn."""

    what: Literal["mask", "position"]
    kind: str
    changes: str = ""  # settings, as in back=4 ahead=2
    tokens: int = 32
    token: str = ""  # of a mask: whom it sees, and who sees it


def kinds() -> dict[str, Any]:
    """What there is, with settings to begin with."""
    return {what: [{"kind": one, "changes": EXAMPLES.get(one, "")} for one in some] for what, some in KINDS.items()}


def drawn(asked: Drawn) -> dict[str, Any]:
    """A picture as numbers. Only kinds that are known here are drawn: a path is none of them."""
    if asked.kind not in KINDS[asked.what]:
        raise InputError(f"there is no {asked.what} {asked.kind!r}{nearest(asked.kind, KINDS[asked.what])}")
    if not 1 <= asked.tokens <= MOST:
        raise InputError(f"a picture is of 1 to {MOST} tokens, not {asked.tokens:,}")
    token = asked.token or None
    found = plot(asked.what, asked.kind, changes=asked.changes.split(), tokens=asked.tokens, token=token)
    return found.plain()


def about(layer: Layer) -> dict[str, Any]:
    """Of the mixer of a layer."""
    kind: Any = type(layer.mixer)
    text = inspect.getdoc(kind)
    if not text:
        raise InputError(f"{kind.__name__} does not say what it is")
    config = vars(kind).get("Config")
    ours = config is not None and kind.__module__.startswith(f"{mixers.__name__}.")
    return {
        "kind": layer.kind,
        "text": text,
        "paper": "" if config is None else config.paper,
        "page": f"docs/mechanisms/{config.model_fields['kind'].default}.md" if ours else "",
    }
