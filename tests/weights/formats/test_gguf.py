"""GGUF: how numbers are stored, what the metadata says, rotary positions, and files that are not what they claim."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from heed.core.errors import MissingExtra, WeightsError
from heed.weights.formats import gguf as ours
from tests.weights.formats.ggufs import PLAIN_KEYS, tiny, write

# --- what is stored ---


def known(kind: gguf.GGMLQuantizationType) -> bool:
    try:
        gguf.dequantize(np.zeros(gguf.GGML_QUANT_SIZES[kind][1], np.uint8), kind)
    except NotImplementedError:
        return False
    return True


KINDS = {kind.name: kind for kind in gguf.GGML_QUANT_SIZES if known(kind)}
OTHERS = {kind.name: kind for kind in gguf.GGML_QUANT_SIZES if not known(kind)}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_that_gguf_knows_is_dequantised(tmp_path: Path, kind: gguf.GGMLQuantizationType) -> None:
    """In pieces, whatever bits they hold, as gguf does it row by row from a mapped file."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(0).integers(0, 256, (5, 512 // block * size), np.uint8)
    path = tiny(tmp_path / "a.gguf", {"output_norm.weight": torch.ones(3), "token_embd.weight": (kind, raw)})
    read = ours.read(path).tensors["model.embed_tokens.weight"]
    with np.errstate(all="ignore"):
        wanted = gguf.dequantize(gguf.GGUFReader(path).tensors[1].data, kind)
    assert read.shape == (5, 512)
    np.testing.assert_array_equal(read.numpy(), wanted)


