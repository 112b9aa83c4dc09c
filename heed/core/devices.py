"""Devices and dtypes by the names that people type; what is not there is said, with what is."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .config import nearest
from .errors import InputError

DTYPES: dict[str, torch.dtype] = {
    **dict.fromkeys(("float32", "fp32", "f32", "float", "single"), torch.float32),
    **dict.fromkeys(("float64", "fp64", "f64", "double"), torch.float64),
    **dict.fromkeys(("bfloat16", "bf16"), torch.bfloat16),
    **dict.fromkeys(("float16", "fp16", "f16", "half"), torch.float16),
}


def device_of(given: torch.device | str | int | None = None) -> torch.device:
    """The device of that name, which must be there: "cpu", "cuda", "cuda:1", "mps"; "auto" is the fastest there is.

    None is the CPU; a number is that of a CUDA device, as torch has it.
    """
    there = list(devices())
    if given is None:
        return torch.device("cpu")
    if given == "auto":
        return there[-1]
    try:
        device = torch.device(f"cuda:{given}" if isinstance(given, int) else given)
    except (RuntimeError, TypeError):
        named = ", ".join(map(str, there))
        raise InputError(
            f'{given!r} is no device; write "cpu", "cuda", "cuda:1", "mps" or "auto" (here: {named})'
        ) from None
    if device.type in {"cpu", "meta"} or device in there or (":" not in str(device) and _kind_of(there, device)):
        return device
    built = "; this torch is a build without CUDA" if device.type == "cuda" and torch.version.cuda is None else ""
    raise InputError(f"there is no device {str(device)!r} here{built}; there is {', '.join(map(str, there))}")


def devices() -> Iterator[torch.device]:
    """All devices there are, the CPU first."""
    yield torch.device("cpu")
    if torch.backends.mps.is_available():
        yield torch.device("mps")
    for index in reversed(range(torch.cuda.device_count())):
        yield torch.device("cuda", index)


def dtype_of(given: torch.dtype | str) -> torch.dtype:
    """The dtype of that name: a floating-point one, which weights can have."""
    if isinstance(given, torch.dtype) and given.is_floating_point:
        return given
    name = str(given).removeprefix("torch.")
    if name not in DTYPES:
        known = nearest(name, ("float32", "float64", "bfloat16", "float16"))
        raise InputError(f"weights cannot be {name}{known}; int8 and int4 codes: heed.load(path, quantise='int8')")
    return DTYPES[name]


def _kind_of(there: list[torch.device], device: torch.device) -> bool:
    return any(one.type == device.type for one in there)
