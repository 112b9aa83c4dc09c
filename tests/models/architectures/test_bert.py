"""BERT from our own parts: the configuration of the checkpoints' family, segments that count, masks that are learnt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from heed.core.contract import Where
from heed.core.errors import InputError
from heed.core.laws import LAWS, Law
from heed.models import Bert, Embedded, familiar
from heed.weights.families.bert import Bert as Family
from heed.weights.formats.safetensors import Stored
from tests.weights.support import GOLDEN

SMALL = Bert(width=16, depth=2, heads=2, length=20)


def test_it_is_what_checkpoints_of_the_family_are_read_as() -> None:
    """But for dropout, which a checkpoint that is used has not."""
    folder = Path(GOLDEN / "bert" / "pretraining")
    config = json.loads((folder / "config.json").read_text())
    plan = Bert(
        width=config["hidden_size"],
        depth=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        hidden=config["intermediate_size"],
        length=config["max_position_embeddings"],
        segments=config["type_vocab_size"],
        dropout=0.0,
    )
    assert plan.sized(config["vocab_size"]) == Family.load(config).ours(Stored.of(folder))


def test_the_papers_base_model_has_110_million_weights() -> None:
    with torch.device("meta"):
        model = Bert(width=768, depth=12, heads=12).sized(30522).build()
    assert sum(weight.numel() for weight in model.parameters()) / 1e6 == pytest.approx(110.1, abs=0.1)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws(law: Law) -> None:
    model = SMALL.sized(13).build().double()
    finding = law(Embedded(model), familiar(model))
    assert finding.holds, finding


def test_segments_are_added_to_tokens_and_positions() -> None:
    model = SMALL.sized(13).build().double().eval()
    tokens, where = torch.tensor([[[3, 0], [4, 0], [5, 1]]]), Where.run(1, 3)
    embeddings = model.embeddings
    assert embeddings.segment is not None
    assert embeddings.norm is not None
    table: torch.Tensor = embeddings.position.table  # type: ignore[union-attr, assignment]
    summed = embeddings.table.weight[[3, 4, 5]] + table[:3] + embeddings.segment.weight[[0, 0, 1]]
    assert torch.allclose(embeddings(tokens, where)[0], embeddings.norm(summed), rtol=0, atol=1e-15)
    first = model(tokens[..., 0], where)[0]  # without a second id all is of the first part
    assert torch.equal(first, model(tokens * torch.tensor([1, 0]), where)[0])
    assert not torch.allclose(first, model(tokens, where)[0])
    with pytest.raises(InputError, match="the table of segments has 2"):
        model(torch.tensor([[[3, 2]]]), Where.run(1, 1))


def batch(draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A puzzle: one token six times, then another one in a second segment; one of the twelve is masked (12)."""
    text = torch.randint(0, 12, (16, 2), generator=draw).repeat_interleave(6, 1)
    place = torch.randint(12, (16, 1), generator=draw)
    ids = torch.stack((text.scatter(1, place, 12), torch.tensor([0] * 6 + [1] * 6).expand(16, -1)), -1)
    return ids, torch.full((16, 12), -100).scatter(1, place, text.gather(1, place))


def test_it_learns_to_fill_in_masks() -> None:
    torch.manual_seed(0)
    model = Bert(width=32, depth=2, heads=2, length=12, dropout=0.0).sized(13).build()
    draw, where = torch.Generator().manual_seed(0), Where.run(16, 12)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(150):
        ids, labels = batch(draw)
        logits = model.heads["masked"](model(ids, where)[0], where)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert sum(losses[-10:]) < 0.3 * sum(losses[:10])
    assert model.heads["pooled"](model(batch(draw)[0], where)[0], where).shape == (16, 2)
