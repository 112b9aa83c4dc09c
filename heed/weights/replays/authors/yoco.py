"""YOCO (Sun et al. 2024) in its authors' layout, and their gated retention alone."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor

from ....core.config import Flag, Positive, Size, Theirs
from ....core.contract import MixerConfig, Where
from ....core.errors import WeightsError
from ....core.state import Cell
from ....mixers import Attention, GatedRetention
from ....models.block import States
from ....models.variants.yoco import SharedKVAttention, Yoco
from ....parts.feedforward import Gated
from ....parts.layers.norms import RMSNorm
from ....parts.masks import Window
from ....parts.positions import Rope
from ....parts.recurrence.decay import chunked, written_out
from ...formats.folder import INPUTS, Folder
from ...rename import Same, Table, restore
from ..greedy import continued, ids
from ..inputs import Outputs, must_hold, understood
from ..shapes.shared import must_read


class YOCOArgs(Theirs):
    """The arguments of YOCO; the defaults are theirs."""

    dim: Size
    n_layers: Size
    hidden_dim: Size
    n_self_heads: Size
    n_attn_heads: Size
    n_attn_kv_heads: Size
    vocab_size: Size
    rope_theta: Positive = 10000.0
    norm_eps: Positive = 1e-5
    sliding_window: Size | None = None
    gate_logit_normalizer: Positive = 16.0
    share_input_output_embed: Flag = False
    model_parallel_size: Literal[1] = 1  # else tensors are cut into pieces

    @property
    def half(self) -> int:
        """Layers of either half; of an odd number of layers the last one is not made."""
        return self.n_layers // 2

    @property
    def position(self) -> Rope.Config:
        """The rotation that all layers have."""
        return Rope.Config(layout="pairs", base=self.rope_theta, spread="inclusive")

    @property
    def mixer(self) -> MixerConfig:
        """That of the lower half."""
        if self.sliding_window is not None:
            window = Window(back=self.sliding_window - 1)
            return Attention.Config(heads=self.n_self_heads, mask=window, position=self.position, bias=False)
        return GatedRetention.Config(
            heads=self.n_self_heads,
            position=self.position,
            norm=RMSNorm(eps=self.norm_eps, gain=False),
            temperature=self.gate_logit_normalizer,
        )

    def ours(self) -> Yoco.Config:
        """The same as a heed model."""
        if not self.half:
            raise WeightsError(f"n_layers is {self.n_layers}; needed are at least 2, one for each half")
        return Yoco.Config(
            vocabulary=self.vocab_size,
            width=self.dim,
            depth=2 * self.half,
            mixer=self.mixer,
            reader=SharedKVAttention.Config(
                heads=self.n_attn_heads, kv_heads=self.n_attn_kv_heads, position=self.position
            ),
            feedforward=Gated.Config(hidden=self.hidden_dim),
            norm=RMSNorm(eps=self.norm_eps),
            scaled=True,
            tied=self.share_input_output_embed,
        )

    def names(self) -> Table:
        """Their tensors, and ours."""
        lower = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "g_proj": "gate", "gt_proj": "fade"}
        upper = {"q_proj": "query", "out_proj": "out"}
        table: Table = (
            Same("embed_tokens.weight", "embeddings.table.weight"),
            Same("output_projection.weight", "head.weight"),
            Same("layer_norm.weight", "stack.ends.final.weight"),
            Same("cross_decoder.kv_layer_norm.weight", "shared.norm.weight"),
            Same("cross_decoder.k_proj.weight", "shared.key.weight"),
            Same("cross_decoder.v_proj.weight", "shared.value.weight"),
        )
        for layer in range(self.half):
            table += _layer(f"self_decoder.layers.{layer}", f"stack.blocks.{layer}", lower | upper)
            table += _layer(f"cross_decoder.layers.{layer}", f"stack.blocks.{self.half + layer}", upper)
        return table


def _layer(theirs: str, ours: str, mixer: dict[str, str]) -> Table:
    feedforward = {"fc1": "gate", "gate": "up", "fc2": "down"}  # theirs activates fc1, and calls the other one gate
    return (
        *(Same(f"{theirs}.mixer.{a}.weight", f"{ours}.mixer.{b}.weight") for a, b in mixer.items()),
        *(Same(f"{theirs}.ffn.{a}.weight", f"{ours}.feedforward.{b}.weight") for a, b in feedforward.items()),
        Same(f"{theirs}.mixer_layer_norm.weight", f"{ours}.wiring.norms.0.weight"),
        Same(f"{theirs}.final_layer_norm.weight", f"{ours}.wiring.norms.1.weight"),
    )


def model(folder: Folder) -> Yoco:
    """The model in a folder of the family `yoco`."""
    theirs = understood(folder, YOCOArgs)
    must_hold(folder, theirs.dim, theirs.half)
    return restore(lambda: theirs.ours().build(), folder, theirs.names())


def outputs(folder: Folder) -> Outputs:
    """Scores in one call, and after a first half of the tokens one by one; the stream after each half of the model, the
    keys and values that they share, what the lower half remembers after the first half of the tokens and after all; and
    a greedy continuation, which may begin before the last token. Or the gated retention alone, if there is a `q`.
    """
    if "q" in folder.inputs:
        return _alone(folder)
    must_read(folder, "attention_mask", "position_ids", "labels")
    yoco, tokens = model(folder), ids(folder, "input_ids")
    return _at_once(yoco, tokens) | _one_by_one(yoco, tokens) | continued(folder, yoco, tokens)


def _at_once(yoco: Yoco, tokens: Tensor) -> Outputs:
    where, made, lower = Where.run(*tokens.shape), dict[str, Tensor](), yoco.config.lower
    x = yoco.embeddings(tokens, where)
    for block in yoco.stack.layers[:lower]:
        x, _ = block(x, where)
    made["self_decoder_out"] = x
    where, _ = yoco.shared(x, where, None)
    assert where.given.shared is not None  # just given
    made["cross_key_cache"], made["cross_value_cache"] = where.given.shared.parts
    for block in yoco.stack.layers[lower:]:
        x, _ = block(x, where)
    return made | {"cross_decoder_out": x, "logits": yoco.head(yoco.stack.ends.leave(x))}


def _one_by_one(yoco: Yoco, tokens: Tensor) -> Outputs:
    rows, length = tokens.shape
    first = max(1, length // 2)
    state, logits, made = yoco.start(rows), list[Tensor](), dict[str, Tensor]()
    for begin, end in ((0, first), *((place, place + 1) for place in range(first, length))):
        step_logits, after = yoco(tokens[:, begin:end], Where.run(rows, end - begin, start=begin), state)
        assert after is not None  # a state came in, so one comes out
        state = after
        logits.append(step_logits)
        if begin == 0:
            made |= _held(state[: yoco.config.lower], "prefill_state")
    return made | _held(state[: yoco.config.lower], "final_state") | {"logits_incremental": torch.cat(logits, 1)}


def _held(state: States, stem: str) -> Outputs:
    """What each layer remembers, if it is a matrix."""
    mixers = [cast(States, memory)[0] for memory in state]
    return {f"{stem}.{layer}": held.tensors()[0] for layer, held in enumerate(mixers) if isinstance(held, Cell)}


def _alone(folder: Folder) -> Outputs:
    """The gated retention of [rows, heads, tokens, size] and log decays [rows, heads, tokens], in its three forms."""
    query, key, value, fade = (folder.input(name) for name in ("q", "k", "v", "log_decay"))
    fits = query.dim() == value.dim() == 4 and query.shape == key.shape and query.shape[:3] == value.shape[:3]
    if not fits or fade.shape != query.shape[:3] or not fade.numel():
        given = ", ".join(str(list(x.shape)) for x in (query, key, value, fade))
        raise WeightsError(
            f"{folder.path / INPUTS}: q and k must be [rows, heads, tokens, size], v like them but for its size, and "
            f"log_decay [rows, heads, tokens]; given are {given}"
        )
    if bool((fade > 0).any()):
        raise WeightsError(
            f"{folder.path / INPUTS}: log_decay is above 0 somewhere, which is growth; decays are at most 1"
        )
    query, key, value, fade = (x.transpose(1, 2) for x in (query, key * query.shape[-1] ** -0.5, value, fade))
    steps, state = list[Tensor](), query.new_zeros(*query.shape[::2], query.shape[3], value.shape[3])
    for t in range(query.shape[1]):
        y, state = chunked(query[:, t : t + 1], key[:, t : t + 1], value[:, t : t + 1], fade[:, t : t + 1], state)
        steps.append(y)
    forms = {
        "parallel": written_out(query, key, value, fade)[0],
        "chunk": chunked(query, key, value, fade)[0],
        "recurrent": torch.cat(steps, 1),
    }
    return {name: y.transpose(1, 2) for name, y in forms.items()} | {"final_state": state}
