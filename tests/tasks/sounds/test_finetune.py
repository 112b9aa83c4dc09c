"""Wav2Vec2 and Whisper, fine-tuned in full and by LoRA, and back in the layout that `transformers` reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import soundfile  # type: ignore[import-untyped]
import torch
import transformers
from torch import Tensor

import heed
from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.interfaces import Asked, Encodes
from heed.pipelines.media.speech import SpeechRecognition
from heed.runs import Recipe, Run, find
from heed.runs.convert import homeward
from heed.show.progress import Silent
from heed.tasks import CTC, Transcribe
from heed.tasks.media.base import Frames
from heed.text.kinds import Char
from heed.train import train
from tests.tasks.sounds.beeps import TEXTS, classes, transcripts

LORA = "edits=[{kind='lora',rank=2,on='*.query'}]"
TINY = ("training.steps=3", "training.evaluate=3", "training.save=3", "training.batch=200")
LETTERS = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "A": 5, "B": 6, "C": 7}
LISTENER: dict[str, Any] = {
    "hidden_size": 16,
    "conv_dim": (8, 8, 8),
    "conv_kernel": (10, 4, 4),
    "conv_stride": (5, 4, 4),
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 6,
    "vocab_size": 8,
    "pad_token_id": 0,
}
HEARD = {"feature_size": 1, "sampling_rate": 8000, "do_normalize": True, "padding_value": 0.0}
LISTENING = {**HEARD, "feature_extractor_type": "Wav2Vec2FeatureExtractor"}


def wav2vec2(folder: Path, *, ctc: bool) -> Path:
    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(**LISTENER)
    kind = transformers.Wav2Vec2ForCTC if ctc else transformers.Wav2Vec2Model
    kind(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(LISTENING))
    if ctc:
        (folder / "vocab.json").write_text(json.dumps(LETTERS))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Wav2Vec2CTCTokenizer"}))
    return folder


def whisper(folder: Path) -> Path:
    """A random one with a tokenizer of letters; English alone."""
    torch.manual_seed(0)
    tokenizer = Char().train(TEXTS)
    sizes: dict[str, Any] = {"d_model": 16, "num_mel_bins": 12, "max_source_positions": 100, "encoder_layers": 1}
    heads: dict[str, Any] = {
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
    }
    special: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(
        vocab_size=tokenizer.size, decoder_layers=1, max_target_positions=30, **sizes, **heads, **special
    )
    transformers.WhisperForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_all(folder)
    told = {"feature_size": 12, "sampling_rate": 8000, "hop_length": 80, "n_fft": 200, "chunk_length": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(told))
    written = {"decoder_start_token_id": 1, "eos_token_id": 2, "is_multilingual": False, "max_length": 30}
    (folder / "generation_config.json").write_text(json.dumps(written))
    return folder


def tuned(name: str, base: Path, data: Path, out: Path, *changes: str) -> Path:
    train(Recipe.read(find(name), [*TINY, f"base={base}", f"data.train={data}", *changes]), out, Silent())
    return out


def wave(path: Path) -> Tensor:
    return torch.from_numpy(soundfile.read(path, dtype="float32")[0])


@pytest.mark.parametrize("change", ["edits=[]", LORA])
def test_wav2vec2_learns_to_write_and_goes_home(change: str, tmp_path: Path) -> None:
    base, data = wav2vec2(tmp_path / "base", ctc=True), transcripts(tmp_path / "clips")
    run = tuned("ctc-words", base, data, tmp_path / "run", change, "task.case=upper")
    task = Run.open(run).recipe.task
    assert isinstance(task, CTC)
    assert (task.features.rate, task.features.dump()["kind"]) == (8000, "samples")
    pipeline = heed.load(run)
    homeward(run, tmp_path / "home")
    theirs = transformers.Wav2Vec2ForCTC.from_pretrained(tmp_path / "home").eval()
    path = tmp_path / "clips" / "1.wav"
    extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(tmp_path / "home")
    values = extractor(wave(path).numpy(), sampling_rate=8000, return_tensors="pt").input_values
    with torch.no_grad():
        wanted, found = theirs(values).logits[0], frames(pipeline.model, task.decoded(str(path), None))
    assert float((found - wanted).abs().max()) < 1e-5
    tokenizer = transformers.Wav2Vec2CTCTokenizer.from_pretrained(tmp_path / "home")
    assert " ".join(pipeline.transcribe(path).split()) == spelt(tokenizer, wanted)
    assert heed.load(tmp_path / "home").transcribe(path) == pipeline.transcribe(path)
    before = transformers.Wav2Vec2ForCTC.from_pretrained(base)
    assert changed(before, theirs, "q_proj")
    assert changed(before, theirs, "feed_forward") == (change != LORA)


def spelt(tokenizer: Any, logits: Tensor) -> str:
    """Special labels stand between others like any label, and are not written."""
    return " ".join(re.sub("<s>|</s>|<unk>", "", tokenizer.decode(logits.argmax(-1))).split())


def frames(model: Any, features: Tensor) -> Tensor:
    """The logits of every frame of one sound."""
    assert isinstance(model, Encodes)
    assert isinstance(model, Asked)
    seen = model.encode(features[None], Where.run(1, len(features)))
    return model.heads["tagged"](seen.parts[0], seen)[0]


def changed(before: Any, after: Any, names: str) -> bool:
    """Whether weights of these names are others than before."""
    pairs = zip(before.named_parameters(), after.named_parameters(), strict=True)
    return any(not torch.equal(one, other) for (name, one), (_, other) in pairs if names in name)


def test_a_bare_wav2vec2_gets_letters_of_its_own(tmp_path: Path) -> None:
    base, data = wav2vec2(tmp_path / "base", ctc=False), transcripts(tmp_path / "clips")
    run = tuned("ctc-words", base, data, tmp_path / "run")
    pipeline = heed.load(run)
    homeward(run, tmp_path / "home")
    theirs = transformers.Wav2Vec2ForCTC.from_pretrained(tmp_path / "home").eval()
    assert theirs.config.vocab_size == pipeline.tokenizer.size
    path = tmp_path / "clips" / "1.wav"
    values = transformers.Wav2Vec2FeatureExtractor.from_pretrained(tmp_path / "home")(
        wave(path).numpy(), sampling_rate=8000, return_tensors="pt"
    ).input_values
    tokenizer = transformers.Wav2Vec2CTCTokenizer.from_pretrained(tmp_path / "home")
    for text in TEXTS:
        assert tokenizer(text).input_ids == pipeline.tokenizer.encode(text)
    with torch.no_grad():
        assert " ".join(pipeline.transcribe(path).split()) == spelt(tokenizer, theirs(values).logits[0])
    assert heed.load(tmp_path / "home").transcribe(path) == pipeline.transcribe(path)


@pytest.mark.parametrize("ctc", [True, False])
@pytest.mark.parametrize("change", ["edits=[]", LORA])
def test_wav2vec2_learns_classes_and_goes_home(change: str, ctc: bool, tmp_path: Path) -> None:
    base, data = wav2vec2(tmp_path / "base", ctc=ctc), classes(tmp_path / "clips")
    run = tuned("sounds", base, data, tmp_path / "run", change)
    pipeline = heed.load(run)
    homeward(run, tmp_path / "home")
    theirs = transformers.Wav2Vec2ForSequenceClassification.from_pretrained(tmp_path / "home").eval()
    assert theirs.config.id2label == {0: "a", 1: "b"}
    path = tmp_path / "clips" / "a" / "1.wav"
    values = transformers.Wav2Vec2FeatureExtractor.from_pretrained(tmp_path / "home")(
        wave(path).numpy(), sampling_rate=8000, return_tensors="pt"
    ).input_values
    with torch.no_grad():
        wanted = theirs(values).logits[0].softmax(-1)
    for one in (pipeline, heed.load(tmp_path / "home")):
        found = {told.label: told.probability for told in one.classify(path)}
        assert [found["a"], found["b"]] == pytest.approx(wanted.tolist(), abs=1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning")  # the reference's: above half of 8,000 hertz a band has no power
@pytest.mark.parametrize("change", ["edits=[]", LORA])
def test_whisper_learns_to_write_and_goes_home(change: str, tmp_path: Path) -> None:
    base, data = whisper(tmp_path / "base"), transcripts(tmp_path / "clips")
    run = tuned("transcribe", base, data, tmp_path / "run", change, "task.longest_text=20")
    task = Run.open(run).recipe.task
    assert isinstance(task, Transcribe)
    assert (task.window, task.longest) == (2.0, 2.0)
    pipeline = heed.load(run)
    assert isinstance(pipeline, SpeechRecognition)
    homeward(run, tmp_path / "home")
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "home").eval()
    path = tmp_path / "clips" / "1.wav"
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(tmp_path / "home")
    given = extractor(wave(path).numpy(), sampling_rate=8000, return_tensors="pt").input_features
    tokens = torch.tensor([[1, *pipeline.tokenizer.encode("ba cab")]])
    with torch.no_grad():
        features = task.decoded(str(path), None)
        assert float((features.mT - given[0]).abs().max()) < 1e-5
        wanted = theirs(input_features=given, decoder_input_ids=tokens).logits
        memory = pipeline._encoder.encode(features[None], Where.run(1, len(features)))
        found = pipeline.model(tokens, Where.run(*tokens.shape).give(encoder_output=memory))[0]
    assert float((found - wanted).abs().max()) < 1e-5
    assert heed.load(tmp_path / "home").transcribe(path) == pipeline.transcribe(path)
    before = transformers.WhisperForConditionalGeneration.from_pretrained(base)
    assert changed(before, theirs, "q_proj")
    assert changed(before, theirs, "fc1") == (change != LORA)


def test_losses_are_those_of_the_reference(tmp_path: Path) -> None:
    """CTC and Whisper's cross-entropy of a batch, through the task, beside the loss of the model it came from."""
    data = transcripts(tmp_path / "clips")
    run = tuned("transcribe", whisper(tmp_path / "whisper"), data, tmp_path / "a", "task.longest_text=20")
    homeward(run, tmp_path / "a-home")
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "a-home").eval()
    task, batch, model = batch_of(run)
    assert batch.source is not None
    with torch.no_grad():
        wanted = theirs(input_features=batch.source.tokens.mT, labels=batch.labels).loss  # they are shifted by it
        mine = task.loss(model, batch)
    shifted = torch.cat((torch.full_like(batch.labels[:, :1], 1), batch.labels[:, :-1].clamp(min=0)), 1)
    assert torch.equal(shifted * (batch.labels >= 0), batch.inputs.tokens * (batch.labels >= 0))
    assert float(mine.total) / batch.tokens == pytest.approx(float(wanted), rel=1e-6)

    changes = ("task.case=upper",)
    run = tuned("ctc-words", wav2vec2(tmp_path / "ctc", ctc=True), data, tmp_path / "b", *changes)
    homeward(run, tmp_path / "b-home")
    heard = transformers.Wav2Vec2ForCTC.from_pretrained(tmp_path / "b-home").eval()
    task, batch, model = batch_of(run)
    assert isinstance(batch.inputs, Frames)
    with torch.no_grad():
        total = 0.0
        for row, real in enumerate(batch.inputs.where.real):
            labels = batch.labels[row][batch.labels[row] >= 0]
            total += float(heard(batch.inputs.tokens[row][real][None], labels=labels[None]).loss)  # a sum over each row
        assert float(task.loss(model, batch).total) == pytest.approx(total, rel=1e-6)


def batch_of(run: Path) -> tuple[Any, Any, Any]:
    """The task of a run, all of its sounds in one batch, and its model."""
    opened = Run.open(run)
    task: Any = opened.recipe.task
    corpus = task.corpus(opened.recipe.data.split("train", task.columns), opened.tokenizer)
    return task, task.batch([task.fetch(item) for item in corpus.once()]), opened.model().eval()


def test_what_does_not_fit_a_base_is_said(tmp_path: Path) -> None:
    base, data = whisper(tmp_path / "base"), transcripts(tmp_path / "clips")
    with pytest.raises(ConfigError, match="task.longest_text is 200 tokens, the model has places for 30"):
        tuned("transcribe", base, data, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"use model.kind=whisper, or task.kind=ctc"):
        tuned("transcribe", wav2vec2(tmp_path / "other", ctc=True), data, tmp_path / "run", "task.case=upper")
