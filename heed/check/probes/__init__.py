"""Every question that an attention is asked. `PROBES` is the table: a name, the statement, and its test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..outcome import Outcome
from ..subject import Subject
from . import cached, causal, extremes, gradients, hidden, purity, relative, rows, written


@dataclass(frozen=True)
class Probe:
    """One question: `ask` answers it for a subject."""

    name: str
    number: str  # as the catalogue of bugs counts them
    statement: str
    ask: Callable[[Subject], Outcome]


PROBES: tuple[Probe, ...] = (
    Probe("layout", "P7", "rows are the first axis and tokens the second", rows.layout),
    Probe("rows", "P7", "rows do not touch each other, whatever their masks", rows.independent),
    Probe("prefix", "P1", "the outputs of a text's beginning are those of the beginning alone", causal.prefix),
    Probe("future", "P2", "what comes later changes nothing, however large", causal.future),
    Probe("gradient", "P2j", "the gradient towards what comes later is exactly zero", causal.gradient),
    Probe("past", "P3", "a token is influenced by itself and by all it may see", causal.past),
    Probe("extent", "P16", "a window holds as many tokens as it says", causal.extent),
    Probe("mask", "P5", "a mask hides what it hides and nothing else", hidden.meaning),
    Probe("alone", "P5", "a token that may see only itself is treated as if it were alone", hidden.alone),
    Probe("padding", "P4", "padding changes nothing, on either side, whatever it holds", hidden.padding),
    Probe(
        "dead-row", "P9", "a token that may see nothing gives numbers, and finite gradients to all", extremes.dead_row
    ),
    Probe("large", "P10", "large inputs give numbers, and what is hidden stays hidden", extremes.large),
    Probe("same", "P6", "equal tokens give equal outputs, as many as there are", rows.same),
    Probe("order", "P8", "shuffled tokens give shuffled outputs, unless there are positions", rows.order),
    Probe("repeat", "P11", "the same input gives the same output while not training", purity.repeat),
    Probe("pure", "P20", "inputs and masks are left as they are, and nothing is kept between calls", purity.pure),
    Probe("gradients", "P19", "every weight matters, and its gradient is finite", gradients.everywhere),
    Probe("precision", "P18", "in float32 the result is that of float64 up to rounding", purity.precision),
    Probe(
        "looking", "P20", "asking for the weights changes no output, and the weights are those of it", purity.looking
    ),
    Probe("cache", "P12", "a text in pieces gives what it gives at once", cached.equal),
    Probe("written-out", "P17", "it equals attention written out with its own weights", written.equal),
    Probe("scale", "P13", "scores are divided by the root of a head's size", written.scale),
    Probe("shift", "P14", "relative positions do not care where a text begins", relative.shift),
    Probe("source", "P3", "a cross-attention uses its source, with weights of its own", rows.sourced),
)
