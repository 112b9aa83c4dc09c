"""lucidrains' functions of FAVOR+: features of queries and keys, and what attention becomes with them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ....core.errors import WeightsError
from ....parts.attention import linear as kernelised
from ....parts.attention.attend import attend
from ....parts.attention.linear import Sums
from ....parts.attention.random_features import FeatureMapConfig, FlooredKernel, ReluKernel
from ...formats.folder import CONFIG, INPUTS, Folder
from ..inputs import Outputs

PROJECTION = "projection_matrix"
FLOOR = 1e-6  # what the causal form adds to every sum of features of keys


def outputs(folder: Folder) -> Outputs:
    """Features, attention by them both ways and causally, by rectified ones, and the softmax that they stand for."""
    query, key, value = (_heads(folder, name) for name in ("q", "k", "v"))
    if query.shape[:1] + query.shape[2:] != key.shape[:1] + key.shape[2:] or key.shape[:3] != value.shape[:3]:
        shapes = ", ".join(str(list(x.transpose(1, 2).shape)) for x in (query, key, value))
        raise WeightsError(f"{folder.path / INPUTS}: q, k and v have the shapes {shapes}, which do not fit together")
    projection = _projection(folder, query.shape[-1])
    return dict(_made(folder, query, key, value, projection))


def _made(
    folder: Folder, query: Tensor, key: Tensor, value: Tensor, projection: Tensor
) -> Iterator[tuple[str, Tensor]]:
    asked, told = _features(FlooredKernel(), query, key, projection)
    yield "q_prime", asked.squeeze(3).transpose(1, 2).exp()
    yield "k_prime", told.transpose(1, 2).exp()
    yield "out_bidirectional", _back(kernelised.both_ways(asked, told, value))
    if folder.wants("out_causal_noncuda"):
        _must_be_as_many(folder, query, key)
        none = Sums.none(told, value)
        floor = Sums(none.values, torch.full_like(none.total, FLOOR), torch.zeros_like(none.level))
        yield "out_causal_noncuda", _back(kernelised.causal(asked, told, value, floor)[0])
    yield "out_relu_bidirectional", _back(kernelised.both_ways(*_features(ReluKernel(), query, key, projection), value))
    yield "exact_softmax_attention", attend(query, key, value).transpose(1, 2)


def _features(kernel: FeatureMapConfig, query: Tensor, key: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of the features of queries [B, T, H, 1, m] and of keys [B, N, H, m]."""
    quarter = query.shape[-1] ** -0.25
    real = torch.ones(key.shape[:2], dtype=torch.bool)
    return kernel.queries(query * quarter, projection).unsqueeze(3), kernel.keys(key * quarter, projection, real)


def _back(y: Tensor) -> Tensor:
    """[B, T, H, 1, e] -> [B, H, T, e]"""
    return y.squeeze(3).transpose(1, 2)


def _heads(folder: Folder, name: str) -> Tensor:
    """[rows, heads, tokens, size] -> [rows, tokens, heads, size]"""
    tensor = folder.input(name)
    if tensor.dim() != 4:
        raise WeightsError(
            f"{folder.path / INPUTS}: {name} has the shape {list(tensor.shape)}; needed is [rows, heads, tokens, size]"
        )
    return tensor.transpose(1, 2)


def _projection(folder: Folder, size: int) -> Tensor:
    if PROJECTION not in folder.weights:
        raise WeightsError(f"{folder.path} has no tensor {PROJECTION}, the directions of the features")
    projection = folder.weights[PROJECTION].to(folder.dtype)
    features = folder.config.get("nb_features") or projection.shape[0]
    if projection.shape != (features, size):
        raise WeightsError(
            f"{folder.path}: {PROJECTION} has the shape {list(projection.shape)}; {CONFIG} and the queries say "
            f"[{features}, {size}]"
        )
    return projection


def _must_be_as_many(folder: Folder, query: Tensor, key: Tensor) -> None:
    if query.shape[1] != key.shape[1]:
        raise WeightsError(
            f"{folder.path / INPUTS}: {query.shape[1]} queries beside {key.shape[1]} keys have no causal form"
        )
