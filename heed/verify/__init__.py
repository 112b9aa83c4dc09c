"""Proofs that a user can run in their own install: every fast, cached or cut form equals the written-out one."""

from __future__ import annotations

from .proofs import Proof as Proof
from .proofs import proofs as proofs
from .proofs import subjects as subjects
