"""The description of the API that machines read (OpenAPI 3.1), made of the table of routes and the types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .responses import ErrorResponse

REFUSED = {
    "400": "What was asked for is wrong; the answer names the field.",
    "401": "No key, or a wrong one.",
    "403": "A page of another site called.",
    "404": "There is no such model.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not called what it must be: JSON, or a form where a file is sent.",
    "421": "The server does not answer to this Host.",
    "429": "Too many requests wait; Retry-After tells when to come again.",
    "503": "The server is ending, or the engine has failed.",
}
OF_BODIES = {"400", "404", "408", "413", "415", "429"}  # that only requests with a body get


class Described(Protocol):
    """A route, as far as it is described here."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def asks(self) -> type[BaseModel] | None: ...

    @property
    def gives(self) -> type[BaseModel] | str: ...

    @property
    def open(self) -> bool: ...

    @property
    def form(self) -> bool: ...


def described(routes: Iterable[Described], version: str, *, keyed: bool) -> dict[str, Any]:
    """The whole description. `keyed`: a key is needed."""
    table = list(routes)
    kinds = {kind for route in table for kind in (route.asks, route.gives) if isinstance(kind, type)} | {ErrorResponse}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, schemas = models_json_schema(
        [(kind, "validation") for kind in ordered], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, keyed=keyed)
    key = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "heed serve", "version": version, "summary": "Language models, exact under load."},
        "paths": paths,
        "components": {"schemas": schemas["$defs"], **({"securitySchemes": key} if keyed else {})},
    }


def _operation(route: Described, *, keyed: bool) -> Mapping[str, Any]:
    content = (
        {"application/json": {"schema": _ref(route.gives)}} if isinstance(route.gives, type) else {route.gives: {}}
    )
    if route.asks is not None and not route.form and "stream" in route.asks.model_fields:
        content = {**content, "text/event-stream": {}}
    if route.form:
        content = {**content, "text/plain": {}}
    wrong = {"application/json": {"schema": _ref(ErrorResponse)}}
    refused = {status: why for status, why in REFUSED.items() if route.asks is not None or status not in OF_BODIES}
    if "{" in route.path:
        refused["404"] = REFUSED["404"]
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{route.path}".replace("/", "_").replace("{", "").replace("}", ""),
        "responses": {
            "200": {"description": "What was asked for.", "content": content},
            **{status: {"description": why, "content": wrong} for status, why in refused.items()},
        },
    }
    if route.asks is not None:
        media = "multipart/form-data" if route.form else "application/json"
        operation["requestBody"] = {"required": True, "content": {media: {"schema": _ref(route.asks)}}}
    if "{model}" in route.path:
        text = {"type": "string"}
        operation["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": text}]
    if keyed and not route.open:
        operation["security"] = [{"key": []}]
    return operation


def _ref(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
