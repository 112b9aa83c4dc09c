"""The training loop: steps, and between them metrics, evaluations on the validation data and checkpoints."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from torch import Tensor, distributed, nn

from .. import engine
from ..core.contract import Mixer
from ..core.errors import RunError, counted
from ..parts.feedforward.experts import Experts, balance, routed
from ..runs.folder import WEIGHTS, Run
from ..show.progress import Reporter
from ..tasks import Batch, Corpus, Feed, Item, Place, Sums, Task, bucketed
from ..tasks.base import must_learn
from ..tasks.loader import Loader
from ..threads.teams import adapting, given, standard
from ..weights.formats import native as own
from .average import Average
from .checkpoint import Checkpoint, Progress
from .memory import recompute
from .metrics import MetricsLog
from .optim import adamw, freeze, optimizer_state, set_rate
from .parallel import Group, draw_again, drawn
from .restore import restore
from .spread import spread


class Objective(nn.Module):
    """A model with its loss: what is wrapped for several processes and what is compiled.

    Experts that ask for it (`balance`) are kept in even use: each such layer adds balance · E Σ_e f_e·p_e to the mean
    over tokens (Fedus et al. 2022, eq. 4), taken over the tokens of this very call. What is reported is without.
    """

    def __init__(self, task: Task, model: Mixer[Any], *, compiled: bool = True) -> None:
        super().__init__()
        self.task, self.model, self.compiled = task, model, compiled  # compiled: padded rows as varlen rows
        self.experts = [part for part in model.modules() if isinstance(part, Experts) and part.config.balance]

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        with ExitStack() as watching:
            seen = [(part.config.balance, watching.enter_context(routed(part))) for part in self.experts]
            loss = self.task.loss(engine.compile(self.model) if self.compiled else self.model, batch)
        total = loss.total
        for weight, said in seen:
            if any(routing.logits.numel() for routing in said):
                total = total + batch.tokens * weight * balance(said)
        return total, loss.nats, loss.beside


class Watch:
    """Where the time goes, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        begun = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - begun

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def shares(self) -> str:
        """compute 93 %, data 2 %, ..."""
        return ", ".join(f"{name} {seconds / max(self.total, 1e-9):.0%}" for name, seconds in self.seconds.items())


class Stopper:
    """Ctrl-C or a polite kill asks for a stop after the step; a second Ctrl-C stops at once.

    Under torchrun both come: the terminal's Ctrl-C, and then torchrun's. It kills by itself who takes 30 seconds.
    """

    def __init__(self, reporter: Reporter) -> None:
        self.asked, self._reporter = False, reporter
        self._launched = distributed.is_torchelastic_launched()

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # signals reach only the main thread
            yield
            return
        before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and not self._launched:
            raise KeyboardInterrupt
        if not self.asked:
            more = "" if self._launched else "; Ctrl-C again stops at once"
            self._reporter.say(f"stopping after this step, to save it{more}")
        self.asked = True


class Tally:
    """Tokens of all processes, and this one's losses, since the last report."""

    def __init__(self, device: torch.device, tokens: float = 0.0, nats: float = 0.0) -> None:
        self.nats = torch.tensor(nats, dtype=torch.float64, device=device)
        self.norm = torch.zeros_like(self.nats)  # of all gradients together: not a number if one of them is not
        self.tokens, self.timed, self.begun = tokens, tokens, perf_counter()

    @property
    def speed(self) -> float:
        """Tokens per second since the clock was last started."""
        return (self.tokens - self.timed) / max(perf_counter() - self.begun, 1e-9)

    def restart(self) -> None:
        """Leave out what came between two steps."""
        self.timed, self.begun = self.tokens, perf_counter()


@dataclass(frozen=True)
class Turn:
    """A step to come: where the data stands after it, how it is cut, and whether this process has rows of it."""

    place: Place
    pieces: int  # that gradients are accumulated over, as many as in every other process
    speaks: bool


