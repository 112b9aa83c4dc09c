"""The command line as a person uses it: in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest


def heed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "heed", *words], capture_output=True, text=True, check=False, timeout=120
    )


def test_help_is_quick_and_names_the_commands() -> None:
    """Time on the processor, which a busy machine does not stretch; benchmarks/ measures by the clock."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = heed("--help").stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5
    assert "list" in text
    assert "verify" in text


def test_import_is_quick_and_leaves_torch_alone() -> None:
    clock = "time.process_time()"
    code = f"import sys, time; t = {clock}; import heed; print({clock} - t, 'torch' in sys.modules)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(run.stdout.split()[0]) for run in runs) < 0.06
    assert all(run.stdout.split()[1] == "False" for run in runs)


def test_public_names_resolve() -> None:
    import heed as package

    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'atend'"):
        package.atend  # noqa: B018


def test_list_tells_each_mixers_law_of_growth() -> None:
    found = json.loads(heed("list", "--json").stdout)
    notes = {(entry["table"], entry["name"]): entry["note"] for entry in found}
    assert notes["mixers", "attention"] == "remembers 2·kv_heads·head_size numbers per token; compiled"
    assert notes["mixers", "cross"] == "remembers 2·kv_heads·head_size numbers per source token; compiled"
    assert notes["mixers", "mamba"].endswith("; plain calls: no emitter")
    assert notes["feed-forwards", "feedforward"] == "remembers nothing; compiled"
    assert notes["positions", "rope"] == "rotates"
    assert notes["positions", "alibi"] == "scores"
    assert notes["positions", "sinusoid"] == "adds"
    assert all(entry["summary"] for entry in found)
    papers = {entry["name"]: entry["paper"] for entry in found}
    assert papers["attention"].startswith("Vaswani et al. 2017")
    assert papers["alibi"].startswith("Press et al. 2021")
    table = heed("list").stdout
    assert "mixers" in table
    assert "attention" in table


def test_verify_reports_the_worst_number_of_each_statement() -> None:
    run = heed("verify", "cross", "attend", "--json")
    assert run.returncode == 0
    report = json.loads(run.stdout)
    assert report["holds"]
    assert {proof["subject"] for proof in report["proofs"]} == {"cross", "attend"}
    assert all(proof["error"] <= proof["bound"] for proof in report["proofs"])
    shown = heed("verify", "cross")
    assert "statements hold" in shown.stdout
    assert "split" in shown.stdout


def test_verify_fails_loudly() -> None:
    """With a law broken on purpose the exit code is 1 and the culprit is named."""
    code = (
        "import heed.verify.proof as p, heed.core.laws as laws\n"
        "p.STATEMENTS['split'] = lambda sample: laws.Finding('split', 1.0, 0.0, 'broken on purpose')\n"
        "import sys; sys.argv = ['heed', 'verify', 'cross']\n"
        "import heed.cli; heed.cli.main()"
    )
    words = [sys.executable, "-c", code]
    run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 1
    assert "broken on purpose" in run.stdout
    assert "7 of 8 statements hold" in run.stdout
    words[2] = code.replace("'cross']", "'cross', '--json']")
    run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    told = json.loads(run.stdout)
    assert (run.returncode, told["holds"], len(told["proofs"])) == (1, False, 8)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("verify", "atention"), 2, "there is nothing called 'atention' to verify; did you mean attention?"),
        (("verfy",), 2, "there is no command 'verfy'; did you mean verify?"),
        (("verify", "alibi", "additive"), 0, "9 of 9 statements hold"),
        (("--version",), 0, "0.1.0"),
    ],
)
def test_words_right_and_wrong(words: tuple[str, ...], code: int, text: str) -> None:
    run = heed(*words)
    assert run.returncode == code
    assert text in run.stdout + run.stderr
    assert "Traceback" not in run.stderr
