"""What Python tells the kernels is what their headers declare: operations, operands, structures and their sizes."""

from __future__ import annotations

import ctypes
import re

import pytest

from heed.engine.operands import OPERANDS, Operands
from heed.engine.program import ACTIVATIONS
from heed.kernels import abi
from heed.kernels.prebuilt import SOURCES

HEADERS = "\n".join(
    (SOURCES / name).read_text(encoding="utf-8") for name in ("step.h", "linear.h", "sampling.h", "ending.h")
)
KINDS = {"Number": "int", "Real": "float", "Table": "Tensor"}
STRUCTURES = {
    "Matrix": abi.Matrix,
    "Rounded": abi.Rounded,
    "Register": abi.Register,
    "KvCache": abi.KvCache,
    "Instruction": abi.Instruction,
    "Step": abi.Step,
    "Choice": abi.Choice,
}


def _enumerated(name: str, within: str = HEADERS) -> list[str]:
    found = re.search(rf"enum {name}\b[^{{]*{{([^}}]*)}}", within)
    return [] if found is None else [entry.split("=")[0].strip() for entry in found[1].split(",")]


def test_operations_and_weights_have_the_numbers_of_the_header() -> None:
    assert _enumerated("Operation") == [operation.name for operation in sorted(abi.Operation)]
    assert _enumerated("Weights") == [kind.name for kind in sorted(abi.Weights)]
    assert [told.operation for told in OPERANDS] == sorted(abi.Operation)


@pytest.mark.parametrize("told", OPERANDS)
def test_operands_stand_where_the_header_says(told: type[Operands]) -> None:
    declared = re.search(rf"struct {told.__name__}Operands {{(.*?)}};\n(?=struct|\n)", HEADERS, re.DOTALL)
    assert declared is not None
    for enum, kind in KINDS.items():
        theirs = [name.removesuffix("_") for name in _enumerated(enum, declared[1])]  # `new` is a word of C++
        assert theirs == told.named(kind), f"{enum} of {told.__name__}"
    room = {"int": 6, "float": 2, "Tensor": 2}
    assert all(len(told.named(kind)) <= most for kind, most in room.items())


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_have_the_fields_of_the_header(name: str) -> None:
    body = re.search(rf"struct {name} {{(.*?)\n}};", HEADERS, re.DOTALL)
    assert body is not None
    lines = [line.split("//")[0].strip() for line in body[1].splitlines()]
    declared = [line.rstrip(";") for line in lines if line.endswith(";")]
    theirs = [re.split(r"[\s*]+", part.strip())[-1].split("[")[0] for line in declared for part in line.split(",")]
    assert theirs == [field[0].rstrip("_") for field in STRUCTURES[name]._fields_]


def test_structures_are_as_large_as_the_compiler_was_told() -> None:
    """The header asserts these sizes when it is compiled."""
    told = {name: int(size) for name, size in re.findall(r"sizeof\((\w+)\) == (\d+)", HEADERS)}
    assert told.keys() >= STRUCTURES.keys() - {"Choice"}
    assert told == {name: ctypes.sizeof(STRUCTURES[name]) for name in told}


def test_activations_have_the_numbers_of_the_header() -> None:
    theirs = [name.lower() for name in _enumerated("Activation")]
    assert theirs == list(ACTIVATIONS)