class Trainer:
    """A model on its way."""

    def __init__(
        self,
        run: Run,
        train: Corpus,
        valid: Corpus | None,
        group: Group,
        reporter: Reporter,
        build: Callable[[], Mixer[Any]] | None = None,  # what it begins with; None: fresh weights
    ) -> None:
        self.run, self.group, self.reporter = run, group, reporter
        self.task, self.settings = run.recipe.task, run.recipe.training
        self._train, self._valid = train, valid
        torch.manual_seed(self.settings.seed)
        self.model = (build or run.build)().to(group.device)
        must_learn(self.task, self.model)
        if self.settings.recompute:
            recompute(self.model)
        torch.manual_seed(self.settings.seed + group.rank)  # equal weights, but every process drops other channels
        freeze(self.model, self.settings.freeze)
        self._spread = spread(self.settings, group)
        self._objective = self._wrapped()  # first: weights that are spread are other tensors
        self.optimizer = adamw(self.model, self.settings)
        self.average = Average(self.model, self.settings.average, self.settings.steps)
        self.progress, self.stopped = Progress(processes=group.size), False
        self.watch, self._stopper, self._tally = Watch(), Stopper(reporter), Tally(group.device)
        self._loader, self._feed = Loader(self.task, self.settings.workers), self._fed(Place())
        self._ready = self._loader.over(self._turns())
        self._metrics: MetricsLog | None = None
        self._news = ""

    def resume(self, checkpoint: Checkpoint) -> None:
        """Take up a training where a checkpoint left it."""
        progress, tensors = checkpoint.progress, checkpoint.tensors
        if progress.processes != self.group.size:
            self.reporter.say(
                f"the checkpoint was written by {progress.processes} process{'es' * (progress.processes > 1)}, now "
                f"there {'is' if self.group.size == 1 else 'are'} {self.group.size}: the last bits of sums "
                "differ, and dropout drops other channels"
            )
        self.progress = replace(progress, processes=self.group.size)
        self._feed = self._fed(Place(progress.round, progress.batch))
        self._ready = self._loader.over(self._turns())
        restore(checkpoint, self.model, self.optimizer, self.average)
        draw_again(self.group, tensors["rng"], self.settings.seed + self.group.rank + progress.step)
        self._tally = Tally(self.group.device, progress.tokens, progress.nats if self.group.leads else 0.0)

    @property
    def steps_per_epoch(self) -> int:
        """Batches that see all of the data once; of an endless source, those of a round."""
        return self._feed.batches

    @property
    def done(self) -> bool:
        """Whether there is nothing more to do: all steps made, no progress any more, or the user asked to stop."""
        patience = self.settings.patience
        tired = patience is not None and self.progress.waited >= patience
        return self.stopped or tired or self.progress.step >= self.settings.steps

    def fit(self) -> Progress:
        """Train until done."""
        settings, before = self.settings, self.progress
        if self.group.leads:
            self._metrics = MetricsLog(self.run, before.step, tensorboard=settings.tensorboard)
        self._tally.restart()
        counting = self.reporter.counting("training", settings.steps, before.step)
        with (
            closing(self._loader),
            self._stopper.listening(),
            counting,
            adapting(self._threads()) as waiting,
        ):
            while not self.done:
                self.step()
                waiting.look()
                if self._due(settings.log):
                    self._report()
                self.reporter.at(self.progress.step, self._news)
                if self._due(settings.evaluate):
                    self._evaluate()
                self.progress = replace(self.progress, seconds=before.seconds + self.watch.total)
                if self._due(settings.save) or self.done:
                    self._save()
        return self.progress

    def _threads(self) -> int:
        """The number that the recipe says, else the one that this training began with, else what is usual here.

        It stays, because bits depend on it: what `OMP_NUM_THREADS` says is told if it is another than before.
        """
        before = self.progress.threads
        threads = self.settings.threads or given() or before or standard()
        if before not in {0, threads}:
            self.reporter.say(
                f"{counted(threads, 'thread')}, {before} before: the last bits of sums may differ; "
                f"training.threads={before} goes on bit for bit"
            )
        self.progress = replace(self.progress, threads=threads)
        return threads

    def _due(self, every: int) -> bool:
        return self.progress.step % every == 0 or self.progress.step == self.settings.steps

    def step(self) -> float:
        """The gradient of the mean over all labels of a batch, however it is cut; clipped; then the optimizer.

        A second question has a mean of its own, which is added. Gives the number of tokens.
        """
        with self.watch.on("data"):
            turn, items = next(self._ready)
            batches = self._batches(turn, items)
        place, step = turn.place, self.progress.step + 1
        with self.watch.on("compute"):
            mine, more = sum(batch.tokens for batch in batches), sum(batch.asides for batch in batches)
            tokens, asides, asked = self.group.sum(mine, more, self._stopper.asked)
            self._tally.nats += self._gradients(batches, tokens, asides)
            self._tally.norm += self._spread.clip(self.model, self.settings.clip)
            set_rate(self.optimizer, self._rate(step))
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.average.update(step)
        self._tally.tokens += tokens
        self.stopped = asked > 0 or (self.group.size == 1 and self._stopper.asked)
        taken = self.average.taken
        self.progress = replace(self.progress, step=step, round=place.round, batch=place.batch, averaged=taken)
        return tokens

    def _turns(self) -> Iterator[tuple[Turn, Sequence[Item]]]:
        """This process's rows of every step to come. Without any it still takes part, with nothing to say."""
        for items in self._feed:
            rows, pieces = self.group.rows(items), min(self.settings.accumulate, -(-len(items) // self.group.size))
            yield Turn(self._feed.place, pieces, bool(rows)), rows or items[:1]

    def _batches(self, turn: Turn, rows: Sequence[Item]) -> list[Batch]:
        """This process's rows, in as many pieces as gradients are accumulated over."""
        count, task = turn.pieces, self.task.at(self._done)
        pieces = [rows[piece::count] if turn.speaks else () for piece in range(count)]
        # One without rows still takes part, with nothing to say.
        return [self._told(task.batch(piece) if piece else task.batch(rows[:1]).silent()) for piece in pieces]

    @property
    def _done(self) -> float:
        """How much of the training is done, from 0 to 1."""
        return self.progress.step / self.settings.steps

    def _told(self, batch: Batch) -> Batch:
        """The batch on its device, and how much of the training is done."""
        return replace(batch, progress=self._done).to(self.group.device)

    def _gradients(self, batches: Sequence[Batch], tokens: float, asides: float) -> Tensor:
        """Backwards through every piece. Gives the cross-entropy of all of them."""
        self._objective.train()
        lost = torch.zeros_like(self._tally.nats)
        for number, batch in enumerate(batches):
            waits = number < len(batches) - 1  # gradients need to travel between processes only once per step
            with self._spread.unsynced(self._objective) if waits else nullcontext():
                with self._cast():
                    total, nats, beside = self._objective(batch)
                loss = total * (self.group.size / tokens)  # DDP takes the mean over processes, this is a sum
                if beside is not None:
                    loss = loss + beside * (self.group.size / asides)
                    nats = nats + beside.detach() * (tokens / asides)
                loss.backward()
            lost += nats
        return lost

    def _rate(self, step: int) -> float:
        return self.settings.optimizer.lr * self.settings.schedule.factor(step, self.settings.steps)

    def _report(self) -> None:
        loss, speed, step = self._nats() / self._tally.tokens, self._tally.speed, self.progress.step
        data = self.watch.seconds["data"] / self.watch.total
        numbers = {"loss": loss, "lr": self._rate(step), "tokens_per_second": speed, "data_share": data}
        self._write({**numbers, "seconds": self.progress.seconds})
        self._news = f"loss {loss:.3f} · {speed:,.0f} {self.task.unit}s/s"
        self._tally = Tally(self.group.device)

    def _nats(self) -> float:
        """The losses of all processes since the last report, which must be numbers, like all gradients."""
        nats, norm = self.group.sum(float(self._tally.nats), float(self._tally.norm))
        self._must_be_a_number(nats + norm)
        return nats

    def _must_be_a_number(self, value: float) -> None:
        """Nothing is saved of a training that has diverged."""
        if not math.isfinite(value):
            raise RunError(
                f"at step {self.progress.step} the loss is not a number: training has diverged. What was saved in "
                f"{self.run.path} is from before; lower training.optimizer.lr or raise training.schedule.warmup"
            )

    def _evaluate(self) -> None:
        """Evaluate the averaged weights on the validation data, and keep them if they are the best so far."""
        before = self.progress
        with self.watch.on("evaluation"), self.average.applied():
            loss = None if self._valid is None else self._loss_of(self._valid)
            self._must_be_a_number(loss or self._nats())
            better = loss is None or before.best is None or loss < before.best
            if better or self.settings.keep == "last":
                self._spread.keep(self.run, self.model)
        if loss is not None:
            found = {"best": loss, "best_step": before.step, "waited": 0} if better else {"waited": before.waited + 1}
            self.progress = replace(before, **found)
            self._write({"valid_loss": loss})
            self.reporter.say(f"step {before.step}: validation loss {loss:.4f}{' (best so far)' if better else ''}")
        self._tally.restart()

    def _loss_of(self, corpus: Corpus) -> float:
        """Nats per token."""
        self.model.eval()
        batches = bucketed(corpus.once(), self.task.cost, self.settings.batch)
        with self._cast():
            found = self.group.sum(*self._spread.sums(self.task, self._objective, batches))
        return Sums(*found).mean

    def _save(self) -> None:
        """A checkpoint of this step."""
        with self.watch.on("saving"):
            self.progress = replace(self.progress, nats=self._nats(), tokens=self._tally.tokens)
            parts = {
                "model": own.tensors(self.model),
                "optimizer": optimizer_state(self.optimizer, self.model),
                "average": self.average.tensors(),
                "rng": drawn(self.group),
            }
            self._spread.save(self.run, Checkpoint(self.progress, parts))
            if self._metrics is not None:
                self._metrics.seal()
            if self.group.agree(str((self.run.path / WEIGHTS).exists())) == str(False):  # before the first evaluation
                with self.average.applied():
                    self._spread.keep(self.run, self.model)
        self._tally.restart()

    def _write(self, numbers: dict[str, float]) -> None:
        if self._metrics is not None:
            self._metrics.write(self.progress.step, numbers)

    def _fed(self, place: Place) -> Feed:
        settings = self.settings
        return Feed(self._train, self.task.cost, settings.batch, settings.seed, place, even=self.task.even)

    def _wrapped(self) -> nn.Module:
        objective = Objective(self.task, self.model, compiled=self._spread.compiled)
        if self.settings.compile:
            objective.compile()
        return self._spread.wrap(objective)

    def _cast(self) -> AbstractContextManager[Any]:
        if self.settings.precision == "float32":
            return nullcontext()
        return torch.autocast(self.group.device.type, torch.bfloat16)
