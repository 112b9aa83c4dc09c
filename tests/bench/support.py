"""Small models to be measured, and contestants that only pretend."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from heed.bench.base import Contestant, Done, Prepared
from heed.bench.contest import Process
from heed.bench.shapes import CONFIGS, Model, write
from heed.bench.work import Precision, Subject, Work

LLAMA = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}
GPT = {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 64, "bos_token_id": 1}
SMALL: dict[Model, dict[str, int]] = {
    "gpt2": {**GPT, "eos_token_id": 1},
    "gpt-50k": {**GPT, "eos_token_id": 1},
    "llama": LLAMA,
    "bitnet": LLAMA,
    "bert": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 100,
    },
    "transformer": {
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "vocab_size": 101,
        "pad_token_id": 100,
        "decoder_start_token_id": 100,
        "max_position_embeddings": 64,
    },
    "rwkv": {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100},
    "retnet": {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100},
}
WRITES: tuple[Subject, ...] = ("decode", "translate")


def small(subject: Subject, model: Model, room: Path, precision: Precision = "fp32") -> Work:
    """Three rows of twelve tokens, with a checkpoint of its own."""
    folder = room / f"{subject}-{model}"
    if not folder.exists():
        write({**CONFIGS[model], **SMALL[model]}, folder, weighs=subject != "train")
    writes = 5 if subject in WRITES else 0
    return Work(subject, model, precision, 3, 12, writes, threads=1, folder=str(folder))


class Fake(Contestant):
    """Does nothing, in two ways."""

    name: ClassVar[str] = "fake"
    package: ClassVar[str] = "json"
    distribution: ClassVar[str] = "pytest"
    units = 3 * 12

    def precision(self, work: Work) -> str | None:
        return "fp32"

    def prepare(self, work: Work) -> Prepared:
        import time

        def slow() -> Done:
            time.sleep(0.05)
            return Done(self.units, (1, 2))

        return Prepared({"slow": slow, "quick": lambda: Done(self.units, (1, 2))}, bytes=64)


class Missing(Fake):
    """Nobody has it."""

    name: ClassVar[str] = "missing"
    package: ClassVar[str] = "no_such_package_at_all"
    distribution: ClassVar[str] = "no-such-package"


class Unable(Fake):
    """Has nothing to do with it."""

    name: ClassVar[str] = "unable"

    def precision(self, work: Work) -> str | None:
        return None


class Broken(Fake):
    """Fails before it is ready."""

    name: ClassVar[str] = "broken"


class Faint(Fake):
    """Fails in its second round."""

    name: ClassVar[str] = "faint"


# A worker in few lines, which starts in no time: its name tells how it does.
SCRIPT = """
import json, sys
name = sys.argv[1]
def say(told): print(json.dumps(told), flush=True)
if name == "broken": sys.exit("ValueError: this cannot be built")
say({"ready": {"version": "1.0", "way": "", "ways": 1, "bytes": 100}})
for number, line in enumerate(sys.stdin):
    if name == "faint" and number: sys.exit("out of breath")
    figures = {"bandwidth": 1e10 + number, "gemm": 1e11} if name == "limits" else {}
    seconds = 0.5 if name == "heed" else 1.0
    say({"seconds": seconds, "units": 32, "peak": 1 << 20, "tokens": [1, 2, len(name) % 3], "figures": figures})
"""


def pretend(contestant: Contestant, work: Work) -> Process:
    """Instead of the worker."""
    return Process([sys.executable, "-c", SCRIPT, contestant.name], work.threads)
