"""GGUF's q8_0 and q4_0 matrices kept as they are stored: the same numbers as dequantised, in the bits of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from torch import nn

from heed import load
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.parts.layers.embeddings import QuantisedEmbedding
from heed.parts.layers.linear import LinearLike
from heed.parts.layers.quantised import GroupedLinear
from heed.runs.convert import convert as convert_file
from heed.weights import open_
from heed.weights.edits.quantised import is_quantised
from heed.weights.formats import gguf as ours
from heed.weights.formats import gguf_quantised as ggufkept
from tests.weights.formats.ggufs import write
from tests.weights.formats.test_gguf_families import CASES, Case, convert
from tests.weights.support import GOLDEN

Kind = gguf.GGMLQuantizationType
LENGTHS = (
    *("embedding_length", "feed_forward_length", "context_length", "rope.dimension_count"),
    *("attention.key_length", "attention.value_length"),
)
# Tables whose heads are more than a matrix: these need the numbers.
LEFT = {"gemma2": ["embeddings.table"], "t5": ["encoder.embeddings.table"], "t5, gated": ["encoder.embeddings.table"]}


def packed(
    case: Case, folder: Path, *, kinds: tuple[Kind, ...] = (Kind.Q8_0, Kind.Q4_0), more: dict[str, Any] | None = None
) -> Path:
    """The same architecture twice as wide, its matrices random and stored in these kinds in turn."""
    _, _, path = convert(case, folder)
    draw, tensors = np.random.default_rng(0), dict[str, Any]()
    for number, tensor in enumerate(gguf.GGUFReader(path).tensors):
        plain = "rel_b" in tensor.name or "ffn_gate_inp" in tensor.name
        shape = [
            int(size) if size in (67, 2, 3, 6) or "rel_b" in tensor.name else 2 * int(size) for size in tensor.shape
        ]
        floats = draw.normal(0, 0.1, shape[::-1]).astype(np.float32)
        kind = kinds[number % len(kinds)]
        if plain or len(shape) == 1 or shape[0] % 32 or "position" in tensor.name or "token_types" in tensor.name:
            tensors[tensor.name] = torch.from_numpy(floats)
        else:
            tensors[tensor.name] = kind, gguf.quantize(floats, kind)
    keys = {key: 2 * value if key in LENGTHS else value for key, value in case.keys.items()}
    keys |= {"block_count": 2, "vocab_size": 67} | (more or {})
    return write(folder / "packed.gguf", case.architecture, keys, tensors)


def numbers(module: nn.Module) -> torch.Tensor:
    """What a layer or a table stands for."""
    if isinstance(module, QuantisedEmbedding):
        return module(torch.arange(module.num_embeddings))
    assert isinstance(module, LinearLike)
    return module.matrix


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # transformers' gpt_bigcode
@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_is_what_the_file_says(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, row by row where llama.cpp moved rows; and no matrix that is kept was ever made float32."""
    path = packed(CASES[name], tmp_path)
    exact, asked = open_(ours.read(path)).model, list[ours.Placed]()
    floats = ours._floats

    def made_float(place: Path, placed: ours.Placed, part: int | None = None) -> torch.Tensor:
        asked.append(placed)
        return floats(place, placed, part)

    monkeypatch.setattr(ours, "_floats", made_float)
    kept = ggufkept.read(path).model
    found = {place: module for place, module in kept.named_modules() if is_quantised(module)}
    for place, module in found.items():
        assert torch.equal(numbers(module), exact.get_parameter(f"{place}.weight")), place
    for place, weight in kept.named_parameters():
        assert torch.equal(weight, exact.get_parameter(place)), place
    left = [place for place, module in kept.named_modules() if type(module) in (nn.Linear, nn.Embedding)]
    assert [place for place in left if not place.endswith(("routes.scores", "embeddings.segment"))] == LEFT.get(
        name, []
    )
    made = {placed.name for placed in asked if placed.kind.name in ggufkept.KINDS}
    assert made == ({"token_embd.weight"} if name in LEFT else set())


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return packed(CASES["llama, tied, with biases"], tmp_path)


def test_tied_codes_are_there_once_and_steps_are_half(llama: Path) -> None:
    model = load(llama, quantise="keep").model
    table, head = (model.get_submodule(name) for name in ("embeddings.table", "head"))
    assert isinstance(table, QuantisedEmbedding)
    assert isinstance(head, GroupedLinear)
    assert table.codes is head.codes
    assert {module.bits for module in model.modules() if isinstance(module, GroupedLinear)} == {4, 8}
    assert {module.scale.dtype for module in model.modules() if isinstance(module, GroupedLinear)} == {torch.float16}


def test_it_computes_what_the_dequantised_model_does(llama: Path) -> None:
    """Up to the 16 bits that channels are rounded to."""
    ids, where = torch.arange(22).reshape(2, 11) * 3, Where.run(2, 11)
    with torch.no_grad():
        exact, kept = load(llama).model(ids, where)[0], load(llama, quantise="keep").model(ids, where)[0]
    assert 0 < (exact - kept).abs().max().item() < 1e-3 * exact.abs().max().item()


def test_codes_that_reach_one_farther(tmp_path: Path) -> None:
    """Others than llama.cpp may write -128."""
    raw = gguf.quantize(np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32), Kind.Q8_0)
    raw.reshape(5, 2, 34)[:, :, 2:] = 128
    blocks = torch.from_numpy(raw.reshape(5, 2, 34))
    layer = GroupedLinear(nn.Linear(64, 5), 8)
    layer.codes, layer.scale = (
        blocks[..., 2:].flatten(1).view(torch.int8),
        blocks[..., :2].flatten(1).view(torch.float16),
    )
    x = torch.full((3, 64), 7.0)
    assert torch.allclose(layer(x), nn.functional.linear(x, layer.matrix, layer.bias), rtol=1e-4)


def test_it_is_written_in_the_bits_of_the_file(llama: Path, tmp_path: Path) -> None:
    metadata = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": [f"<{n}>" for n in range(67)]}
    scores = {"tokenizer.ggml.scores": [0.0] * 67, "tokenizer.ggml.token_type": [3] * 3 + [1] * 64}
    whole = packed(CASES["llama"], tmp_path, more=metadata | scores)
    made = convert_file(whole, tmp_path / "out", shard=1 << 30, quantise="keep")
    assert made.bytes < whole.stat().st_size
    one, two = load(whole, quantise="keep").model.state_dict(), load(tmp_path / "out").model.state_dict()
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_what_cannot_be_kept_is_told(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="is for the q8_0 and q4_0 matrices of a GGUF file"):
        load(GOLDEN / "llama" / "lm", quantise="keep")
    other = packed(CASES["llama"], tmp_path, kinds=(Kind.Q5_0,))
    with pytest.raises(WeightsError, match="no matrix of Q8_0 or Q4_0 that can be kept, it has F32, Q5_0; .*int8"):
        load(other, quantise="keep")
    with pytest.raises(WeightsError, match="has nothing to keep; only GGUF files have"):
        convert_file(GOLDEN / "llama" / "lm", tmp_path / "out", shard=1 << 30, quantise="keep")
