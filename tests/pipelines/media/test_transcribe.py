"""What is said in a sound, beside the reference library with the same random weights."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]
import tokenizers
import torch
import transformers
from tokenizers import decoders, models
from torch import Tensor
from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

from heed import weights
from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.decode import Beam, Greedy, Sample
from heed.decode.ctc import best_path, collapsed, prefix_beam
from heed.pipelines.media.ctc import CTCRecognition, CTCSettings
from heed.pipelines.media.speech import SpeechRecognition, windows
from heed.pipelines.media.speech_settings import LANGUAGES, SpeechSettings, code_of
from heed.text import Tokenizer
from tests.weights.live import saved

WORDS = [f" w{index}" for index in range(30)]
MARKS = ["endoftext", "startoftranscript", "en", "de", "fr", "translate", "transcribe", "notimestamps"]
IDS = {mark: len(WORDS) + place for place, mark in enumerate(MARKS)}
TIMES = [f"<|{tenth / 10:.2f}|>" for tenth in range(4)]
FEATURES = {"feature_size": 5, "sampling_rate": 16_000, "hop_length": 160, "n_fft": 400, "chunk_length": 1}
GENERATION: dict[str, Any] = {
    "decoder_start_token_id": IDS["startoftranscript"],
    "eos_token_id": IDS["endoftext"],
    "pad_token_id": IDS["endoftext"],
    "is_multilingual": True,
    "lang_to_id": {f"<|{code}|>": IDS[code] for code in ("en", "de", "fr")},
    "task_to_id": {task: IDS[task] for task in ("transcribe", "translate")},
    "no_timestamps_token_id": IDS["notimestamps"],
    "forced_decoder_ids": [[1, None], [2, IDS["transcribe"]]],
    "suppress_tokens": [3, 4, 5, IDS["startoftranscript"]],
    "begin_suppress_tokens": [7, IDS["endoftext"]],
    "max_length": 16,
}


def sound(seconds: float = 0.7, seed: int = 0) -> Tensor:
    return 0.1 * torch.randn(int(seconds * 16_000), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=WORDS[0]))
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens([f"<|{mark}|>" for mark in MARKS])
    inner.add_tokens(TIMES)
    return Tokenizer(inner)


def whisper(folder: Path, seed: int = 0) -> tuple[Any, Any]:
    """A random one there, and the same here."""
    special = {name: GENERATION[name] for name in ("decoder_start_token_id", "eos_token_id", "pad_token_id")}
    sizes: dict[str, Any] = {"d_model": 16, "num_mel_bins": 5, "max_source_positions": 50, "max_target_positions": 16}
    heads: dict[str, Any] = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_layers": 1}
    vocabulary = len(WORDS) + len(MARKS) + len(TIMES)
    config = transformers.WhisperConfig(vocab_size=vocabulary, decoder_layers=2, **sizes, **heads, **special)
    theirs = saved(transformers.WhisperForConditionalGeneration(config), folder, seed)
    return theirs, weights.load(folder).model


def written(model: Any, waves: Tensor, tokenizer: Tokenizer, generation: dict[str, Any], **wish: str) -> str:
    """What the reference library writes."""
    extractor = transformers.WhisperFeatureExtractor(**FEATURES)
    features = extractor(waves.numpy(), sampling_rate=16_000, return_tensors="pt").input_features
    config = transformers.GenerationConfig(**generation)
    ids = model.generate(features.double(), generation_config=config, num_beams=1, do_sample=False, **wish)
    return tokenizer.decode([index for index in ids[0].tolist() if index < len(WORDS)]).strip()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")  # the reference's, about its own options
def test_whisper_writes_what_the_reference_writes(tmp_path: Path, tokenizer: Tokenizer, seed: int) -> None:
    theirs, model = whisper(tmp_path / "a", seed)
    ours, waves = (
        SpeechRecognition(model, tokenizer, SpeechSettings.of(FEATURES, GENERATION, tokenizer)),
        sound(seed=seed),
    )
    said = written(theirs, waves, tokenizer, GENERATION)
    assert said
    assert ours.transcribe(waves) == said
    assert ours.transcribe(waves, language="German") == written(theirs, waves, tokenizer, GENERATION, language="de")
    wish = {"language": "fr", "task": "translate"}
    assert ours.transcribe(waves, language="<|fr|>", task="translate") == written(
        theirs, waves, tokenizer, GENERATION, **wish
    )
    forced = GENERATION | {"forced_decoder_ids": [[1, IDS["fr"]], [2, IDS["transcribe"]]]}
    named = SpeechRecognition(model, tokenizer, SpeechSettings.of(FEATURES, forced, tokenizer))
    assert named.transcribe(waves) == written(theirs, waves, tokenizer, forced) == ours.transcribe(waves, language="fr")
    english = {name: GENERATION[name] for name in GENERATION if name not in ("lang_to_id", "task_to_id")}
    english |= {"is_multilingual": False, "forced_decoder_ids": [[1, IDS["notimestamps"]]]}
    only = SpeechRecognition(model, tokenizer, SpeechSettings.of(FEATURES, english, tokenizer))
    assert only.transcribe(waves) == written(theirs, waves, tokenizer, english)
    assert only.language(waves) is None
    with pytest.raises(InputError, match="this model knows English only"):
        only.transcribe(waves, language="de")


def test_what_the_files_do_not_say_the_tokenizer_does(tokenizer: Tokenizer) -> None:
    told = SpeechSettings.of(FEATURES, GENERATION, tokenizer)
    silent = {name: GENERATION[name] for name in ("is_multilingual", "suppress_tokens", "begin_suppress_tokens")}
    assert SpeechSettings.of(FEATURES, {**silent, "max_new_tokens": 16}, tokenizer) == told
    assert not SpeechSettings.of(FEATURES, {}, tokenizer).languages  # so small a vocabulary is an English one
    named = SpeechSettings.of(FEATURES, GENERATION | {"language": "german"}, tokenizer)
    assert named.language == "german"


def test_languages(tmp_path: Path, tokenizer: Tokenizer) -> None:
    assert all(TO_LANGUAGE_CODE[name] == code for name, code in LANGUAGES.items())
    assert set(LANGUAGES.values()) == set(TO_LANGUAGE_CODE.values())
    assert (code_of("<|de|>"), code_of("Haitian Creole"), code_of("xx")) == ("de", "ht", "xx")
    _, model = whisper(tmp_path / "a")
    ours = SpeechRecognition(model, tokenizer, SpeechSettings.of(FEATURES, GENERATION, tokenizer))
    assert ours.language(sound()) in ("en", "de", "fr")
    with pytest.raises(InputError, match="the language 'es' is unknown to this model"):
        ours.transcribe(sound(), language="spanish")
    with pytest.raises(InputError, match=r"the task 'translat' is unknown to this model; did you mean translate\?"):
        ours.transcribe(sound(), task="translat")  # type: ignore[arg-type]


def test_files_long_sounds_and_beams(tmp_path: Path, tokenizer: Tokenizer) -> None:
    _, model = whisper(tmp_path / "a")
    ours = SpeechRecognition(model, tokenizer, SpeechSettings.of(FEATURES, GENERATION | {"language": "en"}, tokenizer))
    waves = torch.cat([sound(0.8, seed) for seed in range(11)])
    soundfile.write(tmp_path / "a.wav", waves.numpy(), 16_000, subtype="FLOAT")
    parts = list(windows(waves, 16_000, 16_000))
    assert len(parts) > 8  # more than are heard together
    whole = ours.transcribe(tmp_path / "a.wav")
    assert whole == " ".join(ours.transcribe(part) for part in parts)
    assert ours.transcribe([tmp_path / "a.wav", str(tmp_path / "a.wav")]) == [whole, whole]
    assert ours.transcribe([]) == []
    assert ours.respond(str(tmp_path / "a.wav")).text == whole
    assert ours.transcribe(parts[0], strategy=Beam(beams=1)) == ours.transcribe(parts[0])
    with pytest.raises(InputError, match="this model cannot translate: it is an encoder-decoder that transcribes"):
        ours.translate(["a"])


def test_segments_are_what_is_transcribed(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, in the language of the first; each with its time."""
    _, model = whisper(tmp_path / "a")
    ours = SpeechRecognition(model, tokenizer, SpeechSettings.of(FEATURES, GENERATION, tokenizer))
    waves = torch.cat([sound(0.8, seed) for seed in range(3)])
    asked, detected = list[str | None](), ours._detected

    def noted(logits: Tensor) -> str | None:
        asked.append(detected(logits))
        return asked[-1]

    monkeypatch.setattr(ours, "_detected", noted)
    found = list(ours.segments(ours.samples(waves)))
    assert len(asked) == 1
    assert len(found) == len(list(windows(waves, 16_000, 16_000))) > 2
    assert "".join(one.text for one in found).strip() == ours.transcribe(waves)
    assert [one.begin for one in found] == [0.0, *(one.end for one in found[:-1])]
    assert found[-1].end == len(waves) / 16_000
    first = next(ours.segments(waves, language="de"))
    assert first.text.strip() == ours.transcribe(waves[: round(first.end * 16_000)], language="de")
    with pytest.raises(InputError, match="seconds"):
        ours.samples(waves, 1.0)


