"""What callers give by name: devices, dtypes, keywords of other libraries."""

from __future__ import annotations

import pytest
import torch

from heed.core.devices import device_of, devices, dtype_of
from heed.core.errors import InputError
from heed.core.foreign_names import FOREIGN, refuse_unknown


def test_devices_that_are_there() -> None:
    assert next(devices()) == device_of() == device_of("cpu") == device_of(torch.device("cpu"))
    assert device_of("auto") in list(devices())


def test_the_fastest_device_is_the_last_of_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [torch.device("cpu"), torch.device("cuda", 1), torch.device("cuda", 0)]
    monkeypatch.setattr("heed.core.devices.devices", lambda: iter(there))
    assert device_of("auto") == device_of("cuda:0") == device_of(0) == torch.device("cuda", 0)
    assert device_of() == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
@pytest.mark.parametrize("name", ["cuda", "cuda:1", 0, torch.device("cuda")])
def test_a_device_that_is_not_there_is_named_with_those_that_are(name: str | int | torch.device) -> None:
    with pytest.raises(InputError, match=r"there is no device 'cuda.*; there is cpu"):
        device_of(name)


@pytest.mark.parametrize("name", ["gpu", "cpu:x", 3.5, [0]])
def test_what_is_no_device(name: object) -> None:
    with pytest.raises(InputError, match=r'is no device; write "cpu", "cuda"'):
        device_of(name)  # type: ignore[arg-type]


def test_dtypes_by_name() -> None:
    assert dtype_of("bf16") == dtype_of(torch.bfloat16) == dtype_of("torch.bfloat16") == torch.bfloat16
    with pytest.raises(InputError, match="did you mean float32"):
        dtype_of("flot32")
    with pytest.raises(InputError, match="quantise=.int8"):
        dtype_of(torch.int8)


def test_keywords_of_other_libraries_are_told_in_our_words() -> None:
    refuse_unknown("generate", ["seed"], ["seed", "stop"])
    with pytest.raises(InputError, match="generate takes no max_length; .* write max_new_tokens="):
        refuse_unknown("generate", ["max_length"], ["seed"])
    with pytest.raises(InputError, match="load takes no device_map; write device="):
        refuse_unknown("load", ["device_map"], ["device"])
    with pytest.raises(InputError, match=r"generate takes no temprature; did you mean temperature\?"):
        refuse_unknown("generate", ["temprature"], ["seed", "temperature"])
    assert all(hint and not hint.endswith(".") for hint in FOREIGN.values())
