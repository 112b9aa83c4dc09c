"""Workers, and contests between them: which take part, which leave, what is told."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from heed.bench import contest, worker
from heed.bench.base import Done, Prepared
from heed.bench.cases import Size, contests
from heed.bench.figures import Figure, faster
from heed.bench.ours import Heed
from heed.bench.page import page
from heed.bench.peers import EVERYONE, chosen, named
from heed.bench.report import Report, machine
from heed.bench.work import Work
from heed.core.errors import InputError
from tests.bench.support import Broken, Faint, Fake, Missing, Unable, pretend, small

ALONE = Work("attention", "gpt2", "fp32", 1, 32, threads=1)


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "REST", 0.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What sleeps takes as long as it says, and everything else a microsecond: no figure hangs on the machine."""
    now = [0.0]

    def passes(seconds: float = 1e-6) -> float:
        now[0] += seconds
        return now[0]

    monkeypatch.setattr(time, "sleep", passes)
    monkeypatch.setattr(time, "perf_counter", passes)


def told(lines: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines.splitlines()]


@pytest.mark.usefixtures("clock")
def test_a_worker_takes_the_quickest_way_and_a_round_for_every_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "LEAST", 0.0)
    mouth = io.StringIO()
    worker.serve(Fake(), Work("prefill", "gpt2", "fp32", 3, 12), io.StringIO("go\nwhat?\ngo\n"), mouth)
    ready, *rounds = told(mouth.getvalue())
    assert ready["ready"] == {"version": Fake().version, "way": "quick", "ways": 2, "bytes": 64}
    assert len(rounds) == 2
    assert all(one["units"] == 36 and one["tokens"] == [1, 2] and one["peak"] for one in rounds)
    assert all(0 < float(str(one["seconds"])) < 0.001 for one in rounds)


def test_a_worker_settles_before_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that are slow at first: what is told is how it went on."""
    spent: list[float] = []

    def timed(call: object, seconds: float) -> dict[str, float]:
        spent.append(seconds)
        return {"rate": float(len(spent))}

    monkeypatch.setattr(worker, "LEAST", 0.0)
    monkeypatch.setattr(worker, "_timed", timed)
    mouth = io.StringIO()
    worker.serve(Fake(), Work("prefill", "gpt2", "fp32", 3, 12), io.StringIO("go 3.0 1.0\n"), mouth)
    assert spent == [1.0, 3.0]
    assert told(mouth.getvalue())[1] == {"rate": 2.0}


def test_who_does_less_than_was_asked_for_is_found_out() -> None:
    with pytest.raises(RuntimeError, match="got 36 tokens done, asked for were 48"):
        worker.serve(Fake(), Work("prefill", "gpt2", "fp32", 4, 12), io.StringIO(""), io.StringIO())


@pytest.mark.usefixtures("clock")
def test_short_rounds_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of 50 ms is made twice where a round must last 100; what is told is a call's time."""
    calls: list[int] = []

    class Sleeper(Fake):
        def prepare(self, work: Work) -> Prepared:
            made = super().prepare(work)

            def counted() -> Done:
                calls.append(1)
                return made.ways["slow"]()

            return Prepared({"": counted})

    monkeypatch.setattr(worker, "LEAST", 0.1)
    mouth = io.StringIO()
    worker.serve(Sleeper(), Work("prefill", "gpt2", "fp32", 3, 12), io.StringIO("go\n"), mouth)
    assert len(calls) == 4  # to warm up, to tell how long it takes, and a round of two
    assert float(str(told(mouth.getvalue())[1]["seconds"])) == pytest.approx(0.05, abs=1e-4)
    made = Fake().prepare(ALONE)
    six = worker._round(made, "slow", Work("prefill", "gpt2", "fp32", 3, 12), 6)["seconds"]
    assert six == pytest.approx(0.05, abs=1e-4)  # of a call, not of all six


def test_heeds_worker_speaks_the_protocol_in_a_process_of_its_own(tmp_path: Path) -> None:
    process = contest.started(Heed(), small("decode", "gpt2", tmp_path))
    try:
        assert process.hear()["ready"]["bytes"] > 0
        rounds = [process.go(), process.go()]
    finally:
        process.end()
    assert [one["units"] for one in rounds] == [15, 15]
    assert rounds[0]["tokens"] == rounds[1]["tokens"]
    assert len(rounds[0]["tokens"]) == 5


