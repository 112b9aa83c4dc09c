"""Files that are damaged, missing or hostile: one kind of error, what is wrong and where, and nothing large is made."""

from __future__ import annotations

import json
import resource
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.models import Decoder
from heed.weights.formats.safetensors import INDEX, WEIGHTS, Cast, Held, Stored
from tests.weights.support import GOLDEN

GPT2 = GOLDEN / "gpt2" / "lm"
MANY = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good checkpoint, to be spoilt."""
    shutil.copytree(GPT2, tmp_path / "good", ignore=shutil.ignore_patterns("*puts*"))
    return tmp_path / "good"


def shards(folder: Path, *names: str) -> dict[str, str]:
    """Cut the weights into files of these names, and say which tensor is where."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    index: dict[str, str] = {}
    for number, file in enumerate(names):
        part = {name: tensor for place, (name, tensor) in enumerate(tensors.items()) if place % len(names) == number}
        save_file(part, folder / file, {"format": "pt"})
        index |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"weight_map": index}))
    return index


def logits(folder: Path) -> torch.Tensor:
    model = weights.load(folder).model
    assert isinstance(model, Decoder)
    with torch.no_grad():
        return model(torch.arange(6)[None], Where.run(1, 6))[0]


def answers(folder: Path) -> None:
    """Either it loads, or there is a message that names the place; any other exception is a fault."""
    message = str(folder)
    try:
        weights.load(folder)
    except WeightsError as error:
        message = str(error)
    assert str(folder) in message


# --- what is good ---


def test_one_file_or_many_is_the_same(folder: Path) -> None:
    whole = logits(folder)
    shards(folder, "model-00001-of-00003.safetensors", "b.safetensors", "c.safetensors")
    assert torch.equal(logits(folder), whole)


@pytest.mark.parametrize("size", [1, 5000, 10**9])
def test_export_in_files_of_any_size(folder: Path, tmp_path: Path, size: int) -> None:
    weights.write(weights.load(folder), tmp_path / "out", size)
    assert torch.equal(logits(tmp_path / "out"), logits(folder))
    files = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    if size == 10**9:
        assert files == [WEIGHTS]
        written, read = load_file(tmp_path / "out" / WEIGHTS), load_file(folder / WEIGHTS)
        assert written.keys() == read.keys()
        assert all(torch.equal(written[name], tensor) for name, tensor in read.items())
    else:
        assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
        index = json.loads((tmp_path / "out" / INDEX).read_text())
        held = {name: load_file(tmp_path / "out" / name) for name in files}
        assert index["weight_map"] == {name: file for file, tensors in held.items() for name in tensors}
        sizes = [sum(tensor.nbytes for tensor in tensors.values()) for tensors in held.values()]
        assert index["metadata"]["total_size"] == sum(sizes)
        assert all(used <= size or len(tensors) == 1 for used, tensors in zip(sizes, held.values(), strict=True))
    with pytest.raises(WeightsError, match="already there"):
        weights.write(weights.load(folder), tmp_path / "out")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_written_back_as_it_was(
    folder: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    half = {name: tensor.to(dtype) for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(half, folder / WEIGHTS, {"format": "pt"})
    opened = weights.load(folder)
    assert {parameter.dtype for parameter in opened.model.parameters()} == {torch.float32}
    weights.write(opened, tmp_path / "out")
    written = load_file(tmp_path / "out" / WEIGHTS)
    assert all(torch.equal(written[name], tensor) and written[name].dtype == dtype for name, tensor in half.items())


def test_whole_numbers_keep_their_type_in_another_precision() -> None:
    tensors = Held({"weight": torch.ones(2), "codes": torch.tensor([3, 200], dtype=torch.uint8)})
    cast = Cast(tensors, torch.float64)
    assert {name: (tensor.dtype, cast.like(name).dtype) for name, tensor in cast.items()} == {
        "weight": (torch.float64, torch.float64),
        "codes": (torch.uint8, torch.uint8),
    }


PEAK = """
import resource, sys
sys.path.insert(0, {root!r})
from heed import weights
import torch
def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
torch.nn.Linear(8, 8)(torch.zeros(1, 8))
weights.load({small!r})
before = peak()
model = weights.load({large!r}).model
sum(float(parameter.sum()) for parameter in model.parameters())  # mapped pages count when they are read
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="peak memory is read from Linux's /proc")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_loading_holds_the_model_once(folder: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    """At most 1.2 times the model: what is read is not held twice, not even as pages of a mapped file."""
    large = tmp_path / "large"
    large.mkdir()
    config = json.loads((folder / "config.json").read_text()) | {"n_embd": 768, "n_layer": 5, "n_head": 12}
    (large / "config.json").write_text(json.dumps(config | {"vocab_size": 40000, "n_positions": 64}))
    small = weights.load(folder)
    family = type(small.family).load(json.loads((large / "config.json").read_text()))
    model: Any = family.ours(Stored.of(folder)).build()
    dtypes = dict.fromkeys(load_file(folder / WEIGHTS), dtype) | {
        f"transformer.h.{layer}.{name.removeprefix('transformer.h.0.')}": dtype
        for name in load_file(folder / WEIGHTS)
        if name.startswith("transformer.h.0.")
        for layer in range(5)
    }
    told = config | {"vocab_size": 40000, "n_positions": 64}
    opened = weights.Opened(family, model, small.table, told, dtypes, small.shape)
    shutil.rmtree(large)
    weights.write(opened, large)
    size = sum(parameter.nbytes for parameter in model.parameters())
    root = str(Path(__file__).parents[3])
    script = PEAK.format(root=root, small=str(folder), large=str(large))
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert size < int(run.stdout) + (1 << 24)
    assert int(run.stdout) <= 1.2 * size


# --- what is not ---


def wrong_shape(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["transformer.h.0.mlp.c_fc.weight"] = torch.zeros(3, 5)
    del tensors["transformer.h.1.ln_1.bias"]
    tensors["transformer.h.0.mlp.c_fx.weight"] = torch.zeros(2)
    save_file(tensors, folder / WEIGHTS)


def untied(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + 1
    save_file(tensors, folder / WEIGHTS)


def claim(folder: Path) -> None:
    """A header that says a tensor has ten gigabytes."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [2500000000], "data_offsets": [0, 10**10]}}).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 64)


def long_header(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", 10**10) + b"{}")


def lost_shard(folder: Path) -> None:
    shards(folder, "a.safetensors", "b.safetensors")
    (folder / "b.safetensors").unlink()


def climbing(folder: Path) -> None:
    index = shards(folder, "a.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(index, "../good/a.safetensors")}))


def pickled_shard(folder: Path) -> None:
    index = shards(folder, "a.safetensors")
    (folder / "a.bin").write_bytes(b"")
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(index, "a.bin")}))


def twice(folder: Path) -> None:
    """Both shards hold a tensor; which of them is meant, nothing tells."""
    index = shards(folder, "a.safetensors", "b.safetensors")
    other = next(name for name, file in index.items() if file == "a.safetensors")
    held = load_file(folder / "b.safetensors")
    save_file(held | {other: load_file(folder / "a.safetensors")[other] + 1}, folder / "b.safetensors")


def elsewhere(folder: Path) -> None:
    """A tensor lies in another shard than the index says: one of the two is of another checkpoint."""
    index = shards(folder, "a.safetensors", "b.safetensors")
    index["transformer.wte.weight"] = {"a": "b.safetensors", "b": "a.safetensors"}[index["transformer.wte.weight"][0]]
    (folder / INDEX).write_text(json.dumps({"weight_map": index}))


def climbing_back(folder: Path) -> None:
    """As paths are written elsewhere."""
    index = shards(folder, "a.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(index, "..\\a.safetensors")}))


def foreign_tensor(folder: Path) -> None:
    index = shards(folder, "a.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": index | {"more": "a.safetensors"}}))


