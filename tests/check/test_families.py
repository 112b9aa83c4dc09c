"""Attention that nobody here wrote: of transformers and of x-transformers. Nothing in it may be called wrong."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import transformers

from heed.check import check

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, in their code
FAMILIES = (
    *("bert.BertLayer", "roberta.RobertaSelfAttention", "albert.AlbertAttention", "electra.ElectraLayer"),
    *("gpt2.GPT2Attention", "gptj.GPTJAttention", "gpt_neox.GPTNeoXAttention", "gpt_bigcode.GPTBigCodeAttention"),
    *("opt.OPTAttention", "llama.LlamaDecoderLayer", "mistral.MistralAttention", "mixtral.MixtralAttention"),
    *("qwen2.Qwen2Attention", "qwen3.Qwen3Attention", "gemma.GemmaAttention", "gemma2.Gemma2Attention"),
    *("phi3.Phi3Attention", "falcon.FalconAttention", "t5.T5LayerSelfAttention", "vit.ViTAttention"),
    *("deberta_v2.DebertaV2Attention", "cohere.CohereAttention", "olmo.OlmoAttention", "stablelm.StableLmAttention"),
)


@pytest.mark.parametrize("name", FAMILIES)
def test_transformers(name: str) -> None:
    transformers.logging.set_verbosity_error()
    family, kind = name.split(".")
    report = check(getattr(import_module(f"transformers.models.{family}.modeling_{family}"), kind))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("kind", "init", "causal"),
    [
        ("Attention", {}, False),
        ("Attention", {"causal": True, "kv_heads": 2}, True),
        ("Encoder", {"depth": 1, "attn_dim_head": 6}, False),
        ("Decoder", {"depth": 1, "attn_dim_head": 6, "rotary_pos_emb": True}, True),
    ],
)
def test_x_transformers(kind: str, init: dict[str, Any], causal: bool) -> None:
    theirs = import_module("x_transformers.x_transformers")
    size = {} if "depth" in init else {"dim_head": 6}
    report = check(getattr(theirs, kind), init={"dim": 24, "heads": 4, **size, **init}, causal=causal)
    assert report.ok, str(report)
