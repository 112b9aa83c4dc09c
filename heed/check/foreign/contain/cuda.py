"""Code that asks for a GPU, on a machine that has none: it runs on the CPU, and that is said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .restore import replaced

ASKS = re.compile(r"""\.cuda\(|['"](cuda|mps|xpu)|torch\.cuda\.(?!is_available|amp)|\.get_device\(|pin_memory""")
TYPES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Byte", "Char", "Bool")


def asks_for_gpu(source: str) -> bool:
    """Whether a text mentions a GPU otherwise than to ask if there is one."""
    return ASKS.search(source) is not None


@contextmanager
def on_cpu(tell: Callable[[str], None]) -> Iterator[None]:
    """Where there is no CUDA, `.cuda()`, `.to("cuda")` and `device="cuda"` do nothing. Elsewhere all is as it is."""
    if torch.cuda.is_available():
        yield
        return

    def told() -> None:
        tell("it asks for a GPU; there is none here, so that it ran on the CPU")

    with ExitStack() as stack:
        stack.enter_context(replaced(torch.cuda, **_stand_ins(told)))
        stack.enter_context(replaced(torch, **_settings(told), load=_loading(torch.load, told)))
        stack.enter_context(OnCpu(told))
        yield


class OnCpu(TorchFunctionMode):
    """Every call of torch with a GPU among its arguments gets the CPU instead."""

    def __init__(self, told: Callable[[], None]) -> None:
        super().__init__()
        self.told = told

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in STAY:
            self.told()
            return args[0]
        if func in MOVES and any(_gpu(arg) for arg in args[1:]):
            self.told()
            args = (args[0], *(_cpu(arg) for arg in args[1:]))
        if not kwargs:
            return func(*args)
        if _gpu(kwargs.get("device")):
            self.told()
            kwargs = {**kwargs, "device": "cpu"}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)


STAY = {Tensor.cuda, Tensor.pin_memory}
MOVES = {Tensor.to, Tensor.type}


def _gpu(device: Any) -> bool:
    """Whether an argument names a GPU: a device, its name, its number, or a type of tensors on it."""
    if device is None or isinstance(device, Tensor | torch.dtype | bool):
        return False
    if isinstance(device, int):  # also -1: what `get_device` says of the CPU
        return True
    return re.match(r"cuda|mps|xpu|torch\.cuda\.", str(device)) is not None


def _cpu(given: Any) -> Any:
    if not _gpu(given):
        return given
    name = str(given)
    return name.replace("torch.cuda.", "torch.") if name.startswith("torch.cuda.") else "cpu"


class _Nothing:
    """A stream, an event or a place on a GPU: whatever is done with it does nothing."""

    def __init__(self, *args: Any, **options: Any) -> None: ...

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: 0.0


def _stand_ins(told: Callable[[], None]) -> dict[str, Any]:
    """What `torch.cuda` answers where there is nothing to ask."""

    def answers(value: Any) -> Callable[..., Any]:
        def answer(*args: Any, **options: Any) -> Any:
            told()
            return value

        return answer

    plain = {
        **dict.fromkeys(("set_device", "synchronize", "empty_cache", "init", "reset_peak_memory_stats")),
        **dict.fromkeys(("current_device", "memory_allocated", "max_memory_allocated", "memory_reserved"), 0),
        "get_device_name": "cpu",
        "get_device_capability": (0, 0),
        "current_stream": _Nothing(),
        "default_stream": _Nothing(),
    }
    tensors = {f"{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in TYPES}
    blocks = dict.fromkeys(("Stream", "Event", "stream", "device"), _Nothing)
    return {**{name: answers(value) for name, value in plain.items()}, **tensors, **blocks}


def _settings(told: Callable[[], None]) -> dict[str, Any]:
    """Defaults of torch that would put every new tensor on a GPU."""
    device, kind = torch.set_default_device, torch.set_default_tensor_type

    def set_default_device(wanted: Any) -> None:
        device("cpu" if _gpu(wanted) else wanted)
        if _gpu(wanted):
            told()

    def set_default_tensor_type(wanted: Any) -> None:
        kind(_cpu(wanted) if isinstance(wanted, str) else wanted)
        if _gpu(wanted):
            told()

    return {"set_default_device": set_default_device, "set_default_tensor_type": set_default_tensor_type}


def _loading(load: Callable[..., Any], told: Callable[[], None]) -> Callable[..., Any]:
    def loaded(file: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        if _gpu(map_location):
            told()
        return load(file, "cpu" if map_location is None or _gpu(map_location) else map_location, *args, **options)

    return loaded