def configured(**changes: object) -> Any:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps(config))

    return change


SPOILT = {
    "cut off": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:5000]), "not a whole safetensors file"),
    "empty": (lambda f: (f / WEIGHTS).write_bytes(b""), "not a whole safetensors file"),
    "wrong shape": (
        wrong_shape,
        r"(?s)ln_1.bias \[32\] is missing.*c_fx.weight \[2\] is unknown.*needed is \[32, 128\]",
    ),
    "untied": (untied, "tied in this model, but differ by up to"),
    "a claim of 10 GB": (claim, "not a whole safetensors file"),
    "a header of 10 GB": (long_header, "not a whole safetensors file"),
    "a lost shard": (lost_shard, "not there: b.safetensors"),
    "a path that climbs": (climbing, "only files beside the index are read"),
    "a path that climbs elsewhere": (climbing_back, "only files beside the index are read"),
    "a tensor in two shards": (twice, "b.safetensors and a.safetensors both hold"),
    "a tensor in another shard than the index says": (elsewhere, "do not hold: transformer.wte.weight"),
    "a pickle as shard": (pickled_shard, "not a safetensors file"),
    "a tensor that no shard holds": (foreign_tensor, "do not hold: more"),
    "unknown type": (configured(model_type="gpt22"), "near names: gpt2, .*it loads .*gpt2"),
    "no type": (configured(model_type=None), "model_type"),
    "negative width": (configured(n_embd=-4), "n_embd is -4"),
    "a text as number": (configured(n_layer="two"), "n_layer is 'two'"),
    "endless layers": (configured(n_layer=10**12), "1000000000000 layers"),
    "endless width": (configured(n_embd=10**12, n_head=1), "width 1000000000000"),
    "heads that do not divide": (configured(n_head=5), "does not divide into 5 heads"),
    "unknown activation": (configured(activation_function="gelo"), "'gelo' is not one of"),
    "cross-attention": (configured(add_cross_attention=True), "add_cross_attention"),
    "no json": (lambda f: (f / "config.json").write_text("{"), "not valid json"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "table of named values"),
    "only a pickle": (lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), "heed convert .* OUT"),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), "neither model.safetensors nor"),
}


@pytest.mark.parametrize(("spoil", "message"), SPOILT.values(), ids=SPOILT)
@pytest.mark.timeout(30)  # layers without end would be built for hours
def test_a_bad_checkpoint_is_refused_in_words(folder: Path, spoil: Any, message: str) -> None:
    spoil(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(WeightsError, match=message):
        weights.load(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # kilobytes: nothing large was made


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_damage_to_the_weights_gives_anything_but_a_message(folder: Path, data: st.DataObject) -> None:
    whole = (GPT2 / WEIGHTS).read_bytes()
    head = 8 + struct.unpack("<Q", whole[:8])[0]
    place = data.draw(st.integers(0, head - 1))
    some = data.draw(st.binary(min_size=1, max_size=9))
    cut = data.draw(st.sampled_from([len(whole), head, head // 2, len(whole) - 1]))
    (folder / WEIGHTS).write_bytes((whole[:place] + some + whole[place + len(some) :])[:cut])
    answers(folder)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(sorted(json.loads((GPT2 / "config.json").read_text()))), value=JUNK)
def test_no_number_in_a_config_gives_anything_but_a_message(folder: Path, name: str, value: object) -> None:
    configured(**{name: value})(folder)
    answers(folder)
    shutil.copy(GPT2 / "config.json", folder / "config.json")
