"""torch's private names, all of them: what heed asks of torch beyond its public interface, in one place.

A new release of torch may rename any of these; then this file is what has to change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.nn.modules import module as _modules
from torch.utils._python_dispatch import _get_current_dispatch_mode

F = TypeVar("F", bound=Callable[..., Any])


def global_forward_hooks() -> bool:
    """Whether hooks are registered on the calls of all modules."""
    return bool(_modules._global_forward_hooks or _modules._global_forward_pre_hooks)


def call_is_rewritten() -> bool:
    """Whether this call is traced, compiled, mapped (`torch.func`) or watched by a dispatch mode."""
    return bool(
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or _get_current_dispatch_mode() is not None
    )


def assumed_constant(function: F) -> F:
    """What `torch.compiler.assume_constant_result` does, without importing the compiler, which takes a second."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
