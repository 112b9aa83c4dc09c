"""The model card that a run writes about itself: what it is, what it learnt from, how good it is, what it obeys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import Any

import tomli_w

from ..core.config import read_data
from ..core.contract import Mixer
from ..core.errors import HeedError, RunError
from ..core.laws import LAWS, Finding
from ..data import Files, MediaFiles, Source
from ..data.paths import expanded
from ..models import AnyModel, Embedded, familiar
from ..text import NoTokenizer
from ..weights.formats.folder import Folder
from . import digests
from .folder import CARD, CONFIG, SCORES, Run, writing


def laws(model: Mixer[Any]) -> list[Finding]:
    """The five laws of the contract, tried on these very weights in float64."""
    if not isinstance(model, AnyModel):
        return []
    case = familiar(model)
    return [law(Embedded(model), case) for law in LAWS]


def add_metrics(run: Run, name: str, metrics: Mapping[str, float | str]) -> None:
    """Remember the metrics of a run on some data, and write them on the card."""
    path, every = run.path / SCORES, {**run.evaluated, name: dict(metrics)}
    with writing(path), digests.recorded(run.path, SCORES) as fresh:
        fresh.write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    write_card(run)


def write_card(run: Run, findings: Sequence[Finding] | None = None) -> None:
    """README.md of the run folder. Findings that are not given stay as the card has them, and with them the data."""
    path = run.path / CARD
    before = run.card if findings is None else ""
    contract, data = (_kept(before, CONTRACT), _kept(before, DATA)) if findings is None else (_lines(findings), "")
    text = _card(run, contract, data or _learnt_from(run.recipe.data))
    with writing(path), digests.recorded(run.path, CARD) as fresh:
        fresh.write_text(text, encoding="utf-8")


def write_home_card(run: Run, folder: Path) -> None:
    """The card of a run that becomes a checkpoint: the same, but for how it is used; without paths of this machine."""
    if not run.card:
        write_card(run)
    kind = AUTO.get(str(read_data(folder / CONFIG)["architectures"][0]).rpartition("For")[2], "AutoModelForSeq2SeqLM")
    name, beside = BESIDE.get(kind, ("tokenizer", "AutoTokenizer"))
    use = (
        f"```python\nfrom transformers import {kind}, {beside}\n\n{name} = {beside}.from_pretrained"
        f'(FOLDER)\nmodel = {kind}.from_pretrained(FOLDER)\n```\n\nOr with heed: `heed run FOLDER "..."`.'
    )
    head, _, rest = run.card.partition("## Use\n\n")
    whole = f"{head}## Use\n\n{use}\n\n## {rest.partition(chr(10) + '## ')[2]}"
    whole = PATHS.sub(lambda found: f'"{Path(found[1]).name}"', whole)  # cards of the last release have some
    (folder / CARD).write_text(whole, encoding="utf-8")


AUTO = {
    "CausalLM": "AutoModelForCausalLM",
    "GPT2LMHeadModel": "AutoModelForCausalLM",
    "ImageClassification": "AutoModelForImageClassification",
    "CLIPModel": "AutoModel",
}
BESIDE = {  # what makes their inputs, where it is no tokenizer
    "AutoModelForImageClassification": ("processor", "AutoImageProcessor"),
    "AutoModel": ("processor", "AutoProcessor"),
}
PATHS = re.compile(r'"((?:/|~|[A-Za-z]:[\\/])[^"\n]*)"')
CONTRACT, DATA = "## Contract", "## Data"
LISTED = 20  # files of the data that are named


def _kept(card: str, heading: str) -> str:
    """A section of an earlier card."""
    return card.partition(heading + "\n")[2].partition("\n## ")[0].strip()


def _learnt_from(source: Source) -> str:
    """The data in words that may be published: files by name, size and digest, not by where they lay."""
    if isinstance(source, MediaFiles):
        return _files_of(source)
    if not isinstance(source, Files):
        return f"```toml\n{tomli_w.dumps(source.dump())}```"
    rows = [
        f"| {name} | `{path.name}` | {path.stat().st_size:,} | `{_digest(path)}` |"
        for name, given in (("train", source.train), ("valid", source.valid), ("test", source.test))
        for path in _paths(given, source.format)
    ]
    if len(rows) > LISTED:
        rows = [*rows[:LISTED], f"| | and {len(rows) - LISTED:,} more | | |"]
    settings = {key: value for key, value in source.dump().items() if key not in {"train", "valid", "test"}}
    table = "\n".join(["| split | file | bytes | sha256 |", "|---|---|---|---|", *rows])
    return f"{table}\n\n```toml\n{tomli_w.dumps(settings)}```"


def _files_of(source: MediaFiles) -> str:
    """Folders and tables of images or sounds by their names; there are too many files to list."""
    given = (("train", source.train), ("valid", source.valid), ("test", source.test))
    rows = [
        f"| {name} | `{Path(one).name}` |"
        for name, some in given
        if some is not None
        for one in ([some] if isinstance(some, str) else some)
    ]
    settings = {key: value for key, value in source.dump().items() if key not in {"train", "valid", "test", "root"}}
    table = "\n".join(["| split | folder or file |", "|---|---|", *rows])
    return f"{table}\n\n```toml\n{tomli_w.dumps(settings)}```"


def _paths(given: str | tuple[str, ...] | None, format: str) -> list[Path]:
    """The files of a split that are there now."""
    try:
        every = [] if given is None else [given] if isinstance(given, str) else given
        return [path for text in every for path in expanded(text, format).paths]
    except HeedError:  # of a split that was not needed, or moved meanwhile
        return []


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _lines(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = [f"| {f.law} | {'holds' if f.holds else 'FAILS'} | {f.error:.1e} | {f.bound:.0e} |" for f in findings]
    return "\n".join(["| law | verdict | worst | bound |", "|---|---|---|---|", *rows])


def _card(run: Run, contract: str, data: str) -> str:
    recipe, model = run.recipe, run.shape
    weights = sum(tensor.numel() for tensor in Folder(run.path).weights.values())
    title = f"# {run.path.resolve().name}: {recipe.task.dump()['kind']} with a {model.dump()['kind']}"
    use = 'heed run . "..."\nheed eval .'
    edits = {"edits": [change.dump() for change in recipe.edits]} if recipe.edits else {}
    settings = tomli_w.dumps({"task": recipe.task.dump(), **edits, "training": recipe.training.dump()})
    wordless = isinstance(recipe.tokenizer, NoTokenizer)
    words = "" if wordless else f", a vocabulary of {run.tokenizer.size:,} tokens"
    parts = [
        f"{title}\n\nTrained with heed. {weights:,} weights{words}.",
        f"## Use\n\nFrom inside this folder, wherever it is:\n\n```sh\n{use}\n```",
        f"## Metrics\n\n{_metrics(run)}",
        f"{DATA}\n\n{data}",
        f"{CONTRACT}\n\n{contract or 'Not tried yet: heed verify tries it.'}",
        f"## Task and training\n\n```toml\n{settings}```",
        "## Limits\n\nIt knows what its data taught it and nothing else; what it generates may be wrong.",
    ]
    return "\n\n".join(parts) + "\n"


def _metrics(run: Run) -> str:
    try:
        table = run.evaluated
    except RunError:  # a training that ends need not know them
        return f"{SCORES} is damaged; without it, `heed eval` measures them again and writes them here."
    if not table:
        return "None yet: `heed eval` measures them and writes them here."
    rows = [f"| {name} | {key} | {_cell(value)} |" for name, found in table.items() for key, value in found.items()]
    return "\n".join(["| on | what | value |", "|---|---|---|", *rows])


def _cell(value: float | str) -> str:
    return f"`{value.replace('|', ' ')}`" if isinstance(value, str) else f"{value:,.4g}"
