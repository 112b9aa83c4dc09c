"""x-transformers: training, and one layer of attention with torch's fused form."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..base import Contestant, Done, Prepared, nearest
from ..rounds import training
from ..work import Work

if TYPE_CHECKING:
    from torch import Tensor


class XTransformers(Contestant):
    """The plain Transformers among its options."""

    name: ClassVar[str] = "x-transformers"
    package: ClassVar[str] = "x_transformers"
    distribution: ClassVar[str] = "x-transformers"

    def precision(self, work: Work) -> str | None:
        return nearest(work, {"fp32": "fp32"}, ("train", "attention"))

    def prepare(self, work: Work) -> Prepared:
        if work.subject == "attention":
            return _attention(work)
        return training(work, lambda: _base(work) if work.model == "transformer" else _gpt(work))


def _base(work: Work) -> tuple[Any, Callable[[], Tensor]]:
    import torch
    from x_transformers import XTransformer

    rows = torch.tensor(work.rows(more=1))
    config, sides = work.config, dict[str, Any]()
    for side in ("enc", "dec"):
        sizes = {"num_tokens": config["vocab_size"], "depth": config["encoder_layers"], "max_seq_len": work.reads + 1}
        layers = {"heads": config["encoder_attention_heads"], "attn_flash": True}
        dropouts = dict.fromkeys(("attn_dropout", "ff_dropout", "emb_dropout"), config["dropout"])
        sides |= {f"{side}_{name}": value for name, value in {**sizes, **layers, **dropouts}.items()}
    model = XTransformer(dim=config["d_model"], **sides).train()

    def loss() -> Tensor:
        made: Tensor = model(rows[:, :-1], rows)
        return made

    return model, loss


def _gpt(work: Work) -> tuple[Any, Callable[[], Tensor]]:
    import torch
    import torch.nn.functional as F
    from x_transformers import Decoder, TransformerWrapper

    config = work.config
    rows = torch.tensor(work.rows(more=1))
    before, after = rows[:, :-1], rows[:, 1:].reshape(-1)
    layers = Decoder(dim=config["n_embd"], depth=config["n_layer"], heads=config["n_head"], attn_flash=True)
    sizes = {"num_tokens": config["vocab_size"], "max_seq_len": config["n_positions"], "tie_embedding": True}
    model = TransformerWrapper(**sizes, attn_layers=layers).train()

    def loss() -> Tensor:
        return F.cross_entropy(model(before).flatten(0, 1), after)

    return model, loss


def _attention(work: Work) -> Prepared:
    import torch
    from x_transformers.x_transformers import Attention

    layer = Attention(dim=512, heads=8, dim_head=64, causal=True, flash=True).eval()
    x = torch.randn(work.batch, work.reads, 512)

    def mixed() -> Done:
        with torch.no_grad():
            y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        return Done(y.shape[0] * y.shape[1])

    return Prepared({"": mixed})
