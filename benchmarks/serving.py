"""Serving by itself: prefixes, gaps, guesses, Python's share, idleness; without a network, and timed by the processor.

    python -m benchmarks.serving

Each kind of model is a small one. Times are the processor's time of the thread that works, so what else runs on the
machine shows in caches and memory only; the two sides of a ratio take turns, in the order A B B A.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count, product
from statistics import median, quantiles
from time import process_time, thread_time
from typing import Annotated, Any

import torch
import typer

from heed.engine.execution import Execution
from heed.mixers import Attention, Retention
from heed.models import RWKV, Decoder
from heed.parts.masks import Window
from heed.parts.positions import Rope
from heed.serve import Engine
from heed.serve import worker as working
from heed.serve.answer import Answer
from heed.serve.guesses.ahead import Lookup
from heed.serve.request import Request
from heed.serve.served import Limits, Served
from heed.serve.worker import Worker

VOCABULARY = 4096
SHARED, OWN, LONG = 400, 16, 900  # tokens of a shared prefix, of what is behind it, and of a prompt that disturbs
SIZES: dict[str, Any] = {"vocabulary": VOCABULARY, "width": 384, "depth": 6}
CUTS: dict[str, dict[str, Any]] = {
    "gap of 0.1 s": {},
    "one chunk of 64": {"gap": 1e-9},
    "one chunk of 16": {"gap": 1e-9, "chunk": 16},
}
NUMBERS = count()


def attention(**more: Any) -> Attention.Config:
    """Of six heads that turn."""
    return Attention.Config(heads=6, position=Rope.Config(), **more)


KINDS: dict[str, Callable[[], Any]] = {
    "attention": lambda: Decoder.Config(**SIZES, mixer=attention()),
    "window of 128": lambda: Decoder.Config(**SIZES, mixer=attention(mask=Window(back=127))),
    "RWKV": lambda: RWKV(width=384, depth=6, hidden=1536).sized(VOCABULARY),
    "hybrid": lambda: Decoder.Config(**SIZES, mixer=(Retention.Config(heads=6), attention())),
}


def worker(kind: str, **more: Any) -> Worker:
    """A new one, of a model of this kind."""
    torch.manual_seed(0)
    limits = Limits(**{"memory": 1 << 29, "rows": 16, **more})
    return Worker(Served("model", KINDS[kind]().build().eval()), limits, limits.memory)


@torch.no_grad()
def tick(one: Worker) -> float:
    """A tick, and how long the processor was at it."""
    begun = thread_time()
    one.tick()
    return thread_time() - begun


def ask(one: Worker, prompt: list[int], tokens: int, **more: Any) -> Answer:
    """A request that waits from now on."""
    request = Request(prompt=prompt, max_new_tokens=tokens, ends=(), **more)
    return one.submit(request, next(NUMBERS), lambda _: Answer(lambda: None))


def drawn(rng: random.Random, tokens: int) -> list[int]:
    """A prompt."""
    return [rng.randrange(VOCABULARY) for _ in range(tokens)]


def prefixes(rounds: int) -> Iterator[str]:
    """The time to the first token with a prefix that is known, by the time with one that is not."""
    for kind in KINDS:
        rng, one = random.Random(0), worker(kind)
        known = drawn(rng, SHARED)
        first = {"cold": list[float](), "warm": list[float]()}
        _first_token(one, known + drawn(rng, OWN))
        for _ in range(rounds):
            for side in ("cold", "warm", "warm", "cold"):
                prompt = (known if side == "warm" else drawn(rng, SHARED)) + drawn(rng, OWN)
                first[side].append(_first_token(one, prompt))
        cold, warm = median(first["cold"]), median(first["warm"])
        yield f"{kind}: cold {cold * 1e3:.1f} ms, warm {warm * 1e3:.1f} ms, ratio {warm / cold:.2f}"


def _first_token(one: Worker, prompt: list[int]) -> float:
    answer, taken = ask(one, prompt, 1), 0.0
    while not answer.ended:
        taken += tick(one)
    return taken


def gaps(rounds: int) -> Iterator[str]:
    """Between two tokens of an answer, while a long prompt is read, by the same undisturbed. As heed serves by itself,
    with one chunk a tick, and with one short chunk.
    """
    working.monotonic = thread_time  # type: ignore[attr-defined]  # what it thinks the time is
    for kind, (cut, limits) in product(KINDS, CUTS.items()):
        rng, alone, beside = random.Random(0), list[float](), list[float]()
        for _ in range(rounds):
            one = worker(kind, ahead=0, prefixes=False, **limits)
            answer = ask(one, drawn(rng, OWN), 400)
            for _ in range(40):
                tick(one)
            alone += [tick(one) for _ in range(60)]
            other = ask(one, drawn(rng, LONG), 1)
            while not other.ended:
                beside.append(tick(one))
            answer.cancel()
        quiet, busy = (quantiles(some, n=100, method="inclusive")[98] for some in (alone, beside))
        yield f"{kind}, {cut}: p99 {quiet * 1e3:.1f} ms alone, {busy * 1e3:.1f} ms beside, ratio {busy / quiet:.1f}"


def guesses(rounds: int) -> Iterator[str]:
    """Tokens a second with guesses by lookup, by those without, for texts that repeat themselves."""
    for kind in ("attention", "RWKV", "hybrid"):
        rng = random.Random(0)
        prompts = [drawn(rng, 24) * 6 for _ in range(3)]
        found = {0: list[float](), 7: list[float]()}
        shares = list[float]()
        workers = {ahead: worker(kind, ahead=ahead, prefixes=False) for ahead in found}
        for _ in range(rounds):
            for prompt in prompts:
                for ahead in (0, 7, 7, 0):
                    one = workers[ahead]
                    before = one.statistics()
                    answer, taken = ask(one, prompt, 129), 0.0
                    while not answer.ended:
                        writing = one.statistics().written_tokens > before.written_tokens
                        taken += tick(one) * writing
                    found[ahead].append(128 / taken)
                    now = one.statistics()
                    if ahead and now.guessed_tokens > before.guessed_tokens:
                        right = now.accepted_tokens - before.accepted_tokens
                        shares.append(right / (now.guessed_tokens - before.guessed_tokens))
        plain, ahead_ = median(found[0]), median(found[7])
        hits = f"{median(shares):.0%} of guesses right" if shares else "no guesses"
        yield f"{kind}: {plain:.0f} tokens/s without, {ahead_:.0f} with guesses, {ahead_ / plain:.2f} times, {hits}"


def python_share(rounds: int) -> Iterator[str]:
    """What of a tick is not spent in the step program."""
    for rows in (1, 8):
        one, rng, inside = worker("attention", ahead=0), random.Random(0), list[float]()
        step = Execution.step

        def timed(execution: Execution, *given: Any, step: Any = step, inside: list[float] = inside) -> None:
            begun = thread_time()
            step(execution, *given)
            inside.append(thread_time() - begun)

        answers = [ask(one, drawn(rng, OWN), 20 * rounds + 60) for _ in range(rows)]
        for _ in range(40):
            tick(one)
        Execution.step = timed  # type: ignore[method-assign,assignment]  # for as long as it is measured
        try:
            whole = [tick(one) for _ in range(20 * rounds)]
        finally:
            Execution.step = step  # type: ignore[method-assign]
        share = 1 - sum(inside) / sum(whole)
        yield f"{rows} rows: {share:.0%} of a tick of {median(whole) * 1e3:.1f} ms is outside of the step program"
        for answer in answers:
            answer.cancel()


def idle(rounds: int) -> Iterator[str]:
    """The processor's time of an engine that nobody asks."""
    torch.manual_seed(0)
    with Engine(KINDS["attention"]().build().eval()) as engine:
        engine.submit(Request(prompt=[1, 2, 3], max_new_tokens=3, ends=())).result()
        time.sleep(0.2)
        begun, before = time.monotonic(), process_time()
        time.sleep(rounds)
        used, lasted = process_time() - before, time.monotonic() - begun
    yield f"{used / lasted:.2%} of a core over {lasted:.0f} s"


def lookup(rounds: int) -> Iterator[str]:
    """What the table of guesses costs for each token of a prompt."""
    prompt = drawn(random.Random(0), 8192)
    taken = list[float]()
    for _ in range(rounds):
        begun = thread_time()
        Lookup(prompt)
        taken.append(thread_time() - begun)
    yield f"{median(taken) / len(prompt) * 1e6:.2f} us a token"


SUBJECTS = {
    "first token after a shared prefix of 400": prefixes,
    "gaps while a prompt of 900 arrives": gaps,
    "guesses": guesses,
    "Python's share": python_share,
    "idle": idle,
    "lookup": lookup,
}


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Which; all if none is named.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of each.")] = 5,
) -> None:
    """Print what was measured, line by line."""
    from benchmarks.report import machine

    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    for name, subject in SUBJECTS.items():
        if not names or any(name.startswith(one) for one in names):
            for line in subject(rounds):
                print(f"{name}: {line}", flush=True)
    print(f"done, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC", file=sys.stderr)


if __name__ == "__main__":
    typer.run(main)
