"""docs/mechanisms: a page for every mixer, one for all masks and one for all models, made from their docstrings.

A page shows who looks at whom (measured: the gradient of every output towards every input), what the mechanism
remembers, and the curves of benchmarks/cost.json and benchmarks/recall.json where it was measured.

    python -m benchmarks.mechanisms
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.contenders import CONTENDERS
from benchmarks.cost import RESULTS as COST
from benchmarks.recall import RESULTS as RECALL
from heed.core.cases import Case, influence
from heed.core.config import Config, kind_of
from heed.core.contract import Mixer, MixerConfig
from heed.core.errors import InputError
from heed.core.spec import words
from heed.mixers import MIXERS, Attention, BigBird, Dilated, Longformer, Lsh, Mamba, Retention, Rwkv, ShiftedWindow
from heed.mixers.attention import SAMPLE_MASKS
from heed.models import ARCHITECTURES, MODELS
from heed.parts.masks import MASKS, Atrous, Causal, Mask, Sparse, Window
from heed.show.settings import owner
from heed.show.svg import Chart, chart, gallery, pattern

FOLDER = Path(__file__).parents[1] / "docs" / "mechanisms"
PICTURE = FOLDER.with_name("heed.svg")
WIDTH, TOKENS = 24, 20  # of the stream that a pattern is measured on
LENGTH = 48  # tokens that a mixer with a longest text is shown at most
LEARNT = {  # what a mixer does in a trained model, drawn by another benchmark
    "mssa": [
        "## Layer by layer",
        "",
        "The coding rate and the sparsity of every layer of a CRATE, before and after it has learnt to read digits",
        "(`python -m benchmarks crate`; `heed.models.architectures.crate.layerwise` reads them from any such model):",
        "",
        "![rate and sparsity](../crate.svg)",
        "",
    ]
}


@dataclass(frozen=True)
class Page:
    """A file, and the drawings beside it."""

    name: str
    text: str
    drawings: dict[str, str]


def pages() -> Iterator[Page]:
    """All of them, the index first."""
    mixers = [_mixer(config) for config in sorted(MIXERS, key=kind_of)]
    yield Page("README.md", _index(), _overview())
    yield from mixers
    yield _masks()
    yield _models()


def shown() -> str:
    """Twelve mechanisms side by side, for the first page."""
    chosen: dict[str, MixerConfig] = {
        "attention, causal": Attention.Config(),
        "sliding window": Attention.Config(mask=Window(back=4)),
        "atrous": Attention.Config(mask=Causal() & Atrous(step=3)),
        "Sparse Transformer": Attention.Config(mask=Causal() & Sparse(step=4)),
        "Longformer": Longformer.Config(window=6, marks=(0,)),
        "BigBird": BigBird.Config(block=2, random=1),
        "LongNet": Dilated.Config(segments=(4, 12), dilations=(1, 3)),
        "Reformer": Lsh.Config.samples()[0],
        "Swin": ShiftedWindow.Config.samples()[0],
        "RetNet": Retention.Config(),
        "RWKV": Rwkv.Config(),
        "Mamba": Mamba.Config(),
    }
    return gallery(
        {name: _pattern(config) for name, config in chosen.items()}, f"who looks at whom: {', '.join(chosen)}"
    )


def write(folder: Path = FOLDER) -> None:
    """Every page, and nothing that is no longer one."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = set()
    for page in pages():
        for name, text in {page.name: page.text, **page.drawings}.items():
            (folder / name).write_text(text, encoding="utf-8")
            kept.add(name)
    for path in folder.iterdir():
        if path.name not in kept:
            path.unlink()


def _index() -> str:
    lines = [
        "# Mechanisms",
        "",
        "What each is, what it costs, and who looks at whom. Made from the docstrings by",
        "`python -m benchmarks.mechanisms`; the figures come from `python -m benchmarks cost recall`.",
        "",
        "| mixer | what it is | remembers |",
        "|---|---|---|",
    ]
    for config in sorted(MIXERS, key=kind_of):
        kind, growth = kind_of(config), words(config.samples()[0].build(WIDTH).spec())
        lines.append(f"| [{kind}]({kind}.md) | {_summary(owner(config))} | {growth} |")
    lines += ["", "And [all masks](masks.md), for the mixers that take one, and [all models](models.md).", ""]
    if COST.exists():
        lines += ["## Time", "", "Forward and backward, one row, width 128, two heads.", "", "![time](time.svg)", ""]
        lines += ["## Memory", "", "At the peak of forward and backward.", "", "![memory](memory.svg)", ""]
        lines += _growth_table()
    if RECALL.exists():
        lines += _recall_table()
    return "\n".join(lines)


