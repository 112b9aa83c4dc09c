"""From nothing to a proven model in minutes: train on dates, evaluate, look inside, prove. What `heed demo` shows."""

from __future__ import annotations

from .align import Alignment as Alignment
from .align import align as align
from .report import Report as Report
from .tell import tell as tell
from .tour import demo as demo