@pytest.mark.parametrize("kind", OTHERS.values(), ids=OTHERS)
def test_a_kind_that_nobody_dequantises_is_named(tmp_path: Path, kind: gguf.GGMLQuantizationType) -> None:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    path = tiny(tmp_path / "a.gguf", {"token_embd.weight": (kind, np.zeros((2, 512 // block * size), np.uint8))})
    with pytest.raises(WeightsError, match=rf"token_embd\.weight is stored as {kind.name}"):
        ours.read(path)


def four_bits(raw: bytes) -> list[float]:
    """A block of Q4_K, as ggml describes it."""
    d, least = np.frombuffer(raw[:4], np.float16).astype(np.float32)
    scales, low = raw[4:16], raw[16:]
    made = []
    for group in range(8):
        if group < 4:
            scale, offset = scales[group] & 63, scales[group + 4] & 63
        else:
            scale = scales[group + 4] & 15 | scales[group - 4] >> 6 << 4
            offset = scales[group + 4] >> 4 | scales[group] >> 6 << 4
        nibbles = low[group // 2 * 32 :][:32]
        made += [float(d * scale * (byte >> 4 * (group % 2) & 15) - least * offset) for byte in nibbles]
    return made


def six_bits(raw: bytes) -> list[float]:
    """A block of Q6_K, as ggml describes it."""
    low, high, scales = raw[:128], raw[128:192], np.frombuffer(raw[192:208], np.int8)
    d = np.frombuffer(raw[208:], np.float16).astype(np.float32)[0]
    made = np.zeros(256, np.float32)
    for at in range(256):
        half, quarter, column = at // 128, at % 128 // 32, at % 32
        nibble = low[64 * half + 32 * (quarter % 2) + column] >> 4 * (quarter // 2) & 15
        value = (nibble | (high[32 * half + column] >> 2 * quarter & 3) << 4) - 32
        made[at] = d * scales[at // 16] * value
    return made.tolist()


@pytest.mark.parametrize(("kind", "by_hand"), [("Q4_K", four_bits), ("Q6_K", six_bits)])
def test_common_kinds_by_hand(tmp_path: Path, kind: str, by_hand: Callable[[bytes], list[float]]) -> None:
    size = gguf.GGML_QUANT_SIZES[KINDS[kind]][1]
    raw = np.random.default_rng(1).integers(0, 100, (2, size), np.uint8)  # scales that are finite
    path = tiny(tmp_path / "a.gguf", {"token_embd.weight": (KINDS[kind], raw)})
    read = ours.read(path).tensors["model.embed_tokens.weight"]
    wanted = torch.tensor([by_hand(row.tobytes()) for row in raw])
    assert torch.allclose(read, wanted, rtol=1e-5, atol=1e-3 * wanted.abs().max().item() * 1e-3)


@pytest.mark.parametrize(
    ("kind", "lost"), [("F16", 2**-11), ("BF16", 2**-8), ("Q8_0", 2**-7), ("Q5_1", 2**-4), ("Q4_0", 2**-3)]
)
def test_what_quantising_loses(tmp_path: Path, kind: str, lost: float) -> None:
    """A share of the largest number of a block: half a step, and what the scale itself is rounded by."""
    given = torch.randn(6, 512)
    path = tiny(tmp_path / "a.gguf", {"token_embd.weight": (KINDS[kind], gguf.quantize(given.numpy(), KINDS[kind]))})
    read = ours.read(path).tensors["model.embed_tokens.weight"]
    assert 0 < (read - given).abs().max().item() <= lost * given.abs().max().item()


# --- what is said ---


def test_metadata_is_plain_python(tmp_path: Path) -> None:
    keys = {
        "tokenizer.ggml.tokens": ["<s>", "▁naïve", "\n", ""],
        "tokenizer.ggml.scores": [0.0, -1.5, -2.25, float("-inf")],
        "tokenizer.ggml.token_type": [3, 1, 1, 1],
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ messages }}" * 9000,
        "general.name": "tiny",
    }
    path = tiny(tmp_path / "a.gguf", {"token_embd.weight": torch.ones(4, 48)}, keys)
    read = ours.metadata(path)
    fields = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items() if "GGUF." not in name}
    assert read == fields
    assert {key: read[key] for key in keys} == keys
    assert {type(value) for value in read.values()} == {str, int, float, bool, list}


def test_special_tokens_that_the_vocabulary_has(tmp_path: Path) -> None:
    keys = {f"tokenizer.ggml.{name}_token_id": id_ for name, id_ in {"bos": 1, "eos": 3, "padding": 2**32 - 1}.items()}
    config = ours.read(tiny(tmp_path / "a.gguf", {"token_embd.weight": torch.ones(4, 48)}, keys)).config
    assert {name: id_ for name, id_ in config.items() if name.endswith("_token_id")} == {
        "bos_token_id": 1,
        "eos_token_id": 3,
    }


def test_the_package_is_needed_for_tensors_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny(tmp_path / "a.gguf", {"token_embd.weight": torch.ones(4, 48)})
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert ours.metadata(path)["llama.embedding_length"] == 48
    with pytest.raises(MissingExtra, match=r"heed-attention\[weights\]"):
        ours.read(path)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("piece", [ours.PIECE, 64])
def test_an_output_that_was_written_twice(
    tmp_path: Path, same: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPT-2 is tied; a file that holds its embedding twice is tied still, one with another output is not, even if they
    differ in their last number alone, of many pieces.
    """
    monkeypatch.setattr(ours, "PIECE", piece)
    table, norm = torch.randn(5, 48), torch.ones(48)
    given = {"token_embd.weight": table, "blk.0.ffn_up.weight": torch.ones(192, 48), "output_norm.weight": norm}
    output = table.clone()
    output[-1, -1] += not same
    path = write(tmp_path / "a.gguf", "gpt2", {"block_count": 1} | PLAIN_KEYS, given | {"output.weight": output})
    read = ours.read(path)
    assert read.config["tie_word_embeddings"] is same
    assert ("lm_head.weight" in read.tensors) is not same


def test_experts_one_by_one(tmp_path: Path) -> None:
    """As the first converters of Mixtral wrote them."""
    given = {
        f"blk.0.ffn_{part}.{expert}.weight": torch.randn(8, 48) for part in ("gate", "up", "down") for expert in (0, 1)
    }
    keys = {"expert_count": 2, "expert_used_count": 1}
    read = ours.read(tiny(tmp_path / "a.gguf", given | {"token_embd.weight": torch.ones(4, 48)}, keys))
    for theirs, part in {"w1": "gate", "w2": "down", "w3": "up"}.items():
        for expert in (0, 1):
            name = f"model.layers.0.block_sparse_moe.experts.{expert}.{theirs}.weight"
            assert torch.equal(read.tensors[name], given[f"blk.0.ffn_{part}.{expert}.weight"])


# --- positions ---

ROPES = {
    "plain": ({}, {}),
    "linear": ({"rope_type": "linear", "factor": 2.5}, {"rope.scaling.type": "linear", "rope.scaling.factor": 2.5}),
    "linear, old": ({"rope_type": "linear", "factor": 4.0}, {"rope.scale_linear": 4.0}),
    "none": ({}, {"rope.scaling.type": "none", "rope.scaling.factor": 9.0}),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32},
    ),
    "yarn, in full": (
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
        }
        | {"attention_factor": 1.25},
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}
        | {
            "rope.scaling.yarn_beta_fast": 16.0,
            "rope.scaling.yarn_beta_slow": 2.0,
            "rope.scaling.yarn_attn_factor": 1.25,
        }
        | {"rope.scaling.finetuned": True},
    ),
}


@pytest.mark.parametrize(("rope", "keys"), ROPES.values(), ids=ROPES)
def test_positions(tmp_path: Path, rope: dict[str, Any], keys: dict[str, Any]) -> None:
    read = ours.read(tiny(tmp_path / "a.gguf", {"token_embd.weight": torch.ones(4, 48)}, keys)).config[
        "rope_parameters"
    ]
    assert read == {"rope_type": "default", "rope_theta": 10000.0} | rope


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_a_scaling_that_is_not_known_is_not_passed_over(tmp_path: Path, kind: str) -> None:
    keys = {"rope.scaling.type": kind, "rope.scaling.factor": 2.0, "rope.scaling.attn_bend": 1.5}
    with pytest.raises(WeightsError, match="does not know llama.rope.scaling.attn_bend, which changes its positions"):
        ours.read(tiny(tmp_path / "a.gguf", {"token_embd.weight": torch.ones(4, 48)}, keys))


def factors(size: int, base: float, rope: dict[str, Any]) -> Tensor:
    """What llama.cpp writes: by how much Llama 3's rule, as transformers has it, divides each frequency."""
    config: dict[str, Any] = {
        "hidden_size": size,
        "num_attention_heads": 1,
        "head_dim": size,
        "max_position_embeddings": 131072,
    }
    scaled = transformers.LlamaConfig(**config, rope_parameters={"rope_theta": base} | rope)
    slow, _ = ROPE_INIT_FUNCTIONS["llama3"](scaled)
    return 1 / (base ** (torch.arange(0, size, 2) / size)) / slow


@pytest.mark.parametrize("size", [64, 80, 128])
@pytest.mark.parametrize(
    ("factor", "low", "high", "original"), [(8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (4.0, 2.0, 5.0, 4096)]
)
def test_llama_3s_rule_is_found_from_its_factors(
    tmp_path: Path, size: int, factor: float, low: float, high: float, original: int
) -> None:
    rule = {"factor": factor, "low_freq_factor": low, "high_freq_factor": high}
    rope = rule | {"rope_type": "llama3", "original_max_position_embeddings": original}
    divided = factors(size, 500000.0, rope)
    keys = {"attention.key_length": size, "attention.value_length": size, "rope.freq_base": 500000.0}
    given = {"token_embd.weight": torch.ones(4, 48), "rope_freqs.weight": divided}
    read = ours.read(tiny(tmp_path / "a.gguf", given, keys)).config["rope_parameters"]
    assert read["original_max_position_embeddings"] * low == original
    assert read["high_freq_factor"] * low == high
    assert (read["factor"], read["low_freq_factor"], read["rope_theta"]) == (factor, 1.0, 500000.0)
    torch.testing.assert_close(factors(size, 500000.0, read), divided, rtol=1e-5, atol=0.0)
