"""XLNet learns: a few steps every day, a minute of it now and then."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from safetensors.torch import save_file
from torch import Tensor

from heed.pipelines import GenerationConfig
from heed.runs import Recipe, Run, find, load
from heed.show.progress import Silent
from heed.train import checkpoint, train
from tests.train.support import language_model, metrics, resumed, same_run

TINY = ("model.kind=xlnet", "task.kind=permute", "task.share=3", "model.dropout=0.1")


def test_a_few_steps_and_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses are numbers; and a training that was stopped sees the orders that it would have seen without."""
    train(language_model(*TINY), tmp_path / "whole", Silent())
    losses = [loss for _, loss in metrics(tmp_path / "whole", "loss")]
    assert len(losses) == 6
    assert all(map(math.isfinite, losses))
    written = [0]

    def save(tensors: dict[str, Tensor], path: Path) -> None:
        written[0] += 1
        if written[0] > len(checkpoint.PARTS) + 1:
            raise KeyboardInterrupt
        save_file(tensors, path)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", save)
        with pytest.raises(KeyboardInterrupt):
            train(language_model(*TINY), tmp_path / "cut", Silent())
    assert [path.name for path in checkpoint.found(Run(tmp_path / "cut"))] == ["00000003"]
    assert resumed(tmp_path / "cut").progress.step == 6
    assert same_run(tmp_path / "whole", tmp_path / "cut")
    assert load(tmp_path / "cut").generate("def ", GenerationConfig(max_new_tokens=4)) == load(
        tmp_path / "whole"
    ).generate("def ", GenerationConfig(max_new_tokens=4))
    card = (tmp_path / "whole" / "README.md").read_text()
    assert card.count("| holds |") == 5
    assert "FAILS" not in card


@pytest.mark.slow
def test_the_recipe_learns(tmp_path: Path) -> None:
    """Characters of the standard library: from ln(vocabulary) to far below what the frequencies of letters tell."""
    plain = Recipe.read(find("xlnet")).dump()
    plain["data"] = {"kind": "stdlib", "bytes": 400_000}
    plain["training"] |= {"steps": 250, "evaluate": 250, "save": 250, "log": 10}
    begun = time.monotonic()
    train(Recipe.load(plain), tmp_path / "run", Silent())
    losses = [loss for _, loss in metrics(tmp_path / "run", "loss")]
    valid = metrics(tmp_path / "run", "valid_loss")[-1][1]
    print(f"{losses[0]:.2f} to {losses[-1]:.2f}, held out {valid:.2f}, in {time.monotonic() - begun:.0f} s")
    assert losses[0] > 3.0
    assert losses[-1] < 2.2
    assert valid < 2.4
