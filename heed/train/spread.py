"""What each of several processes holds of a model: all of it (`Replicated`), or its part (`Sharded`).

With weights P, Adam's two moments and the gradients, replicated training holds 4 P in every process and what DDP
gathers gradients in beside; sharded over n processes it holds 4 P / n and one block, with its gradients, as a whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..core.errors import ConfigError
from ..models.backbone import Backbone
from ..parts.layers.norms import OverTokens
from ..runs.folder import Run
from ..runs.training import Shard, Training
from ..tasks import Item, Sums, Task, sums_of
from ..weights.formats import native as own
from .checkpoint import Checkpoint
from .parallel import Group

if TYPE_CHECKING:
    from .loop import Objective


class Spread(ABC):
    """How a model and its training lie in the processes of a group."""

    compiled = True  # whether padded rows may be computed as varlen rows, which calls parts of blocks by themselves

    def __init__(self, group: Group) -> None:
        self.group = group

    @abstractmethod
    def must_take(self, model: nn.Module) -> None:
        """Raise if a part of the model cannot lie so; it may be without memory."""

    @abstractmethod
    def wrap(self, objective: Objective) -> nn.Module:
        """What is called in training, by all processes together. After it the weights are those that will learn."""

    @abstractmethod
    def unsynced(self, objective: nn.Module) -> AbstractContextManager[Any]:
        """Within it gradients wait for the last piece of a step, if that saves anything."""

    @abstractmethod
    def clip(self, model: nn.Module, largest: float) -> Tensor:
        """Scale all gradients down to this norm together. Gives the norm that they had."""

    @abstractmethod
    def sums(self, task: Task, objective: Any, batches: Sequence[Sequence[Item]]) -> Sums:
        """What this process's share of an evaluation comes to."""

    @abstractmethod
    def keep(self, run: Run, model: nn.Module) -> None:
        """The weights to use, whole and in one file, written by the process that leads."""

    @abstractmethod
    def save(self, run: Run, checkpoint: Checkpoint) -> None:
        """A checkpoint, which the process that leads writes or all do."""


class Replicated(Spread):
    """All of the model in every process; gradients are averaged. By itself a process does the same."""

    def must_take(self, model: nn.Module) -> None:
        """Any model will do."""

    def wrap(self, objective: Objective) -> nn.Module:
        return self.group.wrap(objective)

    def unsynced(self, objective: nn.Module) -> AbstractContextManager[Any]:
        return objective.no_sync() if isinstance(objective, DistributedDataParallel) else nullcontext()

    def clip(self, model: nn.Module, largest: float) -> Tensor:
        return nn.utils.clip_grad_norm_(model.parameters(), largest)

    def sums(self, task: Task, objective: Any, batches: Sequence[Sequence[Item]]) -> Sums:
        plain: Objective = objective.module if isinstance(objective, DistributedDataParallel) else objective
        return sums_of(task, plain.model, self.group.rows(batches))

    def keep(self, run: Run, model: nn.Module) -> None:
        if self.group.leads:
            run.keep(model)

    def save(self, run: Run, checkpoint: Checkpoint) -> None:
        if self.group.leads:
            checkpoint.save(run)


class Sharded(Spread):
    """A part of every weight in each process (FSDP2): rows, as even as they can be cut.

    Blocks are gathered one after the other, and what is in no block around all of them. Every gathering takes all
    processes: each calls the model as often as the others, if need be with nothing to say.
    """

    compiled = False

    def must_take(self, model: nn.Module) -> None:
        if any(isinstance(part, OverTokens) for part in model.modules()):
            raise ConfigError(
                "norm.kind=batchnorm keeps statistics, and each process would have those of its own rows; with "
                "training.parallel.kind=shard use norm.kind=layernorm, or leave training.parallel as it is"
            )
        single = [name for name, weight in model.named_parameters() if not weight.dim()]
        if single:
            raise ConfigError(
                f"{single[0]} is a single number, which training.parallel.kind=shard cannot cut; leave it out"
            )
        whole = [name for name, weight in model.named_parameters() if not weight.is_floating_point()]
        if whole:
            raise ConfigError(
                f"{whole[0]} is quantised, which training.parallel.kind=shard cannot cut into parts; leave it out, or "
                "begin from weights that are not quantised"
            )

    def wrap(self, objective: Objective) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.must_take(objective.model)
        mesh = init_device_mesh(self.group.device.type, (self.group.size,))
        for block in units(objective.model):
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
        fully_shard(objective, mesh=mesh, reshard_after_forward=True)
        return objective

    def unsynced(self, objective: nn.Module) -> AbstractContextManager[Any]:
        return nullcontext()  # gradients that wait are whole, which is what there is no memory for

    def clip(self, model: nn.Module, largest: float) -> Tensor:
        from .storage import gathered

        return gathered(nn.utils.clip_grad_norm_(model.parameters(), largest))

    def sums(self, task: Task, objective: Any, batches: Sequence[Sequence[Item]]) -> Sums:
        found = Sums(0.0, 0)
        with torch.no_grad():
            for items in self._turns(batches):
                batch = task.batch([task.fetch(item) for item in items or batches[0][:1]]).to(self.group.device)
                batch = batch if items else batch.silent()
                _, nats, beside = objective(batch)
                asides = (float(beside), batch.asides) if beside is not None else (0.0, 0)
                more = (float(nats), batch.tokens, *asides)
                found = Sums(*(one + other for one, other in zip(found, more, strict=True)))
        return found

    def _turns(self, batches: Sequence[Sequence[Item]]) -> Iterator[Sequence[Item]]:
        """This process's batches, and nothing where others have one more."""
        mine, count = self.group.rows(batches), -(-len(batches) // self.group.size)
        yield from (*mine, *[()] * (count - len(mine)))

    def keep(self, run: Run, model: nn.Module) -> None:
        from .storage import gathered

        if self.group.leads:
            run.keep(model, gathered)
        else:
            own.write_gathered(own.tensors(model), gathered, None)

    def save(self, run: Run, checkpoint: Checkpoint) -> None:
        checkpoint.save_shards(run, self.group)


def spread(settings: Training, group: Group) -> Spread:
    """As the recipe says; a process by itself has nothing to share."""
    if group.size == 1 or not isinstance(settings.parallel, Shard):
        return Replicated(group)
    if settings.compile:
        raise ConfigError("training.compile and training.parallel.kind=shard do not go together; leave one of them out")
    return Sharded(group)


def units(model: nn.Module) -> list[nn.Module]:
    """The blocks that are gathered one by one: those that every call runs once, and that share no weight."""
    owners = [part for part in model.modules() if isinstance(part, Backbone) and part.once]
    stacks = [owner.stack for owner in owners if len({*owner.stack.order}) == len(owner.stack.order)]
    blocks = [block for stack in stacks for block in stack.blocks]
    every = Counter(id(weight) for part in model.modules() for weight in part.parameters(recurse=False))
    return [block for block in blocks if _alone(block, every)]


def _alone(block: nn.Module, every: Counter[int]) -> bool:
    """Whether no other part of the model has one of its weights."""
    mine = Counter(id(weight) for part in block.modules() for weight in part.parameters(recurse=False))
    return all(every[weight] == count for weight, count in mine.items())