def test_windows_end_in_pauses() -> None:
    rate = 1_000
    loud = np.random.default_rng(0).normal(size=100 * rate).astype(np.float32)
    pauses = (27_000, 53_500, 80_000)
    for place in pauses:
        loud[place - 150 : place + 150] *= 1e-3
    parts = list(windows(torch.from_numpy(loud), 30 * rate, rate))
    assert torch.equal(torch.cat(parts), torch.from_numpy(loud))
    assert all(len(part) <= 30 * rate for part in parts)
    ends = np.cumsum([len(part) for part in parts])[:-1]
    assert np.abs(ends - pauses).max() <= 150
    flat = list(windows(torch.zeros(65 * rate), 30 * rate, rate))  # all is quiet: windows are as long as can be
    assert [len(part) for part in flat] == [29_900, 29_900, 5_200]
    short = torch.zeros(7)
    assert [len(part) for part in windows(short, 7, 1)] == [7]
    assert sum(len(part) for part in windows(short, 2, 1)) == 7


VOCABULARY = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "E": 5, "T": 6, "A": 7, "'": 8}


@pytest.fixture
def listener(tmp_path: Path) -> tuple[Any, Any]:
    return wav2vec(tmp_path / "a")


def wav2vec(folder: Path) -> tuple[Any, Any]:
    """A random one there, and the same here."""
    embeddings: dict[str, Any] = {"conv_dim": (8, 8), "conv_kernel": (10, 4), "conv_stride": (5, 4)}
    sizes: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    around: dict[str, Any] = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    config = transformers.Wav2Vec2Config(hidden_size=16, vocab_size=9, **embeddings, **sizes, **around)
    theirs = saved(transformers.Wav2Vec2ForCTC(config), folder)
    return theirs, weights.load(folder).model


