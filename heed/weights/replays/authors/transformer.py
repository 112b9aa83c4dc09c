"""The original Transformer in two layouts: torch.nn.Transformer, and the Annotated Transformer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ....core.config import Flag, Positive, Size, Theirs
from ....core.contract import Given, Where
from ....core.errors import WeightsError
from ....core.state import Seen
from ....models.architectures.transformer import ANNOTATED, TransformerSize, Variant, transformer
from ....models.seq2seq import Seq2seq
from ....parts.feedforward import FeedForward
from ....parts.layers.norms import LayerNorm
from ....parts.residual.wiring import PostNorm, PreNorm
from ...formats.folder import INPUTS, Folder
from ...rename import Fused, Ignored, Same, Table, both, restore
from ..inputs import Outputs, Padded, must_hold, sequence, understood

START = 2  # the id that a translation starts from
STEPS = 10  # tokens to generate where no output says how many


# --- torch.nn.Transformer ---


def _torch_layers(side: str, attention: dict[str, str], norms: int) -> Table:
    theirs, ours = f"transformer.{side}.layers.{{i}}", f"{side}.stack.blocks.{{i}}"
    table: Table = (
        *both(f"{theirs}.linear1", f"{ours}.feedforward.up"),
        *both(f"{theirs}.linear2", f"{ours}.feedforward.down"),
        *both(f"transformer.{side}.norm", f"{side}.stack.ends.final"),
    )
    for name, part in attention.items():
        for kind in ("weight", "bias"):
            three = tuple(f"{ours}.{part}.{what}.{kind}" for what in ("query", "key", "value"))
            table += (Fused(f"{theirs}.{name}.in_proj_{kind}", three),)
        table += both(f"{theirs}.{name}.out_proj", f"{ours}.{part}.out")
    for norm in range(norms):
        table += both(f"{theirs}.norm{norm + 1}", f"{ours}.wiring.norms.{norm}")
    return table


TORCH_NAMES: Table = (
    Same("src_embed.weight", "encoder.embeddings.table.weight"),
    Same("tgt_embed.weight", "decoder.embeddings.table.weight"),
    *_torch_layers("encoder", {"self_attn": "mixer"}, norms=2),
    *_torch_layers("decoder", {"self_attn": "mixer", "multihead_attn": "cross"}, norms=3),
    *both("generator", "decoder.head"),
)


class Torch(Theirs):
    """torch.nn.Transformer between two tables of embeddings and a generator."""

    vs: Size
    vt: Size
    d: Size
    h: Size
    ne: Size
    nd: Size
    ff: Size
    act: Literal["relu", "gelu"] = "relu"
    norm_first: Flag = False
    final_norm: Flag = True
    eps: Positive = 1e-5

    def ours(self) -> Seq2seq.Config:
        """The same as a heed model."""
        wiring = PreNorm(final=self.final_norm) if self.norm_first else PostNorm(final=self.final_norm)
        variant = Variant(wiring, LayerNorm(eps=self.eps), tied=False, inner_dropout=True)
        size = TransformerSize(width=self.d, depth=self.ne, heads=self.h, hidden=self.ff, dropout=0.0)
        config = transformer(self.vs, self.vt, size=size, variant=variant)
        between = {"feedforward": (FeedForward.Config(hidden=self.ff, activation=self.act),)}
        return Seq2seq.Config(
            encoder=config.encoder.model_copy(update=between),
            decoder=config.decoder.model_copy(update=between | {"depth": self.nd}),
        )


def torch_model(folder: Folder) -> Seq2seq:
    """The model in a folder of the family `transformer`."""
    theirs = understood(folder, Torch)
    must_hold(folder, theirs.d, theirs.ne + theirs.nd)
    return restore(lambda: theirs.ours().build(), folder, TORCH_NAMES)


def torch_outputs(folder: Folder) -> Outputs:
    """Family `transformer`: what encoder, decoder and generator give, and a greedy translation."""
    model = torch_model(folder)
    source, target = sequence(folder, "src"), sequence(folder, "tgt")
    hidden = Padded.hiding(folder, "src_key_padding_mask", source)
    encoder_output = model.encode(hidden.aligned(source), hidden.where)
    made = {"memory": hidden.back(encoder_output.parts[0])}
    stream, logits = decoded(model, target, Padded.hiding(folder, "tgt_key_padding_mask", target), encoder_output)
    made |= {"decoder_out": stream, "logits": logits}
    steps = _steps(folder)
    if steps:
        made["generate.sequences"], made["generate.step_logits"] = greedy(model, encoder_output, steps)
    return made


def decoded(model: Seq2seq, target: Tensor, hidden: Padded, encoder_output: Seen) -> tuple[Tensor, Tensor]:
    """What the decoder makes of a whole target: its hidden states, and the logits of the next token."""
    where, decoder = hidden.where.give(encoder_output=encoder_output), model.decoder
    stream, _ = decoder.stack(decoder.embeddings(hidden.aligned(target), where), where)
    return hidden.back(stream), hidden.back(decoder.head(stream))


def greedy(model: Seq2seq, encoder_output: Seen, steps: int) -> tuple[Tensor, Tensor]:
    """Greedy decoding from `START` on, one token per call; and the logits of every step."""
    rows = encoder_output.shape[0]
    state = model.start(rows, Given(encoder_output=encoder_output))
    tokens, logits = [torch.full((rows, 1), START)], []
    for step in range(steps):
        step_logits, after = model(tokens[-1], Where.run(rows, 1, start=step), state)
        assert after is not None  # a state came in, so one comes out
        state = after
        logits.append(step_logits)
        tokens.append(step_logits.argmax(-1))
    return torch.cat(tokens, 1), torch.cat(logits, 1)


def _steps(folder: Folder) -> int:
    if folder.wanted is None:
        return STEPS
    if "generate.step_logits" in folder.wanted:
        return folder.extra("generate.step_logits").shape[1]
    return folder.extra("generate.sequences").shape[1] - 1 if "generate.sequences" in folder.wanted else 0


# --- the Annotated Transformer ---


def _annotated_layers(side: str, attention: dict[str, str]) -> Table:
    theirs, ours = f"{side}.layers.{{i}}", f"{side}.stack.blocks.{{i}}"
    table: Table = (
        *both(f"{theirs}.feed_forward.w_1", f"{ours}.feedforward.up"),
        *both(f"{theirs}.feed_forward.w_2", f"{ours}.feedforward.down"),
        Same(f"{theirs}.sublayer.{{n}}.norm.a_2", f"{ours}.wiring.norms.{{n}}.weight"),
        Same(f"{theirs}.sublayer.{{n}}.norm.b_2", f"{ours}.wiring.norms.{{n}}.bias"),
        Same(f"{side}.norm.a_2", f"{side}.stack.ends.final.weight"),
        Same(f"{side}.norm.b_2", f"{side}.stack.ends.final.bias"),
    )
    for name, part in attention.items():
        for index, what in enumerate(("query", "key", "value", "out")):
            table += both(f"{theirs}.{name}.linears.{index}", f"{ours}.{part}.{what}")
    return table


ANNOTATED_NAMES: Table = (
    Same("src_embed.0.lut.weight", "encoder.embeddings.table.weight"),
    Same("tgt_embed.0.lut.weight", "decoder.embeddings.table.weight"),
    Ignored("src_embed.1.pe"),  # sinusoids, as far as the longest sentence
    Ignored("tgt_embed.1.pe"),
    *_annotated_layers("encoder", {"self_attn": "mixer"}),
    *_annotated_layers("decoder", {"self_attn": "mixer", "src_attn": "cross"}),
    *both("generator.proj", "decoder.head"),
)


class Annotated(Theirs):
    """What the Annotated Transformer's make_model is called with; the defaults are its own."""

    src_vocab: Size
    tgt_vocab: Size
    N: Size = 6
    d_model: Size = 512
    d_ff: Size = 2048
    h: Size = 8

    def ours(self) -> Seq2seq.Config:
        """The same as a heed model."""
        size = TransformerSize(width=self.d_model, depth=self.N, heads=self.h, hidden=self.d_ff, dropout=0.0)
        return transformer(self.src_vocab, self.tgt_vocab, size=size, variant=ANNOTATED)


