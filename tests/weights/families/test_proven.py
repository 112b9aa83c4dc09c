"""What `heed list` says is proven about a family is what the tests do."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from heed.weights import FAMILIES, Family
from heed.weights.families.proven import GGUF, RECORDED, REMOVED, TRAINED, proven
from heed.weights.formats import gguf_names as ggufnames
from tests.weights.support import GOLDEN, TOLERANCES

HERE = Path(__file__).parent
TYPES = [name for family in FAMILIES for name in family.types]
LIVE = "\n".join(path.read_text() for path in sorted(HERE.glob("*.py")))
TRAINING = (HERE.parents[1] / "trained" / "test_trained.py").read_text()


def test_recorded_is_the_number_of_golden_folders() -> None:
    held = Counter(json.loads((GOLDEN / case / "config.json").read_text())["model_type"] for case in TOLERANCES)
    assert {name: count for name, count in held.items() if name in TYPES} == RECORDED


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_every_family_is_run_live(family: type[Family]) -> None:
    """Its model in the reference library is built in one of the files beside this one, if it still has one."""
    if REMOVED.issuperset(family.types):
        assert RECORDED.keys() >= set(family.types)
        return
    assert any(f"{name}{end}" in LIVE for name in spellings(family.__name__) for end in ("Config", "For", "Model", '"'))


def spellings(name: str) -> set[str]:
    """A name as the reference library writes it in its classes."""
    return {name, name.replace("Clip", "CLIP"), name.replace("DistilBert", "DistilBERT"), name.replace("Mpt", "MPT")}


def test_gguf_is_what_the_reader_knows() -> None:
    told = {layout.kind for layout in ggufnames.LAYOUTS.values()}
    assert told <= GGUF <= {*told, "mistral", "mixtral"}  # variants of llama, told apart by their numbers


def test_trained_checkpoints_are_tested() -> None:
    for names in TRAINED.values():
        for name in names.split(", "):
            word = name.lower().replace("-", "_").replace("_135m", "")
            assert word.split("_")[0] in TRAINING.lower(), name


def test_words() -> None:
    assert proven("llama") == "live, recorded 2×, GGUF, trained: SmolLM2-135M, stories260K"
    assert proven("phi3") == "live"


def test_documents_count_right() -> None:
    assert f"checkpoints of {len(TYPES)} kinds" in (HERE.parents[2] / "README.md").read_text(encoding="utf-8")
    text = " ".join((HERE.parents[2] / "docs" / "checkpoints.md").read_text(encoding="utf-8").split())
    assert f"checkpoints of {len(TYPES)} model types" in text
    assert f"{len(RECORDED)} of them also compute recorded runs again" in text
