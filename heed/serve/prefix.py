"""Prompts that begin alike are read once: a tree of chunks, each with what was remembered at its end.

A node holds the entries that its chunk added to growing logs, and a copy of everything of a fixed size: rings, cells.
So attention, windows, recurrences and hybrids are resumed alike, and only where a chunk ends: a prompt is read in the
same chunks with a hit and without one, and its bits are the same. Nodes are dropped by bytes, the longest unused first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import torch
from torch import Tensor

from ..core.spec import Slot, Spec
from ..core.state import Leaf, State, leaves
from .pool import Pool, slots_of


@dataclass(eq=False)
class Node:
    """A chunk of a prompt."""

    key: bytes
    ids: tuple[int, ...]
    parent: Node | None
    held: list[tuple[Tensor, ...]]  # of each leaf: the entries of this chunk, or all there is
    units: list[int] = field(default_factory=list)
    children: int = 0
    used: int = 0  # when, counted in lookups

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for part in self.held for tensor in part)

    def line(self) -> Iterator[Node]:
        """From the first chunk to this one."""
        if self.parent is not None:
            yield from self.parent.line()
        yield self


class PrefixTree:
    """The nodes of one model. Owners share none: the owner is part of every key."""

    def __init__(self, spec: Spec, pool: Pool, chunk: int, name: str) -> None:
        slots = list(slots_of(spec))
        self._grows = [grows(slot) for slot in slots]
        self.able = not any(slot.entries.per_source for slot in slots)  # a source is not part of the key
        self._pool, self._chunk, self._name = pool, chunk, name
        self._nodes: dict[bytes, Node] = {}
        self._time = 0
        self.bytes = 0  # all of which can be had back

    def __len__(self) -> int:
        return len(self._nodes)

    def find(self, owner: str, ids: Sequence[int]) -> tuple[Node | None, int]:
        """The longest known beginning of a prompt that leaves a token to be read, and its length."""
        found, done = None, 0
        self._time += 1
        while self.able and done + self._chunk < len(ids):
            chunk = tuple(ids[done : done + self._chunk])
            node = self._nodes.get(self._key(found, owner, chunk))
            if node is None or node.ids != chunk or node.parent is not found:
                break
            found, done, node.used = node, done + self._chunk, self._time
        return found, done

    def resume(self, node: Node, start: State) -> State:
        """What was remembered after this node, as copies. `start`: a fresh state, for its form."""
        line, places = list(node.line()), iter(range(len(self._grows)))

        def leaf(one: Leaf) -> Leaf:
            at = next(places)
            parts = [each.held[at] for each in line] if self._grows[at] else [node.held[at]]
            return one.rebuild([torch.cat(t, 1) if len(t) > 1 else t[0].clone() for t in zip(*parts, strict=True)])

        return _mapped(start, leaf)

    def add(self, parent: Node | None, owner: str, ids: Sequence[int], state: State) -> Node | None:
        """What is remembered after this chunk, copied; None where there is no memory for it."""
        chunk = tuple(ids)
        key = self._key(parent, owner, chunk)
        known = self._nodes.get(key)
        if known is not None:
            return known if known.ids == chunk and known.parent is parent else None
        if parent is not None and self._nodes.get(parent.key) is not parent:
            return None  # it was dropped meanwhile
        held = [
            tuple((tensor[:, -len(chunk) :] if grows else tensor).clone() for tensor in one.tensors())
            for one, grows in zip(leaves(state), self._grows, strict=True)
        ]
        node = Node(key, chunk, parent, held, used=self._time)
        if not self._afford(node):
            return None
        self._nodes[key] = node
        self.bytes += node.nbytes
        if parent is not None:
            parent.children += 1
        return node

    def reclaim(self, count: int) -> None:
        """So many bytes back to the pool, or all there are."""
        before = self.bytes
        while self._nodes and before - self.bytes < count:
            self._drop(min((node for node in self._nodes.values() if not node.children), key=lambda node: node.used))

    def _afford(self, node: Node) -> bool:
        """Memory for a node: of what nobody uses, else of what was used longest ago; never of its own line."""
        kept = set(node.line())
        while True:
            units = self._pool.take([node.nbytes])
            if units is not None:
                node.units = units
                return True
            old = [each for each in self._nodes.values() if not each.children and each not in kept]
            if not old or node.nbytes > self._pool.free + self.bytes:
                return False
            self._drop(min(old, key=lambda each: each.used))

    def _drop(self, node: Node) -> None:
        del self._nodes[node.key]
        self._pool.give(node.units)
        self.bytes -= node.nbytes
        if node.parent is not None:
            node.parent.children -= 1

    def _key(self, parent: Node | None, owner: str, ids: Sequence[int]) -> bytes:
        before = parent.key if parent is not None else sha256(f"{self._name}\0{owner}".encode()).digest()
        return sha256(before + b"".join(int(token).to_bytes(8, "little") for token in ids)).digest()


def grows(slot: Slot) -> bool:
    """Whether every token adds an entry that is never changed."""
    entries = slot.entries
    return entries.of_tokens and entries.cap is None


def _mapped(state: State, change: Callable[[Leaf], Leaf]) -> State:
    if isinstance(state, tuple):
        parts = [_mapped(part, change) for part in state]
        return tuple(parts) if type(state) is tuple else type(state)(*parts)  # type: ignore[arg-type]  # a named tuple
    return change(state)  # type: ignore[return-value]  # a leaf of the same kind
