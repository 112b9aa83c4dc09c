"""Peers do the same work as heed: with the same weights they write the same tokens. Who is missing is skipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from heed.bench.base import Contestant, nearest
from heed.bench.ours import Heed
from heed.bench.peers import PEERS, named
from heed.bench.rounds import batches
from heed.bench.shapes import Model
from heed.bench.work import Precision, Subject, Work
from tests.bench.support import small

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

WRITE: list[tuple[str, Subject, Model]] = [
    ("transformers", "decode", "gpt2"),
    ("transformers", "prefill", "llama"),
    ("transformers", "translate", "transformer"),
    ("ctranslate2", "decode", "llama"),
    ("ctranslate2", "prefill", "gpt2"),
    ("ctranslate2", "translate", "transformer"),
    ("llama.cpp", "decode", "gpt2"),
    ("llama.cpp", "decode", "llama"),
    ("llama.cpp", "prefill", "gpt2"),
    ("rwkv", "decode", "rwkv"),
    ("rwkv", "prefill", "rwkv"),
]
OTHERS: list[tuple[str, Subject, Model]] = [
    ("int8-twin", "decode", "bitnet"),
    ("llama.cpp", "decode", "bitnet"),
    ("rwkv", "decode", "retnet"),
    ("transformers", "encode", "bert"),
    ("ctranslate2", "encode", "bert"),
    ("onnxruntime", "encode", "bert"),
    ("transformers", "train", "transformer"),
    ("transformers", "train", "gpt-50k"),
    ("x-transformers", "train", "transformer"),
    ("x-transformers", "train", "gpt-50k"),
    ("x-transformers", "attention", "gpt2"),
    ("torch", "train", "transformer"),
    ("torch", "attention", "gpt2"),
    ("heed", "train", "gpt-50k"),
    ("heed", "train", "transformer"),
    ("heed", "attention", "gpt2"),
    ("heed", "encode", "bert"),
    ("heed", "decode", "retnet"),
]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


def able(name: str) -> Contestant:
    contestant = named(name)
    if not contestant.installed:
        pytest.skip(f'{contestant.distribution} is not installed: pip install "heed-attention[peers]"')
    return contestant


@pytest.mark.parametrize(("name", "subject", "model"), WRITE)
def test_a_peer_writes_what_heed_writes(room: Path, name: str, subject: Subject, model: Model) -> None:
    """In float32; scores of random weights lie far enough apart."""
    contestant, work = able(name), small(subject, model, room)
    (ours,) = (call() for call in Heed().prepare(work).ways.values())
    ready = contestant.prepare(work)
    for call in ready.ways.values():
        assert call() == ours
    assert ours.units == work.units
    assert len(ours.tokens) == (work.writes or 1)
    if subject == "decode":  # what is read for a token is the same, but for headers and padding
        assert ready.bytes == pytest.approx(Heed().prepare(work).bytes, rel=0.03)


@pytest.mark.parametrize(("name", "subject", "model"), OTHERS)
def test_everybody_does_all_the_work(room: Path, name: str, subject: Subject, model: Model) -> None:
    work = small(subject, model, room, "int8" if subject in {"decode", "encode"} else "fp32")
    contestant = able(name)
    assert contestant.precision(work)
    assert all(call().units == work.units for call in contestant.prepare(work).ways.values())


def test_graphs_of_onnxruntime_compute_what_transformers_computes(room: Path) -> None:
    able("onnxruntime")
    import onnxruntime

    from heed.bench.peers.onnxruntime import graphs
    from heed.bench.peers.transformers import loaded

    work = small("encode", "bert", room)
    ids, mask = (np.array(part) for part in next(batches([[9, 8, 7, 6, 5, 4], [11, 12]], 2)))
    with torch.no_grad():
        wanted = loaded(work, "eager")(torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state
    for graph in graphs(work, int8=False):
        session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
        (stream,) = session.run(None, {"ids": ids, "mask": mask})
        assert np.abs(stream - wanted.numpy())[mask > 0].max() < 1e-5  # eps 1e-7, times sums of some 100


@pytest.mark.parametrize("subject", ["decode", "prefill", "encode", "translate", "train", "attention", "load"])
def test_every_subject_has_a_peer(subject: Subject) -> None:
    models: dict[Subject, Model] = {"encode": "bert", "translate": "transformer", "train": "gpt-50k"}
    work = Work(subject, models.get(subject, "gpt2"), "int8", 1, 8)
    assert sum(peer.precision(work) is not None for peer in PEERS) >= 2


def test_the_nearest_precision_is_not_coarser_than_what_is_asked_for() -> None:
    known: dict[Precision, str] = {"fp32": "float32", "int8": "int8"}
    work = Work("decode", "gpt2", "int4", 1, 8)
    assert nearest(work, known, ("decode",)) == "int8"
    assert nearest(replace(work, precision="fp32"), known, ("decode",)) == "float32"
    assert nearest(replace(work, precision="int8"), {"fp32": "f32"}, ("decode",)) == "f32"
    assert nearest(work, known, ("encode",)) is None


def test_batches_are_sorted_and_padded() -> None:
    made = list(batches([[1, 2, 3], [4], [5, 6]], 2))
    assert made == [([[4, 0], [5, 6]], [[1, 0], [1, 1]]), ([[1, 2, 3]], [[1, 1, 1]])]
