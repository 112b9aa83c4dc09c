"""RetNet (Sun et al. 2023): torchscale's RetNetDecoder, which computes one model in three forms.

Parallel, recurrent and chunkwise, they divide a retention by different things before it is normed, and so agree up to
the norm's eps. A loaded model has the recurrent form, in which it can be written with; `model` gives the others.
"""

from __future__ import annotations

import math
from typing import Literal, cast

import torch
from torch import Tensor

from ....core.config import Flag, Positive, Size, Theirs
from ....core.contract import Where
from ....core.errors import WeightsError
from ....core.state import Cell
from ....mixers import Retention
from ....models.block import States
from ....models.decoder import Decoder
from ....parts.feedforward import Gated
from ....parts.layers.norms import RMSNorm
from ....parts.positions import Rope, frequencies
from ....parts.recurrence.divisors import Chunkwise, DivisorConfig, Rooted, Summed
from ....parts.residual.wiring import DeepNorm, PostNorm, PreNorm, WiringConfig
from ...formats.folder import Folder
from ...rename import Computed, Same, Table, restore
from ..greedy import continued, ids
from ..inputs import Outputs, must_hold, streams, understood
from ..shapes.shared import must_read
from .torchscale import ACTIVATIONS

BASE = 10000.0  # of the rotation


class RetNetConfig(Theirs):
    """RetNetConfig; the defaults are torchscale's. Options of its other classes (xpos, buckets) do nothing here."""

    decoder_embed_dim: Size = 768
    decoder_value_embed_dim: Size = 1280
    decoder_retention_heads: Size = 3
    decoder_ffn_embed_dim: Size = 1280
    decoder_layers: Size = 12
    decoder_normalize_before: Flag = True
    activation_fn: Literal["relu", "gelu", "swish"] = "gelu"
    no_scale_embedding: Flag = True
    layernorm_embedding: Flag = False
    layernorm_eps: Positive = 1e-6
    deepnorm: Flag = False
    share_decoder_input_output_embed: Flag = False
    recurrent_chunk_size: Size = 512
    chunkwise_recurrent: Flag = False
    vocab_size: Size
    # What heed does not hold must be off.
    moe_freq: Literal[0] = 0
    multiway: Literal[False] = False
    no_output_layer: Literal[False] = False

    @property
    def norm(self) -> RMSNorm:
        """The one norm that is used throughout."""
        return RMSNorm(eps=self.layernorm_eps)

    @property
    def wiring(self) -> WiringConfig:
        """Where the norms sit. DeepNorm beside a norm before each part still weighs the stream by alpha."""
        deep = DeepNorm.alone(self.decoder_layers)
        if self.decoder_normalize_before:
            return PreNorm(alpha=deep.alpha if self.deepnorm else 1.0)
        return deep if self.deepnorm else PostNorm()

    @property
    def call(self) -> DivisorConfig:
        """The form of a call without a state."""
        return self.chunks if self.chunkwise_recurrent else Summed()

    @property
    def chunks(self) -> Chunkwise:
        """The chunkwise form."""
        return Chunkwise(chunk=self.recurrent_chunk_size)

    def ours(self, divisor: DivisorConfig) -> Decoder.Config:
        """The same as a heed model."""
        heads, values = self.decoder_retention_heads, self.decoder_value_embed_dim
        if values % heads:
            raise WeightsError(f"decoder_value_embed_dim {values} does not divide into {heads} decoder_retention_heads")
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.decoder_embed_dim,
            depth=self.decoder_layers,
            mixer=Retention.Config(
                heads=heads,
                value_size=values // heads,
                position=Rope.Config(layout="pairs", spread="inclusive"),
                norm=RMSNorm(eps=self.layernorm_eps, gain=False),
                divisor=divisor,
            ),
            feedforward=Gated.Config(hidden=self.decoder_ffn_embed_dim, activation=ACTIVATIONS[self.activation_fn]),
            norm=self.norm,
            wiring=self.wiring,
            scaled=not self.no_scale_embedding,
            embedding_norm=self.norm if self.layernorm_embedding else None,
            tied=self.share_decoder_input_output_embed,
        )

    @property
    def angle(self) -> Tensor:
        """How fast every channel of a head turns."""
        half = self.decoder_embed_dim // self.decoder_retention_heads // 2
        return torch.tensor(frequencies(half, BASE, "inclusive"), dtype=torch.float64).repeat_interleave(2)

    @property
    def decay(self) -> Tensor:
        """log γ of every head."""
        fades = [math.log1p(-(2.0 ** (-5 - head))) for head in range(self.decoder_retention_heads)]
        return torch.tensor(fades, dtype=torch.float64)

    def names(self) -> Table:
        """Their tensors, and ours."""
        theirs, ours = "layers.{i}", "stack.blocks.{i}"
        retention = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "g_proj": "gate", "out_proj": "out"}
        feedforward = {"fc1": "gate", "gate": "up", "fc2": "down"}  # theirs activates fc1, and calls the other one gate
        return (
            Same("embed_tokens.weight", "embeddings.table.weight"),
            Same("output_projection.weight", "head.weight"),
            Same("layernorm_embedding.weight", "embeddings.norm.weight"),
            Same("layer_norm.weight", "stack.ends.final.weight"),
            *(Same(f"{theirs}.retention.{a}.weight", f"{ours}.mixer.{b}.weight") for a, b in retention.items()),
            *(Same(f"{theirs}.ffn.{a}.weight", f"{ours}.feedforward.{b}.weight") for a, b in feedforward.items()),
            Same(f"{theirs}.retention_layer_norm.weight", f"{ours}.wiring.norms.0.weight"),
            Same(f"{theirs}.final_layer_norm.weight", f"{ours}.wiring.norms.1.weight"),
            Computed("retnet_rel_pos.angle", "embeddings.table.weight", self.angle),
            Computed("retnet_rel_pos.decay", "embeddings.table.weight", self.decay),
        )


