"""YOSO attention (Zeng et al. 2021): attention weights are hash collisions, sampled by Bernoulli trials."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..core.config import Seed, Size
from ..core.contract import MixerConfig, Where
from ..parts.convolution.value_convolution import Convolved, ConvolvedConfig
from ..parts.layers.norms import RMSNorm

LONGEST = 20  # bits of a hash that is drawn: a million buckets
TOGETHER = 8  # channels of a value whose products are held at once


class Yoso(Convolved):
    """Weights are the chance that a query and a key fall on the same side of τ random planes, and are never normed.

        y_i = W_o ( u_i / |u_i| + w * v ),   u_i = Σ_j ( 1 - acos(q̂_i·k̂_j) / π )^τ v_j

    with q̂, k̂ of length one and w, if there is one, a convolution along the tokens. Zeng et al. 2021 (You Only Sample
    (Almost) Once). Without `hashes` this is what is computed: the expectation, in O(n²·d) time over n tokens and n²
    numbers of memory. With them it is estimated: each of so many hashes puts every value into the one of 2^τ buckets
    that its key falls into, and every query takes what its own bucket holds. The mean over all hashes has that
    expectation, in O(n·hashes·τ·d) time (O(n·hashes·d²) for the gradient) and O(n·(d + hashes) + 2^τ·d) memory. Planes
    are drawn from `seed`, and while training anew for each call.

    The gradient of a weight is infinite where q̂ = k̂; like the paper, both forms take its lower bound τ/2 · weight.
    The gradient of the estimate is estimated with the same buckets. Looks ahead, so it remembers nothing.
    """

    class Config(ConvolvedConfig):
        paper: ClassVar[str] = "Zeng et al. 2021, You Only Sample (Almost) Once, arXiv 2111.09714"

        kind: Literal["yoso"] = "yoso"
        bits: Size = 9  # τ, of a hash
        hashes: Size | None = None  # how many; None: the expectation
        seed: Seed = 0  # of the planes

        @model_validator(mode="after")
        def _possible(self) -> Self:
            if self.dropout:
                raise ValueError("the weights of YOSO are chances and not dropped; leave dropout at 0")
            if self.hashes is not None and self.bits > LONGEST:
                raise ValueError(f"a hash of {self.bits} bits needs 2^{self.bits} buckets; use at most {LONGEST} bits")
            return self

        def build(self, width: int) -> Yoso:
            return Yoso(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(hashes=8, bits=3), cls(kernel=3, bits=2), cls(hashes=3, kernel=5, kv_heads=2, seed=4)),
                cls(heads=3, head_size=5, bias=False, kv_heads=1, head_norm=RMSNorm()),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.bits, self.hashes = config.bits, config.hashes
        draw = torch.Generator().manual_seed(config.seed)
        shape = (config.hashes or 0, self.heads, self.head_size, config.bits)
        planes = torch.randn(shape, generator=draw, dtype=torch.float64, device="cpu").to(self.out.weight.dtype)
        self.register_buffer("planes", planes, persistent=False)  # the seed is enough to have them again
        self.planes: Tensor

    def attended(self, query: Tensor, key: Tensor, value: Tensor, where: Where) -> Tensor:
        """u / |u|, as it is written or estimated."""
        query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
        self.weights(lambda: _chances(query, key, self.bits).masked_fill(~where.real[:, None, None], 0.0))
        form = self.expected if self.hashes is None else self.drawn
        return F.normalize(form(query, key, value), dim=-1)

    def expected(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """u as it is written. Vectors of length one, values that are zero at padding. [B, T, H, d] three times"""
        made: Tensor = _Expected.apply(query, key, value, self.bits)  # type: ignore[no-untyped-call]
        return made

    def drawn(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """u as the buckets estimate it."""
        planes = torch.randn_like(self.planes) if self.training else self.planes
        codes = _codes(query.detach(), planes), _codes(key.detach(), planes)
        made: Tensor = _Drawn.apply(query, key, value, *codes, self.bits)  # type: ignore[no-untyped-call]
        return made


def _chances(query: Tensor, key: Tensor, bits: int) -> Tensor:
    """[B, T, H, d] twice -> [B, H, T, N]. Rounding may bring a product beyond 1, where there is no angle."""
    cosine = torch.einsum("bthd,bnhd->bhtn", query, key).clamp(-1.0, 1.0)
    return (1 - cosine.acos() / math.pi) ** bits


def _codes(x: Tensor, planes: Tensor) -> Tensor:
    """The bucket that each hash puts a vector into, counted over all rows and heads. [B, T, H, d] -> [m, B, T, H]"""
    rows, _, heads, _ = x.shape
    bits = planes.shape[-1]
    power = 2 ** torch.arange(bits, device=x.device)
    own = torch.arange(rows, device=x.device)[:, None, None] * heads + torch.arange(heads, device=x.device)
    codes = [((torch.einsum("bthd,hdc->bthc", x, some) > 0) * power).sum(-1) + own * 2**bits for some in planes]
    return torch.stack(codes)


def _collected(given: Tensor, taken_from: Tensor, what: Tensor, buckets: int) -> Tensor:
    """What lies in the bucket of each taker, after every giver has put its own. Codes [...]; what [..., c]"""
    table = what.new_zeros(buckets, what.shape[-1]).index_add(0, given.flatten(), what.flatten(0, -2))
    return table[taken_from]


class _Expected(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bits: int) -> Tensor:
        ctx.bits = bits
        chance = _chances(query, key, bits)
        ctx.save_for_backward(query, key, value, chance)
        return torch.einsum("bhtn,bnhe->bthe", chance, value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, chance = ctx.saved_tensors
        steep = torch.einsum("bthe,bnhe->bhtn", gradient, value) * chance * (ctx.bits / 2)
        return (
            torch.einsum("bhtn,bnhd->bthd", steep, key),
            torch.einsum("bhtn,bthd->bnhd", steep, query),
            torch.einsum("bhtn,bthe->bnhe", chance, gradient),
            None,
        )


class _Drawn(torch.autograd.Function):
    """Each sum over keys of the expectation becomes one over the keys of a bucket, hash by hash."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, query_codes: Tensor, key_codes: Tensor, bits: int
    ) -> Tensor:
        ctx.bits, ctx.buckets = bits, query.shape[0] * query.shape[2] * 2**bits
        ctx.save_for_backward(query, key, value, query_codes, key_codes)
        made = torch.zeros_like(value)
        for asked, told in zip(query_codes, key_codes, strict=True):
            made += _collected(told, asked, value, ctx.buckets)
        return made / len(query_codes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, query_codes, key_codes = ctx.saved_tensors
        gradients = [torch.zeros_like(part) for part in (query, key, value)]
        for asked, told in zip(query_codes, key_codes, strict=True):
            gradients[2] += _collected(asked, told, gradient, ctx.buckets)
            for up, down in zip(torch.split(gradient, TOGETHER, -1), torch.split(value, TOGETHER, -1), strict=True):
                gradients[0] += _crossed(told, asked, down, key, up, ctx.buckets)
                gradients[1] += _crossed(asked, told, up, query, down, ctx.buckets)
        steep = ctx.bits / 2
        query_gradient, key_gradient, value_gradient = (part / len(query_codes) for part in gradients)
        return steep * query_gradient, steep * key_gradient, value_gradient, None, None, None


def _crossed(given: Tensor, taken_from: Tensor, one: Tensor, other: Tensor, asked: Tensor, buckets: int) -> Tensor:
    """Σ_j (asked_i·one_j) other_j over the j of i's bucket."""
    products = (one[..., :, None] * other[..., None, :]).flatten(-2)
    found = _collected(given, taken_from, products, buckets)
    found = found.view(*found.shape[:-1], one.shape[-1], -1)
    return torch.einsum("bthc,bthcd->bthd", asked, found)
