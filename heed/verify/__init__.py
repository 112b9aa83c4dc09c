"""Proofs that a user can run in their own install: every fast, cached or cut form equals the written-out one."""

from __future__ import annotations

from .base import Proof as Proof
from .base import show as show
from .golden import recorded as recorded
from .proof import proofs as proofs
from .proof import subjects as subjects
