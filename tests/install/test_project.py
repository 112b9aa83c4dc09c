"""What the project says of itself is so: extras, floors, the Makefile, the files for GitHub, pre-commit and citing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import heed
from tools.dist import ROOT, tracked

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = {"test", "docs", "peers", "fuzz", "dev"}  # extras for those who work on heed
# Modules that are called otherwise than what brings them.
BROUGHT_BY = {
    "PIL": "pillow",
    "annotated_types": "pydantic",
    "pydantic_core": "pydantic",
    "markupsafe": "jinja2",
    "llama_cpp": "llama-cpp-python",
    "sklearn": "scikit-learn",
    "scipy": "scikit-learn",
    "pytest": "pytest",  # a plugin of pytest is imported by pytest
    "transformers": "transformers",  # heed check asks for it, beside what is checked
}
ASKED_FOR = {"pytest", "transformers"}


def requirements(lines: list[str]) -> dict[str, str]:
    """Names, and the lowest version of each; extras that stand for others are opened."""
    found: dict[str, str] = {}
    for requirement in map(Requirement, lines):
        if requirement.name == PROJECT["name"]:
            for extra in requirement.extras:
                found |= requirements(PROJECT["optional-dependencies"][extra])
        else:
            (bound,) = requirement.specifier  # a floor and nothing else: an upper bound would quarrel with neighbours
            assert bound.operator == ">=", f"{requirement} has no floor"
            found[requirement.name] = bound.version
    return found


NEEDED = requirements(PROJECT["dependencies"])
EXTRAS = {name: requirements(lines) for name, lines in PROJECT["optional-dependencies"].items()}
FOR_USERS = {name: brought for name, brought in EXTRAS.items() if name not in OURS}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of docs/install.md."""
    section = read("docs/install.md").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in row] for row in rows[2:]]


# --- extras and floors ---


def test_the_table_of_extras_is_that_of_the_project() -> None:
    rows = {row[0]: row[1] for row in table("Extras")}
    assert rows.keys() == FOR_USERS.keys()
    for name, brings in rows.items():
        if name != "all":
            assert sorted(brings.split(", ")) == sorted(FOR_USERS[name])


def test_all_is_all_of_those_for_users() -> None:
    others = [brought for name, brought in FOR_USERS.items() if name != "all"]
    assert EXTRAS["all"] == {package: floor for brought in others for package, floor in brought.items()}


def test_the_table_of_versions_is_that_of_the_project() -> None:
    assert {row[0]: row[1] for row in table("Versions")} == NEEDED


def test_the_lowest_environment_has_the_floors() -> None:
    pinned = dict(line.split("==") for line in read("constraints-lowest.txt").splitlines() if "==" in line[:60])
    for name, floor in (NEEDED | EXTRAS["all"]).items():
        assert Requirement(f"{name}>={floor}").specifier.contains(pinned[name])
        assert pinned[name].startswith(floor), f"{name}: {pinned[name]} is tried, {floor} is declared"


def test_the_newest_environment_is_not_below_the_floors() -> None:
    pinned = dict(line.split("==") for line in read("constraints.txt").splitlines() if "==" in line[:60])
    everything = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    for name, floor in (NEEDED | EXTRAS["dev"]).items():
        assert Requirement(f"{name}>={floor}").specifier.contains(everything[name]), name


