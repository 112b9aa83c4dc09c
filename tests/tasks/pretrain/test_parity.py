"""Losses beside `transformers`, live: the same weights, the same batch, the same number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from heed.parts.outputs.loss import NO_LABEL
from heed.tasks import Batch, Denoise, MaskedTokens, ReplacedTokens, Task
from heed.tasks.pretrain.noise import Infilling
from heed.text import Byte, Tokenizer
from heed.weights import Folder, open_
from tests.tasks.test_tasks import Some

HF: Any = transformers
FEW = Some(("The quick brown fox jumps over the lazy dog. It sleeps.",), ("Hello world. It is I.",), ("x y z",))
NEAR = 1e-6
SIZES = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 16}
BART = {"layers": 2, "attention_heads": 3, "ffn_dim": 16}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def both(name: str, config: Any, folder: Path) -> tuple[Any, Any]:
    """A model of theirs with random weights, and ours with the same."""
    torch.manual_seed(0)
    theirs = getattr(HF, name)(config).double().eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(0.3 * torch.randn_like(weight))
    theirs.save_pretrained(folder)
    return theirs, open_(Folder.open(folder).checkpoint).model.double().eval()


def batch_of(task: Task, known: Tokenizer) -> Batch:
    items = task.corpus(FEW, known).once()
    assert len({len(item[0]) for item in items}) > 1  # some row is padded
    return task.batch(items)


def given(batch: Batch, tokens: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """What their models take."""
    ids = batch.inputs.tokens if tokens is None else tokens
    mask = (batch.inputs.where.order >= 0).long()
    return {"input_ids": ids[..., 0], "token_type_ids": ids[..., 1], "attention_mask": mask}


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForPreTraining"])
@torch.no_grad()
def test_bert(name: str, tmp_path: Path) -> None:
    task = MaskedTokens(context=24, next_sentence=name == "BertForPreTraining")
    known = task.equip(Byte().train(["x"]))
    config = HF.BertConfig(vocab_size=known.size, max_position_embeddings=32, **SIZES, **QUIET)
    theirs, ours = both(name, config, tmp_path)
    batch = batch_of(task, known)
    more = {} if batch.beside is None else {"next_sentence_label": batch.beside}
    wanted = theirs(**given(batch), labels=batch.labels, **more).loss
    loss = task.loss(ours, batch)
    found = loss.total / batch.tokens + (0 if loss.beside is None else loss.beside / batch.asides)
    assert float(found) == pytest.approx(float(wanted), rel=NEAR)


@torch.no_grad()
def test_t5(tmp_path: Path) -> None:
    task = Denoise(context=24)
    known = task.equip(Byte().train(["x"]))
    sizes = {"d_model": 12, "d_kv": 4, "num_heads": 3, "d_ff": 16, "num_layers": 2, "dropout_rate": 0.0}
    config = HF.T5Config(vocab_size=known.size, decoder_start_token_id=known.begin, **sizes)
    theirs, ours = both("T5ForConditionalGeneration", config, tmp_path)
    batch = batch_of(task, known)
    assert batch.source is not None
    mask = (batch.source.where.order >= 0).long()
    wanted = theirs(input_ids=batch.source.tokens, attention_mask=mask, labels=batch.labels).loss
    assert float(task.loss(ours, batch).total / batch.tokens) == pytest.approx(float(wanted), rel=NEAR)


@torch.no_grad()
def test_bart(tmp_path: Path) -> None:
    """Of a text that was infilled and whose sentences were mixed, all of it is to be told."""
    task = Denoise(context=24, noise=Infilling())
    known = task.equip(Byte().train(["x"]))
    layers = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in BART.items()}
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    tokens = {"vocab_size": known.size, "decoder_start_token_id": known.begin, "pad_token_id": 1}
    config = HF.BartConfig(d_model=12, max_position_embeddings=64, **tokens, **layers, **quiet)
    theirs, ours = both("BartForConditionalGeneration", config, tmp_path)
    batch = batch_of(task, known)
    assert batch.source is not None
    mask = (batch.source.where.order >= 0).long()
    wanted = theirs(input_ids=batch.source.tokens, attention_mask=mask, labels=batch.labels).loss
    assert float(task.loss(ours, batch).total / batch.tokens) == pytest.approx(float(wanted), rel=NEAR)


class Pair:
    """Their generator and their discriminator, as ours are asked."""

    def __init__(self, generator: Any, discriminator: Any) -> None:
        self.generator, self.discriminator = generator, discriminator


@torch.no_grad()
def test_electra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator's loss is ElectraForMaskedLM's; on its tokens, the discriminator's is ElectraForPreTraining's."""
    task = ReplacedTokens(context=24)
    known = task.equip(Byte().train(["x"]))
    config = HF.ElectraConfig(vocab_size=known.size, max_position_embeddings=32, embedding_size=7, **SIZES, **QUIET)
    generator, one = both("ElectraForMaskedLM", config, tmp_path / "generator")
    discriminator, two = both("ElectraForPreTraining", config, tmp_path / "discriminator")
    batch, pair = batch_of(task, known), Pair(one, two)
    monkeypatch.setattr(ReplacedTokens, "_pair", lambda self, model: model)
    loss, fake = task.generated(pair, batch)  # type: ignore[arg-type]  # it stands for a model of both
    wanted = generator(**given(batch), labels=batch.labels).loss
    assert float(loss.total / batch.tokens) == pytest.approx(float(wanted), rel=NEAR)
    _, wrong = task.detected(pair, batch, fake)  # type: ignore[arg-type]
    assert batch.beside is not None
    labels = ((fake != batch.beside) & (batch.beside != NO_LABEL)).long()
    inputs = given(batch, torch.stack([fake, batch.inputs.tokens[..., 1]], -1))
    wanted = discriminator(**inputs, labels=labels.double()).loss
    assert float(wrong / batch.asides) == pytest.approx(float(wanted), rel=NEAR)
    assert 0 < int(labels.sum()) <= batch.tokens
    assert np.isfinite(float(wanted))
