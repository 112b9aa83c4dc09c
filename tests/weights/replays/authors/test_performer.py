"""lucidrains' functions of FAVOR+: the golden folder, and other sizes against the equations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heed.core.errors import WeightsError
from heed.weights import replay
from tests.weights.support import EXACT, GOLDEN, TOLERANCES, Tensors, agree, write

CASE = "performer/favor"


def test_golden() -> None:
    wanted = load_file(GOLDEN / CASE / "outputs.safetensors")
    agree(replay(GOLDEN / CASE), wanted, 10 * TOLERANCES[CASE]["absolute"])


def some(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(q: Tensor, k: Tensor, v: Tensor, omega: Tensor) -> Tensors:
    """In their notation, with n² weights."""
    size, features = q.shape[-1], len(omega)
    a, b = (x * size**-0.25 for x in (q, k))

    def exponent(x: Tensor) -> Tensor:
        return x @ omega.T - x.square().sum(-1, keepdim=True) / 2

    most = (b @ omega.T).flatten(2).max(-1).values[..., None, None]
    asked = ((exponent(a) - (a @ omega.T).max(-1, keepdim=True).values).exp() + 1e-4) / features**0.5
    told = ((exponent(b) - most).exp() + 1e-4) / features**0.5
    weight, made = asked @ told.mT, {"q_prime": asked, "k_prime": told}
    made["out_bidirectional"] = weight @ v / weight.sum(-1, keepdim=True)
    if q.shape == k.shape:
        below = (asked * (told.cumsum(-2) + 1e-6)).sum(-1, keepdim=True)
        made["out_causal_noncuda"] = weight.tril() @ v / below
    weight = ((a @ omega.T).relu() + 1e-3) @ ((b @ omega.T).relu() + 1e-3).mT
    made["out_relu_bidirectional"] = weight @ v / weight.sum(-1, keepdim=True)
    made["exact_softmax_attention"] = (q @ k.mT / size**0.5).softmax(-1) @ v
    return made


@pytest.mark.parametrize("tokens", [1, 9, 150])
@pytest.mark.parametrize(("size", "features"), [(8, 16), (5, 7), (3, 2)])
def test_sizes(tmp_path: Path, tokens: int, size: int, features: int) -> None:
    q, k, v = (some(2, 3, tokens, size, seed=seed) for seed in range(3))
    omega = some(features, size, seed=4)
    config = {"model_type": "performer", "heads": 3, "dim_head": size, "nb_features": features}
    wanted = by_hand(2 * q, 2 * k, v, omega)
    folder = write(tmp_path, config, {"projection_matrix": omega}, {"q": 2 * q, "k": 2 * k, "v": v}, wanted)
    agree(replay(folder), wanted, EXACT)


def test_fewer_queries_than_keys_have_no_causal_form(tmp_path: Path) -> None:
    q, k, v = some(1, 2, 3, 4, seed=0), some(1, 2, 5, 4, seed=1), some(1, 2, 5, 6, seed=2)
    omega, config = some(7, 4, seed=3), {"model_type": "performer"}
    wanted = by_hand(q, k, v, omega)
    weights, inputs = {"projection_matrix": omega}, {"q": q, "k": k, "v": v}
    agree(replay(write(tmp_path / "both", config, weights, inputs, wanted)), wanted, EXACT)
    with pytest.raises(WeightsError, match="3 queries beside 5 keys have no causal form"):
        replay(write(tmp_path / "causal", config, weights, inputs, {"out_causal_noncuda": q}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"q": torch.zeros(2, 3, 4)}, r"q has the shape \[2, 3, 4\]; needed is \[rows, heads, tokens, size\]"),
        ({"k": torch.zeros(2, 3, 5, 6)}, "which do not fit together"),
        ({"projection_matrix": torch.zeros(7, 5)}, r"projection_matrix has the shape \[7, 5\]; .* say \[7, 4\]"),
        ({"nb_features": 8}, r"say \[8, 4\]"),
        ({"projection_matrix": None}, "has no tensor projection_matrix"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, given: dict[str, Tensor | int | None], message: str) -> None:
    held = {name: torch.zeros(2, 3, 5, 4) for name in ("q", "k", "v")} | {"projection_matrix": torch.zeros(7, 4)}
    held |= {name: value for name, value in given.items() if isinstance(value, Tensor)}
    omega = held.pop("projection_matrix")
    config = {"model_type": "performer", "nb_features": given.get("nb_features", 7)}
    weights = (
        {} if "projection_matrix" in given and given["projection_matrix"] is None else {"projection_matrix": omega}
    )
    with pytest.raises(WeightsError, match=message):
        replay(write(tmp_path, config, weights, held))
