"""Models of the hub, from a stand-in on this machine.

huggingface_hub reads HF_ENDPOINT once, so a process of its own asks. It takes a line of JSON for each
call and answers with a path, a text, or the error and its class.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from heed.core.errors import RunError
from heed.runs import resolve
from heed.text import Char
from tests.weights.hubs import Hub, served

HF: Any = transformers
ROOT = Path(__file__).parents[2]
WORKER = """
import json, sys
import heed
from heed.cli import app
from heed.runs import resolve
from typer.testing import CliRunner

for line in sys.stdin:
    call = json.loads(line)
    try:
        if call["do"] == "resolve":
            told = {"path": str(resolve(call["path"], **call["options"]))}
        elif call["do"] == "load":
            pipeline = heed.load(call["path"], **call["options"])
            told = {"text": pipeline.generate("ab"), "dtype": str(next(pipeline.model.parameters()).dtype)}
        else:
            found = CliRunner().invoke(app, call["path"])
            if found.exception is not None and not isinstance(found.exception, SystemExit):
                raise found.exception
            told = {"text": found.stdout} if found.exit_code == 0 else {"error": "exit", "told": found.output}
    except Exception as error:
        told = {"error": type(error).__name__, "told": str(error)}
    print("\\n@" + json.dumps(told), flush=True)
"""

Ask = Callable[..., dict[str, Any]]


@contextmanager
def worker(hub: Hub, cache: Path, **more: str) -> Iterator[Ask]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    given = {"HF_ENDPOINT": hub.address, "HF_HOME": str(cache), "HF_HUB_DISABLE_PROGRESS_BARS": "1", **more}
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**kept, **given, "PYTHONPATH": paths},
        cwd=cache,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(path: str | list[str], do: str = "resolve", **options: Any) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"do": do, "path": path, "options": options}) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("@"):
                found: dict[str, Any] = json.loads(line[1:])
                return found
        raise AssertionError("the process ended")

    try:
        yield ask
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with a tokenizer, in two files of weights and an index."""
    folder = tmp_path_factory.mktemp("hub") / "model"
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2
    )
    HF.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="4KB")
    Char().train(["abcdefghijklmnopqrstuvwxyz \n"]).save_all(folder)
    return folder


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with served() as found:
        yield found


