"""A window over 16,384 tokens beside those who compile for it and those who made it known.

flex_attention is compiled for just this mask before the clock starts, in blocks of a size that is chosen by trial. Of
transformers' Longformer the attention is measured alone, and with the same four projections as a mixer of heed has.
Its windows are counted over both sides: 256 are 128 tokens to the left and 128 to the right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

import heed
from benchmarks.measure import Runner, Three, race, swapped
from benchmarks.report import Row, Target, compared
from heed.core.contract import Where
from heed.mixers import Attention, Longformer
from heed.parts.masks import Window

TOKENS, HEADS, SIZE, WINDOW = 16_384, 8, 64, 256
WIDTH = HEADS * SIZE
BLOCKS = (32, 64, 128)  # sizes that flex_attention is tried with; 128 is its own
THIRD = Target(1 / 3)
TF: Any = transformers


def rows(rounds: int | None) -> Iterator[Row]:
    """Attention alone beside flex_attention and Longformer's, then whole mixers beside Longformer's."""
    torch.manual_seed(0)
    with torch.no_grad():
        yield from _flex(rounds or 9)
        yield from _longformer(rounds or 7)


def _flex(rounds: int) -> Iterator[Row]:
    query, key, value = (torch.randn(1, TOKENS, HEADS, SIZE) for _ in range(3))
    for back, ahead, what in ((WINDOW - 1, 0, "causal"), (WINDOW // 2, WINDOW // 2, "both ways")):
        tried = {size: _compiled(back, ahead, size, (query, key, value)) for size in BLOCKS}
        best = min(tried, key=lambda size: min(race({"flex": tried[size]}, 3)["flex"]))
        window = Window(back=back, ahead=ahead)
        runners: dict[str, Runner] = {"heed": partial(heed.attend, query, key, value, window), "flex": tried[best]}
        _agree(heed.attend(query, key, value, window), tried[best]().transpose(1, 2))
        samples = race(runners, rounds)
        words = f"{TOKENS:,} tokens, window {WINDOW}, {what}; peer: compiled flex_attention, in blocks of {best}"
        yield compared(words, samples["heed"], samples["flex"], Target(1.0))


def _compiled(back: int, ahead: int, size: int, three: Three) -> partial[Tensor]:
    """flex_attention for this window, on memory as it likes it best: heads first, in one piece."""

    def near(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query - key <= back) & (key - query <= ahead)

    blocks = create_block_mask(near, None, None, TOKENS, TOKENS, device="cpu", BLOCK_SIZE=size)
    heads_first = [x.contiguous() for x in swapped(three)]
    return partial(torch.compile(flex_attention), *heads_first, block_mask=blocks)


def _longformer(rounds: int) -> Iterator[Row]:
    x, where = torch.randn(1, TOKENS, WIDTH), Where.run(1, TOKENS)
    for window in (WINDOW, 2 * WINDOW):
        side, peer = window // 2, _peer(window)
        mask, bare = Window(back=side, ahead=side), _peer(window)
        bare.query, bare.key, bare.value = _Copy(), torch.nn.Identity(), torch.nn.Identity()
        heads = x.view(1, TOKENS, HEADS, SIZE)
        mine, theirs = partial(heed.attend, heads, heads, heads, mask), partial(_theirs, bare, x)
        yield _beside(f"window {window}, attention alone", mine, theirs, rounds)
        dense = torch.nn.Linear(WIDTH, WIDTH)  # as in the module that comes after theirs
        for name, config in (
            ("window mixer", Attention.Config(heads=HEADS, mask=mask)),
            ("longformer mixer", Longformer.Config(heads=HEADS, window=window)),
        ):
            mixer = config.build(WIDTH).eval()
            for own, given in ((mixer.query, peer.query), (mixer.key, peer.key), (mixer.value, peer.value)):
                own.load_state_dict(given.state_dict())
            mixer.out.load_state_dict(dense.state_dict())
            words = f"window {window}, {name} with its projections"
            yield _beside(words, partial(_ours, mixer, x, where), partial(_projected, peer, dense, x), rounds)


def _beside(words: str, mine: Callable[[], Tensor], theirs: Callable[[], Tensor], rounds: int) -> Row:
    _agree(mine().flatten(2), theirs().flatten(2))
    samples = race({"heed": mine, "peer": theirs}, rounds)
    peer = f"peer: transformers {TF.__version__}, Longformer"
    return compared(f"{TOKENS:,} tokens, {words}; {peer}", samples["heed"], samples["peer"], THIRD)


class _Copy(torch.nn.Module):
    """In the place of a projection whose result is written to."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clone()


def _peer(window: int) -> Any:
    config = TF.LongformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_window=[window], num_hidden_layers=1
    )
    return LongformerSelfAttention(config, layer_id=0).eval()  # type: ignore[no-untyped-call]


def _theirs(peer: Any, x: Tensor) -> Tensor:
    """Called as their layer does: no token is hidden, none is global."""
    none = torch.zeros(1, TOKENS, dtype=torch.bool)
    made: Tensor = peer(
        x,
        attention_mask=torch.zeros(1, TOKENS),
        is_index_masked=none,
        is_index_global_attn=none,
        is_global_attn=False,
        output_attentions=False,
    )[0]
    return made


def _projected(peer: Any, dense: torch.nn.Linear, x: Tensor) -> Tensor:
    made: Tensor = dense(_theirs(peer, x))
    return made


def _ours(mixer: Attention | Longformer, x: Tensor, where: Where) -> Tensor:
    return mixer(x, where)[0]


def _agree(mine: Tensor, theirs: Tensor) -> None:
    """What is compared computes the same: float32, a few hundred keys of weights that sum to one."""
    error = float((mine - theirs).abs().max())
    if error > 1e-4:
        raise RuntimeError(f"heed and its peer differ by {error:.1e}, which no rounding explains")
