"""Drawings are whole SVG files that say what they show."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from heed.core.errors import InputError
from heed.show.drawing import SQUARE, Chart, chart, pattern

SVG = "{http://www.w3.org/2000/svg}"


def test_a_pattern_has_a_square_for_every_pair_that_meets() -> None:
    root = ET.fromstring(pattern([[1.0, 0.0], [0.5, 1.0]], "a & b"))
    heat = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "heat"]
    assert root.get("aria-label") == "a & b"
    assert [(rect.get("x"), rect.get("y")) for rect in heat] == [("0", "0"), ("0", str(SQUARE)), (str(SQUARE),) * 2]
    opacity = [float(rect.get("fill-opacity", "0")) for rect in heat]
    assert opacity[0] == opacity[2] == 1.0 > opacity[1] > 0


def test_a_straight_line_over_logarithmic_axes_is_a_power() -> None:
    drawn = Chart({"square": [(10.0, 1.0), (100.0, 100.0), (1000.0, 10000.0)]}, "tokens", "ms")
    root = ET.fromstring(chart(drawn, "grows with the square"))
    (curve,) = root.iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in curve.get("points", "").split()]
    assert points[1][0] - points[0][0] == pytest.approx(points[2][0] - points[1][0], abs=0.11)
    assert points[0][1] - points[1][1] == pytest.approx(points[1][1] - points[2][1], abs=0.11)
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"square", "tokens", "ms", "10", "100", "1k", "10k"} <= texts


@pytest.mark.parametrize("curves", [{}, {"a": []}, {"a": [(1.0, 0.0)]}, {"a": [(-1.0, 2.0)]}])
def test_what_has_no_logarithm_is_refused(curves: dict[str, list[tuple[float, float]]]) -> None:
    with pytest.raises(InputError, match="above 0"):
        Chart(curves, "tokens", "ms")