@torch.no_grad()
def test_labels_are_decoded_as_the_reference_spells_them(listener: tuple[Any, Any], tmp_path: Path) -> None:
    theirs, model = listener
    (tmp_path / "vocab.json").write_text(json.dumps(VOCABULARY))
    spells = transformers.Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json"))
    settings = CTCSettings.of({"do_normalize": True}, VOCABULARY, {"pad_token": {"content": "<pad>"}})
    ours = CTCRecognition(model, settings)

    def spelt(ids: Any) -> str:
        """Special labels stand between others like any label, and are not written."""
        return re.sub("<s>|</s>|<unk>", "", spells.decode(ids)).strip()

    for seed in range(3):
        waves = sound(0.2, seed)
        extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=True)
        values = extractor(waves.numpy(), sampling_rate=16_000, return_tensors="pt").input_values
        assert ours.transcribe(waves) == spelt(theirs(values.double()).logits.argmax(-1)[0])
    draw = np.random.default_rng(0)
    for _ in range(20):
        ids = draw.integers(0, 9, 40).repeat(draw.integers(1, 3, 40)).tolist()
        assert ours._spelled(collapsed(ids, 0)) == spelt(ids)
        path = torch.nn.functional.one_hot(torch.tensor(ids), 9).double()
        assert ours._spelled(ours._found(path, Greedy())) == spelt(ids)
    quiet = CTCSettings.of({}, VOCABULARY, {"do_lower_case": True})
    assert CTCRecognition(model, quiet)._spelled(collapsed([7, 6, 6, 0, 6, 8, 99], 0)) == "att'"


