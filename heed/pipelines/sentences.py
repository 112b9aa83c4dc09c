"""The files of sentence-transformers beside an encoder: how an embedding is pooled, and how long a text may be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..parts.outputs.heads import Pool
from .base import sidecar
from .encoder import Pooling

MODULES, SENTENCES = "modules.json", "sentence_bert_config.json"
LARGE = 1 << 20  # characters of such a file, at most
POOLS: dict[str, Pool] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}


@dataclass(frozen=True)
class Sentences:
    """How embeddings are pooled, and how many tokens of a text are encoded, if that is said."""

    pooling: Pooling
    longest: int | None

    @classmethod
    def of(cls, folder: Path) -> Sentences:
        """As the files say; without any, the mean of the tokens, of length one. What heed cannot do is refused."""
        longest = sidecar(folder / SENTENCES).get("max_seq_length")
        limit = longest if type(longest) is int and longest > 0 else None
        if not (folder / MODULES).is_file():
            return cls(Pooling(), limit)
        pool: Pool = "mean"
        unit = False
        for kind, place in _modules(folder / MODULES):
            match kind:
                case "Transformer":
                    pass
                case "Pooling":
                    pool = _pool(folder / place / "config.json")
                case "Normalize":
                    unit = True
                case _:
                    raise InputError(f"{folder / MODULES} names a {kind} module, which heed does not have")
        return cls(Pooling(pool, unit), limit)


def _modules(path: Path) -> Iterator[tuple[str, str]]:
    """The kind of each module and the folder of its settings, which must lie beside the file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= LARGE else None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, list) or not all(isinstance(module, dict) for module in found):
        raise InputError(f"{path} must hold a list of modules")
    for module in found:
        kind, place = module.get("type"), module.get("path", "")
        if not isinstance(kind, str) or not isinstance(place, str) or (place != Path(place).name and place != ""):
            raise InputError(f"{path} must name the type of each module, and a folder beside it")
        yield kind.rpartition(".")[2], place


def _pool(path: Path) -> Pool:
    settings = sidecar(path)
    if "pooling_mode" in settings:  # newer files name it
        named: Any = {"cls": "first", "lasttoken": "last"}.get(str(settings["pooling_mode"]), settings["pooling_mode"])
        chosen = [named]
    else:
        chosen = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
        chosen = [POOLS.get(name, name) for name in chosen] or ["mean"]
    if len(chosen) != 1 or chosen[0] not in POOLS.values():
        known = ", ".join(POOLS.values())
        raise InputError(f"{path} pools by {' and '.join(map(str, chosen))}; heed pools by one of {known}")
    pool: Pool = chosen[0]
    return pool
