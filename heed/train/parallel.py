"""Several processes, started by torchrun, train one model: each takes its rows of a batch, gradients are averaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from ..core.errors import ConfigError, RunError

T = TypeVar("T")

MEETINGS = count()  # of this process with others, one after the other


@dataclass(frozen=True)
class Group:
    """The processes of a run; by itself a process is a group of one."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    @property
    def beside(self) -> int:
        """How many of them are on this machine."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    def rows(self, items: Sequence[T]) -> Sequence[T]:
        """This process's share."""
        return items[self.rank :: self.size]

    def sum(self, *numbers: float) -> list[float]:
        """Each number added up over all processes."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        distributed.all_reduce(total)
        return [float(number) for number in total]

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """One tensor of each process, of equal shapes."""
        if self.size == 1:
            return [tensor]
        found = [torch.empty_like(tensor, device=self.device) for _ in range(self.size)]
        distributed.all_gather(found, tensor.to(self.device))
        return [part.to(tensor.device) for part in found]

    def agree(self, text: str) -> str:
        """What the leading process says."""
        said = [text]
        if self.size > 1:
            distributed.broadcast_object_list(said, device=self.device)
        return said[0]

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            distributed.barrier()

    def wrap(self, module: nn.Module) -> nn.Module:
        """A module whose gradients are averaged over the processes."""
        return module if self.size == 1 else DistributedDataParallel(module)


@contextmanager
def group(device: str | None) -> Iterator[Group]:
    """The processes that torchrun started, or this one alone. Within another group it is that one."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = _device(device)
    if place.type != "cpu":
        torch.get_device_module(place).set_device(place.index)
    if size == 1:
        yield Group(place)
        return
    if distributed.is_initialized():  # processes meet once: two trainings in a row share a group
        yield Group(place, rank, size)
        return
    # A name of its own for each meeting: of the one before, torchrun's store still holds addresses that nobody has now.
    store, rank, size = next(rendezvous("env://"))
    store = distributed.PrefixStore(f"heed-{next(MEETINGS)}", store)  # type: ignore[attr-defined]  # a public name
    backend = "nccl" if place.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        yield Group(place, rank, size)
    finally:
        distributed.destroy_process_group()


def drawn(processes: Group) -> dict[str, Tensor]:
    """Where the random generators of every process are."""
    states = {"cpu": torch.get_rng_state()}
    if processes.device.type != "cpu":
        states["device"] = torch.get_device_module(processes.device).get_rng_state()
    every = {name: processes.gather(state) for name, state in states.items()}
    return {f"{name}.{rank}": state for name, ranks in every.items() for rank, state in enumerate(ranks)}


def draw_again(processes: Group, states: Mapping[str, Tensor], seed: int) -> None:
    """Put this process's generators where they were. One that was not there begins with the seed."""
    if f"cpu.{processes.rank}" not in states:
        torch.manual_seed(seed)
        return
    torch.set_rng_state(states[f"cpu.{processes.rank}"])
    here = f"device.{processes.rank}"
    if processes.device.type != "cpu" and here in states:  # not there if it was trained on a CPU before
        try:
            torch.get_device_module(processes.device).set_rng_state(states[here])
        except (RuntimeError, TypeError) as error:
            raise RunError(
                f"the checkpoint's {here} is no state of the generator of {processes.device}: {error}"
            ) from None


def _device(name: str | None) -> torch.device:
    """The device that is named, or an accelerator that can do all, or the CPU; one of its own for each process."""
    try:
        device = torch.device(name or _best())
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"training.device is {name!r}, which is not here: {error}") from None
    if device.type == "mps":
        raise ConfigError("training.device is mps, which has no float64, but position codes need it; use cpu")
    numbered = device.type == "cpu" or ":" in str(device)
    return device if numbered else torch.device(device.type, int(os.environ.get("LOCAL_RANK", "0")))


def _best() -> str:
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if found is None or found.type == "mps" else found.type
