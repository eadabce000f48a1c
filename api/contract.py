"""What the OpenAPI description says beyond the routes: bodies that are read by hand, the errors of each call, and how keys are sent."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from api.problems import MEDIA_TYPE, http_status
from refunds.errors import CATALOGUE, Code

REF = "#/components/schemas/{model}"
_bodies: set[type[BaseModel]] = set()


class ProblemField(BaseModel):
    """One thing that is wrong with a body."""

    field: str
    code: str
    detail: str


class Problem(BaseModel):
    """An error (RFC 9457). Ids it is about, such as ``refund``, follow as further members."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: Code
    retryable: bool
    remedy: str
    request_id: str
    field: str | None = None
    errors: list[ProblemField] = Field(default_factory=list[ProblemField])


_EVERY_KEY = (Code.UNAUTHENTICATED, Code.FORBIDDEN)
_EVERY_CALL = (Code.RATE_LIMITED, Code.STORE_UNAVAILABLE, Code.SEALED_UNREADABLE, Code.INTERNAL)
_EVERY_BODY = (Code.MALFORMED_JSON, Code.UNSUPPORTED_MEDIA_TYPE, Code.BODY_TOO_LARGE, Code.INVALID_FIELD, Code.UNKNOWN_FIELD)


def errors(*codes: Code, body: bool = False, key: bool = True) -> dict[int | str, dict[str, Any]]:
    """The error answers of a call: its own codes, those of every call, with ``body`` those of every body, and those of a key unless it carries none."""
    by_status: dict[int | str, list[Code]] = {}
    for code in dict.fromkeys((*codes, *(_EVERY_BODY if body else ()), *(_EVERY_KEY if key else ()), *_EVERY_CALL)):
        by_status.setdefault(http_status(code), []).append(code)
    return {
        status: {
            "description": " ".join(f"`{code}`: {CATALOGUE[code].meaning}" for code in found),
            "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(model="Problem")}}},
        }
        for status, found in by_status.items()
    }


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """The description of a body that the call reads and checks by itself."""
    _bodies.add(model)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": {"$ref": REF.format(model=model.__name__)}}}}}


def shows(model: type[BaseModel], *others: str) -> dict[str, Any]:
    """The description of an answer that is given as JSON or, when it is asked for, as another media type."""
    _bodies.add(model)
    as_json = {"application/json": {"schema": {"$ref": REF.format(model=model.__name__)}}}
    return {"content": as_json | {media_type: {"schema": {"type": "string"}} for media_type in others}}


def streams(model: type[BaseModel], media_type: str) -> dict[str, Any]:
    """The description of an answer that is a stream of lines, each of them as the model says."""
    _bodies.add(model)
    return {"content": {media_type: {"schema": {"$ref": REF.format(model=model.__name__)}}}}


KEY_HEADER = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": True,
            "description": "New for each refund; the same key with the same body may be repeated for ever and makes one refund.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
        }
    ]
}
"""The header that makes asking safe to repeat."""


def sent_by_stripe(model: type[BaseModel]) -> dict[str, Any]:
    """The description of an event: its body, and the header that signs it."""
    signature = {
        "name": "Stripe-Signature",
        "in": "header",
        "required": True,
        "description": '`t=<seconds since 1970>,v1=<HMAC-SHA256 of "t.body" in hex>`, as https://docs.stripe.com/webhooks describes.',
        "schema": {"type": "string"},
    }
    return takes(model) | {"parameters": [signature]}


def describe(app: FastAPI) -> None:
    """Make ``/openapi.json`` complete."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(app)
        return app.openapi_schema

    app.openapi = openapi


def _complete(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    models = sorted({*_bodies, Problem}, key=lambda model: model.__name__)
    _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    components = schema.setdefault("components", {})
    components.setdefault("schemas", {}).update(definitions["$defs"])
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "An API key, such as `rfk_...`."}}
    schema["security"] = [{"key": []}]
    for path, calls in schema["paths"].items():
        for call in calls.values():
            if not path.startswith("/v1/"):
                call["security"] = []
            # FastAPI's own error form is never answered here.
            if REF.format(model="HTTPValidationError") in str(call["responses"].get("422", "")):
                del call["responses"]["422"]
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    return schema
