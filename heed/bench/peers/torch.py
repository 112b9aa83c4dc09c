"""torch's own modules: nn.Transformer, nn.MultiheadAttention, and torch.compile around transformers' model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..base import Contestant, Done, Prepared
from ..rounds import training
from ..shapes import PAIRS
from ..work import Work

if TYPE_CHECKING:
    from torch import Tensor


class Torch(Contestant):
    """Training of the base Transformer, and one layer of attention."""

    name: ClassVar[str] = "torch"
    package: ClassVar[str] = "torch"
    distribution: ClassVar[str] = "torch"

    def precision(self, work: Work) -> str | None:
        trains = work.subject == "train" and work.model in PAIRS
        return "fp32" if trains or work.subject == "attention" else None

    def prepare(self, work: Work) -> Prepared:
        return training(work, lambda: _base(work)) if work.subject == "train" else _attention(work)


class Compiled(Contestant):
    """torch.compile: the model and the loss of transformers in one graph, compiled before the first round."""

    name: ClassVar[str] = "torch.compile"
    package: ClassVar[str] = "transformers"
    distribution: ClassVar[str] = "torch"

    def precision(self, work: Work) -> str | None:
        return "fp32" if work.subject == "train" and work.model == "gpt-50k" else None

    def prepare(self, work: Work) -> Prepared:
        import torch

        from .transformers import trained

        def made() -> tuple[Any, Callable[[], Tensor]]:
            model, loss = trained(work)()
            return model, torch.compile(loss)

        return training(work, made)


def _base(work: Work) -> tuple[Any, Callable[[], Tensor]]:
    """nn.Transformer with what it lacks to be a model: embeddings, sinusoids, a generator."""
    import warnings

    import torch
    import torch.nn.functional as F
    from torch import nn

    rows = torch.tensor(work.rows(more=1))
    before, after = rows[:, :-1], rows[:, 1:].reshape(-1)
    config = work.config
    width, depth, heads = config["d_model"], config["encoder_layers"], config["encoder_attention_heads"]
    tokens, hidden, share = config["vocab_size"], config["encoder_ffn_dim"], config["dropout"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="enable_nested_tensor")  # an inference path; this is training
        core = nn.Transformer(width, heads, depth, depth, hidden, share, batch_first=True)
    tables = nn.ModuleList([nn.Embedding(tokens, width), nn.Embedding(tokens, width)])
    model = nn.ModuleDict({"core": core, "tables": tables, "head": nn.Linear(width, tokens)}).train()
    angle = torch.arange(work.reads)[:, None] * 10_000 ** (-torch.arange(0, width, 2) / width)
    waves = torch.stack((angle.sin(), angle.cos()), -1).flatten(1)
    mask = nn.Transformer.generate_square_subsequent_mask(work.reads)

    def loss() -> Tensor:
        source, target = (F.dropout(table(before) * width**0.5 + waves, share) for table in tables)
        stream = core(source, target, tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(model["head"](stream).flatten(0, 1), after)

    return model, loss


def _attention(work: Work) -> Prepared:
    import torch

    layer = torch.nn.MultiheadAttention(512, 8, batch_first=True).eval()
    x = torch.randn(work.batch, work.reads, 512)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(work.reads)

    def mixed() -> Done:
        with torch.no_grad():
            y, _ = layer(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
        return Done(y.shape[0] * y.shape[1])

    return Prepared({"": mixed})
