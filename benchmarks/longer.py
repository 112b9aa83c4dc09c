"""A window over 16,384 tokens beside those who compile for it and those who made it known.

flex_attention is compiled for just this mask before the clock starts; transformers' Longformer attention is called as
its model calls it, and sees 128 tokens to either side, as heed's mixer does here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

import heed
from heed.core.contract import Where
from heed.mixers import Attention, Longformer
from heed.parts.masks import Window

from .measure import Runner, Three, race, swapped
from .report import Row, Target, compared

TOKENS, HEADS, SIZE, WINDOW = 16_384, 8, 64, 256
WIDTH = HEADS * SIZE
TF: Any = transformers


def rows(rounds: int | None) -> Iterator[Row]:
    """Attention alone beside flex_attention, a whole mixer beside Longformer's."""
    torch.manual_seed(0)
    with torch.no_grad():
        yield from _flex(rounds or 9)
        yield from _longformer(rounds or 5)


def _flex(rounds: int) -> Iterator[Row]:
    query, key, value = (torch.randn(1, TOKENS, HEADS, SIZE) for _ in range(3))
    for back, ahead, what in ((WINDOW - 1, 0, "causal"), (WINDOW // 2, WINDOW // 2, "both ways")):
        compiled = _compiled(back, ahead, (query, key, value))
        window = Window(back=back, ahead=ahead)
        runners: dict[str, Runner] = {
            "heed": partial(heed.attend, query, key, value, window),
            "flex": compiled,
        }
        _agree(heed.attend(query, key, value, window), compiled().transpose(1, 2))
        samples = race(runners, rounds)
        words = f"{TOKENS:,} tokens, window {WINDOW}, {what}; peer: compiled flex_attention"
        yield compared(words, samples["heed"], samples["flex"], Target(1.0))


def _compiled(back: int, ahead: int, three: Three) -> partial[Tensor]:
    """flex_attention for this window, on memory as it likes it best: heads first, in one piece."""

    def near(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query - key <= back) & (key - query <= ahead)

    blocks = create_block_mask(near, None, None, TOKENS, TOKENS, device="cpu")
    heads_first = [x.contiguous() for x in swapped(three)]
    return partial(torch.compile(flex_attention), *heads_first, block_mask=blocks)


def _longformer(rounds: int) -> Iterator[Row]:
    config = TF.LongformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_window=[WINDOW], num_hidden_layers=1
    )
    peer = LongformerSelfAttention(config, layer_id=0).eval()
    mask = Window(back=WINDOW // 2, ahead=WINDOW // 2)
    mixers = {
        "window mixer": Attention.Config(heads=HEADS, mask=mask).build(WIDTH),
        "longformer mixer": Longformer.Config(heads=HEADS, window=WINDOW).build(WIDTH),
    }
    x, where = torch.randn(1, TOKENS, WIDTH), Where.run(1, TOKENS)
    for name, mixer in mixers.items():
        _same_weights(mixer, peer)
        _agree(mixer.eval()(x, where)[0], _theirs(peer, x))
        samples = race({"heed": partial(mixer, x, where), "peer": partial(_theirs, peer, x)}, rounds)
        words = f"{TOKENS:,} tokens, {name}; peer: transformers {TF.__version__}, LongformerSelfAttention"
        yield compared(words, samples["heed"], samples["peer"], Target(1 / 3))


def _theirs(peer: Any, x: Tensor) -> Tensor:
    """Called as their layer does: nobody is hidden, nobody is global. Its output projection is a module of its own."""
    none = torch.zeros(1, TOKENS, dtype=torch.bool)
    mask = torch.zeros(1, TOKENS)
    made: Tensor = peer(
        x,
        attention_mask=mask,
        is_index_masked=none,
        is_index_global_attn=none,
        is_global_attn=False,
        output_attentions=False,
    )[0]
    return made


def _same_weights(mixer: Any, peer: Any) -> None:
    """Ours projects its output too; with the unit matrix there, both compute the same."""
    for name in ("query", "key", "value"):
        getattr(mixer, name).load_state_dict(getattr(peer, name).state_dict())
    torch.nn.init.eye_(mixer.out.weight)
    torch.nn.init.zeros_(mixer.out.bias)


def _agree(mine: Tensor, theirs: Tensor) -> None:
    """What is compared computes the same: float32, a few hundred keys of weights that sum to one."""
    error = float((mine - theirs).abs().max())
    if error > 1e-4:
        raise RuntimeError(f"heed and its peer differ by {error:.1e}, which no rounding explains")
