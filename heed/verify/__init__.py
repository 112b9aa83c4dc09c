"""Proofs that a user can run in their own install: every fast, cached or cut form equals the written-out one."""

from __future__ import annotations

from .proof import Proof as Proof
from .proof import proofs as proofs
from .proof import subjects as subjects
