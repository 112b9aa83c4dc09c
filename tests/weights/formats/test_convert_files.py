"""Files that are not Hugging Face folders: llama2.c's .bin, and pickles, which are opened in another process only."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from heed.core.errors import WeightsError
from heed.weights.formats import llama2c
from heed.weights.formats import pickles as pickled

transformers.utils.logging.disable_progress_bar()
Tensors = dict[str, Tensor]

# --- llama2.c ---

SHAPE: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 29,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5,
}
HEADER = (24, 40, 3, 6, 3, 29, 16)
LAYER = {
    "attention_norm": "input_layernorm",
    "wq": "self_attn.q_proj",
    "wk": "self_attn.k_proj",
    "wv": "self_attn.v_proj",
    "wo": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "w1": "mlp.gate_proj",
    "w2": "mlp.down_proj",
    "w3": "mlp.up_proj",
}
NORMS = ("attention_norm", "ffn_norm")


def made(folder: Path, tied: bool) -> tuple[Any, Tensors]:
    """A random Llama of transformers, and its tensors as it stores them."""
    torch.manual_seed(2)
    config = transformers.AutoConfig.for_model(**SHAPE, tie_word_embeddings=tied)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    return model, load_file(folder / "model.safetensors")


def interleaved(tensor: Tensor, heads: int) -> Tensor:
    return tensor.reshape(heads, 2, 2, -1).swapaxes(1, 2).reshape(tensor.shape)


def exported(tensors: Tensors, version: int) -> bytes:
    """What llama2.c's export.py writes."""
    tied = "lm_head.weight" not in tensors

    def layers(kind: str) -> list[Tensor]:
        found = [tensors[f"model.layers.{layer}.{LAYER[kind]}.weight"] for layer in range(3)]
        heads = {"wq": 6, "wk": 3}.get(kind)
        return [interleaved(tensor, heads) for tensor in found] if heads else found

    embed, norm = tensors["model.embed_tokens.weight"], tensors["model.norm.weight"]
    if version == 0:
        head = struct.pack("<7i", *HEADER[:5], 29 if tied else -29, 16)
        parts = [embed, *(tensor for kind in LAYER for tensor in layers(kind)), norm, torch.ones(2, 16, 2)]
    else:
        head = struct.pack("<Ii7iB", 0x616B3432, version, *HEADER, tied).ljust(256, b"\0")
        parts = [tensor for kind in NORMS for tensor in layers(kind)] + [norm, embed]
        parts += [tensor for kind in LAYER if kind not in NORMS for tensor in layers(kind)]
    parts += [] if tied else [tensors["lm_head.weight"]]
    return head + b"".join(tensor.contiguous().numpy().tobytes() for tensor in parts)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("version", [0, 1])
def test_llama2c_is_undone(tmp_path: Path, version: int, tied: bool) -> None:
    model, tensors = made(tmp_path / "theirs", tied)
    path = tmp_path / "model.bin"
    path.write_bytes(exported(tensors, version))
    read = llama2c.read(path)
    assert read.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(read.tensors[name], tensor), name
        assert (read.tensors.like(name).shape, read.tensors.like(name).dtype) == (tensor.shape, tensor.dtype)

    again = tmp_path / "again"
    again.mkdir()
    (again / "config.json").write_text(json.dumps(read.config))
    save_file(dict(read.tensors), again / "model.safetensors", {"format": "pt"})
    ids = torch.arange(11)[None]
    with torch.no_grad():
        assert torch.equal(transformers.AutoModelForCausalLM.from_pretrained(again)(ids).logits, model(ids).logits)


STORY = """Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she \
saw a big, red ball. She wanted to play with it, but it was too high.
Lily's mom said, "Lily, let's go to the park." Lily was sad and didn't know what to do. She said, "I want to play with \
your ball, but I can't find it."
"""


def words(path: Path) -> list[bytes]:
    """The pieces of llama2.c's tokenizer.bin."""
    raw, at, found = path.read_bytes(), 4, []
    while at < len(raw):
        _, length = struct.unpack_from("<fi", raw, at)
        found.append(raw[at + 8 : at + 8 + length])
        at += 8 + length
    return found


