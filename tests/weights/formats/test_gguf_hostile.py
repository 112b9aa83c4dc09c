"""GGUF files that are not what they claim: each is refused with a clear error, at once and without much memory."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heed.core.errors import WeightsError
from heed.weights.formats import gguf as ours
from tests.weights.formats.ggufs import LLAMA_KEYS, tiny, write

U32, U64 = "<I", "<Q"


def text(value: str) -> bytes:
    return struct.pack(U64, len(value.encode())) + value.encode()


def file(
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    tensors: int | None = None,
    keys: int | None = None,
    pairs: tuple[bytes, ...] = (text("general.architecture") + struct.pack(U32, 8) + text("llama"),),
    infos: tuple[bytes, ...] = (),
    data: bytes = b"",
) -> bytes:
    """A file by hand; counts are right unless they are given."""
    counts = len(infos) if tensors is None else tensors, len(pairs) if keys is None else keys
    head = magic + struct.pack("<I2Q", version, *counts) + b"".join(pairs) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack(U32, kind) + value


def info(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


ALIGNED = "general.alignment"
HOSTILE = {
    "nothing": (b"", "it ends"),
    "another kind of file": (file(magic=b"ggml"), "does not begin with GGUF"),
    "version 1": (file(version=1), "its version is 1"),
    "version 4": (file(version=4), "its version is 4"),
    "another order of bytes": (file(version=3 << 24), "in the order of another machine"),
    "many tensors": (file(tensors=2**60), "claims 1152921504606846976 tensors"),
    "one tensor too many": (file(tensors=2**17 + 1), "claims 131073 tensors; heed reads at most 131072"),
    "one key too many": (file(keys=2**17 + 1), "claims 131073 keys; heed reads at most 131072"),
    "more tensors than bytes": (file(tensors=2**16), "is not a whole GGUF file"),
    "many keys": (file(keys=2**60), "claims 1152921504606846976 keys"),
    "more keys than bytes": (file(keys=2**16), "is not a whole GGUF file"),
    "a long key": (file(pairs=(struct.pack(U64, 2**62),)), "a text of 4611686018427387904 bytes"),
    "a key of a byte too many": (
        file(pairs=(pair("a" * (2**16 + 1), 0, b"1"),)),
        "of 65537 bytes is longer than 65536",
    ),
    "a word of a byte too many": (
        file(pairs=(pair("a", 9, struct.pack("<IQ", 8, 1) + text("b" * (2**16 + 1))),)),
        "of 65537 bytes is longer than 65536",
    ),
    "a key longer than the file": (file(pairs=(struct.pack(U64, 2**15),)), "it ends"),
    "a long text": (file(pairs=(pair("a", 8, struct.pack(U64, 2**62)),)), "a text of 4611686018427387904 bytes"),
    "a text longer than the file": (file(pairs=(pair("a", 8, struct.pack(U64, 2**27)),)), "it ends"),
    "a long list": (file(pairs=(pair("a", 9, struct.pack("<IQ", 4, 2**60)),)), "more than 4194304 items"),
    "a list longer than the file": (file(pairs=(pair("a", 9, struct.pack("<IQ", 12, 2**21)),)), "it ends"),
    "a list of texts longer than the file": (file(pairs=(pair("a", 9, struct.pack("<IQ", 8, 2**21)),)), "it ends"),
    "a list of lists": (file(pairs=(pair("a", 9, struct.pack("<IQIQ", 9, 1, 4, 0)),)), "values of type 9"),
    "an unknown type": (file(pairs=(pair("a", 13, b""),)), "is of type 13"),
    "not a text": (file(pairs=(pair("a", 8, struct.pack(U64, 1) + b"\xff"),)), "not UTF-8"),
    "a key that writes to the screen": (file(pairs=(pair("\x1b[2J", 0, b"1"),)), "is called '\\x1b[2J'"),
    "a key twice": (file(pairs=(pair("a", 0, b"1"),) * 2), "the key a twice"),
    "no alignment": (file(pairs=(pair(ALIGNED, 4, struct.pack(U32, 0)),)), "general.alignment is 0"),
    "an odd alignment": (file(pairs=(pair(ALIGNED, 4, struct.pack(U32, 48)),)), "general.alignment is 48"),
    "an endless alignment": (
        file(pairs=(pair(ALIGNED, 4, struct.pack(U32, 2**31)),)),
        "general.alignment is 2147483648",
    ),
    "alignment in words": (file(pairs=(pair(ALIGNED, 8, text("32")),)), "general.alignment is '32'"),
    "no dimensions": (file(infos=(info("a", (), 0, 0),)), "a has 0 dimensions"),
    "many dimensions": (file(infos=(text("a") + struct.pack(U32, 2**31),)), "a has 2147483648 dimensions"),
    "an empty dimension": (file(infos=(info("a", (0, 4), 0, 0),)), "a has the shape [4, 0]"),
    "10 GB of tensors": (file(infos=(info("a", (10**9, 10), 0, 0),), data=bytes(64)), "ends within a"),
    "sizes beyond 64 bits": (file(infos=(info("a", (2**63, 2**63, 2**63), 0, 0),), data=bytes(64)), "ends within a"),
    "a place beyond the file": (file(infos=(info("a", (4,), 0, 2**40),), data=bytes(64)), "ends within a"),
    "a place beyond 64 bits": (file(infos=(info("a", (4,), 0, 2**64 - 32),), data=bytes(64)), "ends within a"),
    "a crooked place": (file(infos=(info("a", (4,), 0, 4),), data=bytes(64)), "lies at 4, in steps of 32"),
    "one byte short": (file(infos=(info("a", (16,), 0, 0),), data=bytes(63)), "ends within a"),
    "two in one place": (file(infos=(info("a", (16,), 0, 0), info("b", (1,), 0, 32)), data=bytes(64)), "b overlaps"),
    "one name twice": (file(infos=(info("a", (1,), 0, 0), info("a", (1,), 0, 32)), data=bytes(64)), "have one name"),
    "a kind of numbers that is gone": (file(infos=(info("a", (32,), 4, 0),), data=bytes(64)), "as number 4"),
    "an unknown kind of numbers": (file(infos=(info("a", (32,), 2**31, 0),), data=bytes(64)), "as number 2147483648"),
    "half a block": (file(infos=(info("a", (16,), 8, 0),), data=bytes(64)), "Q8_0 stores blocks of 32"),
    "no architecture": (file(pairs=()), "general.architecture is None"),
    "another architecture": (file(pairs=(pair("general.architecture", 8, text("lama")),)), "did you mean llama?"),
}


@pytest.mark.parametrize(("raw", "message"), HOSTILE.values(), ids=HOSTILE)
def test_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(raw)
    tracemalloc.start()
    begun = time.perf_counter()
    with pytest.raises(WeightsError, match=".*") as refused:
        ours.read(path)
    spent, (_, peak) = time.perf_counter() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert message in str(refused.value)
    assert str(path) in str(refused.value)
    assert peak < 2**24, f"{peak} bytes"
    assert spent < 1


def test_lists_share_one_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each list would do by itself: thousands of them would take all memory."""
    monkeypatch.setattr(ours, "ITEMS", 10)
    six = struct.pack("<IQ", 0, 6) + bytes(6)
    lists = [pair(name, 9, six) for name in "ab"]
    path = tmp_path / "a.gguf"
    path.write_bytes(file(pairs=(lists[0],)))
    assert ours.metadata(path) == {"a": [0] * 6}
    path.write_bytes(file(pairs=tuple(lists)))
    with pytest.raises(WeightsError, match="its lists hold more than 10 items"):
        ours.metadata(path)


