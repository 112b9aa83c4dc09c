"""What stops a check."""

from __future__ import annotations

from ...core.errors import HeedError


class CannotCheck(HeedError, RuntimeError):
    """A target that cannot be found, built or called; the message says what to do."""
