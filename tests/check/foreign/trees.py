"""Strangers' trees of files, small ones."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

ATTENTION = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.n_heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
        return self.out(y.transpose(1, 2).flatten(2))
"""


def grow(root: Path, files: dict[str, str]) -> Path:
    """Write files below a folder; `ATTENTION` in a text is an attention."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(filled(text))
    return root


def attention(folder: Path, above: str = "", below: str = "", name: str = "att.py") -> str:
    """A file with an attention and something around it, as a target."""
    grow(folder, {name: f"{dedent(above)}\nATTENTION\n{dedent(below)}"})
    return f"{folder / name}:Attention"


def filled(text: str) -> str:
    return dedent(text).replace("ATTENTION", ATTENTION)


def notebook(*cells: str, **metadata: object) -> str:
    """A notebook with these code cells, and a heading."""
    heading = {"cell_type": "markdown", "source": ["# A notebook\n"], "metadata": {}}
    code = [{"cell_type": "code", "source": filled(c).lstrip("\n").splitlines(keepends=True)} for c in cells]
    return json.dumps({"cells": [heading, *code], "metadata": metadata, "nbformat": 4})
