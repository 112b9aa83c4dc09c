"""The rwkv package of RWKV's authors: RWKV-4 in float32; one sequence at a time, which is all it does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from ..base import Contestant, Done, Prepared, nearest
from ..work import Work


class Rwkv(Contestant):
    """Beside RWKV, and beside RetNet of the same size; its own int8 is slower than its float32 on a CPU."""

    name: ClassVar[str] = "rwkv"
    package: ClassVar[str] = "rwkv"
    distribution: ClassVar[str] = "rwkv"

    def precision(self, work: Work) -> str | None:
        if work.model not in {"rwkv", "retnet"}:
            return None
        return nearest(work, {"fp32": "fp32"}, ("decode", "prefill"))

    def prepare(self, work: Work) -> Prepared:
        os.environ |= {"RWKV_JIT_ON": "1", "RWKV_CUDA_ON": "0", "RWKV_V7_ON": "0"}
        import torch
        from rwkv.model import RWKV

        path = _pickled(work)
        model = RWKV(model=str(path), strategy="cpu fp32")
        rows = work.rows()

        def written() -> Done:
            lines = [_line(model, row, work.writes or 1) for row in rows]
            return Done(sum(map(len, lines)) if work.writes else work.units, tuple(lines[0]))

        with torch.no_grad():
            return Prepared({"": written}, Path(f"{path}.pth").stat().st_size - work.table(4))


def _line(model: Any, prompt: list[int], count: int) -> list[int]:
    """Greedily."""
    logits, state = model.forward(prompt, None)
    line = [int(logits.argmax())]
    while len(line) < count:
        logits, state = model.forward([line[-1]], state)
        line.append(int(logits.argmax()))
    return line


def _pickled(work: Work) -> Path:
    """The checkpoint as the package reads it, without its suffix."""
    import torch
    from safetensors.torch import load_file

    path = Path(work.folder, "rwkv")
    if not path.with_suffix(".pth").exists():
        torch.save(load_file(Path(work.folder, "model.safetensors")), path.with_suffix(".pth"))
    return path