def annotated_model(folder: Folder) -> Seq2seq:
    """The model in a folder of the family `annotated_transformer`."""
    theirs = understood(folder, Annotated)
    must_hold(folder, theirs.d_model, theirs.N)
    return restore(lambda: theirs.ours().build(), folder, ANNOTATED_NAMES)


def annotated_outputs(folder: Folder) -> Outputs:
    """Family `annotated_transformer`: what encoder, decoder and generator give. In its masks True is visible."""
    model = annotated_model(folder)
    source, target = sequence(folder, "src"), sequence(folder, "tgt")
    hidden = Padded.of(_visible(folder, "src_mask", 1, source)[:, 0])
    encoder_output = model.encode(hidden.aligned(source), hidden.where)
    shown = _unpadded(folder, _visible(folder, "tgt_mask", target.shape[1], target))
    stream, logits = decoded(model, target, Padded.of(shown), encoder_output)
    return {
        "memory": hidden.back(encoder_output.parts[0]),
        "decoder_out": stream,
        "log_probs": logits.log_softmax(-1),
    }


def _visible(folder: Folder, name: str, queries: int, tokens: Tensor) -> Tensor:
    """A mask [B, queries, T], True = visible; without one, everything for one query and a triangle for many."""
    rows, length = tokens.shape
    if name not in folder.inputs:
        return torch.ones(rows, queries, length, dtype=torch.bool).tril(length - queries)
    mask = folder.input(name).bool()
    try:
        return mask.expand(rows, queries, length)
    except RuntimeError:
        shape, needed = list(mask.shape), [rows, queries, length]
        raise WeightsError(f"{folder.path / INPUTS}: {name} has the shape {shape}; needed is {needed}") from None


def _unpadded(folder: Folder, visible: Tensor) -> Tensor:
    """Which target tokens are real: those that some token at or after them sees. [B, T, T] -> [B, T]"""
    causal = torch.ones_like(visible).tril()
    real = (visible & causal).any(1)
    if not torch.equal(visible & real[:, :, None], causal & real[:, None, :] & real[:, :, None]):
        raise WeightsError(
            f"{folder.path / INPUTS}: tgt_mask is neither causal nor causal with padding; that is all heed can replay"
        )
    return real
