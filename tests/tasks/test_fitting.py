"""Every model of texts learns by some task, and one that does not fit is told which does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from heed.core.errors import ConfigError
from heed.models import ARCHITECTURES, MODELS, Plan
from heed.runs import Recipe, find
from heed.show.progress import Silent
from heed.tasks import TASKS, Causal, Denoise, MaskedTokens, Permute, ReplacedTokens, Task
from heed.tasks.base import must_learn, proposed
from heed.text import Byte
from heed.train import train
from heed.verify.samples import samples
from tests.tasks.test_tasks import Some

TEXTS = Some(("The quick brown fox jumps over the lazy dog.",), ("Hello world.",))
OBJECTIVES: tuple[Task, ...] = (
    MaskedTokens(context=16),
    ReplacedTokens(context=16),
    Denoise(context=16),
    Permute(context=15),
    Causal(context=15),
)


def plan_of(kind: str) -> Plan:
    """A small one."""
    if kind in ARCHITECTURES.named:
        return ARCHITECTURES.named[kind](**({"depth": 1} if kind != "transformer_xl" else {}))
    (first, *_) = samples(MODELS.named[kind])
    assert isinstance(first, Plan)
    return first.model_copy(update={"vocabulary": None}) if "vocabulary" in type(first).model_fields else first


def built(task: Task, plan: Plan, size: int) -> Any:
    torch.manual_seed(0)
    shape, head = plan.sized(size), task.head()
    model = (shape if head is None else shape.headed(head)).build()
    task.must_fit(model)
    return model


def fitting(plan: Plan) -> list[Task]:
    found = list[Task]()
    for task in OBJECTIVES:
        known = task.equip(Byte().train(["x"]))
        try:
            built(task, plan, known.size)
        except ConfigError:
            continue
        found.append(task)
    return found


# seq2seq is what transformer gives; the others look or listen, and learn by the tasks of tests/tasks/media and sounds.
OTHERS = {"seq2seq", "vit", "wav2vec2", "whisper"}


@pytest.mark.parametrize("kind", sorted({*MODELS.named, *ARCHITECTURES.named} - OTHERS))
def test_every_model_learns_by_some_task(kind: str) -> None:
    plan = plan_of(kind)
    tasks = fitting(plan)
    assert tasks, kind
    for task in tasks:
        known = task.equip(Byte().train(["x"]))
        model = built(task, plan, known.size)
        batch = task.batch(task.corpus(TEXTS, known).once()[:2])
        loss = task.loss(model, batch)
        total = loss.total if loss.beside is None else loss.total + loss.beside
        total.backward()
        assert bool(total.isfinite())
        learning = [weight.grad for weight in model.parameters() if weight.grad is not None]
        assert any(bool(grad.any()) for grad in learning)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "xlnet", "t5", "electra"])
def test_what_is_proposed_fits(kind: str) -> None:
    plan = plan_of(kind)
    task = fitting(plan)[0]
    model = built(task, plan, task.equip(Byte().train(["x"])).size)
    (told,) = re.findall(r"task\.kind=(.*)", proposed(model))
    assert set(told.split(" or ")) <= set(TASKS.named)
    assert task.dump()["kind"] in told.split(" or ")


def test_what_looks_at_neighbours_is_refused_in_training(tmp_path: Path) -> None:
    """No task retrieves any, so that most of its weights would stay as they are."""
    (tmp_path / "some.txt").write_text("the quick brown fox jumps over the lazy dog. " * 20)
    plan = plan_of("retro")
    task = Causal(context=15)
    model = built(task, plan, task.equip(Byte().train(["x"])).size)
    with pytest.raises(ConfigError, match=r"no task retrieves any.*train model\.kind=decoder"):
        must_learn(task, model)
    settings = ("model={kind='retro',width=16,depth=1}", f"data.train={tmp_path / 'some.txt'}", "training.steps=1")
    with pytest.raises(ConfigError, match="Retro learns to look at neighbours"):
        train(Recipe.read(find("characters"), settings), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
