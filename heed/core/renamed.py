"""Arguments that were called otherwise in the last release: they still work, with a warning."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from warnings import warn

P = ParamSpec("P")
T = TypeVar("T")


def renamed_arguments(**now: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`@renamed_arguments(limit="max_new_tokens")`: the old keyword is taken for the new one.

    Type checkers know the new names alone.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*given: P.args, **named: P.kwargs) -> T:
            old = now.keys() & named.keys()
            for name in sorted(old):
                message = f"{function.__name__}: {name} is called {now[name]} now; the old name will go"
                warn(message, DeprecationWarning, stacklevel=2)
            current: Any = {now.get(name, name): value for name, value in named.items()} if old else named
            return function(*given, **current)

        return call

    return decorate
