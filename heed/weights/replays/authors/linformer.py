"""lucidrains' LinformerLM: pre-norm, learned positions, a head over tokens that looks both ways.

A heed `Decoder` is a backbone with a head; which token sees which is the mixer's affair. So this is a `Decoder` whose
mixers are Linformers. It knows no mask: every token counts.
"""

from __future__ import annotations

from ....core.config import Flag, Size, Theirs
from ....core.contract import Where
from ....core.errors import ConfigError, WeightsError
from ....mixers import Linformer
from ....models.decoder import Decoder
from ....parts.feedforward import FeedForward
from ....parts.positions import Learned
from ....parts.residual.wiring import PreNorm, Reversible, WiringConfig
from ...formats.folder import CONFIG, INPUTS, Folder
from ...rename import Same, Table, both, restore
from ..inputs import Outputs, must_hold, sequence, understood

TIMES = 4  # channels of the feed-forward, as many times the width


class LinformerLM(Theirs):
    """The arguments of the authors' class, with its defaults."""

    num_tokens: Size
    dim: Size
    seq_len: Size
    depth: Size
    k: Size = 256
    heads: Size = 8
    dim_head: Size | None = None
    one_kv_head: Flag = False
    share_kv: Flag = False  # values are keys, and mixed alike
    reversible: Flag = False

    @property
    def wiring(self) -> WiringConfig:
        """Two streams in turn, or one; without a last norm."""
        return Reversible(final=False) if self.reversible else PreNorm(final=False)

    def ours(self) -> Decoder.Config:
        """The same as a heed model. Where there are two streams, their sum is twice their mean."""
        if self.dim % self.heads:
            raise ConfigError(
                f"dim is {self.dim}, which must be a multiple of {self.heads} heads, whatever dim_head is"
            )
        mixer = Linformer.Config(
            heads=self.heads,
            kv_heads=1 if self.one_kv_head else None,
            head_size=self.dim_head,
            bias=False,
            out_bias=True,
            length=self.seq_len,
            rank=self.k,
            shared=self.share_kv,
        )
        return Decoder.Config(
            vocabulary=self.num_tokens,
            width=self.dim,
            depth=self.depth,
            mixer=mixer,
            feedforward=FeedForward.Config(hidden=TIMES * self.dim, activation="gelu"),
            wiring=self.wiring,
            position=Learned.Config(length=self.seq_len),
            tied=False,
            head_bias=True,
            head_scale=2.0 if self.reversible else 1.0,
        )

    @property
    def names(self) -> Table:
        """Their names and ours."""
        layer, block = "linformer.net.layers.{i}", "stack.blocks.{i}"
        first, second = f"{layer}.0", f"{layer}.1"
        if self.reversible:
            first, second = (f"linformer.net.blocks.{{i}}.{side}.net" for side in ("f", "g"))
        value = "to_k" if self.share_kv else "to_v"
        return (
            Same("token_emb.weight", "embeddings.table.weight"),
            Same("pos_emb.weight", "embeddings.position.table"),
            Same(f"{first}.fn.to_q.weight", f"{block}.mixer.query.weight"),
            Same(f"{first}.fn.to_k.weight", f"{block}.mixer.key.weight"),
            Same(f"{first}.fn.{value}.weight", f"{block}.mixer.value.weight"),
            Same(f"{first}.fn.proj_k", f"{block}.mixer.mix_keys"),
            Same(f"{first}.fn.proj_v", f"{block}.mixer.mix_values"),
            *both(f"{first}.fn.to_out", f"{block}.mixer.out"),
            *both(f"{first}.norm", f"{block}.wiring.norms.0"),
            *both(f"{second}.fn.w1", f"{block}.feedforward.up"),
            *both(f"{second}.fn.w2", f"{block}.feedforward.down"),
            *both(f"{second}.norm", f"{block}.wiring.norms.1"),
            *both("to_logits", "head"),
        )


def model(folder: Folder) -> Decoder:
    """The model in a folder of the family `linformer`."""
    config = understood(folder, LinformerLM)
    must_hold(folder, config.dim, config.depth)
    try:
        shape = config.ours()
    except ConfigError as error:
        raise WeightsError(f"{folder.path / CONFIG}: {error}") from None
    return restore(lambda: Decoder(shape), folder, config.names)


def outputs(folder: Folder) -> Outputs:
    """The logits of every token."""
    loaded, longest = model(folder), understood(folder, LinformerLM).seq_len
    tokens = sequence(folder, "input_ids")
    _must_show(folder)
    if tokens.shape[1] > longest:
        raise WeightsError(
            f"{folder.path / INPUTS}: {tokens.shape[1]} tokens do not fit into a Linformer of seq_len {longest}"
        )
    return {"logits": loaded(tokens, Where.run(*tokens.shape))[0]}


def _must_show(folder: Folder) -> None:
    """Raise if some tokens are to be hidden: the authors' model has no way to do that."""
    for name in ("mask", "attention_mask"):
        if name in folder.inputs and not bool(folder.input(name).bool().all()):
            raise WeightsError(
                f"{folder.path / INPUTS}: {name} hides tokens, which a LinformerLM cannot; record it without a mask"
            )
