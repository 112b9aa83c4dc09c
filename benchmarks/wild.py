"""`heed check` on public packages: what was found in each, how much of it ran, and what a reader makes of the findings.

    python -m benchmarks.wild FOLDER                    # checks what is installed, one package after the other
    python -m benchmarks.wild FOLDER timm whisper       # only these
    python -m benchmarks.wild FOLDER --again            # once more, but only what was wrong or could not be checked
    python -m benchmarks.wild FOLDER --table            # nothing is checked: the table of what lies in the folder

The packages are installed by hand, with `--no-deps` where they would bring another torch; what is not installed is left
out, and named. FOLDER holds the results as JSON, one file for each package. Whether a finding is true was found by
reading the code: `wild.toml` says so, in one sentence each, and a finding that is not in it is counted as unread.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from heed.check.trees.find import expanded

# What is checked, as `heed check` takes it -> what pip calls the package.
PACKAGES = {
    "axial_attention": "axial-attention",
    "bs_roformer": "bs-roformer",
    "colt5_attention": "colt5-attention",
    "conformer": "conformer",
    "diffusers.models": "diffusers",
    "egnn_pytorch": "egnn-pytorch",
    "en_transformer": "en-transformer",
    "esm": "esm",
    "h_transformer_1d": "h-transformer-1d",
    "invariant_point_attention": "invariant-point-attention",
    "lambda_networks": "lambda-networks",
    "linear_attention_transformer": "linear-attention-transformer",
    "linformer": "linformer",
    "litgpt": "litgpt",
    "local_attention": "local-attention",
    "memory_efficient_attention_pytorch": "memory-efficient-attention-pytorch",
    "neuralforecast": "neuralforecast",
    "nystrom_attention": "nystrom-attention",
    "onmt": "OpenNMT-py",
    "open_clip": "open_clip_torch",
    "palm_rlhf_pytorch": "palm-rlhf-pytorch",
    "perceiver_pytorch": "perceiver-pytorch",
    "performer_pytorch": "performer-pytorch",
    "pytorch_forecasting": "pytorch-forecasting",
    "recbole": "recbole",
    "recurrent_memory_transformer_pytorch": "recurrent-memory-transformer-pytorch",
    "reformer_pytorch": "reformer-pytorch",
    "retro_pytorch": "retro-pytorch",
    "routing_transformer": "routing-transformer",
    "self_attention_cv": "self-attention-cv",
    "sinkhorn_transformer": "sinkhorn-transformer",
    "slot_attention": "slot-attention",
    "timm.layers": "timm",
    "torch_geometric": "torch-geometric",
    "torchscale": "torchscale",
    "torchtune": "torchtune",
    "transformers.models": "transformers",
    "vit_pytorch": "vit-pytorch",
    "whisper": "openai-whisper",
    "x_transformers": "x-transformers",
}
READINGS = Path(__file__).with_suffix(".toml")
WRONG, UNCHECKED = "wrong", "could not be checked"


@dataclass(frozen=True)
class Package:
    """What was found in one package."""

    name: str
    version: str
    results: Sequence[dict[str, Any]]
    found: int  # targets in it, of which the results may be a sample

    @property
    def ran(self) -> int:
        return sum(result["verdict"] != UNCHECKED for result in self.results)

    @property
    def findings(self) -> Iterator[tuple[str, str]]:
        """Target and bug, of all that counts as wrong."""
        for result in self.results:
            yield from ((result["target"], bug["slug"]) for bug in result["likely"] if bug["fails"])

    def row(self, readings: dict[str, Any]) -> list[str]:
        judged = [readings.get(target, {}).get(slug) for target, slug in self.findings]
        counts = [sum(one is not None and one["true"] is value for one in judged) for value in (True, False)]
        numbers = (len(self.results), self.ran, len(judged), *counts, sum(one is None for one in judged))
        name = f"{self.name} {self.version}"
        sample = "" if self.found == len(self.results) else f" (a sample of {self.found})"
        return [name + sample, *map(str, numbers)]


def checked(words: Sequence[str], timeout: int) -> list[dict[str, Any]]:
    """The results of `heed check`, in a process of its own."""
    command = [sys.executable, "-m", "heed", "check", *words, "--json", "--jobs", "1", "--allow-none", "--quiet"]
    done = subprocess.run([*command, "--timeout", str(timeout)], capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    return list(told["results"]) if "results" in told else [told]


def drawn(targets: Sequence[str], most: int) -> list[str]:
    """The targets; where there are more than so many, some that are drawn, always the same."""
    return sorted(targets if len(targets) <= most else random.Random(0).sample(list(targets), most))


def again(results: Sequence[dict[str, Any]], timeout: int) -> list[dict[str, Any]]:
    """The same, with what was wrong or could not be checked asked once more."""
    open_ = [result["target"] for result in results if result["verdict"] in (WRONG, UNCHECKED)]
    fresh = {result["target"]: result for result in checked(open_, timeout)} if open_ else {}
    return [fresh.get(result["target"], result) for result in results]


def table(packages: Sequence[Package]) -> str:
    """What was found, package by package, and in all; then every finding with its reading."""
    readings = tomllib.loads(READINGS.read_text(encoding="utf-8"))
    rows = [package.row(readings) for package in packages if package.results]
    sums = [str(sum(int(row[place]) for row in rows)) for place in range(1, 7)]
    head = ["package", "attention found", "ran without hints", "findings", "true", "false", "unread"]
    lines = [head, ["---"] * 7, *rows, ["**all**", *sums]]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    told = [
        f"| `{target}` | {slug} | {_judged(readings.get(target, {}).get(slug))} |"
        for package in packages
        for target, slug in package.findings
    ]
    return "\n".join((text, "", "| finding | bug | by reading |", "|---|---|---|", *told))


def _judged(reading: dict[str, Any] | None) -> str:
    return "unread" if reading is None else f"{'true' if reading['true'] else 'false'}: {reading['why']}"


def main(
    folder: Annotated[Path, typer.Argument(help="Where results are kept.")],
    names: Annotated[list[str] | None, typer.Argument(help="Packages; all of the list if none is named.")] = None,
    only_again: Annotated[
        bool, typer.Option("--again", help="Ask only what was wrong or could not be checked.")
    ] = False,
    only_table: Annotated[bool, typer.Option("--table", help="Check nothing: print what lies in the folder.")] = False,
    sample: Annotated[int, typer.Option(help="Of packages with more targets, so many, drawn with one seed.")] = 1000,
    timeout: Annotated[int, typer.Option(help="Seconds for one target.")] = 120,
) -> None:
    """Check public packages, and print a table of what was found."""
    folder.mkdir(parents=True, exist_ok=True)
    packages = []
    for name in names or PACKAGES:
        try:
            release = version(PACKAGES.get(name, name.partition(".")[0]))
        except PackageNotFoundError:
            print(f"{name} is not installed", file=sys.stderr)
            continue
        file = folder / f"{name}.json"
        kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        results, found = kept.get("results", []), kept.get("found", len(kept.get("results", [])))
        if not only_table:
            if only_again and results:
                results = again(results, timeout)
            else:
                targets = [target.name for target in expanded([name]).targets]
                found, results = len(targets), checked(drawn(targets, sample), timeout)
            file.write_text(json.dumps({"found": found, "results": results}), encoding="utf-8")
        packages.append(Package(name, release, results, found))
    print(table(packages))


if __name__ == "__main__":
    typer.run(main)
