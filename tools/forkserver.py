"""Runs tests in children of a process that has imported pytest and the modules given already, but nothing of heed.

`python -P tools/forkserver.py MODULE...`, in the folder whose tests are meant: each line of its input is a JSON list of
pytest's arguments, a time limit and a file for the output; each line of its output says how that went. Starting from
here saves the seconds that importing takes, and every child still imports heed anew, as it is then.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from typing import NoReturn

import pytest

MEMORY = 6 << 30  # bytes that a child may hold: a fault in a bound must not take the machine with it


def run(arguments: list[str], output: str) -> int:
    """pytest in this process, which is a child and ends with it. A group of its own, so that all of it can be ended."""
    os.setsid()
    # Where a shell starts this with &, the signal is ignored, and by all children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, most))  # what a sanitizer runs may lift it again
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(source, target)
    return int(pytest.main(arguments))


def alone(arguments: list[str], output: str) -> NoReturn:
    """`run`, and nothing of what the parent would do after it, whatever happens."""
    code = 70
    try:
        code = run(arguments, output)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        os._exit(code)


def waited(child: int, limit: float) -> int | None:
    """The child's exit code, negative for a signal; None if it took longer than `limit` seconds."""
    ends = os.pidfd_open(child)
    ended, _, _ = select.select([ends], [], [], limit)
    os.close(ends)
    with contextlib.suppress(ProcessLookupError):  # also what the tests have started and left behind
        os.killpg(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status) if ended else None


def main() -> None:
    os.nice(10)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()  # the children's collections need not go over all of that
    print("ready", flush=True)
    for line in sys.stdin:
        arguments, limit, output = json.loads(line)
        begun = time.monotonic()
        child = os.fork()
        if child == 0:
            alone(arguments, output)
        answer = {"code": waited(child, limit), "seconds": time.monotonic() - begun}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
