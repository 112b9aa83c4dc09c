"""The process in which chat templates are rendered: a file of its own, run by itself, which imports nothing of heed.

A template is a program by a stranger. Jinja's sandbox keeps it from what it must not touch, but not from using up time
and memory: 'a' * 10**10, nested loops, a list that holds itself twice forty times over. So it runs here, where the
system sets the limits and the caller ends what takes too long (`worker.py`).

Each line of the input is a request in JSON, each line of the output its answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache, partial
from typing import Any


def main() -> None:
    """Arguments: places to import from, bytes of memory, seconds of work for one template."""
    places, memory, seconds = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sys.path += places
    answered = prepare()
    confine(memory)
    sys.stdout.write("{}\n")  # ready
    sys.stdout.flush()
    for line in sys.stdin:
        spare(seconds)
        try:
            answer = answered(**json.loads(line))
        except MemoryError:
            answer = {"error": "it needs too much memory"}
        except RecursionError:
            answer = {"error": "it calls itself too deeply, or is nested too deeply"}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def confine(memory: int) -> None:
    """Memory is limited where the system can do that; no files are written and no processes started in any case."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = {"RLIMIT_AS": memory, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0, "RLIMIT_NPROC": 0}
    for name, most in limits.items():
        kind = getattr(resource, name, None)
        if kind is not None:
            hard = resource.getrlimit(kind)[1]
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            try:
                resource.setrlimit(kind, (least, least))
            except (ValueError, OSError):  # macOS has no limit of the address space
                continue


def spare(seconds: int) -> None:
    """So much work for the next request, even if no process is left to end this one."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, hard))


# --- Jinja as chat templates expect it ---


def prepare() -> Callable[..., dict[str, str]]:
    """What renders a request."""
    from jinja2 import ext, sandbox

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[generation(), ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=complain, strftime_now=now, namespace=namespace(), dict=table)
    return partial(render, lru_cache(maxsize=8)(environment.from_string))


def render(compiled: Callable[[str], Any], template: str, values: dict[str, Any], longest: int) -> dict[str, str]:
    """The text of a template, or that it is too long: known as soon as it is."""
    parts: list[str] = []
    size = 0
    for part in compiled(template).generate(values):
        size += len(part)
        if size > longest:
            return {"error": f"its text has more than {longest:,} characters"}
        parts.append(part)
    return {"text": "".join(parts)}


def generation() -> type[Any]:
    """{% generation %} marks what the model wrote, for training; it is rendered as if it were not there."""
    from jinja2 import ext, nodes

    class Generation(ext.Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

        def _body(self, caller: Any) -> Any:
            return caller()

    return Generation


def namespace() -> type[Any]:
    """Names that begin with _ lead into Python, so a namespace has none."""
    from jinja2 import utils
    from jinja2.exceptions import SecurityError

    def check(name: object) -> None:
        if str(name).startswith("_"):
            raise SecurityError(f"{name!r}: names of a namespace may not begin with _")

    class Namespace(utils.Namespace):
        def __init__(*args: Any, **values: Any) -> None:
            for name in dict(*args[1:], **values):
                check(name)
            utils.Namespace.__init__(*args, **values)

        def __setitem__(self, name: str, value: Any) -> None:
            check(name)
            super().__setitem__(name, value)

    return Namespace


def table(*pairs: Any, **values: Any) -> dict[Any, Any]:
    """A function, since the type itself leads further into Python."""
    return dict(*pairs, **values)


def now(written: str) -> str:
    """The time, as a template wants it written."""
    return datetime.now().strftime(written)


def complain(message: object) -> None:
    """For templates that refuse a chat."""
    from jinja2 import TemplateError

    raise TemplateError(str(message))


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own writes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


if __name__ == "__main__":
    main()