@pytest.mark.parametrize("standard", [True, False])
def test_sounds_are_as_loud_as_the_model_was_taught(
    standard: bool, listener: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, fed = CTCRecognition(listener[1], CTCSettings.of({"do_normalize": standard}, VOCABULARY, {})), list[Any]()
    right = ours._fed

    def noted(part: Any) -> Any:
        fed.append(part[None])
        return right(part)

    monkeypatch.setattr(ours, "_fed", noted)
    ours.transcribe(7 * sound(0.2) + 3)
    (heard,) = fed
    mean, spread = (0, 1) if standard else (3, 7 * float(sound(0.2).std()))
    assert (float(heard.mean()), float(heard.std())) == pytest.approx((mean, spread), abs=0.2)


def test_long_sounds_are_decoded_window_by_window(listener: tuple[Any, Any]) -> None:
    settings = CTCSettings.of({"do_normalize": False}, VOCABULARY, {}).model_copy(update={"seconds": 1})
    ours, waves = CTCRecognition(listener[1], settings), sound(2.5)
    parts = [ours.transcribe(part) for part in windows(waves, 16_000, 16_000)]
    assert ours.transcribe(waves) == " ".join(parts)
    with pytest.raises(InputError, match="leave language and task out"):
        ours.transcribe(waves, language="en")


@torch.no_grad()
def test_beams_find_the_best_labels_over_all_paths(listener: tuple[Any, Any]) -> None:
    settings = CTCSettings.of({"do_normalize": True}, VOCABULARY, {})
    ours, differs = CTCRecognition(listener[1], settings), 0
    for seed in range(6):
        waves = sound(0.1, seed)
        features = settings.features(waves)[None].double()
        seen = listener[1].encode(features, Where.run(*features.shape))
        logits = listener[1].heads["tagged"](seen.parts[0], seen)[0]
        best = prefix_beam(logits, 0, 8)[0].labels
        assert ours.transcribe(waves, strategy=Beam(beams=8)) == ours._spelled(best)
        differs += best != best_path(logits, 0)
    assert differs
    with pytest.raises(InputError, match="it takes the best path, or searches with beams"):
        ours.transcribe(sound(0.1), strategy=Sample())


def test_what_cannot_be_is_refused(tokenizer: Tokenizer, listener: tuple[Any, Any]) -> None:
    settings = SpeechSettings.of(FEATURES, GENERATION, tokenizer)
    with pytest.raises(InputError, match="needs an audio encoder and a decoder; AudioEncoder has not both"):
        SpeechRecognition(listener[1], tokenizer, settings)
    with pytest.raises(InputError, match="does not hold '<blank>', the pad_token"):
        CTCSettings.of({}, VOCABULARY, {"pad_token": "<blank>"})
    with pytest.raises(InputError, match="vocab.json must give each label a number"):
        CTCSettings.of({}, {"eng": VOCABULARY}, {})
    with pytest.raises(InputError, match="vocab.json must give each label a number"):
        CTCSettings.of({}, {"a": 10**12}, {})
    with pytest.raises(ConfigError, match="are more than heed takes at once"):
        SpeechSettings.of(FEATURES | {"chunk_length": 10**9}, GENERATION, tokenizer)
    with pytest.raises(ConfigError, match="heed takes at most"):
        CTCSettings.of({"sampling_rate": 10**9}, VOCABULARY, {})
    with pytest.raises(ConfigError, match="no token ends a text"):
        SpeechSettings(start=1, ends=())
    with pytest.raises(ConfigError, match="suppress_tokens"):
        SpeechSettings.of(FEATURES, GENERATION | {"suppress_tokens": ["a"]}, tokenizer)
    bare = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    with pytest.raises(InputError, match="names the token that begins a text"):
        SpeechSettings.of(FEATURES, {}, Tokenizer(bare))
