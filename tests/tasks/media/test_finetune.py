"""ViT and CLIP checkpoints, fine-tuned in full and by LoRA, and back in the layout that `transformers` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import heed
from heed.core.errors import HeedError
from heed.runs import Run
from heed.runs.convert import homeward
from heed.show.progress import Silent
from heed.text import Bpe
from heed.text.kinds import framing
from heed.train import train
from tests.tasks.media.pictures import photos, recipe
from tests.tasks.media.test_parity import TEXT, VIT

LORA = "edits=[{kind='lora',rank=2,on='*.query'}]"
PREPARED = {
    "do_resize": True,
    "size": {"height": 8, "width": 8},
    "resample": 2,
    "do_rescale": True,
    "do_normalize": True,
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.3, 0.2, 0.3],
}


def vit(folder: Path, *, classes: bool) -> Path:
    torch.manual_seed(0)
    config = transformers.ViTConfig(**{**VIT, "num_labels": 3})
    kind = transformers.ViTForImageClassification if classes else transformers.ViTModel
    kind(config).save_pretrained(folder)
    told = {**PREPARED, "image_processor_type": "ViTImageProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(told))
    return folder


def clip(folder: Path) -> Path:
    torch.manual_seed(0)
    framing(Bpe(size=300).train(["across", "down"])).save(folder.parent / "tokenizer.json")
    text = {**TEXT, "vocab_size": 300, "max_position_embeddings": 12, "bos_token_id": 1, "eos_token_id": 299}
    config = transformers.CLIPConfig(text_config=text, vision_config=VIT, projection_dim=6)
    transformers.CLIPModel(config).save_pretrained(folder)
    (folder.parent / "tokenizer.json").rename(folder / "tokenizer.json")
    told = {**PREPARED, "image_processor_type": "CLIPImageProcessor", "do_center_crop": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(told))
    return folder


def tuned(base: Path, data: Path, out: Path, *changes: str) -> Path:
    train(recipe(data, f"base={base}", "training.steps=3", *changes), out, Silent())
    return out


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("change", ["edits=[]", LORA])
def test_vit_learns_new_classes_and_goes_home(classes: bool, change: str, tmp_path: Path) -> None:
    base, data = vit(tmp_path / "vit", classes=classes), photos(tmp_path / "photos")
    run = tuned(base, data, tmp_path / "run", change)
    pipeline: Any = heed.load(run)
    homeward(run, tmp_path / "home")
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "home").eval()
    assert theirs.config.id2label == {0: "across", 1: "down"}
    picture = data / "down" / "003.png"
    images = pipeline.prepare.batch([picture])
    with torch.no_grad():
        wanted = theirs(pixel_values=images).logits[0]
        seen = pipeline.model.see(images)
        ours = pipeline.model.heads["pooled"](seen.parts[0], seen)[0]
    assert torch.allclose(ours, wanted, atol=1e-6)
    again: Any = heed.load(tmp_path / "home")
    assert [one.label for one in again.classify(picture)] == [one.label for one in pipeline.classify(picture)]
    task: Any = Run.open(run).recipe.task
    assert again.prepare == pipeline.prepare == task.prepare
    assert images.mean() != 0


@pytest.mark.parametrize("change", ["edits=[]", "edits=[{kind='lora',rank=2,on='image.*.query'}]"])
def test_clip_learns_and_goes_home(change: str, tmp_path: Path) -> None:
    base, data = clip(tmp_path / "clip"), photos(tmp_path / "photos")
    run = tuned(base, data, tmp_path / "run", "task={kind='image_text',longest=12,template='stripes {}'}", change)
    pipeline: Any = heed.load(run)
    homeward(run, tmp_path / "home")
    theirs = transformers.CLIPModel.from_pretrained(tmp_path / "home").eval()
    picture, texts = data / "down" / "003.png", ["stripes down", "stripes across"]
    with torch.no_grad():
        images = pipeline.prepare.batch([picture])
        vectors = theirs.get_image_features(pixel_values=images)
    vectors = vectors if isinstance(vectors, torch.Tensor) else vectors.pooler_output
    assert torch.allclose(pipeline.embed_images([picture]), torch.nn.functional.normalize(vectors, dim=-1), atol=1e-6)
    again: Any = heed.load(tmp_path / "home")
    assert torch.allclose(again.embed(texts), pipeline.embed(texts), atol=1e-6)
    assert pipeline.classify(picture, texts)[0].label in texts
    found = heed.eval(run, split="valid", quiet=True)
    assert {"recall@1", "recall@5", "zero_shot_accuracy"} <= found["valid"].keys()


def test_lora_leaves_the_rest_alone(tmp_path: Path) -> None:
    base, data = vit(tmp_path / "vit", classes=False), photos(tmp_path / "photos")
    homeward(tuned(base, data, tmp_path / "run", LORA), tmp_path / "home")
    before = transformers.ViTModel.from_pretrained(base, add_pooling_layer=False)
    after = transformers.ViTForImageClassification.from_pretrained(tmp_path / "home").vit
    others = dict(after.named_parameters())
    changed = {name for name, one in before.named_parameters() if not torch.equal(one, others[name])}
    assert changed
    assert all("query" in name or "q_proj" in name for name in changed)


def test_checkpoints_are_evaluated_on_folders(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos", 4)
    found = heed.eval(clip(tmp_path / "clip"), data=data, quiet=True)["test"]
    assert found["examples"] == 8
    config: dict[str, Any] = {"id2label": {"0": "down", "1": "across"}, "label2id": {"down": 0, "across": 1}}
    folder = vit(tmp_path / "vit", classes=True)
    told = json.loads((folder / "config.json").read_text())
    torch.manual_seed(0)
    transformers.ViTForImageClassification(transformers.ViTConfig(**VIT, **config)).save_pretrained(folder)
    (data / "down" / "bad.png").write_bytes(b"?")
    measured = heed.eval(folder, data=data, quiet=True)["test"]
    assert (measured["examples"], measured["unreadable"]) == (8, 1)
    assert 0 <= measured["accuracy"] <= 100
    assert told["num_channels"] == 3


def test_a_text_model_is_no_base_for_images(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos")
    transformers.BertModel(transformers.BertConfig(**{**TEXT, "max_position_embeddings": 16})).save_pretrained(
        tmp_path / "bert"
    )
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    with pytest.raises(HeedError, match="looks at no images"):
        tuned(tmp_path / "bert", data, tmp_path / "run")
