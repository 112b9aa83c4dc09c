"""One contestant in a process of its own: `python -m heed.bench.worker NAME SUBJECT JSON`.

It builds its model, tries its ways of doing the work, and says {"ready": ...}. For each line "go" it does one round and
says {"seconds": ..., "units": ...}; for "go 3.0 1.0" it works for so many seconds, and before that for one that is not
counted. At the end of its input it ends. Between rounds it waits, and takes no time.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from .base import Contestant, Done, Prepared, Round
from .work import Work

LEAST = 0.3  # seconds: in shorter rounds it counts that threads must wake up and caches are cold


def serve(contestant: Contestant, work: Work, ears: TextIO, mouth: TextIO) -> None:
    """Everything above."""
    ready = contestant.prepare(work)
    way, repeats = _best(ready, work)
    told = {"version": contestant.version, "way": way, "ways": len(ready.ways), "bytes": ready.bytes}
    ready = replace(ready, ways={way: ready.ways[way]})  # what others hold would count as memory
    _say(mouth, {"ready": told})
    for line in ears:
        match line.split():
            case ["go"]:
                _say(mouth, _round(ready, way, work, repeats))
            case ["go", seconds, settling]:
                _timed(ready.ways[way], float(settling))
                _say(mouth, _timed(ready.ways[way], float(seconds)))


def _best(ready: Prepared, work: Work) -> tuple[str, int]:
    """The quickest way, after a call of each to warm up, and how often it is called for a round that lasts."""
    seconds: dict[str, float] = {}
    for way in ready.ways:
        _round(ready, way, work, 1)
        seconds[way] = min(_round(ready, way, work, 1)["seconds"] for _ in range(min(2, len(ready.ways))))
    way = min(seconds, key=seconds.__getitem__)
    return way, max(1, round(LEAST / seconds[way]))


def _round(ready: Prepared, way: str, work: Work, repeats: int) -> dict[str, Any]:
    """Seconds of a call, on average."""
    gc.collect()
    _forget_peak()
    begin = time.perf_counter()
    done = [ready.ways[way]() for _ in range(repeats)][-1]
    seconds = (time.perf_counter() - begin) / repeats
    _check(done, work)
    told = {"seconds": seconds, "units": done.units, "peak": _peak()}
    return {**told, "tokens": done.tokens, "figures": dict(done.figures)}


def _timed(call: Round, seconds: float) -> dict[str, float]:
    """As many calls as are begun within these seconds: units per second, and the cores that were received."""
    begin, spent, units, passed = time.perf_counter(), time.process_time(), 0, 0.0
    while passed < seconds:
        units += call().units
        passed = time.perf_counter() - begin
    return {"rate": units / passed, "cores": (time.process_time() - spent) / passed}


def _check(done: Done, work: Work) -> None:
    if not done.figures and done.units != work.units:
        raise RuntimeError(f"a round got {done.units} {work.unit} done, asked for were {work.units}")


def _forget_peak() -> None:
    """On Linux the high-water mark of memory starts anew; elsewhere it is that of the whole process."""
    mark = Path("/proc/self/clear_refs")
    if mark.exists():
        mark.write_text("5", encoding="ascii")


def _peak() -> int:
    """Bytes that this process took at most."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _say(mouth: TextIO, told: dict[str, Any]) -> None:
    mouth.write(json.dumps(told) + "\n")
    mouth.flush()


def main(name: str, text: str) -> None:
    """What others print goes to the errors, so that nothing but answers is on the output."""
    mouth = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    work = Work.load(text)
    from .peers import named

    serve(named(name), work, sys.stdin, mouth)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3])