def imports() -> Iterator[tuple[str, str]]:
    """Libraries that heed imports, wherever in a file, and the file."""
    for file in sorted((ROOT / "heed").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                if top not in sys.stdlib_module_names | {"heed", "__future__"}:
                    yield BROUGHT_BY.get(top, top.replace("_", "-")), file.relative_to(ROOT).as_posix()


def test_what_heed_imports_is_declared_and_what_is_declared_is_imported() -> None:
    used = dict(imports())
    declared = NEEDED | EXTRAS["all"] | EXTRAS["peers"]
    assert not {name: file for name, file in used.items() if name not in declared.keys() | ASKED_FOR}
    by_torch = {"tensorboard"}  # torch.utils.tensorboard
    assert not (NEEDED | EXTRAS["all"]).keys() - used.keys() - by_torch


def test_whatever_is_missing_is_brought_by_the_extra_that_is_named() -> None:
    found = 0
    for file in sorted((ROOT / "heed").rglob("*.py")):
        for package, extra in re.findall(r'MissingExtra\.of\("([^"]+)", "([^"]+)"\)', file.read_text(encoding="utf-8")):
            assert package.lower() in FOR_USERS[extra], f"{file}: {extra} does not bring {package}"
            found += 1
    assert found >= 8


def test_no_text_tells_people_to_install_another_project() -> None:
    wrong = re.compile(
        r"pip install ['\"]?heed(?!-attention)\b|['\"]heed\[|\b(?:version|distribution)\(['\"]heed['\"]\)"
    )
    own = {"docs/install.md": 1, "heed/installed.py": 1}  # where it is told what happens then
    for name in tracked():
        if name.endswith((".py", ".md", ".toml", ".txt", ".yml", ".yaml", "Makefile")) and "tests/install" not in name:
            found = wrong.findall(read(name))
            assert len(found) == own.get(name, 0), f"{name}: {found}"


def test_the_pythons_that_are_declared_are_those_that_are_tried() -> None:
    said = [line.split()[-1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert said == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={said[0]}"
    jobs = workflow()["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == jobs["wheel"]["strategy"]["matrix"]["python"] == said


# --- the Makefile and those who call it ---

MAKEFILE = read("Makefile")


def targets() -> set[str]:
    return set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())  # type: ignore[index]


def workflow() -> Any:
    return yaml.safe_load(read(".github/workflows/ci.yml"))


def test_make_help_names_every_target_in_one_column() -> None:
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    matches = [re.match(r"  make ([a-z-]+) +(?=\S)", line) for line in told]
    assert {match[1] for match in matches if match} == targets()
    assert len({match.end() for match in matches if match}) == 1, "the texts do not begin in one column"


def test_the_workflow_runs_what_the_makefile_has() -> None:
    steps = [step["run"] for job in workflow()["jobs"].values() for step in job["steps"] if "run" in step]
    asked = {"check", "test", "attack", "mutants-tenth", "test-lowest", "journey", "dist"}
    assert {f"make {target}" for target in asked} == set(steps)
    assert {step.removeprefix("make ") for step in steps} <= targets()


def test_ci_runs_what_the_makefile_has() -> None:
    called = re.findall(r"^make ([a-z-]+)$", read(".ci/run"), re.MULTILINE)
    assert called
    assert set(called) <= targets()


NAMING = ["CONTRIBUTING.md", "README.md", "docs/install.md", ".github/pull_request_template.md"]


@pytest.mark.parametrize("name", NAMING)
def test_documents_name_targets_that_there_are(name: str) -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", read(name), re.MULTILINE))
    assert named <= targets()


def test_hooks_call_the_tools_of_the_project() -> None:
    (local,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    entries = {hook["id"]: hook["entry"].split() for hook in local["hooks"]}
    assert {entry[0] for entry in entries.values()} == {".venv/bin/ruff", ".venv/bin/mypy"}
    assert {Path(entry[0]).name for entry in entries.values()} <= EXTRAS["dev"].keys()
    sources = re.search(r"^SOURCES := \$\(wildcard (.*)\)$", MAKEFILE, re.MULTILINE)
    assert sources
    assert entries["mypy"][1:] == sources[1].split()


@pytest.mark.parametrize("name", ["bug", "mechanism"])
def test_forms_for_issues_are_whole(name: str) -> None:
    form = yaml.safe_load(read(f".github/ISSUE_TEMPLATE/{name}.yml"))
    assert form["name"]
    assert form["description"]
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    assert all(field["attributes"]["label"] for field in form["body"])
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load(read("CITATION.cff"))
    assert cited["version"] == heed.__version__
    assert cited["license"] == PROJECT["license"]
    assert cited["authors"] == [{"name": "The heed developers"}]
    assert "doi" not in cited
