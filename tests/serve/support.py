"""Small models to serve, each of another mechanism, and requests for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from heed.core.contract import Mixer
from heed.mixers import Attention, Cross, LinearAttention, Retention
from heed.models import RWKV, Decoder, Encoder, Seq2seq
from heed.parts.masks import Window
from heed.parts.positions import Alibi, Learned, Rope
from heed.serve.writer import Writer
from heed.weights.edits import Quantised, edit

VOCABULARY, CHUNK = 37, 8
SIZES: dict[str, Any] = {"vocabulary": VOCABULARY, "width": 24, "depth": 2}
PLANS: dict[str, Any] = {
    "attention": Decoder.Config(**SIZES, position=Learned.Config(length=128)),
    "window": Decoder.Config(**SIZES, mixer=Attention.Config(mask=Window(back=5), position=Rope.Config())),
    "gqa": Decoder.Config(**SIZES, mixer=Attention.Config(heads=4, kv_heads=2, position=Rope.Config())),
    "retention": Decoder.Config(**SIZES, mixer=Retention.Config(heads=2)),
    "rwkv": RWKV(width=24, depth=2, hidden=16).sized(VOCABULARY),
    "hybrid": Decoder.Config(
        **SIZES, mixer=(Retention.Config(heads=2), Attention.Config(heads=2, mask=Window(back=6)))
    ),
    "mixed": Decoder.Config(**SIZES, mixer=(Retention.Config(heads=2), Attention.Config(heads=2))),
    "alibi": Decoder.Config(**SIZES, mixer=Attention.Config(heads=2, position=Alibi.Config(), cap=3.0)),
    "int8": Decoder.Config(**SIZES, mixer=Attention.Config(heads=2, position=Rope.Config())),  # quantised by `built`
    "linear": Decoder.Config(**SIZES, mixer=LinearAttention.Config(heads=2)),  # by plain calls: it has no instructions
    "translator": Seq2seq.Config(
        encoder=Encoder.Config(**SIZES), decoder=Decoder.Config(**SIZES, cross=Cross.Config()), shared=True
    ),
}


def built(name: str, seed: int = 0, *, quantised: bool = False) -> Mixer[Any]:
    """A model whose tokens are neither all alike nor all equally probable."""
    torch.manual_seed(seed)
    model = PLANS[name].build().eval()
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.Linear):
                part.weight.mul_(1.5)
    if quantised or name == "int8":
        edit(model, Quantised())
    return model


class Noted:
    """What every request was written by: all its logits, by the number that marks it."""

    def __init__(self) -> None:
        self.logits: dict[int, list[Tensor]] = {}

    def mark(self, number: int) -> Callable[[tuple[int, ...]], None]:
        """A constraint that allows everything and belongs to one request."""

        def mark(written: tuple[int, ...]) -> None:
            return None

        mark.number = number  # type: ignore[attr-defined]  # found again by `note`
        return mark

    def note(self, writer: Writer, logits: Tensor) -> None:
        self.logits.setdefault(writer._request.allow.number, []).append(logits.clone())  # type: ignore[union-attr]
