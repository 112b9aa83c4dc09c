"""Decoding: one loop over any model's state. Greedy, sampling, beam search; stop strings and constraints."""

from __future__ import annotations

from .allow import Allow, Begin, Choices, Never
from .beam import Beam
from .loop import WAYS, AnyWay, generate, stream
from .pick import PICKS, Greedy, Pick, Sample
from .stop import Stop
from .written import Token, Why, Written

__all__ = [
    "PICKS",
    "WAYS",
    "Allow",
    "AnyWay",
    "Beam",
    "Begin",
    "Choices",
    "Greedy",
    "Never",
    "Pick",
    "Sample",
    "Stop",
    "Token",
    "Why",
    "Written",
    "generate",
    "stream",
]