def _overview() -> dict[str, str]:
    if not COST.exists():
        return {}
    curves = json.loads(COST.read_text(encoding="utf-8"))["curves"]
    wanted = ("full", "local", "atrous", "longformer", "bigbird", "longnet", "transformer-xl", "infini")
    shown = [name for name in wanted if name in curves]
    drawings = {}
    for what, field, unit, scale in (("time", "backward", "ms", 1e3), ("memory", "memory", "MiB", 2.0**-20)):
        drawn = {name: _points(curves[name], field, scale) for name in shown}
        drawings[f"{what}.svg"] = chart(Chart(drawn, "tokens", unit), f"{what} of {', '.join(shown)} over the length")
    return drawings


def _points(curve: dict[str, list[float]], field: str, scale: float) -> list[tuple[float, float]]:
    return [(n, y * scale) for n, y in zip(curve["tokens"], curve[field], strict=True)]


def _growth_table() -> list[str]:
    found = json.loads(COST.read_text(encoding="utf-8"))
    lines = [
        f"Measured on {_machine(found)}.",
        "",
        "| mechanism | longest | time, ms | memory, MiB | remembered, KiB |",
        "|---|---|---|---|---|",
    ]
    for name, curve in found["curves"].items():
        state = f"{curve['state'][-1] / 1024:,.1f}" if curve["state"][-1] else "cannot stream"
        lines.append(
            f"| {name} | {curve['tokens'][-1]:,} | {curve['backward'][-1] * 1e3:,.0f} | "
            f"{curve['memory'][-1] / 2**20:,.0f} | {state} |"
        )
    return [*lines, ""]


def _recall_table() -> list[str]:
    found = json.loads(RECALL.read_text(encoding="utf-8"))
    lines = [
        "## Who can recall how much",
        "",
        "Share of gaps filled rightly after at most two minutes on one core, two layers of width 64; and what both",
        f"layers remember of one row at the end of a puzzle. Measured on {_machine(found)}.",
        "",
        "| mechanism | recall | copy | remembered, bytes |",
        "|---|---|---|---|",
    ]
    for name, outcome in found["outcomes"].items():
        recall, copied = outcome["recall"], outcome["copy"]
        state = f"{recall['state']:,}" if recall["state"] else "cannot stream"
        lines.append(f"| {name} | {recall['right']:.1%} | {copied['right']:.1%} | {state} |")
    return [*lines, ""]


def _machine(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}".strip() for name, value in found["machine"].items())


def _mixer(config: type[MixerConfig]) -> Page:
    kind, mixer = kind_of(config), owner(config)
    sample = config.samples()[0]
    lines = [f"# {kind}", "", *_told(mixer), "", f"Paper: {config.paper}", ""]
    lines += [f"Remembers {words(sample.build(WIDTH).spec())}.", ""]
    if not any(field.is_required() for field in config.model_fields.values()):
        lines += ["## Use", "", "```python", *_example(mixer.__name__), "```", ""]
    lines += ["## Settings", "", "```toml", *_settings(config), "```", ""]
    drawing = pattern(_pattern(sample), f"who looks at whom in {kind}, {TOKENS} tokens")
    lines += [
        "## Who looks at whom",
        "",
        f"A row is a token that asks, a column a token that is seen; `{sample!r}`.",
        "",
    ]
    lines += [f"![pattern]({kind}.svg)", ""]
    lines += LEARNT.get(kind, [])
    drawings = {f"{kind}.svg": drawing}
    found = _curves(config)
    if found:
        lines += ["## What it costs", "", f"![cost]({kind}-cost.svg)", ""]
        drawings[f"{kind}-cost.svg"] = chart(
            Chart(found, "tokens", "ms"), f"time of {', '.join(found)} over the length"
        )
    return Page(f"{kind}.md", "\n".join(lines), drawings)


def _example(name: str) -> list[str]:
    lines = ["import torch", "", "import heed", f"from heed.mixers import {name}", ""]
    lines.append(f"mixer = {name}.Config().build(width={WIDTH * 2})")
    where = f"heed.Where.run(2, {LENGTH})"
    if name in ("Cross", "KnnCross"):  # they ask a source
        lines.insert(3, "from heed.core.state import Seen")
        lines.append(f"source = Seen.of(heed.Where.run(2, 9), torch.randn(2, 9, {WIDTH * 2}))")
        where += ".give(encoder_output=source)"
    return [*lines, f"y, _ = mixer(torch.randn(2, {LENGTH}, {WIDTH * 2}), {where})"]


