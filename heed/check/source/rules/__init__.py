"""What to write where, for every bug: rules that read code and trace, and propose changes, the likeliest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...reports.report import Fix
from ..case import Case
from .caches import cache_offset, cache_reorder
from .chance import by_hand, dropout_in_eval
from .fills import dead_row, finite_mask
from .heads import head_mixing, shared_heads
from .hiding import after_softmax, bent_after, inverted, on_queries, penalty
from .masks import as_truth, not_assigned, not_passed_on, not_used
from .models import batch_first, label_shift, loss_denominator, norm_axes, one_of_many, tying_lost, unused
from .places import (
    alibi_slopes,
    position_exponent,
    position_sliced,
    relative_shift,
    rope_mismatch,
    rope_precision,
)
from .purity import kept, made_in_forward, mutated
from .rows import first_row, mask_rows, over_rows
from .scale import scale_after_softmax, wrong_scale
from .softmaxes import no_softmax, overflow, softmax_axis, value_is_key, weights_averaged
from .sources import looks_inside
from .triangles import compared, extent, lined_up, missing, not_itself, sees_ahead, turned

Rule = Callable[[Case], Iterator[Fix | None]]

# What one of two ways through the code may do and the other not.
PATHS: tuple[Rule, ...] = (
    wrong_scale,
    missing,
    not_used,
    not_passed_on,
    softmax_axis,
    after_softmax,
    dropout_in_eval,
    inverted,
)
RULES: dict[str, tuple[Rule, ...]] = {
    "wrong-scale": (wrong_scale,),
    "scale-after-softmax": (scale_after_softmax,),
    "softmax-axis": (softmax_axis,),
    "no-softmax": (no_softmax,),
    "overflow": (overflow, no_softmax),
    "value-is-key": (value_is_key, unused),
    "mask-ignored": (not_assigned, not_passed_on, not_used, inverted),
    "mask-inverted": (inverted, turned),
    "future-leak": (not_assigned, sees_ahead, inverted, not_passed_on, missing),
    "excludes-self": (not_itself, inverted),
    "window-extent": (extent,),
    "cache-mismatch": (lined_up, cache_offset, compared),
    "head-mixing": (head_mixing,),
    "dropout-in-eval": (dropout_in_eval, by_hand),
    "layer-made-in-forward": (made_in_forward,),
    "state-between-calls": (kept,),
    "input-mutated": (mutated,),
    "parameter-unused": (unused, one_of_many, value_is_key),
    "shared-self-cross": (looks_inside, unused),
    "position-exponent": (position_exponent,),
    "position-sliced": (position_sliced,),
    "rope-mismatch": (rope_mismatch,),
    "rope-precision": (rope_precision,),
    "alibi-slopes": (alibi_slopes,),
    "relative-shift": (relative_shift,),
    "cache-offset": (cache_offset, lined_up),
    "cache-reorder": (cache_reorder,),
    "batch-first-confusion": (batch_first,),
    "norm-axes": (norm_axes,),
    "label-shift": (label_shift,),
    "loss-denominator": (loss_denominator,),
    "tying-lost": (tying_lost,),
    "gqa-order": (shared_heads,),
    "batch-mixing": (mask_rows, first_row, over_rows, batch_first),
    "mask-after-softmax": (after_softmax, inverted, not_assigned),
    "mask-on-queries": (on_queries,),
    "mask-raises": (as_truth, on_queries),
    "raises": (as_truth, kept),
    "looking-changes-output": PATHS,
    "path-differs": PATHS,
    "finite-mask": (bent_after, finite_mask),
    "dead-row-nan": (dead_row,),
    "dead-row-gradient": (dead_row,),
    "padding-leak": (not_passed_on, not_assigned, compared, penalty, not_used, on_queries, after_softmax, finite_mask),
    "weights-averaged": (weights_averaged,),
}
