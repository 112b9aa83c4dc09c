"""CRATE as a classifier of images and as a decoder, and what can be read of every layer: its rate and its sparsity."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.crate import SIZE, Digits, Outcome, drawn, falls, learn
from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Law
from heed.core.spec import price
from heed.mixers import Mssa
from heed.models import Crate, Embedded, TransformerDecoder, VisionEncoder, familiar
from heed.models.architectures.crate import BASE, LARGE, SMALL, TINY, CrateSize, LayerStats, crate, layerwise
from heed.parts.feedforward import Ista
from heed.parts.masks import Causal, Whole
from heed.parts.residual.wiring import Unrolled
from heed.runs import Recipe, find
from heed.show.progress import Silent
from heed.train import train
from tests.train.support import language_model, metrics

EPSILON = 0.1  # of the coding rate


def classifier(**more: Any) -> VisionEncoder:
    """Images of 8 × 8 in four patches; a stream of five tokens."""
    torch.manual_seed(0)
    size = CrateSize(width=12, depth=3, heads=3)
    return crate((8, 8), (4, 4), labels=10, size=size, channels=1, **more).build().double().eval()


def decoder() -> Crate:
    return Crate(width=12, depth=3, heads=3)


def coded(u: Tensor) -> float:
    """R(Z) = ½ log det( I + d / (N ε²) Z Zᵀ ) of directions, by elimination. [N, d]"""
    count, size = u.shape
    z = [[float(x) / math.sqrt(sum(float(y) ** 2 for y in row)) for x in row] for row in u]
    matrix = [
        [
            (i == j) + size / (count * EPSILON**2) * sum(a * b for a, b in zip(z[i], z[j], strict=True))
            for j in range(count)
        ]
        for i in range(count)
    ]
    total = 0.0
    for i in range(count):
        total += math.log(matrix[i][i])
        for j in range(i + 1, count):
            factor = matrix[j][i] / matrix[i][i]
            matrix[j] = [b - factor * a for a, b in zip(matrix[i], matrix[j], strict=True)]
    return total / 2


def by_hand(stack: Any, x: Tensor, where: Where) -> list[tuple[float, float]]:
    """Rate and sparsity of every layer: zᵐ = z + MSSA(norm(z)), z' = ISTA(norm(zᵐ)); the mean over rows and tokens."""
    found = []
    rows, tokens, _ = x.shape
    for block in stack.layers:
        first, second = block.wiring.norms
        u = block.mixer.projected(first(x))  # [B, T, H, p]
        rates = [sum(coded(u[row, :, head]) for head in range(u.shape[2])) for row in range(rows)]
        x = x + block.mixer(first(x), where)[0]
        x = block.feedforward(second(x), where)[0]
        full = sum(int((x[row, token] > 0).sum()) for row in range(rows) for token in range(tokens))
        found.append((sum(rates) / rows, full / x.numel()))
    return found


@torch.no_grad()
def test_layers_of_a_classifier_by_hand() -> None:
    model, images = classifier(), torch.randn(2, 1, 8, 8, dtype=torch.float64)
    wanted = by_hand(model.stack, *model.embeddings(images))
    shown = layerwise(model, images)
    assert len(shown) == 3
    for layer, (rate, share) in zip(shown, wanted, strict=True):
        assert layer.rate == pytest.approx(rate, abs=1e-9)
        assert layer.sparsity == pytest.approx(share, abs=1e-12)
        assert 0 < layer.sparsity < 1


@torch.no_grad()
def test_layers_of_a_decoder_by_hand() -> None:
    torch.manual_seed(0)
    model = decoder().sized(11).build().double().eval()
    tokens, where = torch.randint(11, (2, 6)), Where.run(2, 6)
    shown = layerwise(model, tokens, where)
    for layer, (rate, share) in zip(shown, by_hand(model.stack, model.embeddings(tokens, where), where), strict=True):
        assert layer.rate == pytest.approx(rate, abs=1e-9)
        assert layer.sparsity == pytest.approx(share, abs=1e-12)
    with pytest.raises(InputError, match="no point of this model is called"):
        layerwise(TransformerDecoder(width=12, depth=1, heads=2).sized(11).build(), tokens, where)


@torch.no_grad()
def test_looking_changes_nothing() -> None:
    model, images = classifier(), torch.randn(2, 1, 8, 8, dtype=torch.float64)
    before = model.see(images).parts[0]
    layerwise(model, images)
    assert torch.equal(model.see(images).parts[0], before)


def test_a_classifier_is_made_of_the_papers_parts() -> None:
    config = crate(
        (8, 12), (2, 4), labels=7, size=CrateSize(16, 2, 4), channels=3, pool="mean", ista=Ista.Config(step=0.2)
    )
    model = config.build()
    for block in model.stack.layers:
        assert isinstance(block.mixer, Mssa)
        assert isinstance(block.feedforward, Ista)
        assert (block.mixer.heads, block.mixer.head_size, block.mixer.mask) == (4, 4, Whole())
        assert block.feedforward.step == 0.2
    assert config.wiring == Unrolled(final=False)
    seen = model.see(torch.randn(2, 3, 8, 12))
    assert seen.parts[0].shape == (2, 1 + 4 * 3, 16)
    assert model.heads["pooled"](seen.parts[0], seen).shape == (2, 7)


