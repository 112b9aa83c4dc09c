"""The settings of a training: optimizer, schedule, averages, how often to look and to save."""

from __future__ import annotations

from abc import abstractmethod
from math import cos, pi
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator

from ..core.config import Config, Count, Flag, Fraction, OneOf, Positive, Seed, Share, Size, Text
from ..weights.edits.base import Patterns


class AdamW(Config):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019); matrices decay, biases and gains do not."""

    lr: Positive = 1e-3  # learning rate at its peak
    beta1: Share = 0.9  # of the moving average of gradients
    beta2: Share = 0.98  # of the moving average of their squares
    eps: Positive = 1e-8
    decay: Share = 0.01  # weight decay


class Weights(Config):
    """Weights that learn at a rate of their own, named by patterns; the first group that names a weight has it."""

    on: Patterns  # which weights, by name: "heads.*", "*.mixer.*"
    rate: Positive = 1.0  # what the learning rate is multiplied by
    decay: Share | None = None  # weight decay of all of them, vectors too; None: as the optimizer has it


class Schedule(Config):
    """The learning rate over time: a rise over `warmup` steps, then what the class says."""

    warmup: Count = 100  # steps until the learning rate is at its peak

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied by in this step, the first being 1, the last being `steps`."""
        if step <= self.warmup:
            return step / self.warmup
        return self.after(step - self.warmup, max(1, steps - self.warmup) + 1)  # the end comes after the last step

    @abstractmethod
    def after(self, step: int, steps: int) -> float:
        """The factor so many steps after the warm-up, when the fall takes so many."""


class Constant(Schedule):
    """Stays."""

    kind: Literal["constant"] = "constant"

    def after(self, step: int, steps: int) -> float:
        return 1.0


class Cosine(Schedule):
    """Falls along half a cosine to a share of the peak (Loshchilov & Hutter 2017)."""

    kind: Literal["cosine"] = "cosine"
    floor: Share = 0.0  # of the peak, at the end

    def after(self, step: int, steps: int) -> float:
        return self.floor + (1 - self.floor) * (1 + cos(pi * min(1.0, step / steps))) / 2


class Linear(Schedule):
    """Falls along a line to a share of the peak."""

    kind: Literal["linear"] = "linear"
    floor: Share = 0.0  # of the peak, at the end

    def after(self, step: int, steps: int) -> float:
        return 1 - (1 - self.floor) * min(1.0, step / steps)


class InverseSqrt(Schedule):
    """Falls with the root of time: √(warmup / step) (Vaswani et al. 2017, sec. 5.3)."""

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"

    def after(self, step: int, steps: int) -> float:
        peak = max(1, self.warmup)
        return float((peak / (peak + step)) ** 0.5)


class Ema(Config):
    """The weights that are evaluated and kept are an exponential moving average: w̄ ← d · w̄ + (1-d) · w."""

    kind: Literal["ema"] = "ema"
    decay: Share = 0.999  # d


class Tail(Config):
    """The weights that are evaluated and kept are the mean of the last steps', as if checkpoints were averaged."""

    kind: Literal["tail"] = "tail"
    share: Fraction = 0.2  # of all steps
    every: Size = 50  # steps from one that counts to the next


class Replicate(Config):
    """Every process holds the whole model and computes its rows; gradients are averaged (DDP, Li et al. 2020)."""

    kind: Literal["replicate"] = "replicate"


class Shard(Config):
    """Weights, gradients and moments are spread over the processes; a block is gathered while it is computed.

    FSDP2, `torch.distributed.fsdp.fully_shard` (Zhao et al. 2023; Rajbhandari et al. 2020, ZeRO stage 3).
    """

    kind: Literal["shard"] = "shard"


SCHEDULES: tuple[type[Schedule], ...] = (Cosine, Linear, InverseSqrt, Constant)
AVERAGES: tuple[type[Config], ...] = (Ema, Tail)
PARALLELS: tuple[type[Config], ...] = (Replicate, Shard)
AnySchedule: TypeAlias = Annotated[Schedule, OneOf(lambda: SCHEDULES)]
AnyAverage: TypeAlias = Annotated[Ema | Tail, OneOf(lambda: AVERAGES)]
AnyParallel: TypeAlias = Annotated[Replicate | Shard, OneOf(lambda: PARALLELS)]


def _several(value: object) -> object:
    return (value,) if isinstance(value, Weights | dict) else value


SomeWeights: TypeAlias = Annotated[tuple[Weights, ...], BeforeValidator(_several)]  # one group or several


class Training(Config):
    """How a model is trained."""

    steps: Size = 1000  # how often the weights are updated
    batch: Size = 4096  # tokens per step, padding included; on average, where a text has one label
    accumulate: Size = 1  # pieces that a step's batch is computed in: less memory, the same result
    optimizer: AdamW = AdamW()
    freeze: Patterns = ()  # weights that stay as they are, by name: "embeddings.*", "stack.blocks.0.*"
    groups: SomeWeights = ()  # weights with a learning rate of their own, by name
    layer_decay: Fraction = 1.0  # rate of a block as a share of the one above; embeddings come below the first block
    schedule: AnySchedule = Cosine()
    clip: Positive = 1.0  # largest norm of the gradient
    average: AnyAverage | None = None  # of the weights over time; None: the last ones as they are
    evaluate: Size = 500  # steps between two evaluations on the validation data
    save: Size = 500  # steps between two checkpoints
    log: Size = 50  # steps between two lines of metrics
    patience: Size | None = None  # stop after so many evaluations without a better loss
    keep: Literal["best", "last"] = "best"  # which weights model.safetensors holds in the end
    seed: Seed = 0  # of weights, data and dropout
    threads: Size | None = None  # that torch computes with; None: OMP_NUM_THREADS, else the cores available. Recorded
    workers: Count = 0  # processes that load files ahead of time; they change no bit of the result
    device: Text | None = None  # cpu, cuda, mps ...; None: an accelerator if there is one
    parallel: AnyParallel = Replicate()  # what each of several processes (torchrun) holds: all of the model, or a part
    precision: Literal["float32", "bfloat16"] = "float32"  # of what is multiplied, not of the weights
    recompute: Flag = False  # gradient checkpointing: blocks are computed again backwards, the same bits in less memory
    max_memory: Size | None = None  # bytes that weights and optimizer may take; None: what the machine has
    compile: Flag = False  # the model is compiled by torch.compile
    tensorboard: Flag = False  # metrics are also written for TensorBoard