def test_a_description_has_a_bound_however_it_is_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "DESCRIPTION", 500)
    path = tmp_path / "a.gguf"
    several = tuple(pair(f"key {number}", 8, text("b" * 100)) for number in range(5))
    path.write_bytes(file(pairs=several[:3]))
    assert len(ours.metadata(path)) == 3
    path.write_bytes(file(pairs=several))
    with pytest.raises(WeightsError, match="grows beyond 500 bytes, before its description does"):
        ours.metadata(path)


def test_places_that_are_not_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.gguf"):
        with pytest.raises(WeightsError, match="cannot be read"):
            ours.read(path)
        with pytest.raises(WeightsError, match="cannot be read"):
            ours.metadata(path)


CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "no heads": ({"attention.head_count": 0}, "llama.attention.head_count is 0"),
    "heads that do not fit": ({"attention.head_count": 7, "attention.key_length": 8}, "does not fit 7 heads"),
    "very many heads": ({"attention.head_count": 2**31 - 1, "attention.key_length": 8}, "does not fit"),
    "more heads than fit into a number": ({"attention.head_count": 2**31}, "head_count is 2147483648"),
    "heads in words": ({"attention.head_count": "six"}, "head_count is 'six'"),
    "layers that differ": ({"attention.head_count_kv": [2, 1]}, "head_count_kv is [2, 1]; needed is one whole number"),
    "many layers": ({"block_count": 2**31 - 1}, "claims 2147483647 blocks, but holds tensors of 1"),
    "no number": ({"attention.layer_norm_rms_epsilon": float("nan")}, "epsilon is nan"),
    "an endless number": ({"rope.freq_base": float("inf")}, "rope.freq_base is inf"),
    "values of another size": ({"attention.value_length": 4}, "attention.value_length is 4"),
    "a part of a head": ({"rope.dimension_count": 4}, "rope.dimension_count is 4; needed is 8"),
    "positions of another kind": ({"rope.scaling.type": "longrope"}, "rope.scaling.type is 'longrope'"),
    "positions scaled once more": ({"rope.scaling.attn_factor": 2.0}, "does not know llama.rope.scaling.attn_factor"),
    "a part of a model": ({"split.count": 3}, "one of 3 parts"),
    "an adapter": ({"general.type": "adapter"}, "holds 'adapter', not a model"),
    "experts that are not there": ({"expert_count": 3, "expert_used_count": 2}, "does not know in llama: blk.0.ffn_up"),
}