@pytest.fixture(scope="module")
def ask(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    with worker(hub, tmp_path_factory.mktemp("cache")) as found:
        yield found


STRANGE = {"modeling_tiny.py": b"raise SystemExit", "pytorch_model.bin": b"\x80", "onnx/model.onnx": b"x"}


def test_only_what_is_needed_is_fetched_and_once(hub: Hub, ask: Ask, model: Path) -> None:
    hub.add("org/tiny", model, STRANGE)
    hub.asked.clear()
    assert "text" in ask("org/tiny", "load")
    names = {path.name for path in model.iterdir()}
    assert len([name for name in names if name.endswith(".safetensors")]) > 1
    assert hub.fetched() == names - {"README.md"} or hub.fetched() == names
    assert not hub.fetched() & STRANGE.keys()
    hub.asked.clear()
    first = ask("org/tiny", "load")
    assert hub.fetched() == set()
    assert len(hub.asked) == 1  # whether there is something newer
    hub.asked.clear()
    assert ask("org/tiny", "load", offline=True) == first
    assert hub.asked == []


def test_names_without_an_organisation_and_dtypes(hub: Hub, ask: Ask, model: Path) -> None:
    hub.add("tiny2", model)
    assert ask("tiny2", "load")["dtype"] == "torch.float32"
    assert ask("tiny2", "load", dtype="auto")["dtype"] == "torch.bfloat16"
    assert ask("hf://tiny2", "load", dtype="float64")["dtype"] == "torch.float64"


def test_commands_take_ids(hub: Hub, ask: Ask, model: Path, tmp_path: Path) -> None:
    hub.add("org/used", model)
    (tmp_path / "a.txt").write_text("some words of a text\n" * 9)
    loaded = ask("org/used", "load")["text"]
    said = ask(["run", "org/used", "ab", "--json"], "command")["text"]
    assert loaded in json.loads(said)["answers"][0]["text"]
    hub.asked.clear()
    for words in (
        ["run", "org/used", "ab", "--offline"],
        ["convert", "org/used", str(tmp_path / "out"), "--offline", "--json"],
    ):
        assert "error" not in ask(words, "command")
    assert hub.asked == []
    assert "llama" in ask(["info", "org/used"], "command")["text"]
    told = json.loads(ask(["eval", "org/used", "--data", str(tmp_path / "a.txt"), "--json"], "command")["text"])
    assert "perplexity" in told["test"]
    assert "has no revision 'v9'" in ask(["run", "org/used", "ab", "--revision", "v9"], "command")["told"]


def test_a_training_begins_from_the_hub(hub: Hub, ask: Ask, model: Path, tmp_path: Path) -> None:
    hub.add("org/base", model)
    (tmp_path / "a.txt").write_text("some words of a text\n" * 50)
    tiny = ["base=org/base", "training.steps=2", "training.batch=64", "training.evaluate=2", "training.save=2"]
    tiny += ["task.context=16", "training.schedule.warmup=1"]
    settings = [word for change in tiny for word in ("--set", change)]
    run, out = str(tmp_path / "run"), str(tmp_path / "out")
    made = ask(
        ["train", "characters", "--data", str(tmp_path / "a.txt"), "--out", run, "--quiet", *settings], "command"
    )
    assert "error" not in made, made
    assert json.loads(ask(["convert", run, out, "--json"], "command")["text"])["family"] == "llama"
    assert json.loads(Path(out, "config.json").read_text())["hidden_size"] == 16


def test_a_repository_that_lacks_a_shard_is_told_before_the_others_are_fetched(
    hub: Hub, ask: Ask, model: Path, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    shutil.copytree(model, part)
    first, second, *_ = sorted(path.name for path in part.glob("*.safetensors"))
    (part / second).unlink()
    hub.add("org/part", part)
    lost = ask("org/part")
    assert f"org/part lacks {second}: the copy here is not whole, or the repository is not" in lost["told"]
    assert not any("org/part/resolve" in line and first in line for line in hub.asked)


def test_revisions(hub: Hub, ask: Ask, model: Path) -> None:
    hub.add("org/two", model, {"README.md": b"new"})
    hub.add("org/two", model, {"README.md": b"old"}, branch="v1")
    old = ask("org/two", revision="v1")["path"]
    assert Path(old, "README.md").read_text() == "old"
    assert Path(ask("org/two")["path"], "README.md").read_text() == "new"
    assert ask("org/two", revision="v1", offline=True)["path"] == old
    lost = ask("org/two", revision="v2")
    assert lost == {"error": "RunError", "told": "org/two has no revision 'v2'; give a branch, a tag or a commit"}


def test_a_branch_that_moves_is_followed(hub: Hub, ask: Ask, model: Path) -> None:
    hub.add("org/moves", model, {"README.md": b"one"})
    assert Path(ask("org/moves")["path"], "README.md").read_text() == "one"
    hub.add("org/moves", model, {"README.md": b"two"})
    assert Path(ask("org/moves")["path"], "README.md").read_text() == "two"
    assert Path(ask("org/moves", offline=True)["path"], "README.md").read_text() == "two"


def test_an_interrupted_download_goes_on(hub: Hub, ask: Ask, model: Path) -> None:
    hub.add("org/cut", model)
    shard = next(path for path in sorted(model.glob("*.safetensors")))
    hub.cut = {shard.name: 1000}
    first = ask("org/cut", "load")
    if "error" in first:  # some versions try again by themselves
        assert first["error"] == "RunError"
        assert "kept: try again" in first["told"]
        assert "error" in ask("org/cut", offline=True)
    assert "text" in ask("org/cut", "load")
    folder = Path(ask("org/cut")["path"])
    assert (folder / shard.name).read_bytes() == shard.read_bytes()


def test_what_is_not_there_or_not_allowed(hub: Hub, ask: Ask, model: Path) -> None:
    lost = ask("org/none")
    assert lost["error"] == "RunError"
    assert "there is no model org/none on the hub; ids are org/name" in lost["told"]
    assert "no folder nothing here" in ask("nothing")["told"]
    hub.add("org/gated", model).status = 403
    hub.repositories["org/gated"].code = "GatedRepo"
    assert "org/gated is gated: its authors want their terms accepted" in ask("org/gated")["told"]
    hub.add("org/closed", model).status = 401
    told = ask("org/closed")["told"]
    assert "HF_TOKEN" in told
    hub.add("org/down", model).status = 503
    assert "503" in ask("org/down")["told"]
    told = ask("org/unknown", offline=True)["told"]
    assert told.startswith("org/unknown is not a folder or a file here and was not fetched before, and the hub is not")


def test_a_hub_that_fails_leaves_what_was_fetched(hub: Hub, ask: Ask, model: Path) -> None:
    hub.add("org/fails", model)
    before = ask("org/fails")["path"]
    hub.repositories["org/fails"].status = 500
    assert ask("org/fails")["path"] == before


def test_pickles_are_for_convert(hub: Hub, ask: Ask, model: Path, tmp_path: Path) -> None:
    state = transformers.LlamaForCausalLM.from_pretrained(model).state_dict()
    torch.save(state, tmp_path / "pytorch_model.bin")
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    hub.add("org/old", tmp_path)
    hub.asked.clear()
    told = ask("org/old")
    assert told["error"] == "WeightsError"
    assert "holds only pickled weights (pytorch_model.bin)" in told["told"]
    assert "heed convert org/old OUT" in told["told"]
    assert hub.fetched() == set()
    made = ask(["convert", "org/old", str(tmp_path / "out"), "--json"], "command")
    assert json.loads(made["text"])["family"] == "llama"
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_gguf_by_name(hub: Hub, ask: Ask, model: Path, tmp_path: Path) -> None:
    made = ask(["convert", str(model), str(tmp_path / "tiny-F16.gguf")], "command")
    assert "error" not in made, made
    data = (tmp_path / "tiny-F16.gguf").read_bytes()
    hub.add("org/one-GGUF", tmp_path)
    assert ask("org/one-GGUF")["path"].endswith("tiny-F16.gguf")
    hub.add("org/many-GGUF", tmp_path, {"tiny-Q8_0.gguf": data, "sub/tiny-Q4_0.gguf": data})
    told = ask("org/many-GGUF")
    assert told["error"] == "WeightsError"
    assert "holds 3 GGUF files; name one of them:" in told["told"]
    assert "\n  org/many-GGUF:tiny-Q8_0.gguf" in told["told"]
    for asked, found in (("tiny-Q8_0.gguf", "tiny-Q8_0.gguf"), ("q4_0", "sub/tiny-Q4_0.gguf")):
        assert ask(f"org/many-GGUF:{asked}")["path"].endswith(found)
    assert "text" in ask("org/many-GGUF:Q8_0", "load", offline=True)
    assert "holds no one GGUF file 'q5'" in ask("org/many-GGUF:q5")["told"]


def test_repositories_that_hold_no_model(hub: Hub, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    hub.add("org/lora", tmp_path)
    assert "is an adapter (LoRA) of another model" in ask("org/lora")["told"]
    (tmp_path / "adapter_config.json").rename(tmp_path / "notes.txt")
    hub.add("org/notes", tmp_path)
    assert "holds no config.json with model.safetensors and no GGUF file" in ask("org/notes")["told"]
    config = {"model_type": "hyena_x", "auto_map": {"AutoModel": "modeling.Hyena"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    hub.add("org/code", tmp_path, {"model.safetensors": b"x" * 100, "modeling.py": b"1/0"})
    hub.asked.clear()
    told = ask("org/code")["told"]
    assert "org/code is a 'hyena_x' model, which heed cannot load; it would run code of its repository" in told
    assert "model.safetensors" not in hub.fetched()  # known before it is fetched


def test_offline_by_the_environment(hub: Hub, model: Path, tmp_path: Path) -> None:
    hub.add("org/offline", model)
    hub.asked.clear()
    with worker(hub, tmp_path, HF_HUB_OFFLINE="1") as alone:
        assert "the hub is not asked (offline)" in alone("org/offline")["told"]
    assert hub.asked == []


@pytest.mark.parametrize("text", ["./gpt2x", "a/b/c", "model.gguf", "~/nothing", "has space", "x.safetensors", "a:"])
def test_what_can_only_be_a_path(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=r"is not a folder or a file; give a run folder"):
        resolve(text)


def test_near_names_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "characters").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for given in ("runs/charcters", Path("runs/charcters"), "./runs/charcters"):  # a folder that is here is meant
        with pytest.raises(RunError, match=r"did you mean (\./)?runs/characters\?"):
            resolve(given)
    with pytest.raises(RunError, match="has no revision 'v1'"):
        resolve("runs/characters", revision="v1")
    with pytest.raises(RunError, match="names no model of the hub"):
        resolve("hf://a/b/c")
