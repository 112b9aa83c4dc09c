"""From the start of Python to the first token, only what the model needs is imported.

Time is not measured here, but what costs it: modules. Each is asked of a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GPT2 = ROOT / "tests" / "golden" / "gpt2" / "lm"
TELL = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
BARE = "import torch\nfrom safetensors.torch import load_file"
FIRST = f"""
import heed
from heed.decode import generate
model = heed.load({str(GPT2)!r}).model
assert len(generate(model, [[1, 2, 3]], max_new_tokens=1, end=None)[0][0].tokens) == 1
"""
MOST = 148  # modules of heed, packages counted; it has more than 550
FIRST_MODULES = 7  # of heed, by `import heed`
OUTSIDE = {"torch", "heed", "pydantic", "pydantic_core", "annotated_types", "typing_inspection", "tomli_w"}


def modules(script: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", script + TELL], check=True, capture_output=True, text=True, cwd=ROOT)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def new() -> set[str]:
    """What a first token imports beyond torch and safetensors."""
    return modules(BARE + FIRST) - modules(BARE)


def below(names: set[str], package: str) -> set[str]:
    return {name.removeprefix(f"{package}.") for name in names if name.startswith(f"{package}.")}


def test_a_checkpoint_imports_its_own_family_and_mixer_alone(new: set[str]) -> None:
    assert below(new, "heed.mixers") == {"attention"}
    families = {"base", "decoders", "encoder_decoders", "found", "gpt2"}  # itself, and what such families share
    assert below(new, "heed.weights.families") == families
    assert below(new, "heed.weights.edits") == {"base"}


def test_a_decoder_imports_no_other_model_and_no_other_use(new: set[str]) -> None:
    assert not below(new, "heed.models") & {"encoder", "seq2seq"}
    for other in ("architectures", "variants", "multimodal"):
        assert not below(new, f"heed.models.{other}")
    assert below(new, "heed.pipelines") == {"base", "checkpoint", "results", "verbs"}
    assert not below(new, "heed.text"), "the folder has no tokenizer"
    for package in ("media", "data", "tasks", "show", "train", "check", "verify", "demo", "bench", "cli", "catalogue"):
        assert f"heed.{package}" not in new
    assert len(below(new, "heed")) <= MOST


def test_no_library_is_imported_that_a_first_token_does_not_need(new: set[str]) -> None:
    tops = {name.partition(".")[0] for name in new} - sys.stdlib_module_names
    assert {top for top in tops if not top.startswith("_")} <= OUTSIDE
    assert below(new, "torch") <= {"utils._device"}, "torch itself imports these later: its compiler, above all"


def test_a_recipe_imports_the_model_that_it_names_alone() -> None:
    named = "from heed.models import AnyPlan\nfrom pydantic import TypeAdapter\n"
    found = modules(f"{named}TypeAdapter(AnyPlan).validate_python({{'kind': 'rwkv'}})")
    assert "heed.models.architectures.rwkv" in found
    assert not found & {"heed.models.encoder", "heed.models.variants.xlnet", "heed.mixers.mamba"}


def test_heed_itself_is_quick_to_import() -> None:
    found = modules("import heed") - modules("pass")
    assert len({name for name in found if name.startswith("heed")}) <= FIRST_MODULES
    assert not found & {"torch", "pydantic", "typer", "pathlib", "importlib.metadata"}


def test_help_imports_no_library_but_that_of_the_command_line() -> None:
    found = modules("import sys\nfrom heed.cli import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    print()")
    assert "typer" in found
    assert not found & {"torch", "numpy", "pydantic", "tokenizers", "safetensors", "jinja2", "huggingface_hub"}
