"""GGUF, architecture by architecture: what llama.cpp's converter makes of a Hugging Face model is undone exactly.

The models are transformers' own, tiny and random. The test converts them as llama.cpp does (names from the gguf
package, rows and norms as conversion/*.py there); reading must give back every tensor and a config that is enough to
build the same model. transformers' own reader of GGUF is a second judge where it knows the architecture.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from heed.weights.formats import gguf as ours
from heed.weights.formats.checkpoint import Checkpoint
from tests.weights.formats.ggufs import LLAMA_KEYS, PLAIN_KEYS, write

transformers.utils.logging.disable_progress_bar()

Changed = Iterator[tuple[str, Tensor]]
Tensors = dict[str, Tensor]
SIZES: dict[str, Any] = {"vocab_size": 67, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LLAMA: dict[str, Any] = SIZES | {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}


# --- llama.cpp's converter, in the direction that heed undoes ---


def as_they_are(name: str, tensor: Tensor) -> Tensor:
    return tensor


def interleaved(name: str, tensor: Tensor) -> Tensor:
    heads = 6 if ".q_proj." in name else 2 if ".k_proj." in name else 0
    if not heads:
        return tensor
    return tensor.reshape(heads, 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def one_more(name: str, tensor: Tensor) -> Tensor:
    return tensor + 1 if name.endswith("norm.weight") else tensor


def turned(name: str, tensor: Tensor) -> Tensor:
    return tensor.T if re.search(r"\.(c_attn|c_proj|c_fc)\.weight$", name) else tensor


def below_one_another(name: str, tensor: Tensor) -> Tensor:
    if "query_key_value" not in name:
        return tensor
    by_head = tensor.reshape(6, 3, 8, *tensor.shape[1:])
    return torch.cat([by_head[:, part].reshape(48, *tensor.shape[1:]) for part in range(3)])


def grouped(groups: int) -> Callable[[str, Tensor], Tensor]:
    def change(name: str, tensor: Tensor) -> Tensor:
        if "query_key_value" not in name:
            return tensor
        each = tensor.reshape(groups, 6 // groups + 2, 8, 48)
        parts = each[:, :-2], each[:, -2], each[:, -1]
        return torch.cat([part.reshape(-1, 48) for part in parts])

    return change


def a(kind: str, **options: Any) -> dict[str, Any]:
    """A config.json of this kind."""
    return {"model_type": kind, **options}


@dataclass(frozen=True)
class Case:
    """An architecture: a tiny model, the keys that the converter writes for it, and how it changes tensors."""

    architecture: str
    config: dict[str, Any]
    keys: dict[str, Any]
    change: Callable[[str, Tensor], Tensor] = as_they_are
    renamed: dict[str, str] = field(default_factory=dict)  # before the names are looked up
    exact: float = 0.0
    judged: bool = True  # transformers reads it, too
    model: str = "AutoModelForCausalLM"


CASES = {
    "llama": Case("llama", a("llama", **LLAMA), LLAMA_KEYS | {"rope.dimension_count": 8}, interleaved),
    "llama, tied, with biases": Case(
        "llama",
        a("llama", **LLAMA, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
        LLAMA_KEYS | {"rope.dimension_count": 8},
        interleaved,
    ),
    "llama, large heads": Case(
        "llama",
        a("llama", **LLAMA, head_dim=16),
        LLAMA_KEYS | {"rope.dimension_count": 16, "attention.key_length": 16, "attention.value_length": 16},
        interleaved,
    ),
    "mistral": Case(
        "llama",
        a("mistral", **LLAMA, sliding_window=5),
        LLAMA_KEYS | {"attention.sliding_window": 5},
        interleaved,
        judged=False,
    ),
    "mixtral": Case(
        "llama",
        a("mixtral", **LLAMA, num_local_experts=3, num_experts_per_tok=2),
        LLAMA_KEYS | {"expert_count": 3, "expert_used_count": 2, "rope.freq_base": 1e6},
        interleaved,
        judged=False,
    ),
    "arcee": Case("arcee", a("arcee", **LLAMA), LLAMA_KEYS | {"rope.dimension_count": 8}, interleaved, judged=False),
    "qwen2": Case("qwen2", a("qwen2", **LLAMA), LLAMA_KEYS),
    "qwen3": Case(
        "qwen3",
        a("qwen3", **LLAMA, head_dim=16),
        LLAMA_KEYS | {"attention.key_length": 16, "attention.value_length": 16},
    ),
    "gemma2": Case(
        "gemma2",
        a("gemma2", **LLAMA, head_dim=16, query_pre_attn_scalar=16, sliding_window=5),
        LLAMA_KEYS
        | {"attention.key_length": 16, "attention.value_length": 16, "attention.sliding_window": 5}
        | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        one_more,
        exact=1.2e-7,  # 1 + w keeps no more of w
    ),
    "gpt2": Case(
        "gpt2",
        a("gpt2", **SIZES, n_embd=48, n_layer=2, n_head=6, n_positions=64),
        PLAIN_KEYS,
        turned,
    ),
    "gptneox": Case(
        "gptneox",
        a(
            "gpt_neox",
            **SIZES,
            hidden_size=48,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=6,
            max_position_embeddings=64,
            rotary_pct=0.5,
            use_parallel_residual=False,
        ),
        PLAIN_KEYS | {"rope.dimension_count": 4, "use_parallel_residual": False},
        below_one_another,
        judged=False,
    ),
    "falcon, 7b": Case(
        "falcon",
        a("falcon", **SIZES, hidden_size=48, num_hidden_layers=2, num_attention_heads=6),
        PLAIN_KEYS | {"attention.head_count_kv": 1},
        grouped(1),
    ),
    "falcon, 40b": Case(
        "falcon",
        a(
            "falcon",
            **SIZES,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_kv_heads=2,
            new_decoder_architecture=True,
        ),
        PLAIN_KEYS | {"attention.head_count_kv": 2},
        grouped(2),
        judged=False,  # it leaves the order of rows as it is
    ),
    "bloom": Case(
        "bloom",
        a("bloom", **SIZES, hidden_size=48, n_layer=2, n_head=6),
        PLAIN_KEYS | {"attention.head_count_kv": 6},
        below_one_another,
        renamed={"transformer.": ""},
    ),
    "mpt": Case(
        "mpt",
        a("mpt", **SIZES, d_model=48, n_layers=2, n_heads=6, max_seq_len=64),
        PLAIN_KEYS | {"attention.max_alibi_bias": 8.0},
        judged=False,
    ),
    "starcoder": Case(
        "starcoder",
        a("gpt_bigcode", **SIZES, n_embd=48, n_layer=2, n_head=6, n_positions=64),
        PLAIN_KEYS | {"attention.head_count_kv": 1},
        judged=False,
    ),
    "bert": Case(
        "bert",
        a(
            "bert",
            vocab_size=67,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=6,
            intermediate_size=192,
            max_position_embeddings=64,
            layer_norm_eps=1e-5,
        ),
        PLAIN_KEYS,
        judged=False,
        model="AutoModel",
    ),
    "t5": Case(
        "t5",
        a(
            "t5",
            vocab_size=67,
            d_model=48,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=6,
            decoder_start_token_id=0,
            layer_norm_epsilon=1e-5,
        ),
        LLAMA_KEYS
        | {"attention.key_length": 8, "attention.value_length": 8, "attention.relative_buckets_count": 32}
        | {"decoder_block_count": 2, "decoder_start_token_id": 0},
        model="AutoModelForSeq2SeqLM",
    ),
    "t5, gated": Case(
        "t5",
        a(
            "t5",
            vocab_size=67,
            d_model=48,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_decoder_layers=3,
            num_heads=6,
            feed_forward_proj="gated-gelu",
            decoder_start_token_id=0,
            layer_norm_epsilon=1e-5,
        ),
        LLAMA_KEYS
        | {"attention.key_length": 8, "attention.value_length": 8, "attention.relative_buckets_count": 32}
        | {"decoder_block_count": 3, "decoder_start_token_id": 0},
        model="AutoModelForSeq2SeqLM",
    ),
}


def convert(case: Case, folder: Path) -> tuple[Any, Tensors, Path]:
    """A random model, its tensors as transformers stores them, and the GGUF file that llama.cpp would make of it."""
    torch.manual_seed(1)
    model = getattr(transformers, case.model).from_config(transformers.AutoConfig.for_model(**case.config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    model.save_pretrained(folder / "theirs")
    tensors = {
        name: tensor
        for name, tensor in load_file(folder / "theirs" / "model.safetensors").items()
        if "pooler" not in name
    }
    path = folder / "model.gguf"
    write(path, case.architecture, {"block_count": 2, "vocab_size": 67} | case.keys, dict(named(case, tensors)))
    return model, tensors, path


def named(case: Case, tensors: Tensors) -> Changed:
    """Tensors under the names of the gguf package, changed as the converter changes them."""
    known = gguf.get_tensor_name_map(kind_of(case.architecture), 3)
    for name, tensor in stacked(tensors).items():
        short = name
        for old, new in case.renamed.items():
            short = short.replace(old, new)
        found = known.get_name(short, (".weight", ".bias"))
        assert found is not None, name
        yield found, case.change(name, tensor)


def kind_of(architecture: str) -> gguf.MODEL_ARCH:
    return next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)


def stacked(tensors: Tensors) -> Tensors:
    """The experts of a layer in one tensor each."""
    made: Tensors = {}
    for name, tensor in tensors.items():
        short = re.sub(r"model\.(layers\.\d+)\.block_sparse_moe\.experts\.\d+", r"\1.feed_forward.experts", name)
        made[short] = tensor if short == name else torch.cat([*made.get(short, ()), tensor]).reshape(-1, *tensor.shape)
    return made


def rebuilt(checkpoint: Checkpoint, folder: Path, model: str) -> Any:
    """transformers' model of what heed read, as a Hugging Face folder."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(checkpoint.config))
    save_file(dict(checkpoint.tensors), folder / "model.safetensors", {"format": "pt"})
    return getattr(transformers, model).from_pretrained(folder).eval()