def model() -> dict[str, Any]:
    kind = gguf.GGMLQuantizationType.Q8_0
    return {
        "token_embd.weight": torch.randn(5, 48),
        "blk.0.attn_q.weight": torch.randn(48, 48),
        "blk.0.attn_k.weight": torch.randn(16, 48),
        "blk.0.ffn_up.weight": (kind, gguf.quantize(np.ones((2, 64), np.float32), kind)),
        "rope_freqs.weight": torch.ones(4),
    }


@pytest.mark.parametrize(("keys", "message"), CLAIMS.values(), ids=CLAIMS)
def test_claims_that_the_tensors_do_not_bear_out(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    held = {name: tensor for name, tensor in model().items() if name != "rope_freqs.weight"}
    with pytest.raises(WeightsError, match=".*") as refused:
        ours.read(tiny(tmp_path / "a.gguf", held, keys))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"blk.0.attn_magic.weight": torch.ones(2)}, "does not know in llama: blk.0.attn_magic.weight"),
        ({"blk.0.attn_q.scale": torch.ones(2)}, "does not know in llama: blk.0.attn_q.scale"),
        ({"rope_freqs.weight": torch.rand(4) + 1}, "are not those of Llama 3"),
        ({"rope_freqs.weight": torch.tensor([1.0, 2.0, float("nan"), 8.0])}, "are not those of Llama 3"),
        ({"rope_freqs.weight": torch.tensor([1.0, 2.0, 3.0, float("inf")])}, "are not those of Llama 3"),
        ({"rope_freqs.weight": torch.zeros(4)}, "are not those of Llama 3"),
        ({"rope_freqs.weight": torch.ones(5)}, "has the shape [5] for 8 channels"),
    ],
)
def test_tensors_that_nobody_knows(tmp_path: Path, held: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=".*") as refused:
        ours.read(tiny(tmp_path / "a.gguf", {"token_embd.weight": torch.randn(5, 48), **held}))
    assert message in str(refused.value)


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "t5"])
def test_layers_without_tensors(tmp_path: Path, architecture: str) -> None:
    keys = {"block_count": 2**31 - 1} | LLAMA_KEYS
    path = write(tmp_path / "a.gguf", architecture, keys, {"token_embd.weight": torch.ones(5, 48)})
    with pytest.raises(WeightsError, match="claims 2147483647 blocks, but holds tensors of 0"):
        ours.read(path)


