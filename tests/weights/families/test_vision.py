"""ViT, DeiT, CLIP and Swin beside `transformers`, live, and what is refused.

The reference's fused attention computes float64 models in float64 throughout, so they agree to rounding. Weights are
shown by its written-out attention only, whose softmax is float32.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.models import ClipModel, Swin, VisionEncoder
from heed.weights import replay
from tests.weights.live import close, returns, saved

EXACT, SINGLE = 1e-10, 2e-6
FEW = settings(max_examples=8, deadline=None, derandomize=True)
ACTS = ["gelu", "relu", "gelu_new", "quick_gelu", "silu"]
Drawn = dict[str, Any]
Factory = pytest.TempPathFactory
BODY = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 9}
VIT: Drawn = {**BODY, "image_size": 8, "patch_size": 2}
SWIN_SIZES: Drawn = {"depths": [2, 2], "num_heads": [2, 4], "window_size": 2}
SWIN: Drawn = {"image_size": 20, "patch_size": 2, "embed_dim": 8, **SWIN_SIZES}


def pixels(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def flat(given: Any) -> dict[str, Tensor]:
    """What the reference gives, under the names of recorded runs."""
    made: dict[str, Tensor] = {}
    for name, value in given.items():
        if isinstance(value, Tensor):
            made[name] = value.clone(memory_format=torch.contiguous_format)
        elif isinstance(value, tuple):
            made |= {f"{name}.{index}": tensor.clone() for index, tensor in enumerate(value)}
    return made


@torch.no_grad()
def agrees(
    model: Any,
    folder: Path,
    inputs: dict[str, Tensor],
    tolerance: float = EXACT,
    real: Tensor | None = None,
    **asked: Any,
) -> None:
    """All that the reference gives is replayed from its folder, and heed writes the folder back as it was."""
    model = saved(model, folder / "theirs")
    wanted = flat(model(**inputs, output_hidden_states=True, **asked))
    save_file(inputs, folder / "theirs" / "inputs.safetensors")
    save_file(wanted, folder / "theirs" / "outputs.safetensors")
    made = replay(folder / "theirs")
    assert made.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert made[name].shape == tensor.shape, name
        if real is not None and tensor.shape[:2] == real.shape:
            close(made[name][real], tensor[real], tolerance)
        else:
            close(made[name], tensor, tolerance)
    again = flat(returns(weights.load(folder / "theirs"), folder / "ours", model)(**inputs, **asked))
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in again.items())


def bodies(**more: Any) -> st.SearchStrategy[Drawn]:
    common = {
        "hidden_size": st.sampled_from([8, 24]),
        "num_hidden_layers": st.integers(1, 3),
        "num_attention_heads": st.sampled_from([1, 2, 4]),
        "intermediate_size": st.sampled_from([13, 32]),
        "hidden_act": st.sampled_from(ACTS),
        "layer_norm_eps": st.sampled_from([1e-12, 1e-5, 1e-2]),
        "image_size": st.sampled_from([8, 13]),
        "patch_size": st.sampled_from([3, 4]),
        "num_channels": st.sampled_from([1, 3]),
    }
    return st.fixed_dictionaries(common | more)


VITS = bodies(
    image_size=st.sampled_from([8, 13, (8, 12), (13, 6)]),
    patch_size=st.sampled_from([3, 4, (2, 4)]),
    qkv_bias=st.booleans(),
    head_dim=st.sampled_from([None, 5]),
    encoder_stride=st.just(5),
)


def tiny(kind: str, **changes: Any) -> Any:
    """A model of the reference, small."""
    found = getattr(transformers, kind)
    if "Text" in kind:
        return found(found.config_class(**BODY | {"vocab_size": 50, "projection_dim": 7} | changes))
    return found(found.config_class(**(SWIN if "Swin" in kind else VIT | {"projection_dim": 7}) | changes))


def made(kind: Any, drawn: Drawn, **more: Any) -> Any:
    """A config; what is None is left out, as the reference asks whether it is there."""
    return kind(**{name: value for name, value in drawn.items() if value is not None}, **more)


def sides(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


@FEW
@given(drawn=VITS, kind=st.sampled_from(["labels", "no labels", "pooler"]))
def test_vit(tmp_path_factory: Factory, drawn: Drawn, kind: str) -> None:
    config = made(transformers.ViTConfig, drawn, num_labels=0 if kind == "no labels" else 5)
    model = transformers.ViTModel(config) if kind == "pooler" else transformers.ViTForImageClassification(config)
    images = pixels(2, config.num_channels, *sides(config.image_size))
    agrees(model, tmp_path_factory.mktemp("vit"), {"pixel_values": images})


def test_vit_without_a_pooler(tmp_path: Path) -> None:
    model = transformers.ViTModel(transformers.ViTConfig(**VIT), add_pooling_layer=False).double().eval()
    model.save_pretrained(tmp_path)  # loading it there again would add a pooler
    images = pixels(2, 3, 8, 8)
    save_file({"pixel_values": images}, tmp_path / "inputs.safetensors")
    found = replay(tmp_path)
    assert "pooler_output" not in found
    with torch.no_grad():
        close(found["last_hidden_state"], model(images).last_hidden_state, EXACT)


@FEW
@given(
    drawn=VITS,
    kind=st.sampled_from(["DeiTModel", "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"]),
)
def test_deit(tmp_path_factory: Factory, drawn: Drawn, kind: str) -> None:
    config = made(transformers.DeiTConfig, drawn, num_labels=4)
    images = pixels(2, config.num_channels, *sides(config.image_size))
    agrees(getattr(transformers, kind)(config), tmp_path_factory.mktemp("deit"), {"pixel_values": images})


@pytest.mark.parametrize("kind", ["ViTModel", "DeiTModel", "CLIPVisionModel"])
@pytest.mark.parametrize("size", [(16, 16), (10, 23), (4, 4), (8, 9)])
def test_images_of_another_size_stretch_the_table_of_positions(
    tmp_path: Path, kind: str, size: tuple[int, int]
) -> None:
    agrees(tiny(kind), tmp_path, {"pixel_values": pixels(2, 3, *size)}, interpolate_pos_encoding=True)


@pytest.mark.parametrize("kind", ["ViTModel", "SwinModel"])
def test_weights_are_those_of_the_written_out_attention(tmp_path: Path, kind: str) -> None:
    """Of every layer, or of the last in each stage of windows."""
    model = saved(tiny(kind), tmp_path / "theirs")
    model.set_attn_implementation("eager")
    images = pixels(2, 3, *sides(model.config.image_size))
    save_file({"pixel_values": images}, tmp_path / "theirs" / "inputs.safetensors")
    found = replay(tmp_path / "theirs")
    with torch.no_grad():
        wanted = model(images, output_attentions=True).attentions
    assert len(wanted) == 2
    for layer, tensor in enumerate(wanted):
        close(found[f"attentions.{layer}"], tensor, SINGLE)


def captions(rows: int, length: int, end: int, vocabulary: int) -> Tensor:
    """Texts that end somewhere, with ends again after it."""
    tokens = torch.randint(3, vocabulary - 1, (rows, length), generator=torch.Generator().manual_seed(1))
    for row in range(rows):
        tokens[row, 3 + row :: 2] = end
    return tokens


@torch.no_grad()
def clip_agrees(model: Any, folder: Path, inputs: dict[str, Tensor]) -> None:
    """Both encoders, under the names of the recorded run."""
    model = saved(model, folder)
    given = model(**inputs, return_loss=True)
    wanted = {
        name: given[name] for name in ("loss", "logits_per_image", "logits_per_text", "text_embeds", "image_embeds")
    }
    for side in ("text", "vision"):
        inner = given[f"{side}_model_output"]
        wanted |= {f"{side}_last_hidden_state": inner.last_hidden_state, f"{side}_pooled": inner.pooler_output}
    save_file(inputs, folder / "inputs.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in wanted.items()}, folder / "outputs.safetensors")
    real = inputs["attention_mask"].bool()
    for name, tensor in replay(folder).items():
        masked = name == "text_last_hidden_state"
        close(tensor[real] if masked else tensor, wanted[name][real] if masked else wanted[name], EXACT)
    again = returns(weights.load(folder), folder.parent / "ours", model)(**inputs)
    assert torch.equal(again.logits_per_text, given.logits_per_text)


TEXTS = st.fixed_dictionaries(
    {
        "hidden_size": st.sampled_from([8, 24]),
        "num_hidden_layers": st.integers(1, 3),
        "num_attention_heads": st.sampled_from([1, 4]),
        "intermediate_size": st.sampled_from([13, 32]),
        "hidden_act": st.sampled_from(ACTS),
        "max_position_embeddings": st.sampled_from([10, 14]),
        "eos_token_id": st.sampled_from([2, 30, 49]),  # 2: the highest id ends a text
    }
)


@FEW
@given(text=TEXTS, image=bodies(), size=st.sampled_from([6, 17]), side=st.sampled_from(["none", "left", "right"]))
def test_clip(tmp_path_factory: Factory, text: Drawn, image: Drawn, size: int, side: str) -> None:
    config = transformers.CLIPConfig(
        text_config=transformers.CLIPTextConfig(vocab_size=50, **text).to_dict(),
        vision_config=transformers.CLIPVisionConfig(**image).to_dict(),
        projection_dim=size,
    )
    mask = torch.ones(3, 10, dtype=torch.long)
    mask[0, {"none": slice(0, 0), "left": slice(0, 2), "right": slice(8, None)}[side]] = 0
    inputs = {
        "pixel_values": pixels(3, image["num_channels"], *sides(image["image_size"])),
        "input_ids": captions(3, 10, 30 if text["eos_token_id"] == 2 else text["eos_token_id"], 50),
        "attention_mask": mask,
    }
    clip_agrees(transformers.CLIPModel(config), tmp_path_factory.mktemp("clip") / "theirs", inputs)


@pytest.mark.parametrize("kind", ["CLIPTextModel", "CLIPTextModelWithProjection"])
@pytest.mark.parametrize("end", [2, 30])
def test_clips_text_tower_alone(tmp_path: Path, kind: str, end: int) -> None:
    mask = torch.ones(3, 10, dtype=torch.long)
    mask[1, 7:] = 0
    inputs = {"input_ids": captions(3, 10, 30, 50), "attention_mask": mask}
    agrees(tiny(kind, eos_token_id=end), tmp_path, inputs, real=mask.bool())


@pytest.mark.parametrize("kind", ["CLIPVisionModel", "CLIPVisionModelWithProjection"])
def test_clips_image_tower_alone(tmp_path: Path, kind: str) -> None:
    agrees(tiny(kind), tmp_path, {"pixel_values": pixels(2, 3, 8, 8)})


SWINS = st.fixed_dictionaries(
    {
        "image_size": st.sampled_from([16, 20, 26, (16, 24), (27, 14)]),
        "patch_size": st.sampled_from([2, (2, 1), 3]),
        "num_channels": st.sampled_from([1, 3]),
        "embed_dim": st.sampled_from([8, 12]),
        "depths": st.sampled_from([(2,), (1, 3), (2, 2, 1)]),
        "window_size": st.sampled_from([2, 3, 4, 5]),
        "mlp_ratio": st.sampled_from([2, 1.7, 4.0]),
        "qkv_bias": st.booleans(),
        "hidden_act": st.sampled_from(ACTS),
        "layer_norm_eps": st.sampled_from([1e-5, 1e-2]),
        "use_absolute_embeddings": st.booleans(),
    }
)


def smallest(config: Any) -> int:
    """The shorter side of the last plane."""
    planes = [-(-side // patch) for side, patch in zip(sides(config.image_size), sides(config.patch_size), strict=True)]
    return min(-(-side // 2 ** (len(config.depths) - 1)) for side in planes)


@settings(max_examples=14, deadline=None, derandomize=True)
@given(drawn=SWINS, labels=st.sampled_from([None, 1, 5]))
def test_swin(tmp_path_factory: Factory, drawn: Drawn, labels: int | None) -> None:
    heads = [2, 4, 1][: len(drawn["depths"])]
    config: Any = made(transformers.SwinConfig, drawn, num_heads=heads, num_labels=labels or 2)
    height, width = sides(config.image_size)
    whole = all(side % patch == 0 for side, patch in zip((height, width), sides(config.patch_size), strict=True))
    config.use_absolute_embeddings = config.use_absolute_embeddings and whole  # else the reference cannot add its table
    config.window_size = min(config.window_size, smallest(config))  # else its table of offsets does not fit
    model = (transformers.SwinModel if labels is None else transformers.SwinForImageClassification)(config)
    agrees(model, tmp_path_factory.mktemp("swin"), {"pixel_values": pixels(2, config.num_channels, height, width)})


@pytest.mark.parametrize("size", [(16, 16), (30, 19), (9, 12)])
@pytest.mark.parametrize("absolute", [False, True])
def test_swin_takes_images_of_another_size(tmp_path: Path, size: tuple[int, int], absolute: bool) -> None:
    if absolute:  # the reference stretches its table to whole patches only
        size = (size[0] // 2 * 2, size[1] // 2 * 2)
    model = tiny("SwinModel", use_absolute_embeddings=absolute)
    agrees(model, tmp_path, {"pixel_values": pixels(2, 3, *size)}, interpolate_pos_encoding=True)


def test_windows_larger_than_the_plane(tmp_path: Path) -> None:
    """The reference cannot add its table there; heed looks up the offsets that occur."""
    model = saved(tiny("SwinModel", image_size=8, window_size=3, depths=[1], num_heads=[2]), tmp_path / "theirs")
    ours = weights.load(tmp_path / "theirs").model
    assert isinstance(ours, Swin)
    with torch.no_grad():
        whole = ours.see(pixels(2, 3, 8, 8)).parts[0]
        close(whole, model(pixels(2, 3, 8, 8)).last_hidden_state, EXACT)
        assert ours.see(pixels(2, 3, 4, 4)).parts[0].isfinite().all()
        with pytest.raises(RuntimeError, match="must match the size"):
            model(pixels(2, 3, 4, 4))


def test_losses(tmp_path: Path) -> None:
    whole, share = torch.tensor([1, 2]), torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    for name, labels, count in (("classes", whole, 3), ("several", share, 3), ("number", share[:, 0].clone(), 1)):
        inputs = {"pixel_values": pixels(2, 3, 8, 8), "labels": labels}
        agrees(tiny("ViTForImageClassification", num_labels=count), tmp_path / name, inputs)


def changed(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


@pytest.mark.parametrize("kind", ["ViTForImageClassification", "SwinForImageClassification"])
def test_names_of_the_reference_librarys_own_memory_are_read_too(tmp_path: Path, kind: str) -> None:
    model = saved(tiny(kind), tmp_path)
    images = pixels(2, 3, *sides(model.config.image_size))
    with torch.no_grad():
        wanted = model(images).logits
    held = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(held, tmp_path / "model.safetensors", {"format": "pt"})
    ours = weights.load(tmp_path).model
    assert isinstance(ours, VisionEncoder | Swin)
    seen = ours.see(images)
    close(ours.heads["pooled"](seen.parts[0], seen), wanted, EXACT)


def test_old_files_hold_more_than_is_needed(tmp_path: Path) -> None:
    saved(tiny("ViTForImageClassification"), tmp_path)
    held = load_file(tmp_path / "model.safetensors")
    more = {"vit.embeddings.mask_token": torch.zeros(1, 1, 8), "vit.pooler.dense.bias": torch.zeros(8)}
    save_file(held | more, tmp_path / "model.safetensors")
    assert isinstance(weights.load(tmp_path).model, VisionEncoder)


def test_clip_configs_of_old(tmp_path: Path) -> None:
    """A side may stand under text_config_dict, beside an outdated one or a null."""
    text = {**BODY, "vocab_size": 20, "max_position_embeddings": 6, "eos_token_id": 2}
    config = transformers.CLIPConfig(text_config=text, vision_config=VIT, projection_dim=5)
    saved(transformers.CLIPModel(config), tmp_path)
    old = {"text_config": None, "vision_config": {**VIT, "image_size": 99}}
    model = weights.load(changed(tmp_path, text_config_dict=text, vision_config_dict=VIT, **old)).model
    assert isinstance(model, ClipModel)
    logits = model.match(pixels(2, 3, 8, 8), torch.tensor([[3, 19, 4], [5, 6, 19]]), Where.run(2, 3))
    assert logits.shape == (2, 2)


REFUSED = {
    "a wide pooler": ("ViTModel", {"pooler_output_size": 5}, {}, "a pooler as wide as the stream"),
    "drawing": ("ViTForMaskedImageModeling", {}, {}, "it draws masked patches"),
    "drawing with windows": ("SwinForMaskedImageModeling", {}, {}, "it draws masked patches"),
    "many layers": ("ViTModel", {}, {"num_hidden_layers": 10**9}, "claims 1000000000 layers"),
    "a wide stream": ("ViTForImageClassification", {}, {"hidden_size": 10**9}, "width 1000000000"),
    "many heads": ("ViTModel", {}, {"num_attention_heads": 10**9}, "does not divide into 1000000000 heads"),
    "a large head": ("ViTModel", {}, {"head_dim": 10**12}, "cannot be built|needed is"),
    "a large image": ("ViTModel", {}, {"image_size": 10**12}, "cannot be built|needed is"),
    "a small image": ("ViTModel", {}, {"image_size": 1}, "needed is"),
    "no image": ("ViTModel", {}, {"image_size": [4, 4, 4]}, "image_size"),
    "an activation": ("ViTModel", {}, {"hidden_act": "sine"}, "'sine' is not one of"),
    "stages": ("SwinModel", {}, {"depths": [1, 1, 1]}, "depths names 3 stages and heads_per_stage 2"),
    "deep stages": ("SwinModel", {}, {"depths": [10**9, 1]}, "claims 1000000001 layers"),
    "no stages": ("SwinModel", {}, {"depths": [], "num_heads": []}, "depths names 0 stages"),
    "a large window": ("SwinModel", {}, {"window_size": 10**12}, "cannot be built|needed is"),
    "a wide plane": ("SwinModel", {}, {"embed_dim": 10**15}, "cannot be built|needed is|does not divide"),
    "much hidden": ("SwinModel", {}, {"mlp_ratio": 1e300}, "cannot be built|needed is"),
}


@pytest.mark.parametrize(("kind", "changes", "fields", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path: Path, kind: str, changes: Drawn, fields: Drawn, message: str) -> None:
    saved(tiny(kind, encoder_stride=2, **changes), tmp_path)
    with pytest.raises(WeightsError, match=message):
        weights.load(changed(tmp_path, **fields))


def test_clip_as_a_classifier_is_refused(tmp_path: Path) -> None:
    config = transformers.CLIPConfig(text_config=BODY, vision_config=VIT)
    saved(transformers.CLIPForImageClassification(config), tmp_path)
    with pytest.raises(WeightsError, match="heed reads CLIP as two encoders"):
        weights.load(tmp_path)


def test_inputs_that_are_no_images_are_told(tmp_path: Path) -> None:
    saved(tiny("ViTModel"), tmp_path)
    for images, message in (
        (pixels(2, 3, 8), r"pixel_values has the shape \[2, 3, 8\]"),
        (pixels(2, 1, 8, 8), r"images must be numbers of shape \[rows, 3, height, width\]"),
        (pixels(2, 3, 8, 1), "an image of 8x1 pixels is smaller than one patch of 2x2"),
    ):
        save_file({"pixel_values": images}, tmp_path / "inputs.safetensors")
        with pytest.raises(ValueError, match=message):
            replay(tmp_path)
