"""Loaded models as people use them: files that are missing, heads that are not there, things given the wrong way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, processors
from typer.testing import CliRunner

import heed
from heed.cli import app
from heed.core.errors import HeedError, InputError
from heed.media.sounds import LogMel
from heed.pipelines import ImageClassification, ImageEmbedding, Regression, TextEmbedding, ZeroShotImageClassification
from heed.pipelines.checkpoint import Bare
from heed.pipelines.encoder import EncoderPipeline
from heed.pipelines.media.speech import SpeechRecognition
from tests.weights.live import saved

HF: Any = transformers
RUNNER = CliRunner()

WORDS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", *(f"w{index}" for index in range(14)), "<|end|>")
SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}
BERT: dict[str, Any] = {**SMALL, "vocab_size": len(WORDS), "max_position_embeddings": 12}
VIEW: dict[str, Any] = {**SMALL, "image_size": 16, "patch_size": 8}
SWIN: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [1, 1],
    "num_heads": [2, 2],
    "window_size": 4,
}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
PREPARED: dict[str, Any] = {"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}, **HALF}


def worded(folder: Path) -> None:
    """A tokenizer of a few words, framed as BERT's is."""
    inner = Library(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(list(WORDS[:5]))
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    inner.save(str(folder / "tokenizer.json"))
    named = {"pad_token": "[PAD]", "mask_token": "[MASK]", "eos_token": "[SEP]", "bos_token": "[CLS]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))


def prepared(folder: Path, **changes: Any) -> None:
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPARED | changes))


def bert(folder: Path, kind: str = "BertModel", **config: Any) -> tuple[Any, EncoderPipeline]:
    theirs = saved(getattr(HF, kind)(HF.BertConfig(**BERT, **config)), folder)
    worded(folder)
    ours = heed.load(folder)
    assert isinstance(ours, EncoderPipeline)
    return theirs, ours


def clip_config() -> Any:
    text = HF.CLIPTextConfig(**BERT, bos_token_id=1, eos_token_id=2)
    vision = HF.CLIPVisionConfig(**VIEW)
    return HF.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=6)


@pytest.fixture
def clip(tmp_path: Path) -> tuple[Any, ZeroShotImageClassification, Path]:
    theirs = saved(HF.CLIPModel(clip_config()), tmp_path / "clip")
    worded(tmp_path / "clip")
    prepared(tmp_path / "clip")
    ours = heed.load(tmp_path / "clip")
    assert isinstance(ours, ZeroShotImageClassification)
    return theirs, ours, tmp_path / "clip"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    return tmp_path / "image.png"


def told(*words: str) -> str:
    found = RUNNER.invoke(app, ["run", *words])
    assert found.exit_code == 0, found.output
    return found.stdout


# --- files and heads that are missing ---


def test_images_without_a_way_to_prepare_them(tmp_path: Path) -> None:
    made = {
        "vit": HF.ViTForImageClassification(HF.ViTConfig(**VIEW)),
        "swin": HF.SwinModel(HF.SwinConfig(**SWIN)),
        "clip": HF.CLIPModel(clip_config()),
    }
    for name, model in made.items():
        saved(model, tmp_path / name)
        worded(tmp_path / name)
        bare = heed.load(tmp_path / name)
        assert isinstance(bare, Bare)
        with pytest.raises(InputError, match=r"without a preprocessor_config.json; its .model takes images"):
            bare.classify(["a.png"])


def test_listeners_that_cannot_spell(tmp_path: Path) -> None:
    embeddings: dict[str, Any] = {"conv_dim": (8, 8), "conv_kernel": (10, 4), "conv_stride": (5, 4)}
    around: dict[str, Any] = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    config = HF.Wav2Vec2Config(**SMALL, vocab_size=9, **embeddings, **around)
    for kind, lack in (("Wav2Vec2ForCTC", "a vocab.json"), ("Wav2Vec2Model", r"a head that labels frames \(CTC\)")):
        saved(getattr(HF, kind)(config), tmp_path / kind)
        with pytest.raises(InputError, match=f"a checkpoint without {lack}; its .model takes sounds"):
            heed.load(tmp_path / kind).transcribe("a.wav")


