"""An engine that answers every request alone, by the plain decoding loop: what the real one must equal.

It does what tests of the API cannot ask of the real one: refuse, die, be slow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Event as Flag
from threading import Thread
from types import SimpleNamespace
from typing import Any

from heed.core.errors import InputError
from heed.decode import Stop, stream
from heed.pipelines import TextGeneration
from heed.serve.answer import Answer, Busy, EngineStopped, Event, Usage
from heed.serve.request import Request
from heed.serve.text import GrowingText


@dataclass
class Solo:
    """The interface of `heed.serve.Engine`, over models by name."""

    pipelines: dict[str, TextGeneration]
    pause: float = 0.0  # seconds before each token
    full: bool = False
    fails: Exception | None = None  # after some tokens
    dead: bool = False
    asked: list[Request] = field(default_factory=list)
    cancelled: list[float] = field(default_factory=list)  # when
    running: int = 0

    @property
    def models(self) -> dict[str, Any]:
        return {
            name: SimpleNamespace(
                name=name,
                pipeline=one,
                context=one.model.longest,
                executor="plain",
                exact=True,
                vocabulary=one.tokenizer.size,
            )
            for name, one in self.pipelines.items()
        }

    def submit(self, request: Request) -> Answer:
        if self.full:
            raise Busy("256 requests wait already", 2.5)
        if self.dead:
            raise EngineStopped("the engine has ended")
        self.asked.append(request)
        pipeline = self.pipelines[request.model or ""]
        ids = pipeline.prompt(request.prompt) if isinstance(request.prompt, str) else list(request.prompt)
        most = request.max_new_tokens or 64
        if len(ids) + most > (longest if isinstance(longest := pipeline.model.longest, int) else 1 << 30):
            raise InputError(f"{len(ids)} tokens and {most} new ones do not fit")
        gone = Flag()

        def cancel() -> None:
            if not gone.is_set():
                self.cancelled.append(time.monotonic())
                gone.set()

        answer = Answer(cancel, prompt=tuple(ids))
        Thread(target=self._write, args=(pipeline, request, ids, most, answer, gone), daemon=True).start()
        return answer

    def _write(
        self, pipeline: TextGeneration, request: Request, ids: list[int], most: int, answer: Answer, gone: Flag
    ) -> None:
        self.running += 1
        text, given, count, reason = pipeline.tokenizer.stream(), "", 0, "limit"
        stop = Stop(request.stop, pipeline.tokenizer.decode) if request.stop else None
        ends = pipeline.ends if request.ends is None else request.ends
        how: Any = request.sampling
        first = (None,) * len(ids) if request.prompt_logprobs is not None else None
        for token in stream(pipeline.model, [ids], max_new_tokens=most, end=tuple(ends), strategy=how, stop=stop):
            time.sleep(self.pause)
            if gone.is_set():
                break
            count += 1
            if self.fails is not None and count > 3:
                answer.fail(self.fails)
                break
            if token.kept:
                piece = text.push(token.token)
                given += piece
                top = ((token.token, token.logprob),) if request.logprobs else ()
                logprob = None if request.logprobs is None else token.logprob
                answer.put(Event(token.token, piece, logprob, top, prompt_logprobs=first))
                first = None
            if token.why is not None:
                reason = token.why
        last = "cancelled" if gone.is_set() else reason
        rest = "" if stop is not None and reason == "stop" else text.rest()
        usage = Usage(len(ids), count, 0)
        answer.put(Event(text=rest, reason=last, usage=usage, prompt_logprobs=first))  # type: ignore[arg-type]
        gone.set()
        self.running -= 1

    def tokenize(self, text: str, model: str | None = None, framed: bool = True) -> list[int]:
        pipeline = self.pipelines[model or ""]
        return pipeline.prompt(text) if framed else pipeline.tokenizer.encode(text)

    def detokenize(self, ids: list[int], model: str | None = None) -> str:
        return self.pipelines[model or ""].tokenizer.decode(ids)

    def health(self) -> Any:
        return SimpleNamespace(alive=not self.dead, error=None, draining=False)

    def statistics(self) -> dict[str, Any]:
        names = ("waiting", "preempted", "bytes_used", "bytes_budget", "prefix_bytes", "ticks", "tick_seconds")
        return {name: SimpleNamespace(running=self.running, **dict.fromkeys(names, 0)) for name in self.pipelines}


@dataclass
class Scripted(Solo):
    """It answers every request with the same tokens, as the engine tells them: stop strings and whole characters."""

    script: list[int] = field(default_factory=list)

    def _write(
        self, pipeline: TextGeneration, request: Request, ids: list[int], most: int, answer: Answer, gone: Flag
    ) -> None:
        text, ended = GrowingText(pipeline.tokenizer.stream(), request.stop), len(self.script) <= most
        for token in self.script[:most]:
            logprob = None if request.logprobs is None else -0.5
            for event in text.push(Event(token, logprob=logprob)):
                answer.put(event)
            if text.stopped:
                break
        events, rest = text.finish()
        for event in events:
            answer.put(event)
        reason: Any = "stop" if text.stopped else "end" if ended else "limit"
        answer.put(Event(text=rest, reason=reason, usage=Usage(len(ids), min(len(self.script), most), 0)))
        gone.set()
