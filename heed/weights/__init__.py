"""Checkpoints: folders as their authors left them, and replaying what a reference computed."""

from __future__ import annotations

from .folder import Folder
from .replay import replay

__all__ = ["Folder", "replay"]
