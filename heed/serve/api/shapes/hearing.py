"""/v1/audio/transcriptions, typed. Fields of a form are texts, so numbers and flags are read from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from annotated_types import MaxLen, MinLen
from pydantic import AfterValidator, Field, Strict, model_validator

from ....core.config import Config
from .requests import Name
from .responses import Shape


def _greedy(value: str) -> str:
    try:
        zero = float(value) == 0
    except ValueError:
        zero = False
    if zero:
        return value
    raise ValueError("speech is transcribed greedily; leave it out, or set it to 0")


def _nothing(value: str) -> str:
    if value:
        raise ValueError("models are not told what to expect; leave it out")
    return value


class TranscriptionRequest(Config):
    """A sound whose words are asked for."""

    model: Name
    file: Annotated[bytes, Strict(), MinLen(1)] = Field(json_schema_extra={"format": "binary"})
    language: Annotated[str, Strict(), MinLen(2), MaxLen(32)] | None = None  # a code or a name; None: it is heard
    response_format: Literal["json", "text", "verbose_json"] = "json"
    granularities: Annotated[tuple[Literal["segment"], ...], MaxLen(1)] = Field(
        default=(), alias="timestamp_granularities[]"
    )
    temperature: Annotated[str, Strict(), MaxLen(32), AfterValidator(_greedy)] = "0"
    prompt: Annotated[str, Strict(), MaxLen(4096), AfterValidator(_nothing)] = ""
    stream: Literal["false", "False"] = "false"
    user: Annotated[str, Strict(), MaxLen(256)] = ""

    @model_validator(mode="after")
    def _times_are_shown(self) -> Self:
        if self.granularities and self.response_format != "verbose_json":
            raise ValueError("timestamp_granularities[] goes with response_format=verbose_json")
        return self


class Duration(Shape):
    """How long a sound was."""

    type: Literal["duration"] = "duration"
    seconds: float


class SpokenSegment(Shape):
    """What is said from one pause to the next."""

    id: int
    start: float  # seconds
    end: float
    text: str


class Transcription(Shape):
    """Of /v1/audio/transcriptions; with response_format=text it is the text alone."""

    text: str
    usage: Duration
    task: Literal["transcribe"] | None = None
    language: str | None = None  # None: the model knows one alone, or does not tell
    duration: float | None = None
    segments: list[SpokenSegment] | None = None

    def told(self, form: str) -> dict[str, Any]:
        """The fields of a form of answers."""
        return self.model_dump(include=None if form == "verbose_json" else {"text", "usage"})
