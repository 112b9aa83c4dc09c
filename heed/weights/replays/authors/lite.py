"""Lite Transformer (Wu et al. 2020) in its authors' layout, a branch of fairseq: `transformer_multibranch_v2`.

Their lightweight convolutions have no gate. Their encoder blanks padding before a convolution projects it, so that what
is next to padding sees the projection's bias there: a replay fills rows up as their batch does. A row by itself is the
same in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias

import torch
from pydantic import BeforeValidator, model_validator
from torch import Tensor

from ....core.config import Config, Count, Flag, Share, Size, Theirs
from ....core.contract import Given, MixerConfig, Where
from ....core.errors import ConfigError, WeightsError
from ....core.state import Seen
from ....mixers import Attention, Branches, Cross, DynamicConv, LightConv
from ....models.decoder import Decoder
from ....models.encoder import Encoder
from ....models.seq2seq import Seq2seq
from ....parts.convolution.lightweight import Lightweight
from ....parts.feedforward import Activation, FeedForward
from ....parts.look import look
from ....parts.masks import Causal, Whole
from ....parts.positions import AddedConfig, Learned, Sinusoid
from ....parts.residual.wiring import PostNorm, PreNorm
from ...formats.folder import INPUTS, Folder
from ...rename import Computed, Ignored, Rule, Same, Table, both, restore
from ..greedy import generated, greedy
from ..inputs import Outputs, Padded, must_hold, sequence, streams, understood

Side: TypeAlias = Literal["encoder", "decoder"]
SIDES: tuple[Side, Side] = ("encoder", "decoder")
START = 2  # the id that a translation begins with: the end of a sentence, in fairseq's dictionaries
VERSION = 3.0  # of their layers
KERNELS = (3, 7, 15, 31, 31, 31, 31)
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "tanh": "tanh",
    "linear": "identity",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
}


class Branch(Config):
    """One of their branches, "type:kernel:channels:heads"."""

    what: Literal["attn", "lightweight", "dynamic"]
    kernel: Size | None = None  # None: as the list of kernels says
    channels: Size
    heads: Size


def _parted(value: object) -> object:
    if not isinstance(value, str):
        return value
    parts = value.split(":")
    if len(parts) != 4 or not all(part.isdigit() for part in (*parts[2:], parts[1].replace("default", "1"))):
        raise ValueError(f"{value!r} is no branch; one is type:kernel:channels:heads, such as dynamic:default:16:4")
    kernel = None if parts[1] == "default" else int(parts[1])
    return {"what": parts[0], "kernel": kernel, "channels": int(parts[2]), "heads": int(parts[3])}


SomeBranches: TypeAlias = tuple[Annotated[Branch, BeforeValidator(_parted)], ...] | None


class Lite(Theirs):
    """The arguments of their model; the defaults are theirs."""

    encoder_embed_dim: Size = 512
    encoder_ffn_embed_dim: Size = 2048
    encoder_layers: Size = 6
    encoder_attention_heads: Size = 8
    encoder_normalize_before: Flag = False
    encoder_learned_pos: Flag = False
    encoder_branch_type: SomeBranches = None
    encoder_kernel_size_list: tuple[Size, ...] = KERNELS
    encoder_glu: Flag = True
    decoder_embed_dim: Size | None = None
    decoder_ffn_embed_dim: Size | None = None
    decoder_layers: Size = 6
    decoder_attention_heads: Size = 8
    decoder_normalize_before: Flag = False
    decoder_learned_pos: Flag = False
    decoder_branch_type: SomeBranches = None
    decoder_kernel_size_list: tuple[Size, ...] = KERNELS
    decoder_glu: Flag = True
    no_decoder_final_norm: Flag = False
    activation_fn: Literal["relu", "gelu", "gelu_fast", "gelu_accurate", "tanh", "linear"] = "relu"
    dropout: Share = 0.1
    attention_dropout: Share = 0.0
    activation_dropout: Share = 0.0
    weight_dropout: Share | None = None
    conv_linear: Flag = False
    weight_softmax: Flag = True
    share_all_embeddings: Flag = False
    share_decoder_input_output_embed: Flag = False
    no_token_positional_embeddings: Flag = False
    max_source_positions: Size = 1024
    max_target_positions: Size = 1024
    padding_idx: Count = 1
    adaptive_softmax_cutoff: Literal[None] = None  # heed does not hold their adaptive softmax

    @model_validator(mode="after")
    def _enough(self) -> Self:
        """A single kernel is for all layers; too many are passed over."""
        for side in SIDES:
            numbers = self.side(side)
            if 1 < len(numbers.kernels) < numbers.depth or not numbers.kernels:
                raise ValueError(
                    f"{side}_kernel_size_list names {len(numbers.kernels)} kernels for {numbers.depth} layers"
                )
        return self

    def side(self, side: Side) -> Numbers:
        """What they call the same on both sides."""
        if side == "encoder":
            return Numbers(
                self.encoder_embed_dim,
                self.encoder_layers,
                self.encoder_attention_heads,
                self.encoder_ffn_embed_dim,
                self.encoder_kernel_size_list,
                self.encoder_branch_type,
                self.encoder_glu,
                self.encoder_learned_pos,
            )
        return Numbers(
            self.decoder_embed_dim or self.encoder_embed_dim,
            self.decoder_layers,
            self.decoder_attention_heads,
            self.decoder_ffn_embed_dim or self.encoder_ffn_embed_dim,
            self.decoder_kernel_size_list,
            self.decoder_branch_type,
            self.decoder_glu,
            self.decoder_learned_pos,
        )

    def ours(self, source: int, target: int) -> Seq2seq.Config:
        """The same as a heed model over so many tokens."""
        encoder = Encoder.Config(vocabulary=source, **self._trunk("encoder"))
        decoder = Decoder.Config(
            vocabulary=target,
            cross=Cross.Config(heads=self.side("decoder").heads, dropout=self.attention_dropout),
            tied=self.share_decoder_input_output_embed or self.share_all_embeddings,
            **self._trunk("decoder"),
        )
        return Seq2seq.Config(encoder=encoder, decoder=decoder, shared=self.share_all_embeddings)

    def _trunk(self, side: Side) -> dict[str, Any]:
        numbers = self.side(side)
        before = self.encoder_normalize_before if side == "encoder" else self.decoder_normalize_before
        final = side == "encoder" or not self.no_decoder_final_norm
        return {
            "width": numbers.width,
            "depth": numbers.depth,
            "mixer": tuple(self._mixer(side, layer) for layer in range(numbers.depth)),
            "feedforward": FeedForward.Config(
                hidden=numbers.hidden, activation=ACTIVATIONS[self.activation_fn], dropout=self.activation_dropout
            ),
            "wiring": PreNorm(final=final) if before else PostNorm(),
            "dropout": self.dropout,
            "position": self._position(side, learned=numbers.learned),
            "scaled": True,
        }

    def _position(self, side: Side, *, learned: bool) -> AddedConfig | None:
        if self.no_token_positional_embeddings:
            return None
        offset = self.padding_idx + 1
        if not learned:
            return Sinusoid.Config(layout="concatenated", spread="inclusive", offset=offset)
        length = self.max_source_positions if side == "encoder" else self.max_target_positions
        return Learned.Config(length=length, offset=offset)

    def _mixer(self, side: Side, layer: int) -> MixerConfig:
        numbers, mask = self.side(side), Causal() if side == "decoder" else Whole()
        if numbers.branches is None:
            return Attention.Config(heads=numbers.heads, mask=mask, dropout=self.attention_dropout)
        mixers = tuple(self._branch(branch, side, layer) for branch in numbers.branches)
        return Branches.Config(mixers=mixers, channels=tuple(branch.channels for branch in numbers.branches))

    def _branch(self, branch: Branch, side: Side, layer: int) -> MixerConfig:
        if branch.what == "attn":
            mask = Causal() if side == "decoder" else Whole()
            return Attention.Config(heads=branch.heads, mask=mask, dropout=self.attention_dropout)
        numbers = self.side(side)
        gated = numbers.gated and branch.what == "dynamic"
        if branch.what == "dynamic" and not self.conv_linear:
            raise ConfigError("a dynamic branch without conv_linear is one that their code cannot run; set it to true")
        slides = DynamicConv.Config if branch.what == "dynamic" else LightConv.Config
        return slides(
            heads=branch.heads,
            kernel=branch.kernel or numbers.kernels[min(layer, len(numbers.kernels) - 1)],
            causal=side == "decoder",
            projection=("gated" if gated else "plain") if self.conv_linear else "none",
            softmax=self.weight_softmax,
            dropout=self.attention_dropout if self.weight_dropout is None else self.weight_dropout,
        )

    def names(self) -> Table:
        """Their tensors, and ours."""
        table: Table = ()
        for side in SIDES:
            theirs, ours = f"{side}.layers.{{i}}", f"{side}.stack.blocks.{{i}}"
            last = 2 if side == "decoder" else 1
            table += (
                Same(f"{side}.embed_tokens.weight", f"{side}.embeddings.table.weight"),
                Same(f"{side}.embed_positions.weight", f"{side}.embeddings.position.table"),
                Ignored(f"{side}.embed_positions._float_tensor"),  # remembers a device
                Ignored(f"{side}.embed_positions.weights"),  # sinusoids, in old files
                Computed(f"{side}.version", f"{side}.embeddings.table.weight", torch.tensor([VERSION])),
                *both(f"{theirs}.self_attn_layer_norm", f"{ours}.wiring.norms.0"),
                *both(f"{theirs}.encoder_attn_layer_norm", f"{ours}.wiring.norms.1" if last == 2 else "none"),
                *both(f"{theirs}.final_layer_norm", f"{ours}.wiring.norms.{last}"),
                *both(f"{theirs}.fc1", f"{ours}.feedforward.up"),
                *both(f"{theirs}.fc2", f"{ours}.feedforward.down"),
                *both(f"{side}.layer_norm", f"{side}.stack.ends.final"),
                *_attention(f"{theirs}.encoder_attn", f"{ours}.cross"),
                *self._mixed(side, theirs, ours),
            )
        return *table, Same("decoder.embed_out", "decoder.head.weight")

    def _mixed(self, side: Side, theirs: str, ours: str) -> Table:
        branches = self.side(side).branches
        if branches is None:
            return _attention(f"{theirs}.self_attn", f"{ours}.mixer")
        table: Table = ()
        for number, branch in enumerate(branches):
            their, our = f"{theirs}.self_attn.branches.{number}", f"{ours}.mixer.mixers.{number}"
            if branch.what == "attn":
                table += _attention(their, our)
            else:
                table += (*both(f"{their}.linear1", f"{our}.enter"), *both(f"{their}.linear2", f"{our}.out"))
                dynamic = branch.what == "dynamic"
                kernels = (
                    Same(f"{their}.weight_linear.weight", f"{our}.taps.weight")
                    if dynamic
                    else Kernels(f"{their}.weight", f"{our}.taps")
                )
                table += (kernels,)
        return table


class Numbers(NamedTuple):
    """One side of their model."""

    width: int
    depth: int
    heads: int
    hidden: int
    kernels: tuple[int, ...]
    branches: SomeBranches
    gated: bool
    learned: bool


@dataclass(frozen=True)
class Kernels(Rule):
    """Theirs is [heads, 1, taps], ours is [heads, taps]."""

    ours: str

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> tuple[Tensor]:
        return (theirs.flatten(1),)

    def join(self, ours: Any) -> Tensor:
        kernels: Tensor = ours[0].unsqueeze(1)
        return kernels


def _attention(theirs: str, ours: str) -> Table:
    parts = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    return tuple(rule for their, our in parts.items() for rule in both(f"{theirs}.{their}", f"{ours}.{our}"))


def model(folder: Folder) -> Seq2seq:
    """The model in a folder of the family `lite_transformer`."""
    theirs = understood(folder, Lite)
    must_hold(folder, theirs.encoder_embed_dim, theirs.encoder_layers + theirs.decoder_layers)
    sizes = [_vocabulary(folder, side) for side in SIDES]
    return restore(lambda: theirs.ours(*sizes).build(), folder, theirs.names())


def _vocabulary(folder: Folder, side: Side) -> int:
    name = f"{side}.embed_tokens.weight"
    if name not in folder.weights:
        raise WeightsError(f"{folder.path} has no tensor {name}")
    return max(1, folder.weights.like(name).shape[0])


def outputs(folder: Folder) -> Outputs:
    """Family `lite_transformer`: what the encoder gives, time first; the stream of the decoder at every depth, its
    logits over a whole target and token by token, attention weights of its last layer, a greedy translation; and the
    first pair of branches of the encoder alone.
    """
    translator, padding = model(folder), understood(folder, Lite).padding_idx
    tokens = sequence(folder, "src_tokens")
    source = Padded.of(tokens != padding, "ranks")
    with _filled(translator.encoder, tokens.shape[1]):
        encoder_output = translator.encode(source.aligned(tokens), source.where)
        made = {"encoder_out": _time_first(source.back(encoder_output.parts[0]))}
        if "lsra0_input_TBC" in (folder.wanted or ()):
            made |= _alone(folder, translator, source)
    if "prev_output_tokens" in folder.inputs:
        made |= _decoded(folder, translator, source, encoder_output, padding)
    stem, steps = generated(folder, 1)
    if steps:
        sequences = f"{stem or 'generate.'}sequences"
        asked = folder.extra(sequences)[:, :1] if sequences in (folder.wanted or ()) else None
        prompt = torch.full((len(tokens), 1), START) if asked is None else asked
        written, logits = greedy(
            translator, prompt, Where.run(*prompt.shape), steps, Given(encoder_output=encoder_output)
        )
        made |= {sequences: torch.cat((prompt, written), 1), sequences.replace("sequences", "step_logits"): logits}
    return made


def _alone(folder: Folder, translator: Seq2seq, source: Padded) -> Outputs:
    """The first mixer of the encoder, on a stream that was written beside the outputs."""
    given = folder.extra("lsra0_input_TBC")
    if given.dim() != 3 or given.shape[:2] != source.real.T.shape:
        raise WeightsError(
            f"{folder.path}: lsra0_input_TBC has the shape {list(given.shape)}; needed is [tokens, rows, width] of "
            f"src_tokens, [{source.real.shape[1]}, {source.real.shape[0]}, width]"
        )
    first = translator.encoder.stack.layers[0].mixer
    y, _ = first(source.aligned(given.transpose(0, 1)), source.where)
    return {"lsra0_input_TBC": given, "lsra0_output_TBC": _time_first(source.back(y))}


def _decoded(folder: Folder, translator: Seq2seq, source: Padded, encoder_output: Seen, padding: int) -> Outputs:
    """The decoder over a whole target. Theirs does not hide padding, so that it may stand only at a row's end."""
    target, decoder = sequence(folder, "prev_output_tokens"), translator.decoder
    real = target != padding
    if bool((~real[:, :-1] & real[:, 1:]).any()):
        raise WeightsError(
            f"{folder.path / INPUTS}: prev_output_tokens has padding before other tokens, which their decoder takes "
            "for tokens; heed replays targets whose padding comes last"
        )
    shown = Padded.of(real, "ranks")
    where = shown.where.give(encoder_output=encoder_output)
    with look(decoder.stack, f"blocks.{len(decoder.stack.order) - 1}.cross.weights") as seen:
        inner = streams(decoder.stack, decoder.embeddings(target, where), where)
    ((weights,),) = seen.values()
    made = {f"decoder_inner_states.{depth}": _time_first(x) for depth, x in enumerate(inner)}
    made["avg_cross_attn"] = shown.pairs_back(weights, source).mean(1)
    made["logits"] = decoder.head(decoder.stack.ends.leave(inner[-1]))
    if folder.wants("logits_incremental"):
        state, logits = translator.start(len(target), Given(encoder_output=encoder_output)), []
        for column in range(target.shape[1]):
            step_logits, after = translator(target[:, column : column + 1], where.cut(column, column + 1), state)
            assert after is not None  # a state came in, so one comes out
            state = after
            logits.append(step_logits)
        made["logits_incremental"] = torch.cat(logits, 1)
    return made


@contextmanager
def _filled(encoder: Any, tokens: int) -> Iterator[None]:
    """While this lasts, every row is as long as the batch, as in the reference."""
    slides = [part for part in encoder.modules() if isinstance(part, Lightweight)]
    for part in slides:
        part.filled = tokens
    try:
        yield
    finally:
        for part in slides:
            part.filled = 0


def _time_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1).contiguous()
