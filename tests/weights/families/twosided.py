"""Encoder-decoders beside `transformers`, live: small models of every kind, and how they must agree.

Its T5 norms and its routers compute in float32 whatever the model computes in. Here they are made to compute in the
model's precision, so that everything is compared to rounding; only the sinusoids, which it rounds to float32, are not.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.models import longt5, mt5, pegasus, switch_transformers, t5, umt5

from heed import weights
from heed.core.contract import Given, Where
from heed.core.state import Seen
from heed.models import Seq2seq
from heed.weights import Opened
from heed.weights.replays.greedy import greedy
from heed.weights.replays.inputs import Padded
from tests.weights.live import close, ids, saved

EXACT, SINGLE = 1e-10, 1e-6
READ, WRITTEN, STEPS = 9, 7, 6  # tokens
VOCABULARY, START, PAD = 41, 2, 1
IDS: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": None, "decoder_start_token_id": START}

T5_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 12,
    "d_kv": 5,
    "d_ff": 9,
    "num_layers": 2,
    "num_heads": 3,
} | IDS
SWITCH_SMALL = T5_SMALL | {"num_experts": 3, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
BART_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 9,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 16,
    "forced_eos_token_id": None,
} | IDS
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "t5": (transformers.T5Config, transformers.T5ForConditionalGeneration, T5_SMALL),
    "mt5": (transformers.MT5Config, transformers.MT5ForConditionalGeneration, T5_SMALL),
    "umt5": (transformers.UMT5Config, transformers.UMT5ForConditionalGeneration, T5_SMALL),
    "longt5": (transformers.LongT5Config, transformers.LongT5ForConditionalGeneration, T5_SMALL),
    "switch_transformers": (
        transformers.SwitchTransformersConfig,
        transformers.SwitchTransformersForConditionalGeneration,
        SWITCH_SMALL,
    ),
    "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration, BART_SMALL),
    "mbart": (transformers.MBartConfig, transformers.MBartForConditionalGeneration, BART_SMALL),
    "marian": (transformers.MarianConfig, transformers.MarianMTModel, BART_SMALL),
    "pegasus": (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration, BART_SMALL),
}


NORMS = (
    t5.modeling_t5.T5LayerNorm,
    mt5.modeling_mt5.MT5LayerNorm,
    umt5.modeling_umt5.UMT5LayerNorm,
    longt5.modeling_longt5.LongT5LayerNorm,
    switch_transformers.modeling_switch_transformers.SwitchTransformersLayerNorm,
)
ROUTER = switch_transformers.modeling_switch_transformers.SwitchTransformersTop1Router
WAVES = pegasus.modeling_pegasus.PegasusSinusoidalPositionalEmbedding


def made(kind: str, **sizes: Any) -> Any:
    """A small model of the reference library, with a last bias that is not zero."""
    config, model, small = KINDS[kind]
    fresh = model(config(**small | sizes))
    for name, bias in fresh.named_buffers():
        if name == "final_logits_bias":
            bias.copy_(ids(1, bias.shape[1], 9) / 7.0)
    return fresh


def stored(model: Any, folder: Path) -> Any:
    """Saved and loaded again; its constants are what they were."""
    model = saved(model, folder)
    for module in model.modules():
        if isinstance(module, WAVES):
            module.weight.data.copy_(module.create_weight())
            model.save_pretrained(folder)
    return in_full(model)


def in_full(model: Any) -> Any:
    """Its norms and routers in the precision of the model."""
    for module in model.modules():
        if isinstance(module, NORMS):
            module.forward = partial(_normed, module)  # type: ignore[method-assign]
        if isinstance(module, ROUTER):
            module.dtype = torch.float64
    return model


def _normed(norm: Any, x: Tensor) -> Any:
    return norm.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.variance_epsilon)


def tolerance(kind: str) -> float:
    return SINGLE if kind in ("marian", "pegasus") else EXACT


def padded(rows: int, length: int, side: str) -> Tensor:
    """A mask whose last row is short of three tokens."""
    mask = torch.ones(rows, length, dtype=torch.long)
    mask[-1, slice(0, 3) if side == "left" else slice(-3, None)] = 0
    return mask


def in_pieces(model: Seq2seq, target: Tensor, encoder_output: Seen) -> Tensor:
    """The split law on a loaded model: the source is projected once, the target comes in calls."""
    logits, begin = list[Tensor](), 0
    state: Any = model.start(2, Given(encoder_output=encoder_output))
    for end in (1, 4, WRITTEN):
        y, state = model(target[:, begin:end], Where.run(2, end - begin, start=begin), state)
        logits.append(y)
        begin = end
    return torch.cat(logits, 1)


@torch.no_grad()
def agrees(model: Any, folder: Path, within: float) -> Seq2seq:
    """Scores whole, cut into calls, beside a source padded on either side; greedy tokens; and the way back."""
    model = stored(model, folder / "theirs")
    opened, ours = loaded(folder / "theirs")
    source = ids(2, READ, model.config.vocab_size)
    target = ids(2, WRITTEN, model.get_output_embeddings().out_features, seed=1)
    everything, mask = Where.run(2, WRITTEN), torch.ones_like(source)

    wanted = model(input_ids=source, decoder_input_ids=target).logits
    encoder_output = ours.encode(source, Where.run(2, READ))
    close(ours(target, everything.give(encoder_output=encoder_output))[0], wanted, within)
    close(in_pieces(ours, target, encoder_output), wanted, within)

    for side in ("right", "left"):
        mask = padded(2, READ, side)
        shown = Padded.of(mask.bool())
        encoder_output = ours.encode(shown.aligned(source), shown.where)
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
        close(ours(target, everything.give(encoder_output=encoder_output))[0], logits, within)
        close(in_pieces(ours, target, encoder_output), logits, within)

    asked = {"max_new_tokens": STEPS, "do_sample": False, "decoder_start_token_id": START}
    asked["use_cache"] = False  # its cache has as many layers as the encoder, even for a deeper decoder
    theirs = model.generate(input_ids=source, attention_mask=mask, **asked)
    begun = torch.full((2, 1), START)
    written, logits = greedy(ours, begun, Where.run(2, 1), STEPS, Given(encoder_output=encoder_output))
    sure = logits.sort(-1).values.diff(dim=-1)[..., -1].amin() > 10 * within * logits.abs().max()
    assert not sure or torch.equal(torch.cat((begun, written), 1), theirs), (written, theirs)

    again = returned(opened, folder / "ours", model)
    close(again(input_ids=source, decoder_input_ids=target).logits, wanted, EXACT)
    return ours


def loaded(folder: Path) -> tuple[Opened, Seq2seq]:
    """The encoder-decoder in a folder."""
    opened = weights.load(folder)
    assert isinstance(opened.model, Seq2seq)
    return opened, opened.model


def returned(opened: Opened, folder: Path, model: Any) -> Any:
    """What heed writes back, the reference library loads again."""
    weights.write(opened, folder)
    again, told = type(model).from_pretrained(folder, output_loading_info=True, dtype=torch.float64)
    assert not told["missing_keys"], told
    assert not told["unexpected_keys"], told
    held = again.state_dict()
    assert all(torch.equal(held[name], tensor) for name, tensor in model.state_dict().items())
    return in_full(again.eval())
