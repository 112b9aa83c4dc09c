"""What heed needs at run time, for those who must know: exact versions with hashes, licences, and an SBOM.

make lock    # requirements-release*.txt from pyproject.toml and constraints.txt, and docs/licences.md
make dist    # writes the SBOM beside the wheel: heed_attention-VERSION.cdx.json, CycloneDX 1.6
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.markers import Marker

from .dist import ROOT, run

PROJECT = "heed-attention"
MAIN, TORCH = ROOT / "requirements-release.txt", ROOT / "requirements-release-torch.txt"
LICENCES = ROOT / "docs" / "licences.md"
ENTRY = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ; (?P<marker>.+?))?"
    r" \\\n(?P<hashes>(?: +--hash=\S+(?: \\)?\n)+) +# via (?P<via>.*)\n",
    re.MULTILINE,
)
PLATFORMS = [
    {
        "sys_platform": system,
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    for system, machine, python in product(
        ("linux", "darwin"), ("x86_64", "aarch64", "arm64"), ("3.11", "3.12", "3.13")
    )
]
HEADS = {
    MAIN: """\
# All that heed-attention[all] needs at run time except torch and what only torch needs: the versions of constraints.txt
# with the hashes of their files for every platform. Written by `make lock`. Install the build of torch of your choice
# (docs/install.md), then:
#     pip install --require-hashes -r requirements-release.txt
#     pip install --no-deps heed-attention
""",
    TORCH: """\
# PyPI's build of torch and what only torch needs, for CUDA on Linux, with hashes. Written by `make lock`. For those who
# take that build:
#     pip install --require-hashes -r requirements-release-torch.txt -r requirements-release.txt
""",
}


@dataclass(frozen=True)
class Pinned:
    """One package of the lock."""

    name: str
    version: str
    marker: str | None  # where it is needed; None: everywhere
    hashes: tuple[str, ...]  # sha256 of its files
    via: tuple[str, ...]  # who needs it

    def __str__(self) -> str:
        where = f" ; {self.marker}" if self.marker else ""
        hashes = "".join(f" \\\n    --hash=sha256:{one}" for one in self.hashes)
        return f"{self.name}=={self.version}{where}{hashes}\n    # via {', '.join(self.via)}\n"


def parse(text: str) -> list[Pinned]:
    """The packages of a lock; a line that belongs to none is an error."""
    rest = [line for line in ENTRY.sub("", text).splitlines() if line.strip() and not line.startswith("#")]
    if rest:
        raise ValueError(f"not a pinned package with hashes: {rest[0]}")
    return [
        Pinned(
            found["name"],
            found["version"],
            found["marker"],
            tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", found["hashes"])),
            tuple(sorted(one.split()[0] for one in found["via"].split(", ") if not one.startswith("-c "))),
        )
        for found in ENTRY.finditer(text)
    ]


def locked() -> list[Pinned]:
    """Both files, by name."""
    every = [one for path in HEADS for one in parse(path.read_text(encoding="utf-8"))]
    return sorted(every, key=lambda one: one.name)


def only_through(name: str, packages: Iterable[Pinned]) -> set[str]:
    """A package, and those that nothing but it needs, directly or not."""
    found, packages = {name}, list(packages)
    while more := {one.name for one in packages if one.name not in found and found.issuperset(one.via)}:
        found |= more
    return found


# --- the lock ---


def lock() -> None:
    """Resolve for all platforms at once, which pip cannot: uv does, in an environment that is thrown away."""
    constraints = ROOT / "constraints.txt"
    with tempfile.TemporaryDirectory() as folder:
        made, out = Path(folder, "venv"), Path(folder, "lock.txt")
        venv.create(made, with_pip=True)
        run([made / "bin/pip", "install", "--quiet", "--no-input", "-c", constraints, "uv"], ROOT)
        resolve = [
            "pip",
            "compile",
            "pyproject.toml",
            "--extra",
            "all",
            "-c",
            str(constraints),
            "--python-version",
            "3.11",
        ]
        plain = ["--universal", "--generate-hashes", "--annotation-style", "line", "--no-header", "--no-emit-index-url"]
        run([made / "bin/uv", "--no-cache", "--quiet", *resolve, *plain, "-o", out], ROOT)
        packages = [one for one in parse(out.read_text(encoding="utf-8")) if _needed(one)]
    torch = only_through("torch", packages)
    for path, head in HEADS.items():
        path.write_text(head + "".join(str(one) for one in packages if (one.name in torch) == (path == TORCH)), "utf-8")


def _needed(one: Pinned) -> bool:
    """On some platform that heed runs on."""
    return one.marker is None or any(Marker(one.marker).evaluate(platform) for platform in PLATFORMS)


# --- licences ---

# What packages say that name no SPDX expression. All that say BSD, and no more, have three clauses.
SPDX = {
    "PSFL": "PSF-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "ISC License": "ISC",
    "MIT License": "MIT",
}
# What only PyPI's torch for Linux needs is not in every environment; so its wheels say. "": they say nothing.
CUDA = {
    "cuda-bindings": "Apache-2.0",
    "cuda-pathfinder": "Apache-2.0",
    "cuda-toolkit": "",
    "nvidia-nvtx": "Apache-2.0",
    "triton": "MIT",
}
PROPRIETARY = "LicenseRef-NVIDIA-Proprietary"  # all other packages of NVIDIA's
DUTIES = re.compile(r"GPL|MPL|LicenseRef")  # more than to keep a notice


def licence(one: Pinned) -> str:
    """As an SPDX expression, from the metadata of the package that is installed here, in the version of the lock."""
    if one.name in CUDA or one.name.startswith("nvidia-"):
        return CUDA.get(one.name, PROPRIETARY)
    try:
        about = distribution(one.name)
    except PackageNotFoundError:
        raise LookupError(f'{one.name} is not installed; run: pip install -c constraints.txt -e ".[all]"') from None
    if about.version.split("+")[0] != one.version:  # without the label of a build, such as +cpu
        raise LookupError(f"{one.name} {about.version} is installed, {one.version} is in the lock; run: make setup")
    return expression(about.metadata.get_all("License-Expression"), about.metadata.get_all("License"), _classes(one))


def _classes(one: Pinned) -> list[str]:
    listed = distribution(one.name).metadata.get_all("Classifier") or []
    return [line.split(" :: ")[-1] for line in listed if line.startswith("License ::")]


def expression(*told: Sequence[str] | None) -> str:
    """The first of all that is told which is an SPDX expression, or known to mean one."""
    for words in (word.strip() for group in told for word in group or ()):
        with suppress(InvalidLicenseExpression):
            return canonicalize_license_expression(SPDX.get(words, words))
    raise LookupError(f"no licence that is known in {told}; add what it says to SPDX in tools/release.py")


def page() -> str:
    """docs/licences.md."""
    packages = locked()
    says = {one.name: licence(one) for one in packages}
    torch = only_through("torch", packages)
    heavy = ", ".join(
        f"`{one.name}` ({says[one.name]})"
        for one in packages
        if DUTIES.search(says[one.name]) and not one.name.startswith("nvidia-")
    )
    return f"""\
