"""Small random checkpoints with a tokenizer of a few words, saved by the reference library and opened by heed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, processors

import heed
from heed.pipelines import Pipeline
from tests.weights.live import saved

HF: Any = transformers
HF.utils.logging.set_verbosity_error()

WORDS = (
    *("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "the", "cat", "sat", "on", "a", "mat", "dog", "ran", "home"),
    *("and", "then", "it", "slept", "user", "assistant", ":"),
)
TEMPLATE = "{% for m in messages %}[CLS] {{ m.role }} : {{ m.content }} {% endfor %}[CLS] assistant :"
NARROW: dict[str, Any] = {"vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT: dict[str, Any] = {**NARROW, "intermediate_size": 20, "max_position_embeddings": 24}
ENDS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def worded(folder: Path, *, framed: bool = True, chat: bool = False) -> None:
    """A tokenizer of a few words beside the weights; `framed` as BERT's is."""
    inner = Library(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(list(WORDS[:5]))
    if framed:
        inner.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
    inner.save(str(folder / "tokenizer.json"))
    named: dict[str, Any] = {"pad_token": "[PAD]", "mask_token": "[MASK]", "eos_token": "[SEP]", "bos_token": "[CLS]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named | ({"chat_template": TEMPLATE} if chat else {})))


def opened(model: Any, folder: Path, **tokenizer: bool) -> tuple[Any, Pipeline]:
    """Their model and heed's pipeline."""
    theirs = saved(model, folder)
    worded(folder, **tokenizer)
    return theirs, heed.load(folder)


def gpt2(folder: Path) -> tuple[Any, Pipeline]:
    config = HF.GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=2, n_head=2, n_positions=24, **ENDS)
    return opened(HF.GPT2LMHeadModel(config), folder, framed=False, chat=True)


def llama(folder: Path) -> tuple[Any, Pipeline]:
    config = HF.LlamaConfig(**NARROW, intermediate_size=20, num_key_value_heads=1, **ENDS)
    return opened(HF.LlamaForCausalLM(config), folder, framed=False, chat=True)


def bert(folder: Path, kind: str = "BertForMaskedLM", **config: Any) -> tuple[Any, Pipeline]:
    return opened(getattr(HF, kind)(HF.BertConfig(**BERT, **config)), folder)


def t5(folder: Path) -> tuple[Any, Pipeline]:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 20, "num_layers": 2, "num_heads": 2, "vocab_size": len(WORDS)}
    config = HF.T5Config(**sizes, decoder_start_token_id=0, eos_token_id=2, pad_token_id=0)
    return opened(HF.T5ForConditionalGeneration(config), folder)