def _settings(config: type[Config]) -> list[str]:
    """Every field with its default. TOML has no null: a field without a value is a comment."""
    lines = []
    for name, field in config.model_fields.items():
        if field.is_required():
            lines.append(f"# {name} must be given")
        elif field.default is None:
            lines.append(f"# {name} is not set")
        else:
            lines.append(f"{name} = {_toml(field.default)}")
    return lines


def _toml(value: object) -> str:
    """A default as TOML writes it; of a configuration what differs from its own defaults."""
    if isinstance(value, Config):
        given = value.model_dump(mode="json", exclude_defaults=True)
        return _toml({"kind": value.kind} | given if hasattr(value, "kind") else given)
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_toml(item)}' for name, item in value.items())} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(value)


def _curves(config: type[MixerConfig]) -> dict[str, list[tuple[float, float]]]:
    """Time, forward and backward, of every contender that is built of this mixer."""
    if not COST.exists():
        return {}
    curves = json.loads(COST.read_text(encoding="utf-8"))["curves"]
    mine = [name for name, contender in CONTENDERS.items() if isinstance(contender.long, config) and name in curves]
    return {name: _points(curves[name], "backward", 1e3) for name in mine}


def _pattern(config: MixerConfig) -> list[list[float]]:
    torch.manual_seed(0)
    return _influence(config.build(WIDTH))


def _influence(mixer: Mixer[Any]) -> list[list[float]]:
    strength = _moved(mixer.double().eval())
    shown = (strength / strength.max().clamp(min=1e-300)) ** 0.25  # faint ones are to be seen, too
    return [[round(float(weight), 2) if weight > 1e-3 else 0.0 for weight in row] for row in shown]


def _moved(mixer: Mixer[Any]) -> Tensor:
    """Who is influenced by whom, over as many tokens as the mixer has places for."""
    for tokens in (TOKENS, TOKENS * 3 // 4):
        try:
            return influence(mixer, Case.make(WIDTH, rows=1, tokens=tokens, source=tokens))
        except InputError:  # it has places for fewer
            continue
    raise InputError(f"{type(mixer).__name__} takes fewer than {TOKENS * 3 // 4} tokens; draw it over fewer")


def _masks() -> Page:
    lines = ["# Masks", "", "Which token may look at which. They combine with `&`, `|` and `-`.", ""]
    drawings = {}
    for kind in MASKS:
        name, sample = kind_of(kind), next((mask for mask in SAMPLE_MASKS if type(mask) is kind), None)
        lines += [f"## {name}", "", *_told(kind), ""]
        if sample is not None:
            drawings[f"mask-{name}.svg"] = pattern(_seen(sample), f"who sees whom: {sample!r}")
            lines += [f"`{sample!r}`:", "", f"![{name}](mask-{name}.svg)", ""]
    return Page("masks.md", "\n".join(lines), drawings)


def _seen(mask: Mask) -> list[list[float]]:
    tokens = TOKENS if mask.layout is None else min(TOKENS, mask.layout.size * mask.layout.table.shape[1])
    order = torch.arange(tokens)
    allowed = mask.allows(order[None, None, :, None], order[None, None, None, :])[0]
    return [[float(weight) for weight in row] for row in allowed.double().mean(0)]


def _models() -> Page:
    lines = ["# Models", "", "Shapes that are built of mixers, and plans that give a shape from a few numbers.", ""]
    for kind in (*MODELS, *ARCHITECTURES):
        lines += [f"## {kind_of(kind)}", "", *_told(owner(kind)), ""]
    return Page("models.md", "\n".join(lines), {})


def _told(thing: type) -> list[str]:
    """The docstring; what is set in from the margin is an equation or a piece of code."""
    lines: list[str] = []
    for part in (inspect.getdoc(thing) or "").split("\n\n"):
        lines += ["", *(["```", *inspect.cleandoc(part).splitlines(), "```"] if part.startswith("    ") else [part])]
    return lines[1:]


def _summary(thing: type) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


if __name__ == "__main__":
    write()
    PICTURE.write_text(shown(), encoding="utf-8")