def test_experts_that_do_not_match_their_number(tmp_path: Path) -> None:
    keys = {"block_count": 1, "expert_count": 3, "expert_used_count": 1} | LLAMA_KEYS
    held = {"token_embd.weight": torch.ones(5, 48), "blk.0.ffn_gate_exps.weight": torch.ones(2, 8, 48)}
    with pytest.raises(WeightsError, match=r"has the shape \[2, 8, 48\] for 3 experts"):
        ours.read(write(tmp_path / "a.gguf", "llama", keys, held))


def test_a_file_that_is_cut_off_after_it_was_opened(tmp_path: Path) -> None:
    path = tiny(tmp_path / "a.gguf", model())
    read = ours.read(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(WeightsError, match="was cut off"):
        read.tensors["model.layers.0.mlp.up_proj.weight"]


# --- whatever happens to a file ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    torch.manual_seed(0)
    keys = {"tokenizer.ggml.tokens": ["a", "b", "é"], "tokenizer.ggml.scores": [0.5, 1.5], "general.alignment": 32}
    return tiny(tmp_path_factory.mktemp("gguf") / "a.gguf", model(), keys).read_bytes()


def tried(path: Path, raw: bytes) -> bool:
    """Whether the file can be read; if not, the reason is a WeightsError."""
    path.write_bytes(raw)
    try:
        read = ours.read(path)
        for name in read.tensors:
            assert read.tensors[name].shape == read.tensors.like(name).shape
    except WeightsError:
        return False
    return True


def test_every_shorter_file_is_refused(tmp_path: Path, whole: bytes) -> None:
    assert tried(tmp_path / "a.gguf", whole)
    description = whole.index(b"token_embd")
    ends = [*range(description + 300), *range(description + 300, len(whole) - 32, 97)]
    assert not any(tried(tmp_path / "a.gguf", whole[:end]) for end in ends)


def changed(raw: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    made = bytearray(raw)
    for at, value in changes:
        made[at % 1200 : at % 1200 + len(value)] = value
    return bytes(made)


LARGE = [struct.pack(U64, value) for value in (0, 1, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1)]
CHANGES: st.SearchStrategy[list[tuple[int, bytes]]] = st.lists(
    st.tuples(st.integers(0, 1200), st.binary(min_size=1, max_size=8) | st.sampled_from(LARGE)), min_size=1, max_size=4
)


@settings(max_examples=300, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES)
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, whole: bytes, changes: list[tuple[int, bytes]]) -> None:
    tried(tmp_path / "a.gguf", changed(whole, changes))


@settings(max_examples=150, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.tuples(st.integers(0, 1200), st.integers(1, 64)), added=st.binary(max_size=64))
def test_a_file_with_bytes_lost_or_added(tmp_path: Path, whole: bytes, cut: tuple[int, int], added: bytes) -> None:
    at, many = cut
    tried(tmp_path / "a.gguf", whole[:at] + added + whole[at + many :])
