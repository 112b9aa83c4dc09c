"""What heed needs at run time is pinned, hashed and licensed as its files say: the lock, the licences, the SBOM."""

from __future__ import annotations

import json
import tomllib
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import heed
from tools import release
from tools.dist import ROOT
from tools.release import MAIN, PROJECT, TORCH, Pinned, expression, licence, locked, only_through, parse

PACKAGES = {one.name: one for one in locked()}
ABOUT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def entry(name: str, *via: str) -> Pinned:
    return Pinned(name, "1.0", None, ("0" * 64,), via)


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> set[str]:
    """Names that an installed distribution needs here, with these extras, directly or not."""
    if (name, extras) in seen:
        return set()
    seen.add((name, extras))
    found = {name}
    for one in map(Requirement, distribution(name).requires or ()):
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            found |= needed(canonicalize_name(one.name), frozenset(one.extras), seen)
    return found


# --- the lock ---


def test_every_package_has_hashes_and_the_version_of_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {str(canonicalize_name(line.split("==")[0])): line.split("==")[1] for line in lines if "==" in line[:60]}
    assert all(one.hashes and len(set(one.hashes)) == len(one.hashes) for one in PACKAGES.values())
    assert {name: one.version for name, one in PACKAGES.items() if pins.get(name, one.version) != one.version} == {}
    main = {one.name for one in parse(MAIN.read_text(encoding="utf-8"))}
    assert main <= pins.keys(), "without a pin, the next lock has another version than the tests"


def test_what_the_extras_need_is_in_the_lock() -> None:
    """Those that pyproject.toml names, and all that these need where this runs, as their metadata say."""
    extras = {name: lines for name, lines in ABOUT["optional-dependencies"].items() if name in _users()}
    named = [
        Requirement(line) for line in [*ABOUT["dependencies"], *(one for lines in extras.values() for one in lines)]
    ]
    direct = {canonicalize_name(one.name) for one in named if one.name != PROJECT}
    assert len(direct) > 15
    every = set().union(*(needed(name, frozenset(), set()) for name in direct))
    assert len(every) > 40
    assert every - PACKAGES.keys() == set()
    for one in named:
        assert one.name == PROJECT or one.specifier.contains(PACKAGES[canonicalize_name(one.name)].version), str(one)


def _users() -> set[str]:
    """Extras that `all` stands for."""
    (every,) = ABOUT["optional-dependencies"]["all"]
    return Requirement(every).extras


def test_nothing_in_the_lock_leads_to_nowhere() -> None:
    """Each is needed by heed or by another one; markers can be read; no index and no path of a machine is named."""
    assert {user for one in PACKAGES.values() for user in one.via} <= {PROJECT, *PACKAGES}
    assert all(one.via for one in PACKAGES.values())
    assert all(Marker(one.marker) for one in PACKAGES.values() if one.marker)
    for path in (MAIN, TORCH):
        assert not [line for line in path.read_text(encoding="utf-8").splitlines() if "://" in line or " /" in line]


def test_torch_is_apart() -> None:
    """So that another build of torch is not replaced, and no CUDA is brought to one for the CPU."""
    main, apart = ({one.name for one in parse(path.read_text(encoding="utf-8"))} for path in (MAIN, TORCH))
    assert not main & apart
    assert apart == only_through("torch", PACKAGES.values())
    assert {"torch", "triton", "nvidia-cublas", "sympy"} <= apart
    assert {"numpy", "jinja2", "filelock"} <= main  # torch needs the last two, and so does heed


def test_what_only_one_needs() -> None:
    a, b, c, d = entry("a", PROJECT), entry("b", "a"), entry("c", "b"), entry("d", "b", PROJECT)
    assert only_through("a", [d, c, b, a]) == {"a", "b", "c"}


def test_a_line_without_hashes_is_noticed() -> None:
    one = entry("a-b.c", "x", "y")
    assert parse(f"# head\n{one}") == [one]
    marked = Pinned("d", "2", "sys_platform == 'linux'", ("1" * 64, "2" * 64), ("z",))
    assert parse(f"{one}{marked}") == [one, marked]
    with pytest.raises(ValueError, match="not a pinned package with hashes: idna==3"):
        parse(f"{one}idna==3\n    # via requests\n")


# --- licences ---


def test_the_page_of_licences_is_that_of_the_environment() -> None:
    written = release.LICENCES.read_text(encoding="utf-8")
    assert written == release.page(), "docs/licences.md is old; run: make lock"
    assert all(f"\n| {name} | {one.version} | " in written for name, one in PACKAGES.items())


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ((["MIT OR Apache-2.0"], ["something else"], []), "MIT OR Apache-2.0"),
        ((None, ["BSD"], ["BSD License"]), "BSD-3-Clause"),
        ((None, ["Copyright (c) 2020\n\nPermission is..."], ["MIT License"]), "MIT"),
        ((None, None, ["Apache Software License"]), "Apache-2.0"),
    ],
)
def test_a_licence_is_found_in_metadata(told: Any, found: str) -> None:
    assert expression(*told) == found


def test_a_licence_that_is_not_known_is_an_error() -> None:
    with pytest.raises(LookupError, match="add what it says to SPDX"):
        expression(None, ["Free as in beer"], ["Other/Proprietary License"])
    with pytest.raises(LookupError, match="nowhere-to-be-found is not installed; run: pip install"):
        licence(entry("nowhere-to-be-found"))
    with pytest.raises(LookupError, match=r"numpy \S+ is installed, 1.0 is in the lock; run: make setup"):
        licence(entry("numpy"))


# --- the SBOM ---


def test_the_sbom_names_every_package(tmp_path: Path) -> None:
    """`sbom` validates what it gives; here is looked at what it says."""
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"wheel")
    told = json.loads(release.sbom(heed.__version__, [wheel]))
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    own = told["metadata"]["component"]
    assert (own["name"], own["version"]) == (PROJECT, heed.__version__)
    assert own["purl"] == f"pkg:pypi/{PROJECT}@{heed.__version__}"
    assert own["hashes"] == [{"alg": "SHA-256", "content": sha256(b"wheel").hexdigest()}]
    found = {one["name"]: one for one in told["components"]}
    assert found.keys() == PACKAGES.keys()
    for name, one in PACKAGES.items():
        assert (found[name]["version"], found[name]["purl"]) == (one.version, f"pkg:pypi/{name}@{one.version}")
        assert {each["content"] for each in found[name]["hashes"]} == set(one.hashes)
        assert ("licenses" in found[name]) == bool(licence(one)), name
    edges = {one["ref"]: one.get("dependsOn", []) for one in told["dependencies"]}
    assert found["torch"]["purl"] in edges[own["purl"]]
    assert found["sympy"]["purl"] in edges[found["torch"]["purl"]]
