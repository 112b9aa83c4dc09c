"""The prefix tree: hits are compared, owners are apart, bytes are bounded, and parents outlive their children."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from heed.core.contract import NOTHING
from heed.core.state import leaves
from heed.serve.executor import Row
from heed.serve.pool import Pool
from heed.serve.prefix import Node, PrefixTree
from tests.serve.support import CHUNK, built

IDS = [(3 * i) % 37 for i in range(5 * CHUNK)]


def planted(name: str, budget: int = 1 << 20, owner: str = "") -> tuple[PrefixTree, Any, Node | None]:
    model = built(name)
    tree = PrefixTree(model.spec(), Pool(budget), CHUNK, "model")
    return tree, model, grown(tree, model, IDS, owner)


@torch.no_grad()
def grown(tree: PrefixTree, model: Any, ids: list[int], owner: str = "") -> Node | None:
    row, node = Row(model, NOTHING), None
    for begin in range(0, len(ids), CHUNK):
        row.read(ids[begin : begin + CHUNK])
        node = tree.add(node, owner, ids[begin : begin + CHUNK], row.state)
        if node is None:  # there was no memory for it
            return None
    return node


@pytest.mark.parametrize("name", ["attention", "window", "retention", "rwkv", "hybrid", "linear"])
def test_a_node_holds_what_was_remembered(name: str) -> None:
    tree, model, _ = planted(name)
    assert len(tree) == 5
    for chunks in (1, 3, 5):
        node, done = tree.find("", [*IDS[: chunks * CHUNK], 1])
        assert node is not None
        assert done == chunks * CHUNK
        row = Row(model, NOTHING)
        resumed = tree.resume(node, row.state)
        with torch.no_grad():
            for begin in range(0, done, CHUNK):
                row.read(IDS[begin : begin + CHUNK])
        pairs = list(zip(leaves(resumed), leaves(row.state), strict=True))
        assert pairs
        for one, other in pairs:
            assert all(torch.equal(a, b) for a, b in zip(one.tensors(), other.tensors(), strict=True))


def test_ids_are_compared_on_a_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if every hash were the same."""
    monkeypatch.setattr(
        PrefixTree, "_key", lambda tree, parent, owner, ids: b"" if parent is None else parent.key + b"x"
    )
    tree, _, _ = planted("rwkv")
    assert tree.find("", [*IDS[: 2 * CHUNK], 1])[1] == 2 * CHUNK
    assert tree.find("", [*[1] * CHUNK, 1]) == (None, 0)


def test_owners_share_nothing() -> None:
    tree, _, _ = planted("rwkv", owner="a")
    assert tree.find("a", IDS)[1] == 4 * CHUNK  # a token is left to be read
    assert tree.find("b", IDS) == (None, 0)
    assert tree.find("", IDS) == (None, 0)


def test_bytes_are_bounded_and_parents_stay() -> None:
    whole, model, _ = planted("attention")
    each = whole.bytes // 5
    tree = PrefixTree(model.spec(), Pool(7 * each), CHUNK, "model")
    grown(tree, model, IDS)
    grown(tree, model, [1, *IDS[1:]])
    assert len(tree) == 7
    assert tree.bytes == tree._pool.used <= 7 * each
    for node in tree._nodes.values():
        assert node.parent is None or node.parent.key in tree._nodes
    assert tree.find("", [1, *IDS[1:], 1])[1] == 5 * CHUNK  # the newest is whole
    assert tree.find("", [*IDS, 1])[1] == 2 * CHUNK  # the oldest lost its leaves, not its root
    tree.reclaim(each + 1)
    assert len(tree) == 5
    assert all(node.parent is None or node.parent.key in tree._nodes for node in tree._nodes.values())
    tree.reclaim(1 << 30)
    assert (len(tree), tree.bytes, tree._pool.used) == (0, 0, 0)


def test_a_node_that_cannot_be_afforded_is_left_out() -> None:
    whole, model, _ = planted("attention")
    tree = PrefixTree(model.spec(), Pool(whole.bytes // 5 * 2), CHUNK, "model")
    grown(tree, model, IDS)
    assert len(tree) == 2  # its own line is not dropped for it
    assert tree.find("", IDS)[1] == 2 * CHUNK


def test_a_source_is_part_of_no_key() -> None:
    tree = PrefixTree(built("translator").spec(), Pool(1 << 20), CHUNK, "model")
    assert not tree.able
    assert tree.find("", IDS) == (None, 0)
