"""The residual connections of a block at work, and the ends of a stack; `wiring.py` configures them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...core.stamps import Stamps
from ..layers.dropout import Dropout
from ..layers.norms import OverTokens, tell

Part: TypeAlias = Callable[[Tensor], Tensor]


class Ends(nn.Module):
    """What happens before the first block and after the last one: here, nothing but an optional final norm."""

    def __init__(self, final: nn.Module | None = None) -> None:
        super().__init__()
        self.final = final

    def told(self, where: Stamps) -> None:
        """Which tokens are padding, for a norm over tokens."""
        if isinstance(self.final, OverTokens):
            tell((self.final,), where)

    def enter(self, x: Tensor) -> Tensor:
        return x

    def leave(self, x: Tensor) -> Tensor:
        return x if self.final is None else self.final(x)


class Wiring(nn.Module, ABC):
    """The residual connections of one block."""

    recompute = False  # while learning: whether what is inside is computed again backwards instead of held

    def __init__(self, norms: Sequence[nn.Module], dropout: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norms)
        self.dropout = Dropout(dropout)
        self.over_tokens = any(isinstance(norm, OverTokens) for norm in norms)

    def told(self, where: Stamps) -> None:
        """Which tokens are padding, for norms over tokens."""
        if self.over_tokens:
            tell(self.norms, where)

    @abstractmethod
    def forward(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        """The stream after these parts."""

    @property
    def again(self) -> bool:
        """Whether parts will be called a second time, backwards, with the same channels dropped."""
        return self.recompute and self.training and torch.is_grad_enabled()

    def whole(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        """The same, held or computed again."""
        stream: Tensor = checkpoint(self, x, parts, use_reentrant=False) if self.again else self(x, parts)
        return stream


class PostWired(Wiring):
    """x ← norm(alpha · x + part(x))."""

    def __init__(self, norms: Sequence[nn.Module], dropout: float, alpha: float = 1.0) -> None:
        super().__init__(norms, dropout)
        self.alpha = alpha

    def forward(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        for norm, part in zip(self.norms, parts, strict=True):
            x = norm(torch.add(self.dropout(part(x)), x, alpha=self.alpha))
        return x


class PreWired(Wiring):
    """x ← alpha · x + part(norm(x))."""

    def __init__(self, norms: Sequence[nn.Module], dropout: float, alpha: float = 1.0) -> None:
        super().__init__(norms, dropout)
        self.alpha = alpha

    def forward(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        for norm, part in zip(self.norms, parts, strict=True):
            x = torch.add(self.dropout(part(norm(x))), x, alpha=self.alpha)
        return x


class RescaledWired(Wiring):
    """x ← (x + share · part(norm(x))) · last."""

    def __init__(self, norms: Sequence[nn.Module], dropout: float, share: float, *, halves: bool) -> None:
        super().__init__(norms, dropout)
        self.share, self.last = share, 0.5 if halves else 1.0

    def forward(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        for norm, part in zip(self.norms, parts, strict=True):
            x = torch.add(x, self.dropout(part(norm(x))), alpha=self.share)
        return x * self.last


class NormedWired(Wiring):
    """x ← norm(x); x ← x + part(x)."""

    def forward(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        for norm, part in zip(self.norms, parts, strict=True):
            x = norm(x)
            x = x + self.dropout(part(x))
        return x


class SandwichWired(Wiring):
    """x ← x + after(part(before(x)))."""

    def forward(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        norms = iter(self.norms)
        for before, after, part in zip(norms, norms, parts, strict=True):
            x = x + self.dropout(after(part(before(x))))
        return x


class ParallelWired(Wiring):
    """x ← x + Σ part(norm(x))."""

    def forward(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        normed = [norm(x) for norm in self.norms]
        for index, part in enumerate(parts):
            x = x + self.dropout(part(normed[index % len(normed)]))
        return x


class UnrolledWired(Wiring):
    """x ← x + part(norm(x)); the last part replaces the stream."""

    def forward(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        for norm, part in zip(self.norms[:-1], parts[:-1], strict=True):
            x = x + self.dropout(part(norm(x)))
        return parts[-1](self.norms[-1](x))


class ResiDualWired(Wiring):
    """x ← norm(x + part(x)) and r ← r + scale · part(x), side by side in the channels."""

    def __init__(self, norms: Sequence[nn.Module], dropout: float, scale: float) -> None:
        super().__init__(norms, dropout)
        self.scale = scale

    def forward(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        x, residual = x.chunk(2, -1)
        for norm, part in zip(self.norms, parts, strict=True):
            change = self.dropout(part(x))
            residual = residual + self.scale * change
            x = norm(x + change)
        return torch.cat((x, residual), -1)


class TwoStreams(Ends):
    """The streams of ResiDual: both begin as the embedding; at the end alpha · x + norm(r)."""

    def __init__(self, final: nn.Module, scale: float, alpha: float) -> None:
        super().__init__(final)
        self.scale, self.alpha = scale, alpha

    def enter(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.scale * x), -1)

    def leave(self, x: Tensor) -> Tensor:
        x, residual = x.chunk(2, -1)
        return self.alpha * x + super().leave(residual)


class TurnsWired(Wiring):
    """x ← x + part(norm(y)), then the other way round: computed again backwards, as it was made for."""

    recompute = True

    def forward(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        x, fresh = x.chunk(2, -1)
        for norm, part in zip(self.norms, parts, strict=True):
            x, fresh = fresh, x + self.dropout(part(norm(fresh)))
        return torch.cat((x, fresh), -1)


class Both(Ends):
    """The two streams of a reversible stack, their mean or both of them at its end."""

    def __init__(self, final: nn.Module | None, *, mean: bool) -> None:
        super().__init__(final)
        self.mean = mean

    def enter(self, x: Tensor) -> Tensor:
        return torch.cat((x, x), -1)

    def leave(self, x: Tensor) -> Tensor:
        return super().leave(torch.stack(x.chunk(2, -1)).mean(0) if self.mean else x)
