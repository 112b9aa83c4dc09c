"""What is proven about each family, in few words: how often it was recorded, and beside what it was run.

The tests hold these words to what the tests do: tests/weights/families/test_proven.py.
"""

from __future__ import annotations

RECORDED = {  # golden folders that are computed again, by model_type
    "albert": 1,
    "bart": 2,
    "bert": 1,
    "big_bird": 3,
    "bitnet": 4,
    "bloom": 2,
    "clip": 1,
    "deberta-v2": 1,
    "deepseek_v3": 2,
    "distilbert": 1,
    "falcon": 2,
    "fnet": 1,
    "funnel": 1,
    "gemma2": 2,
    "gpt2": 2,
    "gpt_bigcode": 2,
    "gpt_neo": 2,
    "gpt_neox": 2,
    "gptj": 2,
    "layoutlm": 1,
    "llama": 2,
    "longformer": 2,
    "longt5": 1,
    "mamba": 2,
    "marian": 2,
    "mistral": 2,
    "mixtral": 2,
    "mpt": 2,
    "nystromformer": 1,
    "opt": 2,
    "qwen2": 2,
    "qwen3": 2,
    "reformer": 1,
    "roberta": 1,
    "roformer": 1,
    "rwkv": 2,
    "swin": 1,
    "switch_transformers": 1,
    "t5": 3,
    "transfo-xl": 4,
    "vit": 1,
    "wav2vec2": 1,
    "whisper": 2,
    "xlnet": 4,
    "yoso": 1,
}
GGUF = frozenset(  # read from GGUF, too
    {
        *("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma2", "gpt2", "gpt_neox", "falcon", "bloom", "mpt"),
        *("gpt_bigcode", "bert", "t5", "arcee"),
    }
)
TRAINED = {  # trained checkpoints, which answer as they should
    "albert": "rxnmapper",
    "bert": "all-MiniLM-L6-v2",
    "llama": "SmolLM2-135M, stories260K",
    "whisper": "whisper-base",
}


REMOVED = frozenset({"transfo-xl"})  # no longer in transformers: recorded runs alone prove them


def proven(name: str) -> str:
    """In words, for a model_type. Families that transformers has are run live beside it and loaded back by it."""
    words = [] if name in REMOVED else ["live"]
    if name in RECORDED:
        words.append(f"recorded {RECORDED[name]}×")
    if name in GGUF:
        words.append("GGUF")
    if name in TRAINED:
        words.append(f"trained: {TRAINED[name]}")
    return ", ".join(words)
