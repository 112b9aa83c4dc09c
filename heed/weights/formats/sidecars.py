"""Files beside the weights of a checkpoint: configs, tokenizers, chat templates; copied along when it is converted."""

from __future__ import annotations

import shutil
from pathlib import Path

NAMES = (
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json", "README.md"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
    *("spm.model", "source.spm", "target.spm", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json"),
)
LARGEST = 1 << 28  # bytes


def bring(source: Path, target: Path) -> None:
    """Copy these files, also where a link leads to them; what the target has already stays."""
    for name in NAMES:
        path, copy = source / name, target / name
        if path.is_file() and path.stat().st_size <= LARGEST and not copy.exists():
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copy)
