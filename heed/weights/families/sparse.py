"""How checkpoints store a mixture of experts: each by itself, as on the hub, or all of a layer in two tensors."""

from __future__ import annotations

from ...core.errors import ConfigError
from ..formats.safetensors import Tensors
from ..rename import Same, Table
from ..rules import Stacked
from .skeleton import FEEDFORWARD

STACK = ".mlp.experts.gate_up_proj"  # what a file has that holds the experts of a layer in two tensors


def must_route(tensors: Tensors, experts: int, router: str = ".mlp.gate.weight") -> None:
    """Raise unless there is a router, and it knows so many experts: to build them costs time."""
    known = next((tensors.like(name).shape for name in tensors if name.endswith(router)), None)
    if known is None or known[:1] != (experts,):
        found = "has no router" if known is None else f"has a router of the shape {list(known)}"
        raise ConfigError(f"it claims {experts} experts, but {found} ({router.strip('.')})")


def expert_names(layer: str, block: str, experts: int, tensors: Tensors, parts: dict[str, str] | None = None) -> Table:
    """Names of a router and its experts. `parts` is for families that call the parts of an expert otherwise."""
    ours = f"{block}.feedforward"
    if any(name.endswith(STACK) for name in tensors):
        both = tuple(f"{ours}.experts.{e}.{part}.weight" for e in range(experts) for part in ("gate", "up"))
        down = tuple(f"{ours}.experts.{e}.down.weight" for e in range(experts))
        return (
            Same(f"{layer}.mlp.gate.weight", f"{ours}.routes.scores.weight"),
            Stacked(f"{layer}.mlp.experts.gate_up_proj", both, each=2),
            Stacked(f"{layer}.mlp.experts.down_proj", down),
        )
    theirs = f"{layer}.mlp" if parts is None else f"{layer}.block_sparse_moe"
    return (
        Same(f"{theirs}.gate.weight", f"{ours}.routes.scores.weight"),
        *(
            Same(f"{theirs}.experts.{{e}}.{their}.weight", f"{ours}.experts.{{e}}.{our}.weight")
            for their, our in (parts or FEEDFORWARD).items()
        ),
    )
