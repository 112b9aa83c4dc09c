"""Emitters: how each kind of part is written as instructions. `table.EMIT` names the classes that have one."""

from __future__ import annotations

from .emitter import Emitter as Emitter
from .table import EMIT as EMIT
