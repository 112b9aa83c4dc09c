"""Two configurations of one model say the same: what is left open is filled in, what only training needs left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...core.config import Data
from ...core.contract import MixerConfig
from ...models import AudioEncoder, Decoder, Encoder, Seq2seq, Shape
from ...models.backbone import TokenBackbone
from ...parts.attention.multihead import HeadedConfig
from ...parts.feedforward import FeedForward, Gated

LEARNT_WITH = ("dropout",)  # what changes nothing once a model is trained


class Difference(NamedTuple):
    """A setting that two configurations disagree about."""

    place: str
    ours: object
    theirs: object


def plain(shape: Shape) -> Data:
    """All settings of a model that change what it computes, each written out."""
    if isinstance(shape, Seq2seq.Config) and isinstance(shape.encoder, Encoder.Config):
        sides = {"encoder": plain(shape.encoder), "decoder": plain(shape.decoder)}
        return {"kind": shape.kind, "shared": shape.shared, **sides}
    if isinstance(shape, Encoder.Config | Decoder.Config):
        return _bare_table(_written_out(shape))
    told = _bare_table(shape.dump())
    if isinstance(shape, AudioEncoder.Config):
        told.pop("vocabulary", None)  # which its head has
    return told


def differences(ours: Data, theirs: Data) -> list[Difference]:
    """Where they disagree, each place once: what all blocks have alike is told for one of them."""
    found = dict.fromkeys(_differences("", ours, theirs))
    return list(found)


def _written_out(shape: TokenBackbone.Config) -> Data:
    mixers = [_filled(shape.mixer_of(block), shape.width) for block in range(shape.blocks)]
    inner = [_filled(shape.feedforward_of(block), shape.width) for block in range(shape.blocks)]
    cross = {} if shape.cross is None else {"cross": _filled(shape.cross, shape.width)}
    return {**shape.dump(), "mixer": mixers, "feedforward": inner, **cross}


def _filled(config: MixerConfig, width: int) -> Data:
    """Defaults that depend on the width or on other settings."""
    given = config.dump()
    if isinstance(config, HeadedConfig):
        size = config.size(width)
        biases = {name: config.bias if given.get(name) is None else given[name] for name in ("key_bias", "out_bias")}
        scale = size**-0.5 if config.scale is None else config.scale
        sizes = {"kv_heads": config.kv_heads or config.heads, "head_size": size, "scale": round(scale, 12)}
        return {**given, **sizes, **biases}
    if isinstance(config, FeedForward.Config | Gated.Config):
        return {**given, "hidden": hidden(config, width)}
    return given


def hidden(config: FeedForward.Config | Gated.Config, width: int) -> int:
    """Channels within a feed-forward."""
    if config.hidden is not None:
        return config.hidden
    return config.build(width).up.out_features


def _bare_table(table: Mapping[str, Any]) -> Data:
    """Without what only training needs, and without what is not there."""
    return {key: _bare(one) for key, one in table.items() if key not in LEARNT_WITH and one is not None}


def _bare(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _bare_table(value)
    return [_bare(one) for one in value] if isinstance(value, list | tuple) else value


def _differences(place: str, ours: Any, theirs: Any) -> Iterator[Difference]:
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.get("kind") == theirs.get("kind"):
        for key in dict.fromkeys((*ours, *theirs)):
            yield from _differences(f"{place}.{key}" if place else key, ours.get(key), theirs.get(key))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, two in zip(ours, theirs, strict=True):
            yield from _differences(place, one, two)
    elif ours != theirs:
        yield Difference(place, _told(ours), _told(theirs))


def _told(value: Any) -> object:
    """A part by its kind alone; nothing as nothing."""
    if isinstance(value, dict) and "kind" in value:
        return value["kind"]
    return str(value) if isinstance(value, list | dict) else value
