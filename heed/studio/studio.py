"""What is open in a studio: models by name, runs by name, and the readings that pages ask about."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from ..core.config import nearest
from ..core.errors import HeedError, InputError
from ..core.interfaces import LanguageModel
from ..mixers import Attention, Cross
from ..pipelines import Pipeline
from .expense import expense
from .following import following
from .influence import MOST as ASKED
from .influence import Influence, influence
from .maps import Floats, alike, comma_separated, message, of_heads, packed, tile
from .mechanisms import about
from .reading import Layer, Reading
from .scenes import CROSS, DECODER, ENCODER, Given, scene, takes
from .steps import attention_steps, state_steps

MODELS, READINGS = 2, 8  # that are kept
ROOM = 1 << 30  # bytes of all readings' weights
LIKE = 6  # heads that are named as being alike
PAIRS = 1 << 18  # pairs of a map, up to which heads are compared as they are and not by their thumbnails


class Forgotten(HeedError):
    """A reading that is not kept any more."""


@dataclass
class Studio:
    """`sources`: models that may be opened, by name, and nothing else may be. `runs`: run folders with curves."""

    sources: Mapping[str, Path]
    runs: Mapping[str, Path]
    load: Callable[[Path], Pipeline]
    lock: RLock = field(default_factory=RLock)  # a model is called, and looked into, by one request at a time
    _models: OrderedDict[str, Pipeline] = field(default_factory=OrderedDict)
    _readings: OrderedDict[str, tuple[str, Reading]] = field(default_factory=OrderedDict)
    _influence: OrderedDict[tuple[str, str, int, bool], Influence] = field(default_factory=OrderedDict)

    def pipeline(self, name: str) -> Pipeline:
        """A model, opened when it is first asked for."""
        if name not in self.sources:
            raise InputError(f"there is no model {name!r} here{nearest(name, self.sources)}")
        with self.lock:
            if name not in self._models:
                self._models[name] = self.load(self.sources[name])
                while len(self._models) > MODELS:
                    self._models.popitem(last=False)
            self._models.move_to_end(name)
            return self._models[name]

    def told(self, name: str) -> dict[str, Any]:
        """A model, in words and numbers."""
        from ..pipelines.base import short_count, weight_count

        pipeline = self.pipeline(name)
        model: Any = pipeline.model
        longest = model.longest if isinstance(model, LanguageModel) else None
        return {
            "name": name,
            "what": pipeline.what,
            "class": type(model).__name__,
            "family": pipeline.family,
            "parameters": short_count(weight_count(model)),
            "longest": longest,
            "takes": takes(pipeline),
        }

    def read(self, name: str, given: Given) -> dict[str, Any]:
        """Run a model on an input, and tell what there is to look at."""
        key = hashlib.sha256(f"{name}\0{given.model_dump_json()}".encode()).hexdigest()[:20]
        with self.lock:
            if key not in self._readings:
                pipeline = self.pipeline(name)
                self._readings[key] = name, Reading(pipeline.model, scene(pipeline, given))
            self._readings.move_to_end(key)
            self._forget()
            return {"id": key, "model": name, **_described(self._readings[key][1])}

    def reading(self, key: str) -> Reading:
        """One that was made."""
        with self.lock:
            if key not in self._readings:
                raise Forgotten("this text is not kept any more; read it again")
            self._readings.move_to_end(key)
            return self._readings[key][1]

    def _forget(self) -> None:
        def held() -> int:
            return sum(reading.nbytes for _, reading in self._readings.values())

        while len(self._readings) > READINGS or (len(self._readings) > 1 and held() > ROOM):
            key, _ = self._readings.popitem(last=False)
            self._influence = OrderedDict((at, one) for at, one in self._influence.items() if at[0] != key)

    # --- what pages ask ---

    def thumbnails(self, key: str, part: str) -> bytes:
        """All heads of all layers of a part, small: one block of float32 per layer that shows weights."""
        layers = self.reading(key).parts.get(part, [])
        shown = [layer for layer in layers if layer.heads]
        told = [{"layer": one.depth, "shape": list(one.thumbs.shape), "peaks": one.peaks} for one in shown]
        return packed({"layers": told}, b"".join(one.thumbs.astype("<f4").tobytes() for one in shown))

    def map(self, key: str, part: str, depth: int, head: str) -> bytes:
        """One head's map, whole, or its overview."""
        with self.lock:
            return message(self._values(key, part, depth, head))

    def tile(self, key: str, at: tuple[str, int, str], row: int, column: int) -> bytes:
        """A part of a large map as it is."""
        with self.lock:
            return tile(self._values(key, *at), row, column)

    def exact(self, key: str, at: tuple[str, int, str], row: int, column: int) -> dict[str, Any]:
        """The numbers of a pair's row and column, as they were computed."""
        with self.lock:
            values = self._values(key, *at)
        _must_be_within(values, row, column)
        across, down = values[row].astype(float), values[:, column].astype(float)
        rank = int((across > across[column]).sum()) + 1
        return {"weight": across[column], "rank": rank, "row": across.tolist(), "column": down.tolist()}

    def table(self, key: str, part: str, depth: int, head: str) -> str:
        """A map as comma-separated values."""
        with self.lock:
            reading, values = self.reading(key), self._values(key, part, depth, head)
            rows, columns = _names(reading, reading.layer(part, depth))
        return comma_separated(values, rows, columns)

    def alike(self, key: str, part: str, depth: int, head: int) -> dict[str, Any]:
        """The heads of the same part whose maps are most like this one's."""
        with self.lock:
            reading = self.reading(key)
            layer = reading.layer(part, depth)
            others = [one for one in reading.parts[part] if one.heads and one.shape == layer.shape]
            whole = layer.shape[0] * layer.shape[1] <= PAIRS
            each = [(reading.weights(one) if whole else one.thumbs).reshape(one.heads, -1) for one in others]
        places = [(one.depth, index) for one in others for index in range(one.heads)]
        _must_have(layer, head)
        found = alike(each[others.index(layer)][head], np.concatenate(each))
        order = [place for place in np.argsort(-found, kind="stable") if places[place] != (depth, head)][:LIKE]
        return {
            "heads": [{"layer": places[at][0], "head": places[at][1], "cosine": float(found[at])} for at in order],
            "by": "weights" if whole else "thumbnails",
        }

    def influence(self, key: str, part: str, depth: int, *, exact: bool) -> bytes:
        """The norms of the Jacobian of one mixer, with their correlation with its weights."""
        with self.lock:
            reading = self.reading(key)
            layer = reading.layer(part, depth)
            at = (key, part, depth, exact)
            if at not in self._influence:
                self._influence[at] = influence(layer.mixer, layer.x, layer.where, exact=exact)
            norms = self._influence[at]
            told: dict[str, Any] = {"kind": layer.kind, "probes": norms.probes, "correlation": None, "heads": []}
            if layer.heads and layer.shape == norms.norms.shape:
                weights = reading.weights(layer)
                told["correlation"] = norms.correlation(np.abs(weights).mean(0))
                told["heads"] = [norms.correlation(weights[head]) for head in range(layer.heads)]
            ahead = np.triu(norms.norms, 1)
            told["ahead"] = float(ahead.max(initial=0.0))  # the largest influence of a token on one before it
            told["streams"] = layer.mixer.streams
            return message(norms.norms, **told)

    def steps(self, key: str, part: str, depth: int, head: int, token: int) -> dict[str, Any]:
        """How a head makes what a token takes away; of a recurrent mixer, how its state goes on."""
        with self.lock:
            reading = self.reading(key)
            layer = reading.layer(part, depth)
            if isinstance(layer.mixer, Attention | Cross):
                return attention_steps(layer.mixer, layer.x, layer.where, head, token)
            if layer.x.shape[1] > ASKED:
                raise InputError(f"states are shown of at most {ASKED} tokens; this text has {layer.x.shape[1]:,}")
            return state_steps(layer.mixer, layer.x, layer.where)

    def about(self, key: str, part: str, depth: int) -> dict[str, Any]:
        """What the mixer of a layer is."""
        return about(self.reading(key).layer(part, depth))

    def cost(self, name: str) -> dict[str, Any]:
        """What a model costs as its texts grow."""
        with self.lock:
            return expense(self.pipeline(name))

    def next(self, key: str, place: int) -> dict[str, Any]:
        """What may come after a token."""
        with self.lock:
            reading = self.reading(key)
            name, _ = self._readings[key]
            if reading.logits is None or not reading.scene.ids:
                raise InputError("this model does not tell a next token")
            return following(self.pipeline(name), reading.logits, reading.scene.ids, place)

    def _values(self, key: str, part: str, depth: int, head: str) -> Floats:
        reading = self.reading(key)
        layer = reading.layer(part, depth)
        if head not in ("mean", "max"):
            if not (head.isdecimal() and len(head) < 6):
                raise InputError(f"a head is a number, mean or max, not {head[:20]!r}")
            _must_have(layer, int(head))
        return of_heads(reading.weights(layer), head)


