"""Looking inside without changing anything: named points where a module shows what it computes.

    with look(model, "blocks.*.mixer.weights") as seen:
        model(tokens)
    seen["blocks.3.mixer.weights"][0]      # [B, H, T, N], one tensor per call

A module passes a *recipe* to its point, not a tensor: while no `look` is open nothing is computed, and the fused kernel
runs as always; within a `look` the recipe runs beside it. The output is the same to the last bit either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from torch import Tensor, nn

from ..core.config import nearest
from ..core.errors import InputError


class Look(nn.Module):
    """A point at which something can be seen. Its name is its place in the module tree."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: list[list[Tensor]] = []

    def forward(self, recipe: Callable[[], Tensor]) -> None:
        """Show what `recipe` computes, if it is watched."""
        if self._watchers:
            shown = recipe().detach()
            for watcher in self._watchers:
                watcher.append(shown)

    @property
    def watched(self) -> bool:
        """Whether a `look` is open on it."""
        return bool(self._watchers)

    def watch(self, into: list[Tensor]) -> None:
        """Add everything shown from now on to `into`."""
        self._watchers.append(into)

    def leave(self, into: list[Tensor]) -> None:
        """Stop adding to `into`."""
        self._watchers = [watcher for watcher in self._watchers if watcher is not into]


def points(model: nn.Module) -> dict[str, Look]:
    """Every point of a model, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Look)}


@contextmanager
def look(model: nn.Module, *patterns: str) -> Iterator[dict[str, list[Tensor]]]:
    """Collect what the points whose names match show; `*` stands for any text. Without a pattern: all of them."""
    known = points(model)
    chosen = {
        name: point for name, point in known.items() if not patterns or any(fnmatchcase(name, p) for p in patterns)
    }
    lost = [p for p in patterns if not any(fnmatchcase(name, p) for name in known)]
    if lost or not chosen:
        named = " or ".join(lost) or "anything"
        raise InputError(f"no point of this model is called {named}{nearest(named, known)}")
    seen: dict[str, list[Tensor]] = {name: [] for name in chosen}
    for name, point in chosen.items():
        point.watch(seen[name])
    try:
        yield seen
    finally:
        for name, point in chosen.items():
            point.leave(seen[name])
