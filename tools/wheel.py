"""The wheel for Linux on x86-64 that brings compiled kernels.

    make wheel-linux         # or: python -m tools.wheel [--out FOLDER] [--compiler g++]

The plain wheel is made first, as on any machine; then one library per variant (`heed/kernels/prebuilt.py`) is compiled
and put into it, and its tag says which systems it is for. No library may ask for more than glibc 2.28 has, the oldest
that torch's own wheels run on; nor for a runtime of OpenMP, since torch's is handed over when a library is loaded.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from heed.kernels import prebuilt
from heed.kernels.compiler import compile_to
from tools import dist

ROOT = Path(__file__).parents[1]
GLIBC = (2, 28)
TAG = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
OLDER = ("-include", str(Path(__file__).with_name("manylinux.h")), "-s")
KNOWN = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}  # torch needs them, too
NEWEST = {"GLIBC": GLIBC, "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}  # of manylinux_2_28


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for the wheel")
    parser.add_argument("--compiler", default="g++", help="GCC 9 or newer")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plain = plain_wheel(Path(scratch))
        made = with_libraries(plain, libraries(Path(scratch), given.compiler), given.out)
    print(made)


def plain_wheel(folder: Path) -> Path:
    """The wheel that any machine makes, of sources only."""
    _, made = dist.build(folder / "plain")
    return made


def libraries(folder: Path, compiler: str) -> list[Path]:
    """One for every variant, each looked into."""
    found = shutil.which(compiler)
    if found is None:
        sys.exit(f"{compiler!r} is not a program; name a C++ compiler with --compiler")
    made = []
    for variant in prebuilt.VARIANTS:
        place = folder / variant.place.name
        said = compile_to(place, found, (*variant.flags, *OLDER))
        if said:
            sys.exit(f"{found} could not build {variant.name}:\n{said}")
        unfit = list(problems(place))
        if unfit:
            sys.exit(f"{variant.name} would not run everywhere: {'; '.join(unfit)}")
        made.append(place)
    return made


def problems(library: Path) -> list[str]:
    """What this library needs that systems of the tag may not have."""
    told = subprocess.run(["objdump", "-p", "-T", str(library)], check=True, capture_output=True, text=True).stdout
    found = [f"it needs {name}" for name in re.findall(r"NEEDED\s+(\S+)", told) if name not in KNOWN]
    for kind, version, name in re.findall(r"\*UND\*.*\((\w+?)_([\d.]+)\)\s+(\S+)", told):
        if tuple(map(int, version.split("."))) > NEWEST.get(kind, ()):
            found.append(f"{name} is of {kind} {version}")
    return found


def with_libraries(plain: Path, made: list[Path], out: Path) -> Path:
    """The wheel with these in it, named by its tag."""
    with zipfile.ZipFile(plain) as held:
        files = {info.filename: held.read(info) for info in held.infolist()}
    stale = [path.name for path in prebuilt.SOURCES.iterdir() if files.get(_inside(path)) != path.read_bytes()]
    if stale:
        sys.exit(f"the plain wheel holds other sources than {prebuilt.SOURCES}: {', '.join(sorted(stale))}")
    files |= {f"heed/kernels/prebuilt/{library.name}": library.read_bytes() for library in made}
    name, version = plain.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    told = re.sub(r"(?m)^Root-Is-Purelib: .*$", "Root-Is-Purelib: false", files[f"{info}/WHEEL"].decode())
    files[f"{info}/WHEEL"] = re.sub(r"(?m)^Tag: .*$", f"Tag: {TAG}", told).encode()
    del files[f"{info}/RECORD"]
    lines = [f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items()]
    files[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"]).encode()
    out.mkdir(parents=True, exist_ok=True)
    place = out / f"{name}-{version}-{TAG}.whl"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as new:
        for path, data in files.items():
            new.writestr(path, data)
    return place


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _inside(path: Path) -> str:
    return f"heed/kernels/source/{path.name}"


if __name__ == "__main__":
    main()
