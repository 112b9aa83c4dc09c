"""`heed plot`: the numbers of every picture are those of the mechanism, and it is told in words, SVG and HTML."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console

from heed.core.config import kind_of
from heed.core.errors import ConfigError, InputError
from heed.parts.masks import MASKS, Causal, Window
from heed.parts.positions import POSITIONS, Alibi, Sinusoid
from heed.runs.training import Cosine
from heed.views import plot
from heed.views.plotting import PLOTS


def told(what: str, config: str | None = None, **others: object) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(plot(what, config, **others).text_figure())  # type: ignore[arg-type]  # as a test gives them
    return console.export_text()


def test_the_sinusoid_is_fifty_by_a_hundred_and_twenty_eight() -> None:
    (square,) = plot("position").picture.squares
    assert (len(square.values), len(square.values[0])) == (50, 128)
    assert square.values[3][0] == pytest.approx(math.sin(3), abs=1e-6)
    assert min(map(min, square.values)) < -0.9  # signed
    wanted = Sinusoid.Config().build(128).code(torch.arange(50)[None])[0]
    torch.testing.assert_close(torch.tensor(square.values), wanted.float())


@pytest.mark.parametrize("kind", [kind_of(kind) for kind in POSITIONS if kind_of(kind) not in ("axial", "shaw_values")])
def test_every_position_code_has_a_picture(kind: str) -> None:
    found = plot("position", next(c for c in POSITIONS if kind_of(c) == kind).samples()[0], tokens=6)
    assert all(math.isfinite(value) for square in found.picture.squares for row in square.values for value in row)
    assert found.picture.squares


def test_the_slopes_of_alibi_are_seen() -> None:
    found = plot("position", Alibi.Config(), tokens=5).picture
    for head, square in enumerate(found.squares):
        slope = 2.0 ** (-2 * (head + 1))  # of four heads
        assert square.values[4][4] - square.values[4][1] == pytest.approx(3 * slope, abs=1e-6)
    assert len(found.curves[0].lines) == 4


@pytest.mark.parametrize("kind", [kind_of(kind) for kind in MASKS if kind_of(kind) in ("causal", "whole", "window")])
def test_a_mask_is_what_it_allows(kind: str) -> None:
    changes = ["back=2"] if kind == "window" else []
    (square,) = plot("mask", kind, changes=changes, tokens=6).picture.squares
    rule = {"causal": lambda i, j: j <= i, "whole": lambda i, j: True, "window": lambda i, j: i - 2 <= j <= i}[kind]
    assert square.values == tuple(tuple(float(rule(i, j)) for j in range(6)) for i in range(6))


def test_who_sees_a_named_token() -> None:
    text = "bigbird is now available in the library"
    facts = dict(plot("mask", Window(back=1), text=text, token="available").picture.facts)
    assert facts["available (3) sees"] == "2: now available"
    assert facts["available (3) is seen by"] == "2: available in"
    assert facts["pairs that are seen"] == "13 of 49 (27%)"


def test_the_pattern_of_a_mixer_is_measured() -> None:
    text = "bigbird is now available in the library for every long text here"
    changes = ["block=2", "window=1", "random=0", "globals=1"]
    found = plot("mask", "bigbird", changes=changes, text=text, token="available").picture
    facts = dict(found.facts)
    # its own block, and the blocks at both ends
    assert facts["available (3) sees"] == "6: bigbird is now available text here"
    assert facts["available (3) is seen by"] == "6: bigbird is now available text here"


def test_kernels_fit_and_their_weights_are_means() -> None:
    found = plot("kernel", "gaussian").picture
    for square in found.squares:
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in square.values)
    errors = {name: float(value) for name, value in found.facts}
    assert errors["error of gaussian, width 0.3"] < errors["error of gaussian, width 3"]  # too wide is a plain mean
    assert {"truth", "data"} < set(found.curves[0].lines)
    assert len(plot("kernel").picture.squares) == 5


def test_scores_without_the_root_have_a_variance_of_d() -> None:
    curves = {one.up: one.lines for one in plot("scores").picture.curves}
    variance = {name: dict(line) for name, line in curves["variance of a score"].items()}
    assert variance["q·k"][256.0] == pytest.approx(256, rel=0.1)
    assert variance["q·k / √d"][256.0] == pytest.approx(1, rel=0.1)
    largest = {name: dict(line) for name, line in curves["largest weight"].items()}
    assert largest["q·k"][1024.0] > 0.9
    assert largest["q·k / √d"][1024.0] < 0.5


def test_norms_and_gradients_by_depth() -> None:
    found = plot("norm").picture
    facts = dict(found.facts)
    changes = {name.split(":")[0]: float(value) for name, value in facts.items() if "changes with" in name}
    assert changes["layer norm"] == 0
    assert changes["batch norm"] > 0.1
    assert set(found.curves[0].lines) == {"pre-norm", "post-norm", "DeepNorm"}
    assert all(len(line) == 12 for line in found.curves[0].lines.values())
    first, last = (found.curves[0].lines["pre-norm"][at][1] for at in (0, -1))
    assert first > last  # with pre-norm the gradient is larger the nearer to the input


def test_schedules_and_recipes() -> None:
    (curves,) = plot("schedule", "cosine", tokens=500, changes=["warmup=50"]).picture.curves
    line = dict(curves.lines["cosine"])
    wanted = Cosine(warmup=50)
    assert all(value == pytest.approx(wanted.factor(int(step), 500)) for step, value in line.items())
    assert set(plot("schedule").picture.curves[0].lines) == {"constant", "cosine", "linear", "inverse_sqrt"}
    (rates,) = plot("schedule", "characters").picture.curves
    assert max(value for _, value in rates.lines["linear"]) == pytest.approx(6e-3, rel=0.02)


def test_a_file_describes_a_mask(tmp_path: Path) -> None:
    path = tmp_path / "mask.toml"
    path.write_text('kind = "window"\nback = 1\n')
    assert plot("mask", str(path), tokens=4).picture == plot("mask", Window(back=1), tokens=4).picture


@pytest.mark.parametrize("what", PLOTS)
def test_every_plot_is_told_in_every_way(what: str) -> None:
    found = plot(what)
    assert found.picture.title in told(what)
    page = found.html()
    assert page.startswith("<!doctype html>")
    assert found.svg().count("<svg") == len(found.picture.curves)
    assert json.loads(json.dumps(found.plain()))["what"] == what


def test_bad_input_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="no plot of 'positions'; did you mean position"):
        plot("positions")
    with pytest.raises(ConfigError, match="sinusoid"):
        plot("position", "sinusoids")
    with pytest.raises(ConfigError, match="did you mean back"):
        plot("mask", "window", changes=["bak=2"])
    with pytest.raises(InputError, match="no token 'dog'"):
        plot("mask", text="the cat", token="dog")
    with pytest.raises(InputError, match="for masks"):
        plot("norm", text="the cat")
    with pytest.raises(InputError, match=r"1 to 4,096"):
        plot("mask", tokens=100_000)
    with pytest.raises(InputError, match="takes no configuration"):
        plot("scores", "gaussian")
    with pytest.raises(InputError, match="changed in Python"):
        plot("mask", Causal(), changes=["back=1"])