def model(folder: Folder, divisor: DivisorConfig | None = None) -> Decoder:
    """The model in a folder of the family `retnet`: in the recurrent form, or divided by something else."""
    theirs = understood(folder, RetNetConfig)
    must_hold(folder, theirs.decoder_embed_dim, theirs.decoder_layers)
    return restore(lambda: theirs.ours(divisor or Rooted()).build(), folder, theirs.names())


def outputs(folder: Folder) -> Outputs:
    """Scores in each form; the stream at every depth and the first retention alone, both parallel; waves and decays;
    what is remembered somewhere in the middle and at the end. In the form of a call as config.json has it: `logits`,
    and a greedy continuation, which may begin before the last token.
    """
    must_read(folder)
    theirs, tokens = understood(folder, RetNetConfig), ids(folder, "prev_output_tokens")
    where, made = Where.run(*tokens.shape), _tables(theirs, tokens.shape[1], folder.dtype)
    forms = {"logits": theirs.call, "logits_chunkwise": theirs.chunks, "logits_parallel": Summed()}
    made |= {name: model(folder, divisor)(tokens, where)[0] for name, divisor in forms.items() if folder.wants(name)}
    parallel = model(folder, Summed())
    inner = streams(parallel.stack, parallel.embeddings(tokens, where), where)
    made |= {f"inner_states.{depth}": x for depth, x in enumerate(inner)}
    if folder.wanted is not None and "retention0_input" in folder.wanted:
        made["retention0_input"] = alone = folder.extra("retention0_input")
        made["retention0_output"] = parallel.stack.layers[0].mixer(alone, Where.run(*alone.shape[:2]))[0]
    middle = _middle(folder, theirs.decay, tokens.shape[1])
    return made | _recurrent(model(folder), tokens, middle) | continued(folder, model(folder, theirs.call), tokens)


def _recurrent(decoder: Decoder, tokens: Tensor, middle: int) -> Outputs:
    """Token by token, with a look at what is remembered after `middle` of them, and after all."""
    where, length = Where.run(*tokens.shape), tokens.shape[1]
    state, logits, made = decoder.start(len(tokens)), list[Tensor](), dict[str, Tensor]()
    for column in range(length):
        step_logits, after = decoder(tokens[:, column : column + 1], where.cut(column, column + 1), state)
        assert after is not None  # a state came in, so one comes out
        state = after
        logits.append(step_logits)
        for stem in [stem for stem, count in (("state_mid", middle), ("state_end", length)) if count == column + 1]:
            made |= _held(state, stem)
    return made | {"logits_recurrent": torch.cat(logits, 1)}


def _middle(folder: Folder, decay: Tensor, length: int) -> int:
    """How many tokens had been read when the state was recorded: the sum beside it, Σ_j γ^j, tells."""
    name = "state_mid.0.scale"
    found = folder.extra(name) if name in (folder.wanted or ()) else None
    if found is None or found.shape != decay.shape:
        return length // 2 + 1
    sums = (decay * torch.arange(length)[:, None]).exp().cumsum(0)  # [T, H]
    return int((sums - found).abs().amax(1).argmin()) + 1


def _held(state: States, stem: str) -> Outputs:
    """What each layer remembers as torchscale has it: values by keys, divided by the root of how much was added."""
    made = {}
    for layer, memory in enumerate(state):
        matrix, sums = cast("tuple[Cell, Cell]", cast(States, memory)[0])
        ((values,), (scale,)) = matrix.tensors(), sums.tensors()
        made[f"{stem}.{layer}.prev_key_value"] = values.mT / scale.sqrt()[..., None, None]
        made[f"{stem}.{layer}.scale"] = scale[0]  # of all rows alike
    return made


def _tables(theirs: RetNetConfig, length: int, dtype: torch.dtype) -> Outputs:
    """The waves of every position, and the decays between positions, divided as the parallel form has them."""
    place = torch.arange(length, dtype=torch.float64)
    phase = place[:, None] * theirs.angle
    age = place[:, None] - place
    decay = (theirs.decay[:, None, None] * age).masked_fill(age < 0, -torch.inf).exp()
    mask = decay / decay.sum(-1, keepdim=True).sqrt()
    return {"sin": phase.sin().to(dtype), "cos": phase.cos().to(dtype), "decay_mask": mask.to(dtype)}
