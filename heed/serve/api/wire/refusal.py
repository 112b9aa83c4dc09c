"""What a server refuses, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from pydantic import ValidationError

from ....core.config import Config, explain
from ....core.errors import HeedError
from ...answer import Busy, EngineStopped, RequestFailed

C = TypeVar("C", bound=Config)

TOLD = 8  # problems of one request that its answer lists
LONGEST = 1000  # characters of a message
FIELDS = 128  # of a request

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refusal(HeedError):
    """A request that is not done: the status to answer with, and why.

    `param`: the field that is to blame. `code`: a word for machines.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        *,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code, dict(headers or {})

    @property
    def kind(self) -> str:
        """OpenAI's type of the error."""
        return TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    def data(self) -> dict[str, Any]:
        """For the body of the response."""
        text = str(self)
        shown = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
        return {"error": {"message": shown, "type": self.kind, "param": self.param, "code": self.code}}


def refusal_of(error: HeedError) -> Refusal:
    """What heed raises, as a response."""
    match error:
        case Refusal():
            return error
        case Busy():
            wait = str(max(1, math.ceil(error.retry_after)))
            return Refusal(429, str(error), code="busy", headers={"retry-after": wait})
        case EngineStopped():
            return Refusal(503, str(error), code="engine_stopped")
        case RequestFailed():  # the message of what is no error of heed's may tell of the inside
            told = str(error) if isinstance(error.__cause__, HeedError) else "this request failed; others go on"
            return Refusal(500, told, code="request_failed")
        case _:  # what was asked for cannot be
            return Refusal(400, str(error))


def typed(kind: type[C], data: Mapping[str, Any]) -> C:
    """Plain data as a request, or a refusal that names what is wrong with it."""
    if len(data) > FIELDS:
        raise Refusal(400, f"{len(data):,} fields; a request has at most {FIELDS}", code="invalid_value")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        text = _listed(explain(error, kind), error.error_count())
        raise Refusal(400, text, _place(error), code="invalid_value") from None


def _listed(problems: Iterator[str], count: int) -> str:
    """The first problems; each tells what was given and what is allowed. All would take their time to be worded."""
    some = [problem.replace("\n", " ") for problem in islice(problems, TOLD)]
    return "; ".join(some + (["and more"] if count > TOLD else []))


def _place(error: ValidationError) -> str | None:
    """The field of the request in which the first problem lies."""
    place = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
    inside = [str(step) for step in place[:1]]
    return inside[0] if inside else None  # what does not go together
