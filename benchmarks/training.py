"""A training step of the base Transformer beside torch.nn.Transformer: forward, loss, backward, AdamW."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heed
from benchmarks.measure import race
from benchmarks.report import Row, Target, compared
from heed import Where
from heed.models import Seq2seq
from heed.models.architectures.transformer import BASE, TORCH, TransformerSize, transformer

VOCABULARY, PAIRS, TOKENS = 10_000, 64, 32
PARTS = {  # of heed's block -> of torch's layer, beside the projections of an attention
    "feedforward.up": "linear1",
    "feedforward.down": "linear2",
    "wiring.norms.0": "norm1",
    "wiring.norms.1": "norm2",
    "wiring.norms.2": "norm3",
}


class Peer(nn.Module):
    """torch.nn.Transformer with what it lacks to be a model: embeddings, sinusoids, a generator."""

    def __init__(self, size: TransformerSize, *, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.source = nn.Embedding(VOCABULARY, size.width)
        self.target = nn.Embedding(VOCABULARY, size.width)
        self.dropout = nn.Dropout(size.dropout)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="enable_nested_tensor")  # an inference path; this is training
            self.transformer = nn.Transformer(
                size.width, size.heads, size.depth, size.depth, size.hidden, size.dropout, batch_first=batch_first
            )
        self.generator = nn.Linear(size.width, VOCABULARY)
        waves, triangle = sinusoids(TOKENS, size.width), nn.Transformer.generate_square_subsequent_mask(TOKENS)
        self.register_buffer("waves", waves if batch_first else waves[:, None], persistent=False)
        self.register_buffer("triangle", triangle, persistent=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        stream = self.transformer(
            self._place(self.source, source),
            self._place(self.target, target),
            tgt_mask=self.triangle,
            tgt_is_causal=True,
        )
        logits: Tensor = self.generator(stream)
        return logits

    def _place(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(table(tokens) * table.embedding_dim**0.5 + self.waves)
        return embedded

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """Mean over the tokens of [pairs, tokens] and [pairs, tokens + 1] ids."""
        before, after = target[:, :-1], target[:, 1:]
        if not self.batch_first:
            source, before, after = source.T, before.T, after.T
        return F.cross_entropy(self(source, before).flatten(0, 1), after.reshape(-1))


def sinusoids(tokens: int, width: int) -> Tensor:
    """Vaswani et al. 2017, sec. 3.5. [tokens, width]"""
    angle = torch.arange(tokens)[:, None] * 10_000 ** (-torch.arange(0, width, 2) / width)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)


def built(size: TransformerSize) -> Seq2seq:
    """heed's side."""
    model = heed.build(transformer(VOCABULARY, VOCABULARY, size=size, variant=TORCH))
    assert isinstance(model, Seq2seq)
    return model


def loss(model: Seq2seq, source: Tensor, target: Tensor) -> Tensor:
    """The same loss as the peer's."""
    encoded = model.encode(source, Where.run(*source.shape))
    before, after = target[:, :-1], target[:, 1:]
    logits, _ = model(before, Where.run(*before.shape).give(encoder_output=encoded))
    return F.cross_entropy(logits.flatten(0, 1), after.reshape(-1))


def rows(rounds: int | None) -> Iterator[Row]:
    """512 wide, 6+6 layers, 8 heads, 2048 hidden; 64 pairs of 32 tokens; vocabularies of 10,000; dropout 0.1."""
    torch.manual_seed(0)
    _agree()
    batch = _batch(PAIRS)
    model = built(BASE)
    peers = {order: Peer(BASE, batch_first=order) for order in (True, False)}
    samples = race(
        {
            "heed": partial(_step, partial(loss, model, *batch), _adamw(model)),
            "rows": partial(_step, partial(peers[True].loss, *batch), _adamw(peers[True])),
            "tokens": partial(_step, partial(peers[False].loss, *batch), _adamw(peers[False])),
        },
        rounds or 7,
    )
    for name, what in (("rows", "batch first"), ("tokens", "batch second")):
        yield compared(f"a step; peer: nn.Transformer, {what}", samples["heed"], samples[name], Target(1.0))


def _step(loss: partial[Tensor], optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    loss().backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def _batch(pairs: int) -> tuple[Tensor, Tensor]:
    """Source and target ids; the target has one more, as it is read and written one step apart."""
    return torch.randint(VOCABULARY, (pairs, TOKENS)), torch.randint(VOCABULARY, (pairs, TOKENS + 1))


def _agree() -> None:
    """With the same weights and no dropout all three give the same loss and the same gradients."""
    size = replace(BASE, depth=2, dropout=0.0)
    model, batch = built(size), _batch(4)
    mine = loss(model, *batch)
    mine.backward()  # type: ignore[no-untyped-call]
    for order in (True, False):
        peer = Peer(size, batch_first=order)
        peer.load_state_dict(renamed(dict(model.named_parameters()), size.depth))
        theirs = peer.loss(*batch)
        theirs.backward()  # type: ignore[no-untyped-call]
        gradients = renamed({name: _gradient(weight) for name, weight in model.named_parameters()}, size.depth)
        errors = [float((gradients[name] - _gradient(weight)).abs().max()) for name, weight in peer.named_parameters()]
        if abs(mine.item() - theirs.item()) > 1e-4 or max(errors) > 1e-4:
            raise RuntimeError(
                f"heed and nn.Transformer do not compute the same: loss {mine.item():.6f} and {theirs.item():.6f}, "
                f"gradients differ by up to {max(errors):.1e}"
            )


def _gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad


def renamed(weights: dict[str, Tensor], depth: int) -> dict[str, Tensor]:
    """heed's weights under the peer's names."""
    found = {
        "source.weight": weights["encoder.embeddings.table.weight"],
        "target.weight": weights["decoder.embeddings.table.weight"],
        "generator.weight": weights["decoder.head.weight"],
        "generator.bias": weights["decoder.head.bias"],
    }
    for half, attentions in (
        ("encoder", {"mixer": "self_attn"}),
        ("decoder", {"mixer": "self_attn", "cross": "multihead_attn"}),
    ):
        for kind in ("weight", "bias"):
            found[f"transformer.{half}.norm.{kind}"] = weights[f"{half}.stack.ends.final.{kind}"]
            for layer in range(depth):
                mine, theirs = f"{half}.stack.blocks.{layer}", f"transformer.{half}.layers.{layer}"
                for here, there in attentions.items():
                    three = [weights[f"{mine}.{here}.{name}.{kind}"] for name in ("query", "key", "value")]
                    found[f"{theirs}.{there}.in_proj_{kind}"] = torch.cat(three)
                    found[f"{theirs}.{there}.out_proj.{kind}"] = weights[f"{mine}.{here}.out.{kind}"]
                for here, there in PARTS.items():
                    if f"{mine}.{here}.{kind}" in weights:
                        found[f"{theirs}.{there}.{kind}"] = weights[f"{mine}.{here}.{kind}"]
    return found
