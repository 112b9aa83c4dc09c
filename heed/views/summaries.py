"""`heed summary`: the tree of a model's modules, what flows through them, and where its weights are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core.errors import InputError
from ..core.interfaces import Sees
from ..core.state import Seen
from ..parts.look import Look
from ..show.pictures import Page, Sheet
from .flops import must_be_unreadable, weights_of
from .subject import VOCABULARY, Subject, given, outputs, subject

if TYPE_CHECKING:
    from rich.console import RenderableType

TOKENS = 16
DEEP = 5  # levels of the tree that are shown, unless more are asked for


@dataclass(frozen=True)
class Node:
    """A module, and all that are alike and follow one another at its place."""

    name: str
    kind: str
    depth: int
    times: int
    shape: tuple[int, ...] | None  # of what it gives; None: it was not called, or gives no tensor
    weights: int  # of all of them; what is tied counts where it stands first
    share: float  # of the weights of the model


@dataclass(frozen=True)
class Summary:
    """The tree, in the order in which it is read."""

    model: str
    rows: int
    tokens: int
    weights: int
    nodes: tuple[Node, ...]

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)

    def text_figure(self) -> RenderableType:
        """One table."""
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("module", "gives", "weights", "share"):
            table.add_column(name, justify="left" if name == "module" else "right", no_wrap=True)
        for node in self.nodes:
            first, *others = _cells(node)
            table.add_row("  " * node.depth + escape(first), *others)
        head = f"[bold]{escape(self.model)}[/]: {self.weights:,} weights; shapes for {self.rows} × {self.tokens} tokens"
        return Group(head, table)

    def html(self) -> str:
        """The same table, as a page."""
        rows = [("\u2003" * node.depth + _cells(node)[0], _cells(node)[1:]) for node in self.nodes]
        shades = [[0.0, 0.0, node.share] for node in self.nodes]
        sheet = Sheet(f"{self.weights:,} weights", ("gives", "weights", "share"), rows, shades)
        return Page(f"Summary of {self.model}", [sheet]).html()


def summary(
    model: Any, *, tokens: int = TOKENS, rows: int = 1, depth: int = DEEP, vocabulary: int = VOCABULARY
) -> Summary:
    """The modules of a model: a configuration, the name of a recipe, a .toml file, a run or a checkpoint."""
    if min(tokens, rows, depth) < 1:
        raise InputError(f"a summary is of 1 or more tokens, rows and levels, not {tokens}, {rows} and {depth}")
    about = subject(model, vocabulary=vocabulary)
    built = about.model()
    shapes = _shapes(built, about, tokens, rows)
    total = max(1, weights_of(built))
    nodes = tuple(_walked(built, type(built).__name__, "", 0, depth, shapes, set(), total))
    return Summary(about.name, rows, tokens, weights_of(built), nodes)


def _shapes(model: Any, about: Subject, tokens: int, rows: int) -> dict[str, tuple[int, ...]]:
    """What each module gave, in a call without numbers."""
    found: dict[str, tuple[int, ...]] = {}

    def keep(name: str) -> Any:
        def hook(_: nn.Module, __: Any, given: Any) -> None:
            tensor = _tensor(given)
            if tensor is not None:
                found.setdefault(name, tuple(tensor.shape))

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad(), torch.device("meta"):
            if isinstance(model, Sees):
                found[""] = tuple(model.see(torch.zeros(rows, *model.shown)).parts[0].shape)
            else:
                outputs(model, given(about.shape, tokens, rows))
    except RuntimeError as error:  # what decides by its numbers is shown as far as it came
        must_be_unreadable(error)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _tensor(given: Any) -> Tensor | None:
    match given:
        case Tensor():
            return given
        case Seen():
            return given.parts[0]
        case (first, *_):
            return _tensor(first)
    return None


def _walked(
    module: nn.Module,
    name: str,
    place: str,
    depth: int,
    deepest: int,
    shapes: dict[str, tuple[int, ...]],
    told: set[int],
    total: int,
) -> Iterator[Node]:
    mine = _fresh(module, told)
    yield Node(name, type(module).__name__, depth, 1, shapes.get(place), mine, mine / total)
    if depth == deepest:
        told |= {id(weight) for weight in module.parameters()}
        return
    for names, alike in _groups(module):
        first = f"{place}.{names[0]}".lstrip(".")
        head = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
        before = set(told)
        own = list(_walked(alike[0], head, first, depth + 1, deepest, shapes, told, total))
        if len(alike) == 1:
            yield from own
            continue
        every = sum(_fresh(one, before, mark=True) for one in alike)
        told |= before
        top = own[0]
        yield Node(head, top.kind, top.depth, len(alike), top.shape, every, every / total)
        yield from own[1:]
    told |= {id(weight) for weight in module.parameters()}


def _fresh(module: nn.Module, told: set[int], *, mark: bool = False) -> int:
    """Weights that were not counted before."""
    held = {id(weight): weight.numel() for weight in module.parameters() if id(weight) not in told}
    if mark:
        told |= set(held)
    return sum(held.values())


def _groups(module: nn.Module) -> Iterator[tuple[list[str], list[nn.Module]]]:
    """Children that have something to show; neighbours of one kind and size together."""
    names, alike = list[str](), list[nn.Module]()
    for name, child in module.named_children():
        if isinstance(child, Look):
            continue
        if alike and not (name.isdigit() and _like(alike[0]) == _like(child)):
            yield names, alike
            names, alike = [], []
        names.append(name)
        alike.append(child)
    if alike:
        yield names, alike


def _like(module: nn.Module) -> tuple[object, ...]:
    shapes = tuple((name, tuple(weight.shape)) for name, weight in module.named_parameters())
    return type(module), shapes, tuple(type(part) for part in module.modules())


def _cells(node: Node) -> tuple[str, ...]:
    times = f" × {node.times}" if node.times > 1 else ""
    shape = "" if node.shape is None else " × ".join(map(str, node.shape))
    weights = f"{node.weights:,}" if node.weights else ""
    return f"{node.name}: {node.kind}{times}", shape, weights, f"{node.share:.1%}" if node.weights else ""
