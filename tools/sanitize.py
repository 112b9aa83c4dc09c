"""Kernels under the compiler's sanitizers: no address, no undefined result, no race is to be found.

    make sanitize            # or: python -m tools.sanitize [--short] [--vectors AVX2] [--compiler g++]

AddressSanitizer and UndefinedBehaviorSanitizer are compiled into the kernels (`HEED_CXXFLAGS`), with asserts within
loops (HEED_DEBUG), and the tests of kernels, engine and decoding run with them, once for each kind of vectors. Python
itself is as ever: the sanitizers' libraries are loaded before it, and what it leaks is not looked for.
ThreadSanitizer has a program of its own, `tools/threads.cpp`, which says why.

Each sanitizer has to find a planted fault first; one that finds nothing would prove nothing. Where the compiler has no
sanitizers, that is said and nothing is run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from heed.kernels import prebuilt

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "build" / "sanitize"
DEBUG = ("-O1", "-g", "-fno-omit-frame-pointer", "-DHEED_DEBUG")
ADDRESS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREAD = ("-fsanitize=thread",)
KINDS = {
    "this processor": (),
    "AVX2": ("-march=x86-64", "-mavx2", "-mfma", "-mf16c"),
    "plain loops": ("-march=x86-64",),
}
# Tests that start compilers or processes of their own look at no kernel.
ELSEWHERE = ("build", "compiler", "library_cache", "prebuilt")
TESTS = (
    "tests/kernels",
    "tests/engine",
    "tests/decode",
    *(f"--ignore=tests/kernels/test_{name}.py" for name in ELSEWHERE),
)
SHORT = (
    "tests/kernels/test_refusals.py",
    "tests/kernels/test_entry_points.py",
    "tests/kernels/test_linear.py",
    "tests/engine/test_compiled_rows.py",
)
PLANTED = {
    "an overflow": ("int planted(int n) { char* p = new char[n]; p[n] = 1; return p[n]; }", "heap-buffer-overflow"),
    "a sum that overflows": ("int planted(int n) { return 2147483647 + n; }", "signed integer overflow"),
}
CALL = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).planted(8))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a minute or two: some tests, this processor's vectors")
    parser.add_argument("--compiler", default="g++", help="GCC or clang with their sanitizers")
    parser.add_argument("--vectors", choices=KINDS, nargs="+", help="only kernels with these vectors, and threads")
    given = parser.parse_args()
    compiler = shutil.which(given.compiler)
    if compiler is None:
        print(f"sanitizers: skipped, since {given.compiler!r} is not a program")
        return
    with tempfile.TemporaryDirectory() as folder:
        lacking = missing(compiler, Path(folder))
        if lacking:
            print(f"sanitizers: skipped, since {compiler} lacks {lacking}")
            return
        finds_planted_faults(compiler, Path(folder))
        for name in given.vectors or [*KINDS][: 1 if given.short else None]:
            print(f"addresses and undefined results, {name}", flush=True)
            under_address(compiler, KINDS[name], SHORT if given.short else TESTS)
        print("threads", flush=True)
        under_thread(compiler, Path(folder))
    print("sanitizers: nothing was found")


def missing(compiler: str, folder: Path) -> str:
    """The sanitizers that this compiler cannot link a program with."""
    source = folder / "empty.cpp"
    source.write_text("int main() {}", encoding="utf-8")
    wanted = {"AddressSanitizer": ADDRESS, "ThreadSanitizer": THREAD}
    made = str(folder / "empty")
    failed = [
        name
        for name, flags in wanted.items()
        if subprocess.run([compiler, *flags, str(source), "-o", made], capture_output=True, check=False).returncode
    ]
    return " and ".join(failed)


def finds_planted_faults(compiler: str, folder: Path) -> list[str]:
    """Faults in a library that Python opens, as it opens the kernels: what was found."""
    found = []
    for name, (source, words) in PLANTED.items():
        place = folder / "planted.cpp"
        place.write_text(f'extern "C" {source}', encoding="utf-8")
        made = str(folder / "planted.so")
        subprocess.run([compiler, "-w", "-shared", "-fPIC", *DEBUG, *ADDRESS, str(place), "-o", made], check=True)
        done = subprocess.run(
            [sys.executable, "-c", CALL, made], env=preloaded(compiler), capture_output=True, text=True, check=False
        )
        if not done.returncode or words not in done.stderr:
            sys.exit(f"sanitizers: {name} was planted and not found:\n{done.stdout}{done.stderr}")
        found.append(name)
    return found


def preloaded(compiler: str, **more: str) -> dict[str, str]:
    """The environment of a Python in which sanitized kernels can be opened."""
    libraries = [_library(compiler, name) for name in ("asan", "ubsan")]
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(filter(None, libraries)),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "OMP_NUM_THREADS": "1",
        **more,
    }


def _library(compiler: str, name: str) -> str:
    for file in (f"lib{name}.so", f"libclang_rt.{name}-x86_64.so"):
        found = subprocess.run(
            [compiler, f"-print-file-name={file}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        if Path(found).is_absolute():
            return found
    return ""


def under_address(compiler: str, flags: tuple[str, ...], tests: tuple[str, ...]) -> None:
    """Tests with kernels of these flags, compiled before: compilers need no sanitizer."""
    told = {
        "CXX": compiler,
        "HEED_KERNELS": "compile",
        "HEED_CACHE": str(CACHE),
        "HEED_CXXFLAGS": " ".join((*flags, *DEBUG, *ADDRESS)),
        "HEED_TEST_KINDS": "own",
        "PYTHONPATH": str(ROOT),
    }
    # Sanitized code takes long to compile, on a busy machine longer than a user would wait.
    build = "from heed.kernels import build, compiler; compiler.SECONDS = 3600; build.built()"
    _must([sys.executable, "-c", build], {**os.environ, **told})
    command = (sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:xdist", "-p", "no:cacheprovider")
    _must([*command, *tests], preloaded(compiler, **told))


def under_thread(compiler: str, folder: Path) -> str:
    """The program of threads: with a race, which must be found and is what is given back, and without."""
    program = folder / "threads"
    sources = [str(path) for path in (*sorted(prebuilt.SOURCES.glob("*.cpp")), Path(__file__).with_name("threads.cpp"))]
    flags = [flag for flag in prebuilt.FLAGS if flag not in ("-O3", "-shared")]
    _must([compiler, *flags, "-march=native", *DEBUG, *THREAD, f"-I{prebuilt.SOURCES}", *sources, "-o", str(program)])
    # Addresses that are too random for its shadow memory make it stop at once on some systems.
    command = [*(("setarch", "-R") if shutil.which("setarch") else ()), str(program)]
    command = [*(("prlimit", "--data=unlimited") if shutil.which("prlimit") else ()), *command]  # it maps terabytes
    planted = subprocess.run([*command, "race"], capture_output=True, text=True, check=False)
    if not planted.returncode or "data race" not in planted.stderr:
        sys.exit(f"sanitizers: a race was planted and not found:\n{planted.stdout}{planted.stderr}")
    _must(command, {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"})
    return planted.stderr


def _must(command: list[str], environment: dict[str, str] | None = None) -> None:
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
        sys.exit(f"sanitizers: {' '.join(command[:4])} ... failed; what was found stands above")


if __name__ == "__main__":
    main()
