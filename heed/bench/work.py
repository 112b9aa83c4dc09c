"""What is to be done in a contest: the same for every contestant."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .shapes import Model

Subject: TypeAlias = Literal["decode", "prefill", "encode", "translate", "train", "attention", "load"]
Asked: TypeAlias = Literal["decode", "prefill", "encode", "translate", "train", "attention", "load", "busy"]
Precision: TypeAlias = Literal["fp32", "int8", "int4"]

SHORTEST = 16  # tokens of ragged texts
UNTIED = ("llama", "rwkv")  # whose head is not their embedding
BEAMS = 4
UNITS: dict[Subject, str] = {
    "decode": "tokens",
    "prefill": "tokens",
    "encode": "texts",
    "translate": "sentences",
    "train": "tokens",
    "attention": "tokens",
    "load": "starts",
}


@dataclass(frozen=True)
class Work:
    """One round of a contest: rows of prompt tokens, and how many tokens are generated after each."""

    subject: Subject
    model: Model
    precision: Precision
    batch: int
    reads: int  # tokens of a row; of ragged rows, the most
    writes: int = 0
    ragged: bool = False
    threads: int = 1
    folder: str = ""  # where the checkpoint lies, and room for what others make of it

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config.json of the folder: all contestants read sizes from there."""
        told: dict[str, Any] = json.loads(Path(self.folder, "config.json").read_text(encoding="utf-8"))
        return told

    def table(self, each: float) -> int:
        """Bytes of an embedding of which single rows are read, at so many a weight; none if it is the head, too."""
        config = self.config
        return int(config["vocab_size"] * config["hidden_size"] * each) if config["model_type"] in UNTIED else 0

    @property
    def units(self) -> int:
        """What a round gets done."""
        match self.subject:
            case "decode":
                return self.batch * self.writes
            case "encode" | "translate":
                return self.batch
            case "load":
                return 1
            case "prefill" | "train" | "attention":
                return self.batch * self.reads

    @property
    def unit(self) -> str:
        """What is counted."""
        return UNITS[self.subject]

    @property
    def title(self) -> str:
        """In words."""
        rows = f"{self.batch} × {self.reads} tokens"
        match self.subject:
            case "decode":
                rows = f"{self.batch} × ({self.reads} prompt + {self.writes} new tokens)"
            case "translate":
                rows = f"{self.batch} × ({self.reads} prompt + {self.writes} new tokens), {BEAMS} beams"
            case "encode" if self.ragged:
                rows = f"{self.batch} texts of {SHORTEST} to {self.reads} tokens"
            case "load":
                rows = "from the start of the process to the first token"
            case "attention":
                return f"attention, causal, 8 heads of 64, {rows}"
        return f"{self.subject}, {self.model} {self.precision}, {rows}"

    def lengths(self) -> list[int]:
        """Of each row: the same, or spread evenly and shuffled."""
        if not self.ragged or self.batch == 1:
            return [self.reads] * self.batch
        step = (self.reads - SHORTEST) / (self.batch - 1)
        spread = [round(SHORTEST + step * row) for row in range(self.batch)]
        random.Random(0).shuffle(spread)
        return spread

    def rows(self, more: int = 0) -> list[list[int]]:
        """Random ids, the same in every process; the ends of the vocabulary, where special tokens are, are spared."""
        draw, size = random.Random(1), int(self.config["vocab_size"])
        return [[draw.randrange(8, size - 8) for _ in range(length + more)] for length in self.lengths()]

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Work:
        return cls(**json.loads(text))