def whisper(folder: Path, **changes: Any) -> None:
    sizes: dict[str, Any] = {"d_model": 16, "num_mel_bins": 5, "max_target_positions": 16, "vocab_size": 22}
    heads: dict[str, Any] = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_layers": 1}
    feeds: dict[str, Any] = {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "decoder_layers": 1}
    special = {"decoder_start_token_id": 20, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    config = HF.WhisperConfig(**sizes | changes, **heads, **feeds, **special)
    config.suppress_tokens = config.begin_suppress_tokens = None
    saved(HF.WhisperForConditionalGeneration(config), folder)


def test_whisper_without_its_files(tmp_path: Path) -> None:
    whisper(tmp_path)
    with pytest.raises(InputError, match="without a tokenizer; its .model takes sounds and then ids"):
        heed.load(tmp_path).transcribe("a.wav")
    worded(tmp_path)
    ours = heed.load(tmp_path)
    assert isinstance(ours, SpeechRecognition)
    assert isinstance(ours.settings.features, LogMel)
    assert ours.settings.features.bins == 5
    ours.transcribe(torch.zeros(4000))
    (tmp_path / "preprocessor_config.json").write_text('{"feature_size": 80}')
    with pytest.raises(InputError, match=r"takes 5 mel bins .* the features have 80"):
        heed.load(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    (tmp_path / "processor_config.json").write_text('{"feature_extractor": {"feature_size": 5, "chunk_length": 31}}')
    with pytest.raises(InputError, match="31 seconds has 3100 frames, the model has places for 3000"):
        heed.load(tmp_path)


def test_channels_that_the_model_does_not_see(tmp_path: Path) -> None:
    saved(HF.ViTModel(HF.ViTConfig(**VIEW, num_channels=1)), tmp_path)
    prepared(tmp_path)
    with pytest.raises(InputError, match=r"images of 1 channels .* makes them of 3"):
        heed.load(tmp_path)
    prepared(tmp_path, image_mean=[0.5], image_std=[0.5])
    assert isinstance(heed.load(tmp_path), ImageEmbedding)


def test_nothing_there(tmp_path: Path) -> None:
    found = RUNNER.invoke(app, ["run", str(tmp_path / "nofolder"), "x"])
    assert "a run folder, a checkpoint folder or a .gguf file" in str(found.exception)


# --- images ---


@torch.no_grad()
def test_what_has_no_classifier_gives_vectors(tmp_path: Path, image: Path) -> None:
    vision = HF.CLIPVisionConfig(**VIEW, projection_dim=6)
    made = {
        "pooler_output": (HF.ViTModel(HF.ViTConfig(**VIEW)), HF.SwinModel(HF.SwinConfig(**SWIN))),
        "image_embeds": (HF.CLIPVisionModelWithProjection(vision),),
    }
    for number, (name, model) in enumerate((name, model) for name, some in made.items() for model in some):
        folder = tmp_path / str(number)
        theirs = saved(model, folder)
        prepared(folder)
        ours = heed.load(folder)
        assert isinstance(ours, ImageEmbedding)
        with pytest.raises(InputError, match="cannot classify: it is an image encoder without such"):
            ours.classify([str(image)])
        wanted = theirs(pixel_values=ours.prepare.batch([image]).double())[name]
        assert torch.allclose(ours.embed_images([image], unit=False), wanted, atol=1e-6)
        assert torch.allclose(ours.embed_images([image]).norm(dim=1), torch.ones(1, dtype=torch.float64))
        assert ours.embed_images([]).shape == (0, wanted.shape[1])
        assert json.loads(told(str(folder), str(image), "--json"))["vector"]


def test_a_stream_that_nothing_pools_is_averaged(tmp_path: Path, image: Path) -> None:
    saved(HF.ViTModel(HF.ViTConfig(**VIEW), add_pooling_layer=False), tmp_path / "vit")
    prepared(tmp_path / "vit")
    ours = heed.load(tmp_path / "vit")
    assert isinstance(ours, ImageEmbedding)
    seen: Any = ours.model
    stream = seen.see(ours.prepare.batch([image]).double()).parts[0]
    assert torch.allclose(ours.embed_images([image], unit=False), stream.mean(1))


def test_a_classifier_of_images_has_vectors_too(tmp_path: Path, image: Path) -> None:
    theirs = saved(HF.ViTForImageClassification(HF.ViTConfig(**VIEW, num_labels=3)), tmp_path / "vit")
    prepared(tmp_path / "vit")
    ours = heed.load(tmp_path / "vit")
    assert isinstance(ours, ImageClassification)
    assert ours.classify([]) == []
    assert ours.classify([image]) == ours.classify([str(image)])
    vectors = ours.embed_images([image], unit=False)
    with torch.no_grad():
        p = theirs.classifier(vectors).softmax(-1)[0]
    assert [guess.p for guess in ours.classify([image])[0]] == pytest.approx(sorted(p.tolist(), reverse=True))
    assert ours.classify(str(image)) == ours.classify(image) == ours.classify([image])[0]
    assert torch.equal(ours.embed_images(image), ours.embed_images([image])[0])
    with pytest.raises(InputError, match="is not a file|cannot be decoded"):
        ours.classify(["a" * 5000])


def test_clip_takes_nothing_and_refuses_what_is_no_image(
    clip: tuple[Any, ZeroShotImageClassification, Path], image: Path
) -> None:
    _, ours, _ = clip
    assert ours.classify([], ["w1", "w2"]) == []
    assert ours.embed_images([]).shape == ours.embed([]).shape == (0, 6)
    assert ours.classify([image], ["w1", "w2"])[0][0].p <= 1
    for wrong, labels, words in (
        ([("a", "b")], ["w1"], "not pairs of texts"),
        (None, ["w1"], "an image or a list of images"),
        ([image], [], "name the classes"),
    ):
        with pytest.raises(InputError, match=words):
            ours.classify(wrong, labels)
    assert ours.classify(image, ["w1", "w2"]) == ours.classify([image], ["w1", "w2"])[0]
    assert torch.equal(ours.embed("w1"), ours.embed(["w1"])[0])
    assert ours.classify(image, "w1")[0].p == 1


def test_a_text_that_clip_cuts_keeps_the_token_that_ends_it(
    clip: tuple[Any, ZeroShotImageClassification, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ours, _ = clip
    assert ours.longest is not None
    right, seen = ours.vectors, list[torch.Tensor]()

    def noted(*given: Any) -> Any:
        seen.append(given[1])
        return right(*given)

    monkeypatch.setattr(ours, "vectors", noted)
    for words in (ours.longest + 5, ours.longest - 2):
        ours.embed(" ".join(["w1"] * words))
    assert torch.equal(*seen)
    assert int(seen[0][0, -1]) == ours.tokenizer.framed("w1").ids[-1]


def test_clip_on_the_command_line(clip: tuple[Any, ZeroShotImageClassification, Path], image: Path) -> None:
    _, ours, folder = clip
    found = json.loads(told(str(folder), str(image), "--label", "w1", "--label", "w2 w3", "--json"))["classes"]
    assert [(one["label"], one["p"]) for one in found] == [
        (guess.label, pytest.approx(guess.p)) for guess in ours.classify([image], ["w1", "w2 w3"])[0]
    ]
    seen = json.loads(told(str(folder), str(image), "--json"))["vector"]
    assert seen == pytest.approx(ours.embed_images([image])[0].tolist())
    read = json.loads(told(str(folder), "w1 " * 300, "--json"))["vector"]
    assert read == pytest.approx(ours.embed(["w1 " * 300])[0].tolist())
    idle = RUNNER.invoke(app, ["run", str(folder), "w1", "--beam", "3", "--temperature", "0"])
    assert idle.exit_code == 2
    assert "--beam, --temperature" in idle.stderr


@torch.no_grad()
def test_a_text_encoder_alone_embeds(tmp_path: Path) -> None:
    config = HF.CLIPTextConfig(**BERT, bos_token_id=1, eos_token_id=2, projection_dim=6)
    theirs = saved(HF.CLIPTextModelWithProjection(config), tmp_path)
    worded(tmp_path)
    ours = heed.load(tmp_path)
    assert isinstance(ours, TextEmbedding)
    wanted = theirs(input_ids=torch.tensor([[1, 6, 7, 2]])).text_embeds
    assert torch.allclose(ours.embed(["w1 w2"]), wanted / wanted.norm(), atol=1e-6)
    assert ours.embed([]).shape == (0, 6)
    with pytest.raises(InputError, match="cannot classify: it is a text encoder"):
        ours.classify(["w1"])


# --- texts ---


@torch.no_grad()
def test_scores_mean_what_the_config_says(tmp_path: Path) -> None:
    kinds: tuple[tuple[int, str | None], ...] = (
        (1, None),
        (2, "regression"),
        (3, "multi_label_classification"),
        (3, "single_label_classification"),
        (3, None),
    )
    for number, (labels, problem) in enumerate(kinds):
        folder = tmp_path / str(number)
        theirs, ours = bert(folder, "BertForSequenceClassification", num_labels=labels, problem_type=problem)
        scores = theirs(input_ids=torch.tensor([[1, 5, 6, 2]])).logits[0]
        (found,) = ours.classify(["w0 w1"])
        is_value = labels == 1 or problem == "regression"
        wanted = scores if is_value else scores.softmax(-1) if problem != kinds[2][1] else scores.sigmoid()
        assert [one.p for one in sorted(found, key=lambda one: one.label)] == pytest.approx(wanted.tolist(), abs=1e-6)
        assert all(isinstance(one, Regression) == is_value for one in found)
        response = ours.respond("w0 w1")
        assert ("%" in response.text) != is_value
        assert set(response.data["classes"][0]) == {"label", "value" if is_value else "p"}


def test_labels_without_a_classifier_are_no_classes(tmp_path: Path) -> None:
    _, ours = bert(tmp_path, id2label={0: "sad", 1: "glad", 2: "neither"})
    assert ours.respond("w0").data["vector"] == pytest.approx(ours.embed(["w0"])[0].tolist())
    with pytest.raises(InputError, match="cannot classify: it is an encoder without such a head"):
        ours.classify(["w0"])


def test_following_texts_are_not_classes_of_one(tmp_path: Path) -> None:
    _, ours = bert(tmp_path, "BertForPreTraining")
    assert "vector" in ours.respond("w0").data
    assert len(ours.classify([("w0", "w1")])[0]) == 2


def test_answers_in_a_text_are_not_looked_for(tmp_path: Path) -> None:
    _, ours = bert(tmp_path, "BertForQuestionAnswering")
    with pytest.raises(InputError, match="answers questions by a part of a text"):
        ours.respond("w0")
    assert ours.embed(["w0"]).shape == (1, 16)


def test_long_pairs_are_cut_as_the_reference_cuts_them(tmp_path: Path) -> None:
    """Every pair of lengths up to beyond the room, and texts alone; an odd room, too."""
    _, ours = bert(tmp_path, "BertForSequenceClassification")
    theirs = HF.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    theirs.model_input_names = ["input_ids", "token_type_ids"]
    for longest in (11, 12):
        ours.longest = longest
        texts = [" ".join(WORDS[5 + (at + length) % 14] for at in range(length)) for length in range(14)]
        for one in texts:
            wanted = theirs(one, truncation=True, max_length=longest)
            assert ours._framed(one, True) == (wanted["input_ids"], wanted["token_type_ids"])
            for other in texts[1:]:  # an empty one is no pair there
                wanted = theirs(one, other, truncation=True, max_length=longest)
                assert ours._framed((one, other), True) == (wanted["input_ids"], wanted["token_type_ids"]), (one, other)
    ours.longest = 2
    with pytest.raises(InputError, match="places for 2 tokens, and 3 of them stand around"):
        ours.classify([("w0", "w1")])


def test_what_cannot_be_read(tmp_path: Path) -> None:
    _, tagger = bert(tmp_path / "tags", "BertForTokenClassification", num_labels=1)
    assert [guess.p for _, guess in tagger.tag(["w0 w1"])[0]] == [1.0] * 4  # one class alone is certain
    with pytest.raises(InputError, match="places for 12; cut it into shorter ones"):
        tagger.tag(["w0 " * 20])
    _, ours = bert(tmp_path / "masks", "BertForMaskedLM")
    with pytest.raises(InputError, match="pool must be one of first, last, mean, max, not 'foo'"):
        ours.embed(["w0"], pool="foo")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="top_k must be 1 at least, not 0"):
        ours.fill("w0 [MASK]", top_k=0)
    with pytest.deprecated_call(match="best is called top_k now"):
        assert len(ours.fill("w0 [MASK]", best=2)[0]) == 2  # type: ignore[call-arg]
    for use in (ours.embed, tagger.tag):
        for wrong, words in (
            (b"w0 w1", "a text or a list of texts is needed, not bytes"),
            (None, "not NoneType"),
            ([3], "holds 3"),
        ):
            with pytest.raises(InputError, match=words):
                use(wrong)  # type: ignore[arg-type]


# --- sounds ---


@pytest.mark.parametrize("wrong", [["a.wav"], None, {"a": 1}, "a" * 5000, Path("nowhere.wav")])
def test_what_is_no_sound(tmp_path: Path, wrong: Any) -> None:
    whisper(tmp_path)
    worded(tmp_path)
    with pytest.raises(HeedError):
        heed.load(tmp_path).transcribe(wrong)
