"""Sounds from files, and features beside those of the reference library."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]
import torch
import transformers

from heed.core.errors import ConfigError, InputError, MissingExtra
from heed.media.sounds import LogMel, mel_filters, read, standardised

DRAW = np.random.default_rng(0)


def tone(seconds: float, rate: int, hertz: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_a_file_gives_its_samples(tmp_path: Path, suffix: str) -> None:
    wave = tone(0.5, 16_000)
    soundfile.write(tmp_path / f"a.{suffix}", wave, 16_000)
    found = read(tmp_path / f"a.{suffix}")
    assert (found.dtype, found.shape) == (torch.float32, (8000,))
    # 16 bits are 3e-5 of the full scale; Ogg Vorbis loses more
    assert (found - torch.from_numpy(wave)).abs().max() < (0.1 if suffix == "ogg" else 1e-4)


def test_channels_are_averaged_and_rates_converted(tmp_path: Path) -> None:
    wave = tone(1.0, 44_100)
    soundfile.write(tmp_path / "a.wav", np.stack((wave, 0 * wave), 1), 44_100)
    found = read(str(tmp_path / "a.wav"))
    assert len(found) == pytest.approx(16_000, abs=2)
    middle = slice(2_000, 14_000)  # away from the ends, where a filter has less to go by
    assert np.abs(found.numpy()[middle] - tone(1.0, 16_000)[middle] / 2).max() < 1e-3


def test_samples_may_be_given_instead() -> None:
    wave = tone(0.1, 16_000)
    assert torch.equal(read(wave), torch.from_numpy(wave))
    assert read(torch.from_numpy(wave).double()).dtype == torch.float32


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((2, 50), np.float32), r"average the channels"),
        (np.zeros(50, np.int16), r"divide whole numbers"),
        (np.array([0.0, np.nan]), r"not numbers"),
        (np.zeros(0), r"a sound of no samples"),
        (np.zeros(16_000 * 3), r"3 seconds of sound; at most 2 are read at once"),
        ("nowhere.wav", r"nowhere.wav is not a file"),
    ],
)
def test_what_is_no_sound_is_refused(given: np.ndarray | str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(given, longest=2)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF" + bytes(100))
    with pytest.raises(InputError, match="cannot be read as a sound"):
        read(tmp_path / "a.wav")
    soundfile.write(tmp_path / "b.wav", np.zeros(0, np.float32), 16_000)
    with pytest.raises(InputError, match="holds no samples"):
        read(tmp_path / "b.wav")
    soundfile.write(tmp_path / "c.wav", np.zeros(100, np.float32), 10)
    with pytest.raises(InputError, match="has 10 samples per second"):
        read(tmp_path / "c.wav")
    soundfile.write(tmp_path / "d.wav", tone(3.0, 16_000), 16_000)
    with pytest.raises(InputError, match="at most 2 are read"):
        read(tmp_path / "d.wav", longest=2)


def test_a_header_that_claims_less_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that does not say: what is read is counted."""
    soundfile.write(tmp_path / "a.wav", tone(0.5, 16_000), 16_000)
    blocks = [np.zeros((16_000, 1), np.float32)] * 3
    monkeypatch.setattr(soundfile.SoundFile, "blocks", lambda *given, **more: iter(blocks))
    with pytest.raises(InputError, match="at most 2 are read"):
        read(tmp_path / "a.wav", longest=2)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile.write(tmp_path / "a.wav", tone(0.1, 8_000), 8_000)
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(MissingExtra, match=r'soxr is not installed; run: pip install "heed-attention\[audio\]"'):
        read(tmp_path / "a.wav")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingExtra, match="soundfile is not installed"):
        read(tmp_path / "a.wav")


@pytest.mark.parametrize(("bins", "window", "step"), [(80, 400, 160), (128, 400, 160), (40, 512, 128)])
def test_log_mels_are_whispers(bins: int, window: int, step: int) -> None:
    theirs = transformers.WhisperFeatureExtractor(
        feature_size=bins, n_fft=window, hop_length=step, chunk_length=2, sampling_rate=16_000
    )
    ours = LogMel(bins=bins, window=window, step=step)
    for wave in (tone(1.3, 16_000), DRAW.normal(size=20_000).astype(np.float32) / 10, np.zeros(100, np.float32)):
        wanted = theirs(wave, sampling_rate=16_000, return_tensors="pt").input_features[0]
        padded = torch.nn.functional.pad(torch.from_numpy(wave), (0, 32_000 - len(wave)))
        found = ours(padded)
        assert found.shape == (32_000 // step, bins)
        assert (found.mT - wanted).abs().max() < 1e-5
    filters = mel_filters(bins, window, 16_000)
    assert np.abs(filters.numpy().T - theirs.mel_filters).max() < 1e-12


def test_samples_are_standardised_as_wav2vec2s() -> None:
    theirs = transformers.Wav2Vec2FeatureExtractor(do_normalize=True)
    for wave in (0.3 + tone(0.7, 16_000), DRAW.normal(size=5_000).astype(np.float32), np.zeros(99, np.float32)):
        wanted = theirs(wave, sampling_rate=16_000, return_tensors="pt").input_values[0]
        assert (standardised(torch.from_numpy(wave)) - wanted).abs().max() < 1e-5


def test_features_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="are no features of a sound"):
        LogMel(bins=10**9)
    with pytest.raises(InputError, match="a spectrogram needs more than 200 samples, not 200"):
        LogMel()(torch.zeros(200))
