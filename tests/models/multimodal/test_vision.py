"""Models that see: under the laws, and by what they are made of."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import heed
from heed.core.contract import Mixer, Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case, Law
from heed.core.spec import Spec
from heed.mixers import ShiftedWindow
from heed.models import ClipModel, ClipTextEncoder, Swin, VisionEncoder
from heed.models.backbone import Backbone
from heed.models.multimodal.swin import Stage
from heed.models.multimodal.vision import Distilled
from heed.parts.inputs.patches import Grid, PatchEmbeddings, PatchMerging
from heed.parts.layers.norms import LayerNorm
from heed.parts.outputs.heads import Pooled
from heed.parts.positions import Learned
from heed.parts.residual.wiring import PreNorm
from heed.verify.statements import round_trips

WIDTH = 24
PLAIN = VisionEncoder.Config(
    width=WIDTH, depth=2, embeddings=PatchEmbeddings.Config(image=(20, 24), patch=(4, 4)), heads=Pooled.Config(labels=5)
)
ENCODERS = (
    PLAIN,
    PLAIN.model_copy(update={"embeddings": PatchEmbeddings.Config(image=(10, 12), patch=(2, 2), marks=2, channels=1)}),
    PLAIN.model_copy(
        update={"embeddings": PatchEmbeddings.Config(image=(24, 24), patch=(4, 3), marks=0, position=False)}
    ),
    PLAIN.model_copy(
        update={
            "embeddings": PatchEmbeddings.Config(
                image=(24, 24), patch=(4, 4), bias=False, norm=LayerNorm(), patch_norm=LayerNorm()
            ),
            "wiring": PreNorm(final=False),
        }
    ),
)
SMALL = Swin.Config(
    width=12,
    depths=(2, 1),
    heads_per_stage=(2, 4),
    window=3,
    embeddings=PatchEmbeddings.Config(
        image=(22, 30), patch=(4, 4), marks=0, position=True, patch_norm=LayerNorm(), filled=True
    ),
    heads=Pooled.Config(pool="mean", labels=5),
)
SWINS = (
    SMALL,
    SMALL.model_copy(
        update={"depths": (2, 3, 1), "heads_per_stage": (1, 2, 4), "window": 2, "bias": False, "ratio": 1.5}
    ),
)
TEXT = ClipTextEncoder.Config(vocabulary=13, width=WIDTH, depth=2, position=Learned.Config(length=64), end=7, size=10)
CLIP = ClipModel.Config(text=TEXT, image=PLAIN.model_copy(update={"heads": (Pooled.Config(labels=10, bias=False),)}))


class Bare(Mixer[Any]):
    """A backbone from its bare embeddings on."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone, self.reach = backbone, backbone.reach

    def spec(self) -> Spec:
        return self.backbone.spec()

    def start(self, *given: Any) -> Any:
        return self.backbone.start(*given)

    def forward(self, x: Tensor, where: Where, state: Any = None) -> tuple[Tensor, Any]:
        return self.backbone.mix(x, where, state)


def mixers(stage: Stage) -> list[ShiftedWindow]:
    found = [layer.mixer for layer in stage.stack.layers]
    return [mixer for mixer in found if isinstance(mixer, ShiftedWindow)]


