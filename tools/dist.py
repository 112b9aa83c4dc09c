"""heed as others get it: its sdist, the wheel that is built from it, and an environment with nothing but that wheel.

No network is needed: the build runs by the setuptools that is here, and the new environment sees the libraries of the
running one, but not heed itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SDIST = "from setuptools.build_meta import build_sdist; build_sdist({out!r})"
WHEEL = "from setuptools.build_meta import build_wheel; build_wheel({out!r})"


class StepFailed(Exception):
    """A command that did not do what it should."""


def run(command: Sequence[str | Path], where: Path, *, code: int = 0, **variables: str) -> str:
    """What a command prints, both streams in one; it must end with `code`. Nothing of the project is importable."""
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=where,
        env={**own, "COLUMNS": "120", "OMP_NUM_THREADS": "1", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode != code:
        said = " ".join(str(word) for word in command)
        last = "\n".join(done.stdout.splitlines()[-20:])
        raise StepFailed(f"{said}\nended with {done.returncode}, not {code}:\n{last}")
    return done.stdout


def tracked(below: str = ".") -> list[str]:
    """The project's files, as git lists them."""
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", below], ROOT).split("\0")
    return sorted(name for name in listed if name and (ROOT / name).exists())


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist of the project, and the wheel that is built from that sdist alone; `folder` is new."""
    copy, made = folder / "project", folder / "dist"
    for name in tracked():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    made.mkdir()
    run([sys.executable, "-I", "-c", SDIST.format(out=str(made))], copy)
    (sdist,) = made.glob("*.tar.gz")
    return sdist, build_wheel(unpacked(sdist, folder / "unpacked"), made)


def build_wheel(source: Path, out: Path) -> Path:
    """A wheel of the sources in a folder."""
    out.mkdir(exist_ok=True)
    run([sys.executable, "-I", "-c", WHEEL.format(out=str(out))], source)
    (wheel,) = out.glob("*.whl")
    return wheel


def unpacked(sdist: Path, folder: Path) -> Path:
    """The folder that an sdist holds."""
    run([sys.executable, "-I", "-m", "tarfile", "-e", sdist, folder], sdist.parent)
    (inside,) = folder.iterdir()
    return inside


@dataclass(frozen=True)
class Environment:
    """A virtual environment with heed from a wheel."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, wheel: Path) -> Environment:
        """Install the wheel, and nothing else; other libraries are those of the running environment."""
        venv.create(folder, symlinks=True)
        made = cls(folder)
        shared = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (made.packages / "shared.pth").write_text("".join(f"{path}\n" for path in sorted(shared)), encoding="utf-8")
        pip = [
            sys.executable,
            "-I",
            "-m",
            "pip",
            "--python",
            str(made.python),
            "--disable-pip-version-check",
            "install",
        ]
        run([*pip, "--quiet", "--no-index", "--no-deps", str(wheel)], folder)
        return made

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def heed(self) -> Path:
        """The command."""
        return self.folder / "bin" / "heed"

    @property
    def packages(self) -> Path:
        (place,) = self.folder.glob("lib/python*/site-packages")
        return place


def main() -> None:
    """`python -m tools.dist FOLDER`: the sdist, the wheel built from it, and the SBOM of both."""
    from .release import sbom

    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        sdist, wheel = (Path(shutil.copy2(made, out)) for made in build(Path(folder)))
    named = sdist.name.removesuffix(".tar.gz")
    told = out / f"{named}.cdx.json"
    told.write_text(sbom(named.rpartition("-")[2], [sdist, wheel]), encoding="utf-8")
    for made in (sdist, wheel, told):
        print(made)


if __name__ == "__main__":
    main()
