"""/v1/audio/transcriptions over HTTP: sounds in forms, models that hear by decoding and by CTC, hostile bodies."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
import soundfile  # type: ignore[import-untyped]
import torch
from torch import Tensor

from heed.pipelines.media.ctc import CTCRecognition, CTCSettings
from heed.pipelines.media.speech import SpeechPipeline, SpeechRecognition, windows
from heed.pipelines.media.speech_settings import SpeechSettings
from heed.serve import Engine, Limits
from heed.text import Tokenizer
from tests.pipelines.media.test_transcribe import (
    FEATURES,
    GENERATION,
    VOCABULARY,
    sound,
    tokenizer,
    wav2vec,
    whisper,
)
from tests.serve.api.serving import Live, running

__all__ = ["tokenizer"]  # a fixture
PATH = "/v1/audio/transcriptions"
WAVES = torch.cat([sound(0.8, seed) for seed in range(3)])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> dict[str, SpeechPipeline]:
    folder = tmp_path_factory.mktemp("speech")
    settings = CTCSettings.of({"do_normalize": False}, VOCABULARY, {}).model_copy(update={"seconds": 1})
    return {
        "whisper": SpeechRecognition(
            whisper(folder / "whisper")[1], tokenizer, SpeechSettings.of(FEATURES, GENERATION, tokenizer)
        ),
        "ctc": CTCRecognition(wav2vec(folder / "ctc")[1], settings),
    }


@pytest.fixture(scope="module")
def live(models: dict[str, SpeechPipeline]) -> Iterator[Live]:
    with Engine(models, Limits(memory=1 << 24, rows=2)) as engine, running(engine, sound=1 << 17) as found:
        yield found


def wav(waves: Tensor) -> bytes:
    held = io.BytesIO()
    soundfile.write(held, waves.numpy(), 16_000, format="WAV", subtype="FLOAT")
    return held.getvalue()


def short(waves: Tensor) -> bytes:
    held = io.BytesIO()
    soundfile.write(held, waves.numpy(), 16_000, format="FLAC")
    return held.getvalue()


def form(fields: dict[str, Any], boundary: str = "bbb") -> tuple[bytes, dict[str, str]]:
    """A body and its headers; values that are bytes are files."""
    body = b""
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            file = b'; filename="../../x.wav"\r\nContent-Type: audio/wav' if isinstance(one, bytes) else b""
            held = one if isinstance(one, bytes) else str(one).encode()
            body += b'--%b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (
                boundary.encode(), name.encode(), file, held,
            )  # fmt: skip
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def ask(live: Live, **fields: Any) -> tuple[int, Any]:
    raw, headers = form(fields)
    return live.ask(PATH, raw, headers=headers)[:2]


@pytest.mark.parametrize("name", ["whisper", "ctc"])
def test_sounds_are_transcribed(live: Live, models: dict[str, SpeechPipeline], name: str) -> None:
    heard = soundfile.read(io.BytesIO(short(WAVES)), dtype="float32")[0]
    wanted = models[name].transcribe(torch.from_numpy(heard))
    status, found = ask(live, model=name, file=short(WAVES), temperature="0", prompt="", stream="false")
    assert status == 200, found
    assert found == {"text": wanted, "usage": {"type": "duration", "seconds": len(WAVES) / 16_000}}
    assert ask(live, model=name, file=short(WAVES), response_format="text") == (200, wanted + "\n")
    granular = {"response_format": "verbose_json", "timestamp_granularities[]": ["segment"]}
    status, told = ask(live, model=name, file=short(WAVES), **granular)
    assert status == 200, told
    assert (told["text"], told["duration"], told["task"]) == (wanted, len(WAVES) / 16_000, "transcribe")
    assert told["language"] == models[name].language(torch.from_numpy(heard))
    segments = told["segments"]
    assert len(segments) == len(list(windows(WAVES, 16_000, 16_000))) > 2
    assert "".join(one["text"] for one in segments).strip() == wanted
    assert [one["start"] for one in segments[1:]] == [one["end"] for one in segments[:-1]]


def test_openai(live: Live, models: dict[str, SpeechPipeline]) -> None:
    openai: Any = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
        create, sound_ = client.audio.transcriptions.create, ("a.flac", short(WAVES))
        found = create(model="whisper", file=sound_, language="german")
        told = create(model="whisper", file=sound_, response_format="verbose_json", timestamp_granularities=["segment"])
        text = create(model="ctc", file=sound_, response_format="text")
    heard = torch.from_numpy(soundfile.read(io.BytesIO(short(WAVES)), dtype="float32")[0])
    assert found.text == models["whisper"].transcribe(heard, language="de")
    assert [one.id for one in told.segments] == list(range(len(told.segments)))
    assert text.strip() == models["ctc"].transcribe(heard)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no file": ({"file": ""}, "file"),
    "an empty file": ({"file": b""}, "file"),
    "no sound": ({"file": b"RIFF" + bytes(100)}, "file"),
    "temperature": ({"temperature": "0.5"}, "temperature"),
    "no number": ({"temperature": "x"}, "temperature"),
    "a prompt": ({"prompt": "so"}, "prompt"),
    "subtitles": ({"response_format": "srt"}, "response_format"),
    "a stream": ({"stream": "true"}, "stream"),
    "words": ({"response_format": "verbose_json", "timestamp_granularities[]": ["word"]}, "timestamp_granularities[]"),
    "an unknown language": ({"language": "klingon"}, ""),
    "something else": ({"cunking_strategy": "auto"}, "cunking_strategy"),
    "a file for a name": ({"language": b"de"}, "language"),
    "a long name": ({"language": "a" * 5000}, "language"),
}


@pytest.mark.parametrize(("fields", "param"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(live: Live, fields: dict[str, Any], param: str) -> None:
    status, found = ask(live, **{"model": "whisper", "file": wav(sound(0.2)), **fields})
    assert status == 400, found
    assert found["error"]["param"] == (param or None)
    assert "heed-sound" not in found["error"]["message"], "no place of this machine is told"


def test_what_hears_nothing_is_refused(real: Live) -> None:
    raw, headers = form({"model": "chain", "file": wav(sound(0.2))})
    assert real.ask(PATH, raw, headers=headers)[1]["error"]["code"] == "wrong_model"


HOSTILE: dict[str, tuple[bytes, str, int]] = {
    "JSON": (b"{}", "application/json", 415),
    "no boundary": (b"--b--", "multipart/form-data", 415),
    "nothing": (b"", "multipart/form-data; boundary=b", 400),
    "no end": (b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx', "multipart/form-data; boundary=b", 400),
    "no name": (b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--", "multipart/form-data; boundary=b", 400),
    "no head": (b"--b\r\nx\r\n--b--", "multipart/form-data; boundary=b", 400),
    "a long head": (
        b'--b\r\nContent-Disposition: form-data; name="a"' + b" " * 5000 + b"\r\n\r\nx\r\n--b--",
        "multipart/form-data; boundary=b", 400,
    ),
    "many parts": (form({f"f{n}": "x" for n in range(40)})[0], "multipart/form-data; boundary=bbb", 400),
    "twice": (
        form({"a": "x"})[0].replace(b"--bbb--\r\n", b"") + form({"a": "y"})[0],
        "multipart/form-data; boundary=bbb", 400,
    ),
    "no text": (form({"a": "x"})[0].replace(b"\r\nx\r\n", b"\r\n\xff\r\n"), "multipart/form-data; boundary=bbb", 400),
    "a million boundaries": (b"--b\r\n" * 20_000, "multipart/form-data; boundary=b", 400),
    "too large": (bytes(1 << 18), "multipart/form-data; boundary=b", 413),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "kind", "status"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_forms_are_refused(live: Live, raw: bytes, kind: str, status: int) -> None:
    found = live.ask(PATH, raw, headers={"Content-Type": kind}, method="POST")
    assert found[0] == status, found[1]


def test_what_a_form_holds_is_what_was_put_in() -> None:
    from heed.serve.api.wire.form import fields

    held = bytes(range(256)) * 3 + b"\r\n--bb\r\nx--bbbb--"
    raw, _ = form({"file": held, "a[]": ["1", "né"], "b": "\r\n"}, "bbbb")
    assert fields(raw, b"bbbb") == {"file": held, "a[]": ["1", "né"], "b": "\r\n"}


def test_long_sounds_are_refused(models: dict[str, SpeechPipeline]) -> None:
    with Engine(models, Limits(memory=1 << 24)) as engine, running(engine, sound_seconds=1.0) as live:
        status, found = ask(live, model="whisper", file=wav(sound(1.5)))
        assert (status, found["error"]["param"]) == (400, "file")
        assert ask(live, model="whisper", file=wav(sound(0.5)))[0] == 200
