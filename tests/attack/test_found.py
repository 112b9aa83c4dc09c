"""What the attacks found: full disks, names, pipes and tokenizers that did not end in an error of heed's."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from safetensors import SafetensorError

import heed
from heed.core.errors import InputError, WeightsError
from heed.text.guard import read_bytes
from heed.weights.edits import LoRA, edit, lora, save_adapters
from heed.weights.formats import export
from heed.weights.formats.safetensors import shards_of
from tests.weights.support import GOLDEN


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space"), SafetensorError("File too large")])
def test_saving_on_a_full_disk(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise error

    model = heed.weights.load(GOLDEN / "gpt2" / "generate")
    monkeypatch.setattr(export, "save_file", full)
    with pytest.raises(WeightsError, match="made could not be written.*nothing was left"):
        heed.weights.write(model, tmp_path / "made")
    monkeypatch.setattr(lora, "save_file", full)
    with pytest.raises(WeightsError, match="adapters.safetensors could not be written"):
        save_adapters(edit(model.model, LoRA(rank=1)), tmp_path / "adapters.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_name_that_no_system_takes_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "%s.safetensors"}}' % ("x" * 1000))
    with pytest.raises(WeightsError, match="only files beside the index are read"):
        shards_of(index)


@pytest.mark.timeout(10)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "tok.bin")
    with pytest.raises(InputError, match="is not a file"):
        read_bytes(tmp_path / "tok.bin", 10)


def test_a_pattern_without_a_decoder_is_read_and_written(tmp_path: Path) -> None:
    """Found by the attacks: the trial of a stranger's pattern asked a decoder that was not there."""
    from tokenizers import Regex, models, pre_tokenizers
    from tokenizers import Tokenizer as Inner

    from heed.text import Tokenizer

    inner = Inner(models.WordLevel({"<unk>": 0, "the": 1, "fox": 2}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"(?:ab)?\w+"), "removed", invert=True)
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.read(tmp_path / "tokenizer.json")
    assert tokenizer.decode(tokenizer.encode("the fox")) == "the fox"
