"""The process in which strangers' patterns are tried: a file of its own, run by itself, which imports nothing of heed.

A pattern of a tokenizer.json may take time that grows with the square of a text, or without bound, and the library
cannot be interrupted. So a text goes through it here first (`trial.py`), and the caller ends what takes too long.

Each line of the input is a request in JSON, each line of the output its answer. The first request is the tokenizer.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    """Arguments: places to import from, bytes of memory, seconds of work."""
    places, memory = json.loads(sys.argv[1]), int(sys.argv[2])
    sys.path += places
    from tokenizers import Tokenizer

    confine(memory)
    sys.stdout.write("{}\n")  # ready
    sys.stdout.flush()
    tokenizer: Any = None
    answer: dict[str, Any]
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if "tokenizer" in request:
                tokenizer = Tokenizer.from_str(request["tokenizer"])
            for text in request.get("texts", ()):
                normal = text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text)
                if tokenizer.pre_tokenizer is not None:
                    tokenizer.pre_tokenizer.pre_tokenize_str(normal)
            for tokens in request.get("rows", ()):
                if tokenizer.decoder is not None:  # without one, tokens are put together with spaces
                    tokenizer.decoder.decode(tokens)
            answer = {"done": True}
        except MemoryError:
            answer = {"error": "it needs too much memory"}
        except BaseException as error:  # a panic of the library is no Exception
            answer = {"error": f"{error}"[:300]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def confine(memory: int) -> None:
    """Memory is limited where the system can do that, and no files are written."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for name, most in {"RLIMIT_AS": memory, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}.items():
        kind = getattr(resource, name, None)
        if kind is not None:
            try:
                hard = resource.getrlimit(kind)[1]
                least = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(kind, (least, least))
            except (ValueError, OSError):  # macOS has no limit of the address space
                continue


if __name__ == "__main__":
    main()
