"""GPT-BigCode (Ben Allal et al. 2023): GPT-2 with one key and value for all heads; SantaCoder and StarCoder."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Flag
from ...mixers import Attention
from ..rename import Rule, both
from ..rules import grouped
from .gpt2 import GPT2


class GPTBigCode(GPT2):
    """SantaCoder, StarCoder and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("gpt_bigcode",)
    paper: ClassVar[str] = "Ben Allal et al. 2023, SantaCoder, arXiv 2301.03988"

    multi_query: Flag = True

    def mixers(self) -> tuple[Attention.Config, ...]:
        kv_heads, scale = 1 if self.multi_query else None, None if self.scale_attn_weights else 1.0
        return (Attention.Config(heads=self.n_head, kv_heads=kv_heads, scale=scale),)

    def fused(self, theirs: str, ours: tuple[str, ...]) -> tuple[Rule, ...]:
        groups, queries = (1, self.n_head) if self.multi_query else (self.n_head, 1)
        return grouped(theirs, ours, groups, (queries, 1, 1))

    def linear(self, theirs: str, ours: str) -> tuple[Rule, ...]:
        return both(theirs, ours)
