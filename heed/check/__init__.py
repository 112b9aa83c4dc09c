"""Find the bug in anyone's attention: `heed.check(module)` asks it what the contract asks, and names what is wrong.

The package itself can be called: `import heed; report = heed.check(MyAttention)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .foreign.target import CannotCheck as CannotCheck
from .outcome import Outcome as Outcome
from .outcome import Status as Status
from .outcome import Sure as Sure
from .reports.report import Report as Report
from .run import check as check
from .subject import Declared as Declared


class Check(ModuleType):
    """`heed.check` is a package, and what people do with it is call it."""

    def __call__(self, target: Any, **spec: Any) -> Report:
        return check(target, **spec)


sys.modules[__name__].__class__ = Check
