"""A class that is built from its configuration, called as other libraries call theirs: what to write instead.

Attention(64, 8)  ->  Attention.Config(heads=8).build(64)
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from .config import Config
from .errors import ConfigError

# What other libraries call a width and a number of heads.
WIDTH = ("width", "embed_dim", "d_model", "dim", "hidden_size")
OURS = {"num_heads": "heads", "nhead": "heads", "n_heads": "heads", "num_layers": "depth", "vocab_size": "vocabulary"}


def must_be_given_config(owner: type, given: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise if the constructor of this class takes a configuration and gets something else."""
    first = given[0] if given else named.get("config")
    if isinstance(first, Config) or next(iter(_parameters(owner)), "") != "config":
        return
    config = config_of(owner)
    if config is not None:
        raise ConfigError(
            f"{owner.__name__} is built from its configuration; write {_written(owner, config, given, named)}"
        )


def _parameters(owner: type) -> list[str]:
    return list(inspect.signature(owner.__init__).parameters)[1:]  # type: ignore[misc]  # whatever it is, it is called


def config_of(owner: type) -> type[Config] | None:
    """The configuration that this class or one of its bases nests."""
    nested = (vars(base)["Config"] for base in owner.__mro__ if "Config" in vars(base))
    return next((config for config in nested if isinstance(config, type) and issubclass(config, Config)), None)


def _written(owner: type, config: type[Config], given: Sequence[Any], named: Mapping[str, Any]) -> str:
    """The call that was meant, as far as what was given tells: a width comes first, then the number of heads."""
    known = config.model_fields
    numbers = [value for value in given if isinstance(value, int)]
    said = {OURS.get(name, name): value for name, value in named.items()}
    width = next((said[name] for name in WIDTH if name in said), numbers[0] if numbers else "width")
    fields = {name: repr(value) for name, value in said.items() if name in known}
    if len(numbers) > 1 and "heads" in known:
        fields.setdefault("heads", str(numbers[1]))
    for name, field in known.items():
        if field.is_required():
            fields.setdefault(name, str(width) if name == "width" else "...")
    built = ", ".join(inspect.signature(config.build).parameters.keys() - {"self"})  # type: ignore[attr-defined]
    settings = ", ".join(f"{name}={value}" for name, value in fields.items())
    return f"{owner.__name__}.Config({settings}).build({width if built else ''})"