# Licences

heed is under Apache-2.0. Below is all that `heed-attention[all]` needs at run time, in the versions of
`requirements-release.txt`, with what the packages say of their licences as [SPDX](https://spdx.org/licenses/)
expressions. `make lock` writes this page; `make dist` says the same to machines, as an SBOM beside the wheel
(`dist/heed_attention-VERSION.cdx.json`, CycloneDX 1.6). What wheels carry inside, such as libsndfile in `soundfile`,
is told by the licence files in those wheels.

More is asked than to keep a notice by {heavy}, and by NVIDIA's libraries.

## With heed

{_table([one for one in packages if one.name not in torch], says)}
## With torch

What only torch needs. NVIDIA's libraries and triton come with PyPI's build for Linux, not with builds for the CPU
and not on macOS.

{_table([one for one in packages if one.name in torch], says)}"""


def _table(packages: list[Pinned], says: dict[str, str]) -> str:
    rows = (
        f"| {one.name} | {one.version} | {says[one.name] or 'not stated'} | {', '.join(one.via)} |\n"
        for one in packages
    )
    return "| package | version | licence | needed by |\n|---|---|---|---|\n" + "".join(rows)


# --- the SBOM ---


def sbom(version: str, files: Sequence[Path]) -> str:
    """heed, of which these files are the release, and all of the lock: CycloneDX 1.6 as JSON, validated."""
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import LicenseExpression
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from packageurl import PackageURL

    def component(name: str, version: str, says: str, hashes: Iterable[str]) -> Component:
        """A package of PyPI's; where it has a file per platform it has as many hashes."""
        purl = PackageURL("pypi", None, name, version)
        return Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=str(purl),
            licenses=[LicenseExpression(says)] if says else [],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in hashes],
        )

    own = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["license"]
    heed = component(PROJECT, version, own, [hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
    packages = locked()
    made = {one.name: component(one.name, one.version, licence(one), one.hashes) for one in packages}
    bom = Bom(components=made.values())
    bom.metadata.component = heed
    for name, user in {PROJECT: heed, **made}.items():
        bom.register_dependency(user, [made[one.name] for one in packages if name in one.via])
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        raise ValueError(f"not a CycloneDX 1.6 document: {wrong}")
    return text + "\n"


def main() -> None:
    """`python -m tools.release`: the lock, and the page of licences."""
    lock()
    LICENCES.write_text(page(), encoding="utf-8")
    print(
        f"{len(locked())} packages are in {MAIN.name} and {TORCH.name}; {LICENCES.relative_to(ROOT)} has their licences"
    )


if __name__ == "__main__":
    main()