def test_a_contest_tells_who_took_part_who_did_not_and_why() -> None:
    said: list[str] = []
    peers = (Fake(), Missing(), Unable(), Broken(), Faint())
    outcome = contest.run(ALONE, Heed(), peers, 3, said.append, pretend)
    assert [one.name for one in outcome.told] == ["heed", "fake"]
    assert all(len(one.seconds) == 3 for one in outcome.told)
    assert outcome.absent == {
        "missing": "not installed: pip install no-such-package",
        "broken": "could not do it: ValueError: this cannot be built",
        "faint": "could not do it: out of breath",
    }
    assert (outcome.bandwidth, outcome.gemm) == (1e10 + 2, 1e11)  # the most that was seen
    assert said[-1].endswith("round 3 of 3")


class Turns:
    """A process that notes when it has its turn."""

    def __init__(self, name: str, noted: list[str]) -> None:
        self.name, self.noted = name, noted

    def go(self) -> dict[str, Any]:
        self.noted.append(self.name)
        return {"seconds": 1.0, "units": 1, "tokens": [], "peak": 9 - len(self.noted), "figures": {}}


def test_turns_come_in_another_order_in_every_round_with_a_rest_before_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who always comes after the same neighbour would meet the same weather, and the same spinning threads."""
    noted: list[str] = []
    monkeypatch.setattr(contest, "REST", 0.25)
    monkeypatch.setattr("heed.bench.contest.time.sleep", lambda seconds: noted.append(f"{seconds}"))
    names = ("heed", "b", "a", "limits")
    told = {name: contest.Told(name, "fp32") for name in names}
    processes: Any = {name: Turns(name, noted) for name in names}
    contest._rounds(ALONE, Heed(), told, {}, processes, 6, lambda _: None)
    assert noted[::2] == ["0.25"] * 24
    rounds = [tuple(noted[1::2][4 * number : 4 * number + 4]) for number in range(6)]
    assert all(sorted(one) == sorted(names) for one in rounds)
    assert len(set(rounds)) > 3
    assert told["heed"].peak == 9 - noted.index("heed") - 1  # the most of all rounds, which is that of the first


def test_threads_of_a_contestant_are_those_that_were_asked_for() -> None:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "HF_HUB_OFFLINE")
    code = f"import json, os; print(json.dumps({{n: os.environ.get(n) for n in {names!r}}}))"
    process = contest.Process([sys.executable, "-c", code], 3)
    assert process.hear() == {**dict.fromkeys(names[:3], "3"), "HF_HUB_OFFLINE": "1"}
    process.end()


def test_heed_may_not_fail() -> None:
    class Ours(Broken):
        """It is broken."""

    with pytest.raises(contest.Failed, match="broken could not do the work: ValueError: this cannot be built"):
        contest.run(ALONE, Ours(), (Fake(),), 1, lambda _: None, pretend)


def test_a_process_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "PATIENCE", 0.05)
    process = contest.Process(["sleep", "5"], 1)
    with pytest.raises(contest.Failed, match="no answer within"):
        process.hear()
    process._process.kill()
    process.end()


def test_report_as_table_json_and_page() -> None:
    outcome = contest.run(ALONE, Heed(), (Fake(), Missing()), 3, lambda _: None, pretend)
    report = Report([outcome], machine(1))
    console = Console(file=io.StringIO(), width=200)
    report.show(console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "attention, causal, 8 heads of 64, 1 × 32 tokens" in shown
    assert "2.00× (2.00 – 2.00)" in shown
    assert "missing: not installed" in shown
    assert "memory is read at 10.0 GB/s, float32 matrices multiply at 100 GFLOP/s" in shown
    (one,) = json.loads(json.dumps(report.plain()))["contests"]
    assert [row["rate"]["middle"] for row in one["contestants"]] == [64, 32]
    assert one["contestants"][1]["ours"]["middle"] == 2
    assert one["samples"] == {"heed": [0.5] * 3, "fake": [1.0] * 3}
    html = page(report)
    assert html.count("<rect") == 2
    assert 'class="ours"' in html
    assert "heed 2.00×" in html
    assert not any(word in html for word in ("<script", "<link", 'src="', "url("))  # nothing is fetched


def test_bandwidth_is_told_where_it_is_the_limit() -> None:
    work = Work("decode", "gpt2", "int8", 1, 32, 32)
    first = contest.Told("heed", "int8", bytes=10**8, seconds=[0.5], units=32, tokens=[1, 2])
    peer = contest.Told("fake", "q8_0", way="flash", bytes=10**8, seconds=[1.0], units=32, tokens=[1, 3])
    report = Report([contest.Outcome(work, [first, peer], {}, 1e10, 1e11)], machine(1))
    ours, theirs = report.rows(report.outcomes[0])
    assert ours.share == pytest.approx(0.64)
    assert (theirs.name, theirs.same) == ("fake q8_0 (flash)", 0.5)
    assert "bandwidth ends at 100" in page(report)
    many = contest.Outcome(replace(work, batch=8), [first, peer], {}, 1e10, 1e11)
    assert [row.share for row in report.rows(many)] == [None, None]  # weights are read once for all rows


def test_peers_stand_below_heed_the_quickest_first_and_bars_end_at_the_median() -> None:
    seconds = {"heed": [1.5, 2.0, 4.0], "slow": [9.0] * 3, "quick": [1.0, 1.2, 1.4], "usual": [5.0] * 3}
    told = [contest.Told(name, "fp32", seconds=some, units=8) for name, some in seconds.items()]
    report = Report([contest.Outcome(ALONE, told, {}, 1e10, 1e11)], machine(1))
    rows = report.rows(report.outcomes[0])
    assert [row.name for row in rows] == ["heed fp32", "quick fp32", "usual fp32", "slow fp32"]
    widths = re.findall(r'<rect class="\w+"[^>]* width="([0-9.]+)"', page(report))
    most = max(row.rate.high for row in rows)
    assert [float(width) for width in widths] == pytest.approx([460 * row.rate.middle / most for row in rows], abs=0.1)


def test_a_ratio_pairs_neighbours() -> None:
    """The machine became three times as slow: the ratio does not."""
    assert faster([1.0, 3.0, 3.0], [2.0, 6.0, 6.0]) == Figure(2.0, 2.0, 2.0)
    assert Figure.of([1.0, 2.0, 3.0, 4.0, 5.0]) == Figure(2.0, 3.0, 4.0)
    assert faster([1.0] * 7, [1.0] * 6 + [100.0]) == Figure(1.0, 1.0, 1.0)  # one bad round moves no bound of 95 %


def test_cases() -> None:
    usual = Size()
    assert [(work.batch, work.writes) for work in contests("decode", None, "int8", usual)] == [
        (1, 128),
        (8, 128),
        (32, 128),
    ]
    assert [work.ragged for work in contests("encode", None, "fp32", usual)] == [False, True]
    assert [work.ragged for work in contests("encode", None, "fp32", Size(batch=4))] == [True]
    assert [work.ragged for work in contests("encode", None, "fp32", Size(tokens=64))] == [False]
    assert contests("train", "transformer", "int8", usual)[0].precision == "fp32"
    assert [work.subject for work in contests(None, "llama", "int8", usual)] == ["decode", "prefill", "load"]
    assert len(contests(None, None, "fp32", usual)) == 7
    with pytest.raises(InputError, match="encode is not measured with gpt2; take one of bert"):
        contests("encode", "gpt2", "fp32", usual)


def test_ragged_rows_are_the_same_in_every_process(tmp_path: Path) -> None:
    work = small("encode", "bert", tmp_path)
    rows = Work.load(work.dump()).rows()
    assert rows == work.rows()
    assert all(8 <= token < 92 for row in rows for token in row)
    spread = Work("encode", "bert", "fp32", 5, 256, ragged=True).lengths()
    assert sorted(spread) == [16, 76, 136, 196, 256]
    assert spread != sorted(spread)  # or padding would be that of sorted texts


def test_peers_are_found_by_name() -> None:
    assert [one.name for one in chosen("rwkv, torch")] == ["rwkv", "torch"]
    assert len({one.name for one in EVERYONE}) == len(EVERYONE)
    with pytest.raises(InputError, match="no peer is called 'lama.cpp'.*llama.cpp"):
        named("lama.cpp")
