"""Drawings are whole SVG files that say what they show."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from heed.core.errors import InputError
from heed.show.svg import BOTTOM, HIGH, SQUARE, TOP, Chart, Even, below, chart, gallery, pattern

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


def test_equal_steps_are_equal_over_even_axes() -> None:
    drawn = Chart({"falls": [(1.0, 0.3), (2.0, 0.0), (3.0, -0.3)]}, "layer", "share", axis=Even)
    root = ET.fromstring(chart(drawn, "falls"))
    (curve,) = root.iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in curve.get("points", "").split()]
    for axis in (0, 1):
        assert points[1][axis] - points[0][axis] == pytest.approx(points[2][axis] - points[1][axis], abs=0.11)
    assert points[0][1] < points[2][1]  # what is more stands higher
    assert {"1", "2", "3", "-0.2", "0", "0.2"} <= {text.text for text in root.iter(f"{SVG}text")}
    flat = ET.fromstring(chart(Chart({"flat": [(1.0, 7.0)]}, "layer", "rate", axis=Even), "one point"))
    assert "7" in {text.text for text in flat.iter(f"{SVG}text")}


def test_charts_stand_one_below_the_other() -> None:
    one = chart(Chart({"a": [(1.0, 1.0), (2.0, 3.0)]}, "x", "y"), "one")
    root = ET.fromstring(below([one, one, one], "three & more"))
    assert (root.get("height"), root.get("aria-label")) == (str(3 * (TOP + HIGH + BOTTOM)), "three & more")
    assert len(list(root.iter(f"{SVG}polyline"))) == 3


@pytest.mark.parametrize("curves", [{}, {"a": []}, {"a": [(1.0, 0.0)]}, {"a": [(-1.0, 2.0)]}])
def test_what_has_no_logarithm_is_refused(curves: dict[str, list[tuple[float, float]]]) -> None:
    with pytest.raises(InputError, match="above 0"):
        Chart(curves, "tokens", "ms")


def test_a_gallery_has_every_pattern_under_its_name() -> None:
    root = ET.fromstring(gallery({"one": [[1.0]], "a < b": [[0.0, 1.0], [1.0, 1.0]]}, "two", columns=1))
    assert [text.text for text in root.iter(f"{SVG}text")] == ["one", "a < b"]
    assert len([rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "heat"]) == 1 + 3


@pytest.mark.parametrize("high", [1.0, 3.0, 7.5, 9.9, 40.0, 1234.5])
def test_an_even_axis_has_a_few_round_marks(high: float) -> None:
    axis = Even.of([0.0, high], 100)
    marks = list(axis.marks())
    assert 3 <= len(marks) <= 9
    assert all(axis.low <= mark <= axis.high for mark in marks)