def images(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("config", [*ENCODERS, TEXT], ids=range(len(ENCODERS) + 1))
def test_image_and_text_encoders_obey_the_laws(law: Law, config: VisionEncoder.Config | ClipTextEncoder.Config) -> None:
    finding = law(Bare(config.build()), Case.make(WIDTH))
    assert finding.holds, finding


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("config", SWINS, ids=range(len(SWINS)))
def test_every_stage_obeys_the_laws(law: Law, config: Swin.Config) -> None:
    for stage in config.build().levels:
        width, grid = mixers(stage)[0].query.in_features, mixers(stage)[0].config.grid
        tokens = min(11, (grid[0] * grid[1] - 3) // 2)
        if tokens > 1:  # a law wants positions up to 2·tokens + 3
            finding = law(stage.stack, Case.make(width, tokens=tokens))
            assert finding.holds, finding


@pytest.mark.parametrize("config", [*ENCODERS, *SWINS, TEXT, CLIP], ids=lambda config: type(config).__qualname__)
def test_configs_come_back(config: Any) -> None:
    assert round_trips(config).holds
    assert isinstance(heed.build(config), Mixer)


@pytest.mark.parametrize("config", [*ENCODERS, *SWINS], ids=range(len(ENCODERS) + len(SWINS)))
@torch.no_grad()
def test_images_are_independent_of_one_another(config: VisionEncoder.Config | Swin.Config) -> None:
    model = config.build().double().eval()
    batch = images(3, config.embeddings.channels, *config.embeddings.image)
    whole = model.see(batch)
    tokens = model.embeddings.embed(batch)[1].shape
    assert torch.allclose(model.see(batch[[2, 0]]).parts[0], whole.parts[0][[2, 0]], rtol=0, atol=1e-12)
    assert torch.equal(model(batch, Where.run(*tokens))[0], whole.parts[0])
    assert torch.equal(model.encode(batch, Where.run(*tokens)).parts[0], whole.parts[0])
    assert torch.equal(copy.deepcopy(model).see(batch).parts[0], whole.parts[0])
    assert model.heads["pooled"](whole.parts[0], whole).shape == (3, 5)


def test_a_vision_encoder_is_its_equation() -> None:
    """Patches cut out by hand, as one matrix; the mark first; then the positions."""
    model = PLAIN.build().double().eval()
    picture = images(1, 3, 20, 24)
    weight, bias = model.embeddings.cut.weight.reshape(WIDTH, -1), model.embeddings.cut.bias
    assert bias is not None
    tokens = [model.embeddings.marks[0]]
    tokens += [
        weight @ picture[0, :, r : r + 4, c : c + 4].flatten() + bias for r in range(0, 20, 4) for c in range(0, 24, 4)
    ]
    position = model.embeddings.position
    assert position is not None
    x, where = model.embeddings(picture)
    assert torch.allclose(x[0], torch.stack(tokens) + position.table, rtol=0, atol=1e-12)
    assert (where.height, where.width, where.shape) == (5, 6, (1, 31))


def cubic(gap: float, sharp: float = -0.75) -> float:
    """The weight of a pixel so far away (Keys 1981), as torch sharpens it."""
    gap = abs(gap)
    if gap <= 1:
        return (sharp + 2) * gap**3 - (sharp + 3) * gap**2 + 1
    return sharp * (gap**3 - 5 * gap**2 + 8 * gap - 4) if gap < 2 else 0.0


def test_the_table_of_positions_is_stretched_like_a_picture() -> None:
    """Both ways at once, with the border repeated; the mark keeps its own."""
    embeddings = PatchEmbeddings.Config(image=(8, 6), patch=(2, 2)).build(1).double()
    assert embeddings.position is not None
    with torch.no_grad():
        placed = embeddings.place(torch.zeros(1, 1 + 7 * 5, 1, dtype=torch.float64), Grid.of(1, 7, 5, marks=1))
    table = embeddings.position.table.detach()[:, 0]
    assert placed[0, 0] == table[0]
    for row in range(7):
        for column in range(5):
            r, c = (row + 0.5) * 4 / 7 - 0.5, (column + 0.5) * 3 / 5 - 0.5
            wanted = sum(
                cubic(r - i) * cubic(c - j) * float(table[1 + min(max(i, 0), 3) * 3 + min(max(j, 0), 2)])
                for i in range(-2, 7)
                for j in range(-2, 6)
            )
            assert float(placed[0, 1 + 5 * row + column]) == pytest.approx(wanted, abs=1e-12)


def test_merging_takes_two_by_two_and_fills_up() -> None:
    merge = PatchMerging(2).double()
    x = images(1, 3 * 5, 2)
    y, where = merge(x, Grid.of(1, 3, 5))
    assert (where.height, where.width, y.shape) == (2, 3, (1, 6, 4))
    plane = F.pad(x.reshape(3, 5, 2), (0, 0, 0, 1, 0, 1))
    for row in range(2):
        for column in range(3):
            r, c = 2 * row, 2 * column
            four = torch.cat((plane[r, c], plane[r + 1, c], plane[r, c + 1], plane[r + 1, c + 1]))
            assert torch.allclose(y[0, 3 * row + column], merge.narrow(merge.norm(four)), rtol=0, atol=1e-12)


def test_every_second_layer_of_a_stage_is_shifted() -> None:
    stages = SWINS[1].build().levels
    shifts = [[mixer.config.shift for mixer in mixers(stage)] for stage in stages]
    assert shifts == [[0, 1], [0, 1, 0], [0]]
    grids = [mixers(stage)[0].config.grid for stage in stages]
    assert grids == [(6, 8), (3, 4), (2, 2)]
    wide = SWINS[1].model_copy(update={"window": 7, "depths": (2, 2, 1)}).build().levels
    assert [[mixer.config.shift for mixer in mixers(stage)] for stage in wide] == [[0, 3], [0, 3], [0]]  # half a window


@torch.no_grad()
def test_clip_matches_what_belongs_together() -> None:
    clip = CLIP.build().double().eval()
    tokens, where = torch.tensor([[1, 2, 7, 3], [4, 7, 7, 7], [7, 0, 0, 0]]), Where.ragged([4, 2, 1])
    batch = images(2, 3, 20, 24)
    logits = clip.match(batch, tokens, where)
    assert logits.shape == (2, 3)
    text, image = clip.texts(tokens, where), clip.images(batch)
    assert torch.allclose(text.norm(dim=1), torch.ones(3, dtype=torch.float64))
    assert torch.allclose(image.norm(dim=1), torch.ones(2, dtype=torch.float64))  # so that a product is a cosine
    assert torch.allclose(logits, clip.scale.exp() * image @ text.T, rtol=0, atol=1e-12)
    assert float(clip.scale.exp()) == pytest.approx(1 / 0.07, rel=1e-4)
    for row, end in enumerate((2, 1, 0)):  # the first end counts, and nothing after it
        alone = clip.texts(tokens[row : row + 1, : end + 1], Where.run(1, end + 1))
        assert torch.allclose(alone[0], text[row], rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_highest_token_ends_a_text_where_none_is_named() -> None:
    encoder = TEXT.model_copy(update={"end": None}).build().double().eval()
    tokens = torch.tensor([[1, 12, 3, 4], [5, 6, 9, 12]])
    stream, _ = encoder(tokens, Where.run(2, 4))
    assert torch.equal(encoder.ended(stream, tokens, Where.run(2, 4)), stream[[0, 1], [1, 3]])
    assert torch.equal(encoder.ended(stream, tokens, Where.ragged([4, 3], width=4)), stream[[0, 1], [1, 2]])


@torch.no_grad()
def test_a_taught_mark_has_half_a_say() -> None:
    config = PLAIN.model_copy(
        update={
            "embeddings": PatchEmbeddings.Config(image=(8, 8), patch=(4, 4), marks=2),
            "heads": (Distilled.Config(labels=3),),
        }
    )
    model = config.build().double().eval()
    seen = model.see(images(2, 3, 8, 8))
    head, stream = model.heads["distilled"], seen.parts[0]
    assert isinstance(head, Distilled)
    assert torch.allclose(head(stream, seen), (head.own(stream[:, 0]) + head.taught(stream[:, 1])) / 2)


def test_they_can_be_trained() -> None:
    """Every weight of a classifier feels its loss."""
    for config in (PLAIN, SMALL, SWINS[1]):
        model = config.build()
        seen = model.see(torch.randn(2, 3, *config.embeddings.image))
        F.cross_entropy(model.heads["pooled"](seen.parts[0], seen), torch.tensor([1, 4])).backward()
        cold = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
        assert not cold
    clip = CLIP.build()
    logits = clip.match(torch.randn(2, 3, 20, 24), torch.tensor([[1, 7], [2, 7]]), Where.run(2, 2))
    F.cross_entropy(logits, torch.arange(2)).backward()
    assert all(p.grad is not None for p in clip.parameters())


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="depths names 2 stages and heads_per_stage 1"):
        Swin.Config(width=4, depths=(1, 1), heads_per_stage=(1,), embeddings=SMALL.embeddings)
    with pytest.raises(ConfigError, match="a plane has no place for marks; set embeddings.marks to 0"):
        Swin.Config(width=4, depths=(1,), heads_per_stage=(1,), embeddings=PLAIN.embeddings)
    with pytest.raises(ConfigError, match="text embeddings have 10 channels, image embeddings \\[5\\]"):
        ClipModel.Config(text=TEXT, image=PLAIN)
    model = PLAIN.build()
    with pytest.raises(InputError, match="images must be numbers of shape .rows, 3, height, width."):
        model.see(torch.zeros(2, 3, 20, 24, dtype=torch.uint8))
    with pytest.raises(InputError, match="smaller than one patch of 4x4"):
        model.see(torch.zeros(2, 3, 3, 24))
    with pytest.raises(InputError, match="use see"):
        model(torch.zeros(2, 3, 20, 24), Where.run(2, 30))
    assert PLAIN.sized(99) == PLAIN
    assert CLIP.sized(13).text.vocabulary == 13
