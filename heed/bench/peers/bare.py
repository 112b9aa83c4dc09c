"""The least that can be done: torch and safetensors, the model written out by hand. Only to start is compared."""

from __future__ import annotations

import sys
from typing import ClassVar

from ..base import Contestant, Prepared
from ..rounds import first_token
from ..work import Work

SCRIPT = """
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
held = load_file(path + "/model.safetensors")
width, heads = held["transformer.wte.weight"].shape[1], 12
def at(name): return held["transformer." + name]
def norm(x, name): return F.layer_norm(x, (width,), at(name + ".weight"), at(name + ".bias"))
def linear(x, name): return torch.addmm(at(name + ".bias"), x, at(name + ".weight"))
with torch.no_grad():
    x = at("wte.weight")[torch.arange(8, 24)] + at("wpe.weight")[:16]
    for layer in range(sum(name.endswith("ln_1.weight") for name in held)):
        h = f"h.{layer}."
        q, k, v = linear(norm(x, h + "ln_1"), h + "attn.c_attn").view(16, 3, heads, -1).permute(1, 2, 0, 3)
        y = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0].transpose(0, 1)
        x = x + linear(y.reshape(16, width), h + "attn.c_proj")
        y = F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
        x = x + linear(y, h + "mlp.c_proj")
    int((norm(x, "ln_f")[-1:] @ at("wte.weight").T).argmax())
"""


class Bare(Contestant):
    """A script of twenty lines."""

    name: ClassVar[str] = "bare-torch"
    package: ClassVar[str] = "torch"
    distribution: ClassVar[str] = "torch"

    def precision(self, work: Work) -> str | None:
        return "fp32" if work.subject == "load" and work.model == "gpt2" else None

    def prepare(self, work: Work) -> Prepared:
        return Prepared({"": first_token(sys.executable, work.folder, SCRIPT)})
