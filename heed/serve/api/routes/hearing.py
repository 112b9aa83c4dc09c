"""/v1/audio/transcriptions: what is said in a sound, window by window, so that others are written for in between."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from functools import partial

from starlette.responses import Response
from torch import Tensor

from ....core.errors import InputError
from ....pipelines.media.speech import Segment, SpeechPipeline
from ..exchange import Exchange
from ..service import NamedModel, Service
from ..shapes.hearing import Duration, SpokenSegment, Transcription, TranscriptionRequest
from ..wire.refusal import Refusal
from ..wire.sending import plain, while_there


async def transcribe(exchange: Exchange[TranscriptionRequest]) -> Response:
    """What is said in a sound."""
    asked = exchange.asked
    found = await while_there(exchange.request, _transcribed(exchange.service, asked))
    if asked.response_format == "text":
        return Response(found.text + "\n", media_type="text/plain; charset=utf-8")
    return plain(found.told(asked.response_format))


async def _transcribed(service: Service, asked: TranscriptionRequest) -> Transcription:
    served = service.model(asked.model)
    pipeline = hearing(served)
    samples = await service.prepared(partial(_samples, pipeline, asked.file, service.bounds.sound_seconds))
    segments, found = pipeline.segments(samples, language=asked.language), list[Segment]()
    while (one := await _called(service, served, segments)) is not None:
        found.append(one)
    language = asked.language
    if asked.response_format == "verbose_json" and language is None:
        heard = partial(pipeline.language, samples)
        language = await asyncio.wrap_future(service.engine.call(heard, model=served.name))
    seconds = len(samples) / pipeline.rate
    return Transcription(
        text="".join(one.text for one in found).strip(),
        usage=Duration(seconds=seconds),
        task="transcribe",
        language=language,
        duration=seconds,
        segments=[
            SpokenSegment(id=place, start=one.begin, end=one.end, text=one.text) for place, one in enumerate(found)
        ],
    )


async def _called(service: Service, served: NamedModel, segments: Iterator[Segment]) -> Segment | None:
    """The next window, heard by the engine's thread."""
    return await asyncio.wrap_future(service.engine.call(lambda: next(segments, None), model=served.name))


def hearing(served: NamedModel) -> SpeechPipeline:
    """What transcribes sounds."""
    pipeline = served.info.pipeline
    if not isinstance(pipeline, SpeechPipeline):
        raise Refusal(400, f"the model {served.name} does not transcribe sounds", "model", code="wrong_model")
    return pipeline


def _samples(pipeline: SpeechPipeline, file: bytes, longest: float) -> Tensor:
    """The samples of a file. It gets a name of its own here; the one that it had is not used for anything."""
    with tempfile.NamedTemporaryFile(prefix="heed-sound-") as held:
        held.write(file)
        held.flush()
        try:
            return pipeline.samples(held.name, longest)
        except InputError as error:
            raise Refusal(400, str(error).replace(held.name, "the file"), "file", code="invalid_file") from None