@torch.no_grad()
def outputs(model: Any) -> Tensor:
    ids = torch.arange(22).reshape(2, 11) * 5 % 67
    given = {"decoder_input_ids": ids[:, :7]} if model.config.is_encoder_decoder else {}
    made = model(input_ids=ids, **given)
    return made.logits if "logits" in made else made.last_hidden_state


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # transformers' gpt_bigcode
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_the_converter_did_is_undone(tmp_path: Path, case: Case) -> None:
    model, tensors, path = convert(case, tmp_path)
    checkpoint = ours.read(path)
    assert checkpoint.place == path
    assert checkpoint.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        read = checkpoint.tensors[name]
        assert read.is_contiguous()
        assert (read - tensor).abs().max().item() <= case.exact, name
        like = checkpoint.tensors.like(name)
        assert (like.shape, like.dtype, like.device.type) == (tensor.shape, torch.float32, "meta"), name

    wanted = outputs(model)
    again = rebuilt(checkpoint, tmp_path / "again", case.model)
    assert (outputs(again) - wanted).abs().max().item() <= 100 * case.exact * wanted.abs().max().item()
    if case.judged:
        theirs = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
        assert len(theirs) > len(tensors) / 2  # of a T5 it looks for as many layers in the decoder as in the encoder
        for name, tensor in theirs.items():
            assert torch.equal(tensor, checkpoint.tensors[name]), name