def test_llama2cs_own_story(tmp_path: Path) -> None:
    """The real model tells, greedily, the story that its documentation (doc/stories260K.md) prints."""
    beside = Path(__file__).parents[4] / "shared" / "data"
    folder = Path(os.environ.get("HEED_DATA", beside)) / "ckpt"
    if not (folder / "stories260K.bin").is_file():
        pytest.skip("HEED_DATA names no folder with ckpt/stories260K.bin and ckpt/tok512.bin")
    read = llama2c.read(folder / "stories260K.bin")
    (tmp_path / "config.json").write_text(json.dumps(read.config))
    save_file(dict(read.tensors), tmp_path / "model.safetensors", {"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = model.generate(torch.tensor([[1]]), max_new_tokens=140, do_sample=False, pad_token_id=0)[0]
    pieces = words(folder / "tok512.bin")
    told = b"".join(pieces[id_] for id_ in ids[1:].tolist())
    for byte in range(256):
        told = told.replace(b"<0x%02X>" % byte, bytes([byte]))
    assert told.decode().strip().startswith(STORY.strip())


BAD = {
    "empty": (b"", "too few"),
    "short": (bytes(100), "too few"),
    "zeros": (bytes(400), "are not those of a model"),
    "text": (b"once upon a time " * 40, "are not those of a model"),
    "a version with integers": (struct.pack("<Ii", 0x616B3432, 2).ljust(400, b"\0"), "version 2"),
    "heads that do not fit": (struct.pack("<7i", 24, 40, 3, 5, 5, 29, 16).ljust(400, b"\0"), "5 heads of even size"),
    "groups that do not fit": (struct.pack("<7i", 24, 40, 3, 6, 4, 29, 16).ljust(400, b"\0"), "cannot share 4"),
    "much more than there is": (
        struct.pack("<7i", 2**22, 2**23, 2**23, 1, 1, 2**23, 2**23).ljust(400, b"\0"),
        "describes",
    ),
}


@pytest.mark.parametrize(("raw", "message"), BAD.values(), ids=BAD)
def test_llama2c_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(raw)
    with pytest.raises(WeightsError, match=message):
        llama2c.read(path)


def test_llama2c_has_its_exact_size(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    whole = exported(made(tmp_path / "theirs", True)[1], 0)
    for raw in (whole[:-4], whole + bytes(4), whole[:-1]):
        path.write_bytes(raw)
        with pytest.raises(WeightsError, match=f"has {len(raw)} bytes, but its header describes {len(whole)}"):
            llama2c.read(path)
    path.write_bytes(whole)
    read = llama2c.read(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match="was cut off"):
        read.tensors["model.norm.weight"]
    with pytest.raises(WeightsError, match="cannot be read"):
        llama2c.read(tmp_path / "missing.bin")


# --- pickles ---

FORMATS = {"zipped": True, "legacy": False}


def saved(path: Path, data: object, zipped: bool = True) -> Path:
    torch.save(data, path, _use_new_zipfile_serialization=zipped)
    return path


def converted(path: Path, target: Path) -> Tensors:
    """By the part that runs in the other process, run here."""
    target.mkdir()
    pickled.convert([path], target)
    assert [file.name for file in target.iterdir()] == ["model.safetensors"]
    return load_file(target / "model.safetensors")


def same(one: Tensors, two: Tensors) -> bool:
    return one.keys() == two.keys() and all(
        torch.equal(one[name], tensor) and one[name].dtype == tensor.dtype for name, tensor in two.items()
    )


@pytest.mark.parametrize("zipped", FORMATS.values(), ids=FORMATS)
def test_tensors_that_share_memory(tmp_path: Path, zipped: bool) -> None:
    table = torch.randn(6, 4)
    held = {
        "table": table,
        "tied": table,
        "rows": table[2:4],
        "turned": table.T,
        "half": torch.randn(3).half(),
        "rounded": torch.randn(2, 2).bfloat16(),
        "steps": torch.tensor(7),
        "mask": torch.tensor([True, False]),
        "none": torch.zeros(0, 3),
        "parameter": nn.Parameter(torch.randn(2)),
    }
    read = converted(saved(tmp_path / "a.bin", held, zipped), tmp_path / "out")
    assert same(read, {name: tensor.detach() for name, tensor in held.items()})


X = torch.arange(4.0)
WRAPPED: dict[str, tuple[object, list[str]]] = {
    "state_dict": ({"state_dict": {"a": X, "b.c": X}, "epoch": 3, "optimizer": {"state": {0: X}}}, ["a", "b.c"]),
    "model": ({"model": {"a": X}, "args": {"lr": 0.1}, "best": 1.5, "name": "x"}, ["a"]),
    "module": ({"module": {"module.a": X, "module.b": X}}, ["a", "b"]),
    "deep": ({"model": {"state_dict": {"a": X}}}, ["a"]),
    "nested": ({"encoder": {"a": X}, "decoder": {"a": X, "step": 3}}, ["decoder.a", "encoder.a"]),
    "plain": ({"model.a": X, "model.b": X, "_version": 2}, ["model.a", "model.b"]),
}


@pytest.mark.parametrize(("data", "names"), WRAPPED.values(), ids=WRAPPED)
def test_weights_are_found_in_what_was_saved(tmp_path: Path, data: object, names: list[str]) -> None:
    assert sorted(converted(saved(tmp_path / "a.pt", data), tmp_path / "out")) == names


class Hostile:
    """An object whose pickle calls a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def test_a_hostile_pickle_does_nothing(tmp_path: Path) -> None:
    trace, target = tmp_path / "trace", tmp_path / "out"
    path = saved(tmp_path / "pytorch_model.bin", {"a": X, "b": Hostile(f"touch {trace}")})
    with pytest.raises(WeightsError, match=r"would call (posix|nt)\.system") as refused:
        pickled.read_to(tmp_path, target)
    assert "weights_only" not in str(refused.value)
    assert str(path) in str(refused.value)
    assert not trace.exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["pytorch_model.bin"]


@pytest.mark.parametrize("zipped", FORMATS.values(), ids=FORMATS)
def test_not_even_within_one_process(tmp_path: Path, zipped: bool) -> None:
    trace = tmp_path / "trace"
    path = saved(tmp_path / "a.pt", [Hostile(f"touch {trace}")], zipped)
    with pytest.raises(WeightsError, match=r"would call (posix|nt)\.system"):
        converted(path, tmp_path / "out")
    assert not trace.exists()


def test_a_whole_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"would call torch\.nn\.modules\.linear\.Linear.*state_dict"):
        converted(saved(tmp_path / "a.pt", nn.Linear(2, 2)), tmp_path / "out")


def squeezed(path: Path) -> None:
    """The same archive, compressed."""
    with zipfile.ZipFile(path) as archive:
        held = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in held.items():
            archive.writestr(name, raw)


def test_files_that_are_not_what_they_seem(tmp_path: Path) -> None:
    loop: dict[str, Any] = {"a": X}
    for _ in range(40):
        loop = {"left": loop, "right": loop}
    bad = {
        "much more than its size": (
            saved(tmp_path / "a.pt", {"a": torch.zeros(1).expand(2**20, 2**20)}),
            "its tensors",
        ),
        "some times its size": (saved(tmp_path / "i.pt", {"a": torch.zeros(1).expand(4000)}), "its tensors 16000"),
        "endless": (saved(tmp_path / "b.pt", loop), "more than"),
        "no names": (saved(tmp_path / "c.pt", [X, X]), "holds no tensors by name"),
        "sparse": (saved(tmp_path / "d.pt", {"a": torch.eye(3).to_sparse()}), "a is not an ordinary tensor"),
        "compressed": (saved(tmp_path / "e.pt", {"a": torch.zeros(4096)}), "is compressed"),
        "not a pickle": (tmp_path / "f.pt", "is not a whole file"),
        "cut off": (saved(tmp_path / "g.pt", {"a": torch.zeros(4096)}), "is not a whole file"),
        "cut off, legacy": (saved(tmp_path / "h.pt", {"a": torch.zeros(4096)}, False), "is not a whole file"),
    }
    squeezed(tmp_path / "e.pt")
    (tmp_path / "f.pt").write_bytes(b"\x80\x02}q\x00.")
    for name in ("g", "h"):
        raw = (tmp_path / f"{name}.pt").read_bytes()
        (tmp_path / f"{name}.pt").write_bytes(raw[: len(raw) // 2])
    for number, (path, message) in enumerate(bad.values()):
        with pytest.raises(WeightsError, match=message):
            converted(path, tmp_path / f"out{number}")


def sharded(folder: Path) -> Tensors:
    """A checkpoint of three files with an index, and what lies beside it."""
    folder.mkdir()
    held = {
        f"part{number}": {f"layer.{number}.weight": torch.randn(3, 5), f"layer.{number}.bias": X} for number in range(3)
    }
    for name, tensors in held.items():
        saved(folder / f"{name}.bin", tensors)
    named = {tensor: f"{name}.bin" for name, tensors in held.items() for tensor in tensors}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": named}))
    (folder / "config.json").write_text('{"model_type": "x"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "notes.txt").write_text("not copied")
    saved(folder / "training_args.bin", Hostile("false"))
    return {name: tensor for tensors in held.values() for name, tensor in tensors.items()}


def test_a_folder_of_files_in_another_process(tmp_path: Path) -> None:
    tensors = sharded(tmp_path / "in")
    pickled.read_to(tmp_path / "in", tmp_path / "out")
    names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert found == ["config.json", *names, "model.safetensors.index.json", "tokenizer.json"]
    read = {name: tensor for file in names for name, tensor in load_file(tmp_path / "out" / file).items()}
    assert same(read, tensors)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {name: names[int(name.split(".")[1])] for name in tensors}
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors.values())
    with pytest.raises(WeightsError, match="exists already"):
        pickled.read_to(tmp_path / "in", tmp_path / "out")


def test_a_file_that_needs_too_much_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "a.pt", {"a": X})
    monkeypatch.setattr(pickled, "SECONDS", 0)
    with pytest.raises(WeightsError, match=r"a\.pt was not converted within 0 seconds; nothing was written"):
        pickled.read_to(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_finding(tmp_path: Path) -> None:
    assert pickled.find(tmp_path) == []
    with pytest.raises(WeightsError, match="holds no pickled weights"):
        pickled.read_to(tmp_path, tmp_path / "out")
    for name in ("optimizer.pt", "rng_state.pth", "scheduler.pt", "notes.txt", "b.ckpt", "a.pth"):
        (tmp_path / name).touch()
    assert [path.name for path in pickled.find(tmp_path)] == ["a.pth", "b.ckpt"]
    (tmp_path / "pytorch_model.bin").touch()
    assert [path.name for path in pickled.find(tmp_path)] == ["pytorch_model.bin"]
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.bin", "b": "two.bin", "c": "one.bin"}}))
    assert [path.name for path in pickled.find(tmp_path)] == ["one.bin", "two.bin"]
    with pytest.raises(WeightsError, match=r"misses files that its index names: one\.bin, two\.bin"):
        pickled.read_to(tmp_path, tmp_path / "out")
    for file in ("../one.bin", "/etc/passwd", "..", "", "a\\b.bin", "a\0b"):
        index.write_text(json.dumps({"weight_map": {"a": file}}))
        with pytest.raises(WeightsError, match="only files beside the index are read"):
            pickled.find(tmp_path)
    for text in ("{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "[", '{"weight_map": {}}'):
        index.write_text(text)
        with pytest.raises(WeightsError, match="index.json"):
            pickled.find(tmp_path)


def test_a_pickle_is_known_by_its_beginning(tmp_path: Path) -> None:
    for number, zipped in enumerate(FORMATS.values()):
        assert pickled.is_pickled(saved(tmp_path / f"{number}.bin", {"a": X}, zipped))
    for protocol in (2, 3, 4, 5):
        torch.save({"a": X}, tmp_path / "a.bin", pickle_protocol=protocol, _use_new_zipfile_serialization=False)
        assert pickled.is_pickled(tmp_path / "a.bin")
    for raw in (b"", b"PK", b"GGUF", struct.pack("<7i", 640, 40, 3, 6, 3, 29, 16)):  # 640 begins as a pickle does
        (tmp_path / "a.bin").write_bytes(raw)
        assert not pickled.is_pickled(tmp_path / "a.bin")
    with pytest.raises(WeightsError, match="cannot be read"):
        pickled.is_pickled(tmp_path / "missing")


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    sharded(tmp_path / "in")
    files = pickled.find(tmp_path / "in")
    (tmp_path / "out").mkdir()
    saved(tmp_path / "in" / "part2.bin", {"layer.0.bias": X})
    with pytest.raises(WeightsError, match=r"part2\.bin holds layer\.0\.bias, which another file holds as well"):
        pickled.convert(files, tmp_path / "out")
    saved(tmp_path / "in" / "part2.bin", {"layer.2.bias": X})
    with pytest.raises(WeightsError, match=r"its files do not hold: layer\.2\.weight"):
        pickled.convert(files, tmp_path / "out")
