"""Mamba, random ones, beside the reference library: the same logits, and back again.

The reference has rates, norms and logits in float32 whatever the model is in: `SINGLE` is that.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import transformers as reference
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.models import Decoder
from heed.weights import replay
from tests.weights.live import close, decoder_agrees, ids, returns, saved
from tests.weights.support import write

SINGLE = 5e-6
VOCABULARY, LENGTH = 41, 11
few = settings(max_examples=8, deadline=None, derandomize=True, phases=(Phase.generate,))
flags = st.booleans()


def config(**other: Any) -> Any:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 12, "num_hidden_layers": 2, "state_size": 4}
    return reference.MambaConfig(**{**sizes, **other})


def drawn(data: st.DataObject, **other: Any) -> Any:
    return config(
        hidden_size=data.draw(st.integers(1, 20)),
        num_hidden_layers=data.draw(st.integers(1, 3)),
        state_size=data.draw(st.integers(1, 6)),
        expand=data.draw(st.integers(1, 3)),
        conv_kernel=data.draw(st.integers(2, 5)),
        use_conv_bias=data.draw(flags),
        hidden_act=data.draw(st.sampled_from(["silu", "gelu", "relu", "tanh"])),
        time_step_rank=data.draw(st.sampled_from(["auto", 1, 3])),
        layer_norm_epsilon=data.draw(st.sampled_from([1e-5, 1e-6, 1e-2])),
        residual_in_fp32=data.draw(flags),
        tie_word_embeddings=data.draw(flags),
        **other,
    )


@few
@given(st.data())
def test_mamba(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        decoder_agrees(reference.MambaForCausalLM(drawn(data)), Path(folder), tolerance=SINGLE, length=LENGTH)


@settings(few, max_examples=4)
@given(st.data())
@torch.no_grad()
def test_with_biases(data: st.DataObject) -> None:
    """Padding before a text then leaves its biases in the reference's convolution: compared without."""
    tokens = ids(2, LENGTH, VOCABULARY)
    with TemporaryDirectory() as folder:
        asked = drawn(data, use_bias=True, intermediate_size=data.draw(st.integers(1, 9)))
        model = saved(reference.MambaForCausalLM(asked), Path(folder) / "theirs")
        opened = weights.load(Path(folder) / "theirs")
        wanted = model(input_ids=tokens).logits
        close(opened.model(tokens, Where.run(2, LENGTH))[0], wanted, SINGLE)
        again = returns(opened, Path(folder) / "ours", model)
        assert torch.equal(again(input_ids=tokens).logits, wanted)


@torch.no_grad()
def test_a_convolution_of_one_token(tmp_path: Path) -> None:
    model = saved(reference.MambaForCausalLM(config(conv_kernel=1)), tmp_path)
    tokens = ids(2, LENGTH, VOCABULARY)
    made, _ = weights.load(tmp_path).model(tokens, Where.run(2, LENGTH))
    close(made, model(input_ids=tokens, use_cache=False).logits, SINGLE)


@torch.no_grad()
def test_a_body_without_a_head_and_the_authors_name_of_its_table(tmp_path: Path) -> None:
    model = saved(reference.MambaModel(config()), tmp_path)
    tokens, tensors = ids(1, LENGTH, VOCABULARY), load_file(tmp_path / "model.safetensors")
    tensors["embedding.weight"] = tensors.pop("embeddings.weight")
    for folder in (tmp_path, write(tmp_path / "authors", model.config.to_dict(), tensors, {})):
        opened = weights.load(folder)
        assert isinstance(opened.model, Decoder)
        stream, _ = opened.model.hidden_states(tokens, Where.run(1, LENGTH))
        close(stream, model(input_ids=tokens).last_hidden_state, SINGLE)


@pytest.mark.parametrize("hidden", [0, 4], ids=["none", "before a text"])
@torch.no_grad()
def test_recorded_calls(hidden: int, tmp_path: Path) -> None:
    """Folders of other sizes, with padding before or after a text, a loss and a continuation."""
    model = saved(reference.MambaForCausalLM(config(conv_kernel=3, use_conv_bias=True)), tmp_path / "m")
    tokens, shown = ids(2, LENGTH, VOCABULARY), torch.ones(2, LENGTH, dtype=torch.long)
    shown[1, :hidden] = 0
    labels = tokens.masked_fill(shown == 0, -100)
    labels[1, : hidden + 1] = -100
    asked = model(input_ids=tokens, attention_mask=shown, labels=labels, output_hidden_states=True)
    generation = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    outputs = {"logits": asked.logits, "loss": asked.loss}
    outputs |= {f"hidden_states.{depth}": stream for depth, stream in enumerate(asked.hidden_states)}
    outputs["generate.sequences"] = model.generate(input_ids=tokens, attention_mask=shown, **generation)
    inputs = {"input_ids": tokens, "attention_mask": shown, "labels": labels}
    folder = write(
        tmp_path / "golden", model.config.to_dict(), load_file(tmp_path / "m" / "model.safetensors"), inputs, outputs
    )
    made = replay(folder)
    assert made.keys() == outputs.keys()
    for name, wanted in outputs.items():
        real = shown.bool() if wanted.shape[:2] == shown.shape else ...
        close(made[name][real], wanted[real], SINGLE)


def test_padding_that_leaves_traces_is_refused(tmp_path: Path) -> None:
    tokens = ids(1, 4, VOCABULARY)
    for use_bias, mask, place in ((False, [1, 0, 1, 1], "between"), (True, [0, 1, 1, 1], "before")):
        model = saved(reference.MambaForCausalLM(config(use_bias=use_bias)), tmp_path / place)
        tensors = load_file(tmp_path / place / "model.safetensors")
        inputs = {"input_ids": tokens, "attention_mask": torch.tensor([mask])}
        with pytest.raises(WeightsError, match=f"attention_mask hides tokens {place} others"):
            replay(write(tmp_path / "golden", model.config.to_dict(), tensors, inputs))


def test_claims_that_no_tensor_bears_out_are_refused(tmp_path: Path) -> None:
    model = saved(reference.MambaForCausalLM(config()), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for name in ("state_size", "time_step_rank", "conv_kernel", "intermediate_size"):
        with pytest.raises(WeightsError, match="no tensor is wider"):
            weights.load(write(tmp_path / name, {**model.config.to_dict(), name: 10**9}, tensors, {}))
