"""Connectionist temporal classification: labels are learnt from sequences that do not say where each of them is.

Every frame has logits of all labels and of a blank. A path names one of them for each frame; runs of equal names and
then blanks are taken out of it, and what is left are labels (Graves et al. 2006).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.errors import InputError
from .loss import NO_LABEL, Loss


def ctc(logits: Tensor, frames: Tensor, labels: Tensor, blank: int = 0) -> Loss:
    """-Σ_rows log Σ_{paths that read as the labels} Π_t p_t(path_t), of the real frames of each row.

    [B, T, V], [B] numbers of frames, [B, L] labels before NO_LABEL. A row without labels asks nothing. One whose labels
    need more frames than it has (`least_frames`) has no path at all, and is refused.
    """
    counts = (labels != NO_LABEL).sum(1)
    short = (least_frames(labels) > frames.to(labels.device)) & (counts > 0)
    if bool(short.any()):
        row = int(short.nonzero()[0, 0])
        raise InputError(
            f"row {row} has {int(frames[row])} frames, and its {int(counts[row])} labels need "
            f"{int(least_frames(labels[row : row + 1])[0])} (one each, and one more between equal ones); leave it out"
        )
    if bool((labels == blank).any()):
        raise InputError(f"the labels hold {blank}, which is the blank; labels are all ids but that one")
    asked = counts > 0
    logs = logits.log_softmax(-1, dtype=torch.float32 if logits.dtype.itemsize < 4 else None)
    each = F.ctc_loss(
        logs.transpose(0, 1),
        labels.clamp(min=0),
        frames.to(labels.device).clamp(min=1),
        counts,
        blank=blank,
        reduction="none",
    )
    total = each.masked_fill(~asked, 0.0).sum()
    return Loss(total, total.detach())


def least_frames(labels: Tensor) -> Tensor:
    """Frames that these labels need: one each, and a blank between equal neighbours. [B, L] -> [B]"""
    real = labels != NO_LABEL
    equal = (labels[:, 1:] == labels[:, :-1]) & real[:, 1:]
    return real.sum(1) + equal.sum(1)
