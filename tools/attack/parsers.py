"""What `guided` asks: of a loader the part that understands a file, in Python alone and in a millisecond."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

from .targets import TARGETS, Target, Use


def _tensors(folder: Path, out: Path, draw: Random) -> None:
    from heed.weights.formats.safetensors import Stored

    stored = Stored.of(folder)
    for name in stored:
        stored.like(name)


def _config(folder: Path, out: Path, draw: Random) -> None:
    from heed.weights import Folder
    from heed.weights.families import base, kind_of

    checkpoint = Folder.open(folder).checkpoint
    base.understood(kind_of(checkpoint), checkpoint)


def _gguf(folder: Path, out: Path, draw: Random) -> None:
    from heed.text import pretrained
    from heed.weights.formats import gguf

    gguf.stored(folder / "model.gguf")
    if draw.random() < 0.5:
        gguf.read(folder / "model.gguf")
    else:
        pretrained.from_gguf(gguf.metadata(folder / "model.gguf"))


def _llama2c(folder: Path, out: Path, draw: Random) -> None:
    from heed.text import pretrained
    from heed.weights.formats import llama2c

    pretrained.from_llama2c(folder / "tok.bin", llama2c.read(folder / "stories.bin").config["vocab_size"])


def _tokenizer(folder: Path, out: Path, draw: Random) -> None:
    from heed.text import pretrained

    pretrained.read(folder)


def _run(folder: Path, out: Path, draw: Random) -> None:
    from heed.runs import Run, records
    from heed.train import checkpoint

    run = Run.open(folder)
    damage = [run.damage(), *map(checkpoint.damage, checkpoint.found(run))]
    repr((damage, run.recipe, run.evaluated, run.base, records.history(folder / "metrics.jsonl")))


def _shards(folder: Path, out: Path, draw: Random) -> None:
    from heed.runs import Run
    from heed.train import checkpoint

    run = Run.open(folder)
    repr([checkpoint.damage(place) for place in checkpoint.found(run)])
    checkpoint.Checkpoint.load(run)


def _peft(folder: Path, out: Path, draw: Random) -> None:
    from heed.weights.adapters import PeftAdapter

    adapter = PeftAdapter.open(folder)
    repr((list(adapter.problems()), [adapter.scale(module) for module in adapter.modules]))


def _request(folder: Path, out: Path, draw: Random) -> None:
    import json

    from heed.serve.api.app import ROUTES
    from heed.serve.api.shapes.requests import without_neutral
    from heed.serve.api.wire.body import parsed
    from heed.serve.api.wire.refusal import typed

    path = json.loads((folder / "head.json").read_bytes())["path"]
    kinds = [route.asks for route in ROUTES if route.path == path and route.asks is not None]
    typed(kinds[0], without_neutral(parsed((folder / "body.json").read_bytes())))


def _guided(name: str, use: Use | None = None, *focus: str) -> Target:
    return replace(TARGETS[name], use=use or TARGETS[name].use, focus=focus or TARGETS[name].focus)


GUIDED = {  # a tokenizer.json and parquet files are read by libraries of others, which are not instrumented
    "safetensors": _guided("safetensors", _tensors),
    "index": _guided("index", _tensors, "*.index.json"),
    "config": _guided("config", _config, "config.json"),
    "gguf": _guided("gguf", _gguf),
    "llama2c": _guided("llama2c", _llama2c),
    "tokenizer": _guided("tokenizer", _tokenizer, "*.txt", "*.model", "vocab.json", "*_config.json", "*_[mt]*s*.json"),
    "data": _guided("data", None, "*.txt", "*.csv", "*.tsv", "*.jsonl", "*.gz"),
    "recipe": _guided("recipe"),
    "run": _guided("run", _run, "*.json", "*.jsonl", "*SHA256SUMS"),
    "shards": _guided("shards", _shards, "*/layout.json", "*/progress.json", "*SHA256SUMS"),
    "peft": _guided("peft", _peft, "*.json", "*.safetensors"),
    "corpus": _guided("corpus", None, "*.conll*", "*.jsonl", "*.json", "*.tsv", "*ubyte*", "*.npz"),
    "request": _guided("request", _request, "body.json"),
}