@pytest.mark.parametrize(("size", "millions"), [(TINY, 6.09), (SMALL, 13.12), (BASE, 22.80), (LARGE, 77.64)])
def test_the_papers_sizes(size: CrateSize, millions: float) -> None:
    """Yu et al. 2023, table 1: ImageNet-1k in patches of 16, and back by a free matrix, as their code does."""
    config = crate((224, 224), (16, 16), labels=1000, size=size)
    free = config.model_copy(update={"mixer": Mssa.Config(heads=size.heads, mask=Whole(), out="free")})
    with torch.device("meta"):
        count = sum(weight.numel() for weight in free.build().parameters()) / 1e6
        fewer = sum(weight.numel() for weight in config.build().parameters()) / 1e6
    assert count == pytest.approx(millions, rel=0.01)
    assert fewer < count


def test_a_decoder_is_made_of_the_papers_parts() -> None:
    plan = Crate(width=16, depth=3, heads=2, step=0.3, threshold=0.05)
    model = plan.sized(29).build()
    for block in model.stack.layers:
        assert isinstance(block.mixer, Mssa)
        assert isinstance(block.feedforward, Ista)
        assert (block.mixer.heads, block.mixer.mask, block.mixer.out) == (2, Causal(), None)
        assert (block.feedforward.step, block.feedforward.threshold) == (0.3, 0.05)
    assert model.stack.ends.final is not None
    assert sum(p.numel() for p in model.stack.parameters() if p.dim() > 1) == 3 * 2 * 16**2  # U and D of every layer
    assert price(model.spec(), 100) == 3 * 100 * (16 * 4 + 16)  # one vector and its stamps, where attention has two


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws(law: Law) -> None:
    torch.manual_seed(0)
    model = decoder().sized(13).build().double()
    finding = law(Embedded(model), familiar(model))
    assert finding.holds, finding


def test_a_recipe_names_it(tmp_path: Path) -> None:
    read = language_model("model.kind=crate", "model.heads=2", "training.steps=12", "training.optimizer.lr=1e-2")
    assert read.model == Crate(width=16, depth=1, heads=2)
    assert Recipe.load(read.dump()) == read
    train(read, tmp_path / "run", Silent())
    losses = [loss for _, loss in metrics(tmp_path / "run", "valid_loss")]
    assert losses[-1] < losses[0]


def test_digits_are_cut_into_seen_and_unseen() -> None:
    digits = Digits.load()
    assert (len(digits.images), len(digits.unseen)) == (1438, 359)
    assert digits.images.shape[1:] == (1, 8, 8)
    assert (float(digits.images.min()), float(digits.images.max())) == (0.0, 1.0)
    assert set(digits.labels.tolist()) == set(digits.answers.tolist()) == set(range(10))
    seen = {tuple(image.flatten().tolist()) for image in digits.images}
    assert not any(tuple(image.flatten().tolist()) in seen for image in digits.unseen)


def test_a_fresh_classifier_knows_nothing() -> None:
    outcome = learn(rounds=0)
    assert outcome.right < 0.3
    assert outcome.before == outcome.after
    assert len(outcome.after) == SIZE.depth


def test_rates_that_fall_are_told_from_others_and_drawn() -> None:
    before, after = ([LayerStats(rate, 0.4) for rate in rates] for rates in ((9.0, 9.5, 8.0), (9.0, 7.0, 3.0)))
    assert falls(after)
    assert not falls(before)
    drawing = drawn(Outcome(0.9, before, after))
    curves = list(ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(curves) == 4
    assert drawing == drawn(Outcome(0.9, before, after))


@pytest.mark.slow
def test_it_reads_digits_and_every_layer_compresses() -> None:
    """Half a minute of one processor. The paper's figure 3: the coding rate falls from layer to layer."""
    outcome = learn()
    print(f"\n{outcome.right:.1%} right; rates {', '.join(f'{layer.rate:.1f}' for layer in outcome.after)}")
    assert outcome.right >= 0.95
    assert falls(outcome.after)
    assert outcome.after[-1].rate < 0.97 * outcome.after[0].rate
    assert all(layer.sparsity < 0.6 for layer in outcome.after)


def test_mistakes_are_told() -> None:
    with pytest.raises(ConfigError, match="thresold is unknown; did you mean threshold"):
        Crate(thresold=0.1)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="step is 0.0"):
        Crate(step=0.0)
    with pytest.raises(ConfigError, match="model.kind is 'crrate'; did you mean crate"):
        Recipe.read(find("characters"), ["model.kind=crrate"])
    with pytest.raises(ConfigError, match="width 10 does not divide into 4 heads"):
        Crate(width=10).sized(9).build()
