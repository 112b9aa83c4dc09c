"""Pure functions over a pytree of parameters, the way it is done in JAX; `Attention` only holds the tree."""
from functools import partial
from typing import NamedTuple, Optional

import torch
from torch import Tensor


class Params(NamedTuple):
    q: Tensor  # [D, H, K]
    k: Tensor
    v: Tensor
    o: Tensor  # [H, K, D]


def init(key: torch.Generator, d: int, h: int) -> Params:
    k = d // h
    mk = partial(torch.randn, generator=key)
    return Params(mk(d, h, k) * d**-0.5, mk(d, h, k) * d**-0.5, mk(d, h, k) * d**-0.5, mk(h, k, d) * d**-0.5)


def apply(params: Params, x_BTD: Tensor, mask_BTT: Optional[Tensor] = None) -> Tensor:
    q_BTHK = torch.einsum("btd,dhk->bthk", x_BTD, params.q)
    k_BSHK = torch.einsum("bsd,dhk->bshk", x_BTD, params.k)
    v_BSHK = torch.einsum("bsd,dhk->bshk", x_BTD, params.v)
    s_BHTS = torch.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK) * q_BTHK.shape[-1] ** -0.5
    if mask_BTT is not None:
        s_BHTS = torch.where(mask_BTT[:, None], s_BHTS, torch.finfo(s_BHTS.dtype).min)
    w_BHTS = torch.softmax(s_BHTS, -1)
    o_BTHK = torch.einsum("bhts,bshk->bthk", w_BHTS, v_BSHK)
    return torch.einsum("bthk,hkd->btd", o_BTHK, params.o)


class Attention(torch.nn.Module):
    def __init__(self, features: int, num_heads: int, *, seed: int = 0):
        super().__init__()
        tree = init(torch.Generator().manual_seed(seed), features, num_heads)
        self.tree = torch.nn.ParameterDict({n: torch.nn.Parameter(t) for n, t in tree._asdict().items()})

    def forward(self, inputs: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        return apply(Params(**self.tree), inputs, mask)
