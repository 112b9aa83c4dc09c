"""token_type_ids of GPT-2 and its kin: looked up in the vocabulary and added; and OPT's norms without a gain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from heed.core.errors import WeightsError
from heed.weights import replay
from tests.weights.live import close, ids, saved

HF: Any = transformers
# The reference still compiles two functions of BigCode in a way that torch is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
SMALL = {"vocab_size": 50, "n_embd": 12, "n_layer": 2, "n_head": 3}
NEO = {"vocab_size": 50, "hidden_size": 12, "num_layers": 2, "num_heads": 3}
OPT = {"vocab_size": 50, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "ffn_dim": 20}
KINDS = {
    "GPT2LMHeadModel": lambda: HF.GPT2Config(**SMALL),
    "GPTJForCausalLM": lambda: HF.GPTJConfig(**SMALL, rotary_dim=4),
    "GPTBigCodeForCausalLM": lambda: HF.GPTBigCodeConfig(**SMALL),
    "GPTNeoForCausalLM": lambda: HF.GPTNeoConfig(**NEO, attention_types=[[["global", "local"], 1]]),
}


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_types_are_tokens_too(kind: str, tmp_path: Path) -> None:
    model = saved(getattr(HF, kind)(KINDS[kind]()), tmp_path / "x")
    tokens, types = ids(2, 9, 50), ids(2, 9, 6, seed=1)
    save_file({"input_ids": tokens, "token_type_ids": types}, tmp_path / "x" / "inputs.safetensors")
    close(replay(tmp_path / "x")["logits"], model(input_ids=tokens, token_type_ids=types).logits, 5e-6)


@torch.no_grad()
def test_opt_without_gains_and_with_narrow_embeddings(tmp_path: Path) -> None:
    config = HF.OPTConfig(**OPT, layer_norm_elementwise_affine=False, word_embed_proj_dim=8)
    model = saved(HF.OPTForCausalLM(config), tmp_path / "x")
    tokens = ids(2, 9, 50)
    save_file({"input_ids": tokens}, tmp_path / "x" / "inputs.safetensors")
    made, wanted = replay(tmp_path / "x"), model(input_ids=tokens, output_hidden_states=True)
    close(made["logits"], wanted.logits, 1e-10)
    for depth, stream in enumerate(wanted.hidden_states):
        close(made[f"hidden_states.{depth}"], stream, 1e-10)
    save_file({"input_ids": tokens, "token_type_ids": tokens.clone()}, tmp_path / "x" / "inputs.safetensors")
    with pytest.raises(WeightsError, match="opt has no token_type_ids"):
        replay(tmp_path / "x")
