"""The recurrent encoder-decoder: other sizes against its equations, written token by token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from heed.core.errors import WeightsError
from heed.weights import replay
from tests.weights.support import EXACT, Tensors, write

CONFIG = {"model_type": "bahdanau", "vocab_size": 11, "embed_size": 3, "num_hiddens": 5, "num_layers": 2}


def weights() -> Tensors:
    draw = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {"encoder.embedding.weight": (11, 3), "decoder.embedding.weight": (11, 3)}
    for side, size in (("encoder", 3), ("decoder", 8)):
        for layer in range(2):
            shapes[f"{side}.rnn.weight_ih_l{layer}"] = (15, 5 if layer else size)
            shapes[f"{side}.rnn.weight_hh_l{layer}"] = (15, 5)
            shapes[f"{side}.rnn.bias_ih_l{layer}"] = shapes[f"{side}.rnn.bias_hh_l{layer}"] = (15,)
    shapes |= {f"decoder.attention.{name}.weight": (5, 5) for name in ("W_q", "W_k")}
    shapes |= {"decoder.attention.w_v.weight": (1, 5), "decoder.dense.weight": (11, 5), "decoder.dense.bias": (11,)}
    return {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}


def cell(w: Tensors, name: str, x: Tensor, state: Tensor) -> Tensor:
    """h' = (1 - z) ⊙ n + z ⊙ h (Cho et al. 2014), with the reset gate behind the matrix, as torch has it."""
    side, layer = name.split("/")
    one = w[f"{side}.rnn.weight_ih_l{layer}"] @ x + w[f"{side}.rnn.bias_ih_l{layer}"]
    two = w[f"{side}.rnn.weight_hh_l{layer}"] @ state + w[f"{side}.rnn.bias_hh_l{layer}"]
    (r, z, n), (hr, hz, hn) = one.chunk(3), two.chunk(3)
    reset, keep = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
    return (1 - keep) * torch.tanh(n + reset * hn) + keep * state


def one_row(w: Tensors, source: list[int], target: list[int], length: int) -> tuple[Tensor, Tensor]:
    states = [torch.zeros(5, dtype=torch.float64) for _ in range(2)]
    memory = []
    for token in source:
        x = w["encoder.embedding.weight"][token]
        for layer in range(2):
            states[layer] = x = cell(w, f"encoder/{layer}", x, states[layer])
        memory.append(x)
    logits, looked = [], []
    for token in target:
        query = w["decoder.attention.W_q.weight"] @ states[-1]
        score = [
            w["decoder.attention.w_v.weight"] @ torch.tanh(query + w["decoder.attention.W_k.weight"] @ h)
            for h in memory
        ]
        weight = torch.cat(score)[:length].softmax(0)
        context = sum((a * h for a, h in zip(weight, memory, strict=False)), torch.zeros(5, dtype=torch.float64))
        x = torch.cat((context, w["decoder.embedding.weight"][token]))
        for layer in range(2):
            states[layer] = x = cell(w, f"decoder/{layer}", x, states[layer])
        logits.append(w["decoder.dense.weight"] @ x + w["decoder.dense.bias"])
        looked.append(torch.cat((weight, torch.zeros(len(source) - length, dtype=torch.float64))))
    return torch.stack(logits), torch.stack(looked)


def test_it_is_its_equations(tmp_path: Path) -> None:
    w, source, target = weights(), [[1, 5, 7, 2], [3, 3, 9, 0]], [[4, 6, 10], [1, 2, 8]]
    inputs = {"src": torch.tensor(source), "tgt": torch.tensor(target), "src_valid_len": torch.tensor([4, 2])}
    made = replay(write(tmp_path, CONFIG, w, inputs))
    for row, length in enumerate((4, 2)):
        logits, looked = one_row(w, source[row], target[row], length)
        assert torch.allclose(made["logits"][row], logits, rtol=0, atol=EXACT)
        assert torch.allclose(made["attention_weights"][row], looked, rtol=0, atol=EXACT)


def test_what_does_not_fit(tmp_path: Path) -> None:
    inputs = {"src": torch.ones(2, 4, dtype=torch.long), "tgt": torch.ones(2, 3, dtype=torch.long)}
    with pytest.raises(WeightsError, match="src_valid_len has the shape"):
        replay(write(tmp_path / "a", CONFIG, weights(), inputs | {"src_valid_len": torch.tensor([4])}))
    with pytest.raises(WeightsError, match="claims 1000000000 layers"):
        replay(write(tmp_path / "b", CONFIG | {"num_layers": 10**9}, weights(), inputs))
    with pytest.raises(WeightsError, match="needed is"):
        replay(write(tmp_path / "c", CONFIG | {"vocab_size": 12}, weights(), inputs))
