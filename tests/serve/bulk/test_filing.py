"""Files of prompts: line i answers line i, whatever the lines hold, and whatever ends the process between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heed.core.errors import InputError
from heed.decode import Sample
from heed.pipelines import GenerationConfig
from heed.serve import Engine, EngineStopped, Limits
from heed.serve.bulk import Progress, answer_file
from heed.serve.bulk.filing import LONGEST
from heed.serve.worker import Worker
from tests.children import environment
from tests.serve.test_served import language

LIMITS = Limits(memory=1 << 22, rows=4, chunk=8, page=4, waiting=3)
USUAL = GenerationConfig(max_new_tokens=6)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(language(), LIMITS) as made:
        yield made


def written(place: Path, lines: list[Any]) -> Path:
    place.write_bytes(
        b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    )
    return place


def read(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.read_bytes().splitlines()]


def test_lines_are_answered_in_their_order_as_the_pipeline_would(engine: Engine, tmp_path: Path) -> None:
    pipeline: Any = engine.models["model"].pipeline
    texts = [f"text {i}" * (i % 4 + 1) for i in range(30)]
    lines = [{"prompt": text, "max_new_tokens": i % 5 + 1} for i, text in enumerate(texts)]
    source, target, seen = written(tmp_path / "in", lines), tmp_path / "out", list[int]()
    made = answer_file(engine, source, target, USUAL, lambda progress: seen.append(progress.done))
    assert (made.total, made.done, made.failed) == (30, 30, 0)
    assert seen == list(range(31))
    for number, (text, told) in enumerate(zip(texts, read(target), strict=True)):
        assert told["line"] == number + 1
        assert told["text"] == pipeline.generate(text, max_new_tokens=number % 5 + 1)
        assert (told["reason"], told["tokens"]) == ("limit", number % 5 + 1)
    before = target.read_bytes()
    assert answer_file(engine, source, target, USUAL).before == 30
    assert target.read_bytes() == before


def test_a_bad_line_is_an_error_line(engine: Engine, tmp_path: Path) -> None:
    bad: list[tuple[Any, str]] = [
        (b"no json\n", "no line of JSON"),
        (b"\xff\xfe\n", "no line of JSON"),
        (b"\n", "no line of JSON"),
        (b"[" * 100_000 + b"\n", "no line of JSON"),
        ([1], "no object"),
        ({}, "prompt is None"),
        ({"prompt": []}, "prompt is"),
        ({"prompt": [99_999]}, "vocabulary"),
        ({"prompt": "x", "temprature": 1}, "temprature"),
        ({"prompt": "x", "temperature": "hot"}, "temperature"),
        ({"prompt": "x", "num_beams": 3}, "num_beams"),
        ({"prompt": "x", "max_new_tokens": 10**9}, "memory of this model"),
        ({"prompt": "x", "stop": ["y"] * 99}, "stop"),
        ({"prompt": "x", "logit_bias": {"x": 1}}, "logit_bias"),
        ({"prompt": "x", "logit_bias": {"3": "much"}}, "much"),
        ({"custom_id": 3, "prompt": "x"}, "custom_id"),
        ({"custom_id": "a", "url": "/v1/files", "body": {}}, "url"),
        ({"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "x", "tools": []}}, "tools"),
        ({"custom_id": "a", "url": "/v1/chat/completions", "body": {"messages": []}}, "messages"),
        ({"custom_id": "a", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user"}]}}, "chat"),
    ]
    good = {"prompt": "x", "max_new_tokens": 2}
    source = written(tmp_path / "in", [line for one, _ in bad for line in (one, good)])
    made = answer_file(engine, source, tmp_path / "out", USUAL)
    assert (made.done, made.failed) == (2 * len(bad), len(bad))
    told = read(tmp_path / "out")
    for (_, message), answer, fine in zip(bad, told[::2], told[1::2], strict=True):
        error = answer["error"]
        assert message in (error if isinstance(error, str) else error["message"])
        assert len(fine["text"])


def test_a_line_without_end_is_an_error_line(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heed.serve.bulk.filing.LONGEST", 64)
    assert LONGEST >= 1 << 20
    source = written(tmp_path / "in", [{"prompt": "y" * 300}, {"prompt": "x"}])
    made = answer_file(engine, source, tmp_path / "out", USUAL)
    assert (made.done, made.failed) == (2, 1)


def test_lines_as_openai_has_them(engine: Engine, tmp_path: Path) -> None:
    body = {"model": "any", "prompt": "hello", "max_tokens": 5, "temperature": 0}
    line = {"custom_id": "one", "method": "POST", "url": "/v1/completions", "body": body}
    answer_file(engine, written(tmp_path / "in", [line]), tmp_path / "out", USUAL)
    (told,) = read(tmp_path / "out")
    assert (told["custom_id"], told["error"], told["response"]["status_code"]) == ("one", None, 200)
    made, pipeline = told["response"]["body"], engine.models["model"].pipeline
    assert made["choices"][0]["text"] == pipeline.generate("hello", max_new_tokens=5)  # type: ignore[union-attr]
    assert made["choices"][0]["finish_reason"] == "length"
    assert made["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}


def test_draws_follow_from_the_line(engine: Engine, tmp_path: Path) -> None:
    """So a run that goes on writes what one that was never ended would have written."""
    lines = [{"prompt": "hello", "temperature": 1.0} for _ in range(6)] + [{"prompt": "hello", "seed": 2}]
    usual = USUAL.model_copy(update={"strategy": Sample(seed=0)})
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    answer_file(engine, written(tmp_path / "in", lines), whole, usual)
    assert len({told["text"] for told in read(whole)}) > 3
    assert read(whole)[2]["text"] == read(whole)[6]["text"]  # line 3 draws with seed 2
    for end in (0, 1, 7, 60, 200, 333):  # wherever it was killed
        parts.write_bytes(whole.read_bytes()[:end])
        made = answer_file(engine, tmp_path / "in", parts, usual)
        assert made.done == 7
        assert parts.read_bytes() == whole.read_bytes()


def test_answers_of_others_are_not_written_over(engine: Engine, tmp_path: Path) -> None:
    source = written(tmp_path / "in", [{"custom_id": "a", "prompt": "x"}, {"custom_id": "b", "prompt": "x"}])
    target = written(tmp_path / "out", [{"line": 1, "custom_id": "z"}])
    before = target.read_bytes()
    with pytest.raises(InputError, match="answers another"):
        answer_file(engine, source, target, USUAL)
    written(target, [b"something else\n"])
    with pytest.raises(InputError, match="answers another"):
        answer_file(engine, source, target, USUAL)
    written(target, [{"line": number} for number in range(1, 4)])
    with pytest.raises(InputError, match="3 lines"):
        answer_file(engine, source, target, USUAL)
    with pytest.raises(InputError, match="file of prompts"):
        answer_file(engine, source, source, USUAL)
    with pytest.raises(InputError, match="cannot be read"):
        answer_file(engine, tmp_path / "none", target, USUAL)
    assert before


def test_two_processes_do_not_write_one_file(engine: Engine, tmp_path: Path) -> None:
    import fcntl

    source, target = written(tmp_path / "in", [{"prompt": "x"}]), tmp_path / "out"
    with target.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process"):
            answer_file(engine, source, target, USUAL)


def test_an_engine_that_ends_leaves_its_lines_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = written(tmp_path / "in", [{"prompt": "x"} for _ in range(9)]), tmp_path / "out"
    tick, ticks = Worker.tick, list[int]()

    def failing(worker: Worker) -> None:
        ticks.append(1)
        if len(ticks) == 15:
            raise RuntimeError("the engine itself is broken")
        tick(worker)

    with monkeypatch.context() as patch, Engine(language(), LIMITS) as broken:
        patch.setattr(Worker, "tick", failing)
        with pytest.raises(EngineStopped):
            answer_file(broken, source, target, USUAL)
    assert 0 < len(read(target)) < 9
    assert not any("error" in told for told in read(target))
    with Engine(language(), LIMITS) as engine:
        assert answer_file(engine, source, target, USUAL).done == 9
    assert [told["line"] for told in read(target)] == list(range(1, 10))


CHILD = """
import sys
from pathlib import Path
from heed.pipelines import GenerationConfig
from heed.serve import Engine
from heed.serve.bulk import answer_file
from tests.serve.test_served import LIMITS, language
with Engine(language(), LIMITS) as engine:
    answer_file(engine, Path(sys.argv[1]), Path(sys.argv[2]), GenerationConfig(max_new_tokens=6))
"""


def test_a_killed_process_loses_and_repeats_no_line(engine: Engine, tmp_path: Path) -> None:
    lines = [{"custom_id": f"{i}", "prompt": f"{i} " * (i % 9 + 1)} for i in range(150)]
    source, target, whole = written(tmp_path / "in", lines), tmp_path / "out", tmp_path / "whole"
    answer_file(engine, source, whole, USUAL)
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(source), str(target)], env=environment())
    until = time.monotonic() + 120
    while not (target.exists() and target.stat().st_size > 2_000) and child.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL
    before: list[Progress] = []
    answer_file(engine, source, target, USUAL, before.append)
    assert 0 < before[0].before < 150
    assert target.read_bytes() == whole.read_bytes()
