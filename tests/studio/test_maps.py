"""Maps as they are sent: 8 bits with a scale, overviews in which a single pair stays visible, tiles."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from heed.studio.maps import PLAIN, TILE, WHOLE, alike, coded, decoded, message, of_heads, shrunk, tile


def parts(raw: bytes) -> tuple[dict[str, Any], bytes]:
    head, body = raw.split(b"\n", 1)
    return json.loads(head), body


@pytest.mark.parametrize("signed", [False, True])
def test_codes_are_off_by_half_a_level_at_most(signed: bool) -> None:
    values = np.random.default_rng(0).uniform(-0.7 if signed else 0, 0.7, 5000).astype(np.float32)
    peak = float(np.abs(values).max())
    found = decoded(coded(values, peak, signed=signed), peak, signed=signed)
    assert np.abs(found - values).max() <= peak / (127 if signed else 255) / 2 * 1.001
    assert decoded(coded(np.zeros(3, np.float32), 0.0, signed=signed), 1.0, signed=signed).tolist() == [0.0] * 3


def test_a_small_map_is_sent_as_it_is() -> None:
    values = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    head, body = parts(message(values, name="x"))
    assert (head["form"], head["rows"], head["columns"], head["signed"], head["name"]) == ("float32", 9, 5, True, "x")
    np.testing.assert_array_equal(np.frombuffer(body, "<f4").reshape(9, 5), values)


def test_a_larger_one_in_eight_bits_and_a_large_one_as_an_overview() -> None:
    side = int(PLAIN**0.5) + 10
    values = np.random.default_rng(2).uniform(size=(side, side)).astype(np.float32)
    head, body = parts(message(values))
    assert (head["form"], head["step"], len(body)) == ("uint8", 1, side * side)
    large = np.zeros((WHOLE + 501, WHOLE + 1), np.float32)
    large[2200, 1777] = 0.5
    head, body = parts(message(large))
    assert head["step"] == 2
    rows, columns = -(-large.shape[0] // 2), -(-large.shape[1] // 2)
    overview = np.frombuffer(body, np.uint8).reshape(rows, columns)
    assert overview[1100, 888] == 255
    assert overview.sum() == 255
    head, body = parts(tile(large, 2200 // TILE, 1777 // TILE))
    part = np.frombuffer(body, np.uint8).reshape(head["rows"], head["columns"])
    assert part[2200 % TILE, 1777 % TILE] == 255
    head, _ = parts(tile(large, large.shape[0] // TILE, 0))
    assert head["rows"] == large.shape[0] % TILE, "the last one is what is left"


def test_what_is_shrunk_keeps_the_largest_of_each_block_with_its_sign() -> None:
    values = np.array([[1, -3, 0], [2, 0, 0], [0, 0, -4]], np.float32)
    np.testing.assert_array_equal(shrunk(values, 2), [[-3, 0], [0, -4]])
    assert shrunk(values, 3) is values


def test_heads_in_one_and_alike() -> None:
    each = np.array([[[1.0, -2.0]], [[0.5, 1.0]]], np.float32)
    np.testing.assert_array_equal(of_heads(each, "mean"), [[0.75, -0.5]])
    np.testing.assert_array_equal(of_heads(each, "max"), [[1.0, -2.0]])
    np.testing.assert_array_equal(of_heads(each, "1"), each[1])
    found = alike(np.array([1.0, 0.0], np.float32), np.array([[2, 0], [0, 1], [1, 1], [0, 0]], np.float32))
    np.testing.assert_allclose(found, [1, 0, 0.5**0.5, 0])
