"""Attention written elsewhere: of transformers and of x-transformers. Nothing in it may be called wrong."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from heed.check import CannotCheck, check
from heed.check.foreign.target import locate

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, in their code
FAMILIES = (
    *("bert.BertLayer", "roberta.RobertaSelfAttention", "albert.AlbertAttention", "electra.ElectraLayer"),
    *("gpt2.GPT2Attention", "gptj.GPTJAttention", "gpt_neox.GPTNeoXAttention", "gpt_bigcode.GPTBigCodeAttention"),
    *("opt.OPTAttention", "llama.LlamaDecoderLayer", "mistral.MistralAttention", "mixtral.MixtralAttention"),
    *("qwen2.Qwen2Attention", "qwen3.Qwen3Attention", "gemma.GemmaAttention", "gemma2.Gemma2Attention"),
    *("phi3.Phi3Attention", "falcon.FalconAttention", "t5.T5LayerSelfAttention", "vit.ViTAttention"),
    *("bloom.BloomAttention", "persimmon.PersimmonAttention"),
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
        ("Encoder", {"depth": 1, "attn_dim_head": 6}, False),
        ("Decoder", {"depth": 1, "attn_dim_head": 6, "rotary_pos_emb": True}, True),
    ],
)
def test_x_transformers(kind: str, init: dict[str, Any], causal: bool) -> None:
    theirs = import_module("x_transformers.x_transformers")
    size = {} if "depth" in init else {"dim_head": 6}
    report = check(getattr(theirs, kind), init={"dim": 24, "heads": 4, **size, **init}, causal=causal)
    assert report.ok, str(report)


@pytest.mark.parametrize(("init", "causal"), [({}, False), ({"causal": True, "kv_heads": 2}, True)])
def test_what_is_found_in_x_transformers(init: dict[str, Any], causal: bool) -> None:
    """With flash=True its attention does not pass `causal` of the call on: it looks ahead, though told not to."""
    theirs = import_module("x_transformers.x_transformers")
    report = check(theirs.Attention, init={"dim": 24, "heads": 4, "dim_head": 6, **init}, causal=causal)
    assert set(report.slugs) <= {"future-leak"}, str(report)
    assert all("flash=True" in line and "causal=True" in line for one in report.wrong for line in one.evidence)
    attention = theirs.Attention(24, heads=4, dim_head=6, flash=True).eval()
    x = torch.randn(1, 7, 24, generator=torch.Generator().manual_seed(0))
    gap = attention(x, causal=True)[:, :6] - attention(x[:, :6], causal=True)
    assert bool((gap.abs() > 1e-3).any()) is bool(check(theirs.Attention, init={"dim": 24}, causal=False).slugs)


def test_an_adapter_calls_what_nothing_else_can(tmp_path: Path) -> None:
    """The example of the documentation: XLNet's attention wants tokens first, masks of four axes and distances."""
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    (tmp_path / "adapter.py").write_text(page.split("# adapter.py\n")[1].split("```")[0])
    target = "transformers.models.xlnet.modeling_xlnet:XLNetRelativeAttention"
    with pytest.raises(CannotCheck, match="--adapter adapter.py:call"):
        check(target)
    report = check(target, adapter=locate(f"{tmp_path / 'adapter.py'}:call").found)
    assert report.ok, str(report)
    assert any(outcome.probe == "rows" and outcome.status == "pass" for outcome in report.outcomes)