def _described(reading: Reading) -> dict[str, Any]:
    parts = {}
    for part, layers in reading.parts.items():
        rows, columns = _names(reading, layers[0])
        parts[part] = {
            "tokens": rows,
            "keys": columns,
            "layers": [
                {
                    "kind": layer.kind,
                    "name": layer.name,
                    "heads": layer.heads,
                    "signed": layer.signed,
                    "shape": list(layer.shape),
                    "streams": layer.mixer.streams,
                    "steps": _steps(layer),
                }
                for layer in layers
            ],
        }
    return {"parts": parts, "ids": list(reading.scene.ids), "next": reading.logits is not None}


def _steps(layer: Layer) -> str:
    """Which kind of steps a layer can show."""
    if isinstance(layer.mixer, Attention | Cross):
        return "softmax"
    return "state" if layer.mixer.streams else ""


def _must_have(layer: Layer, head: int) -> None:
    if not 0 <= head < layer.heads:
        raise InputError(
            f"layer {layer.depth} ({layer.kind}) has {layer.heads} heads that show weights, no head {head}"
        )


def _must_be_within(values: Floats, row: int, column: int) -> None:
    if not (0 <= row < values.shape[0] and 0 <= column < values.shape[1]):
        raise InputError(
            f"the map has {values.shape[0]} rows and {values.shape[1]} columns; {row}, {column} is outside"
        )


def _names(reading: Reading, layer: Layer) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens that look, and those that are looked at; numbers where they are no tokens of the text."""
    rows, columns = layer.shape if layer.heads else (layer.x.shape[1],) * 2
    if layer.part == CROSS:
        return reading.scene.names(DECODER, rows), reading.scene.names(ENCODER, columns)
    return reading.scene.names(layer.part, rows), reading.scene.names(layer.part, columns)
