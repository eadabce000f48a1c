"""``/docs``: everything of the description on one page that asks nobody else for anything."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from api.examples import EXAMPLES, example_of
from api.manual import page
from refunds.orders import Strict
from tests.api.conftest import Api

LOADING = {"src", "srcset", "href", "action", "formaction", "data", "poster", "background", "cite", "ping", "manifest", "style"}
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Read(HTMLParser):
    """What a page consists of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.style = ""
        self.codes: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "code":
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        """End it."""
        assert self.open.pop() == tag, "every element ends where it should"

    def handle_data(self, data: str) -> None:
        """Take the text inside."""
        if self.open and self.open[-1] == "style":
            self.style += data
        if "code" in self.open:
            self.codes[-1] += data


@pytest.fixture(scope="module")
async def description(shared_api: Api) -> dict[str, Any]:
    """``/openapi.json``."""
    return (await shared_api.http.get("/openapi.json")).json()


@pytest.fixture(scope="module")
async def read(shared_api: Api) -> Read:
    """``/docs``."""
    return Read((await shared_api.http.get("/docs")).text)


def calls(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in description["paths"].items():
        for method, call in methods.items():
            yield method.upper(), path, call


async def test_the_page_loads_nothing_and_names_no_other_host(read: Read) -> None:
    named = [(name, value) for name, value in read.attributes if name in LOADING]

    assert [one for one in named if not re.match(r"#[A-Za-z]|/openapi\.json$", one[1])] == []
    assert [name for name, _ in read.attributes if name.startswith("on")] == []
    assert set(read.elements) & {"script", "link", "img", "iframe", "object", "embed", "form", "base"} == set()
    assert re.search(r"url\(|@import|https?:|//", read.style) is None
    assert read.open == []


async def test_the_browser_is_told_to_allow_its_own_style_and_nothing_else(shared_api: Api, read: Read) -> None:
    answer = await shared_api.http.get("/docs")

    style = base64.b64encode(hashlib.sha256(read.style.encode()).digest()).decode()
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"].split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{style}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]


@pytest.mark.parametrize("path", ["/redoc", "/docs/oauth2-redirect"])
async def test_no_other_page_of_the_framework_is_served(shared_api: Api, path: str) -> None:
    assert (await shared_api.http.get(path)).status_code == 404


async def test_every_call_every_parameter_and_every_field_is_on_it(read: Read, description: dict[str, Any]) -> None:
    codes = set(read.codes)

    assert {f"{method} {path}" for method, path, _ in calls(description)} - codes == set()
    named = {one["name"] for _, _, call in calls(description) for one in call.get("parameters", ())}
    fields = {field for schema in description["components"]["schemas"].values() for field in schema.get("properties", {})}
    values = {str(value) for schema in description["components"]["schemas"].values() for value in schema.get("enum", ())}
    assert (named | fields | values) - codes == set()


async def test_every_link_leads_to_one_place_on_it(read: Read, description: dict[str, Any]) -> None:
    places = [value for name, value in read.attributes if name == "id"]
    links = {value[1:] for name, value in read.attributes if name == "href" and value.startswith("#")}

    assert len(places) == len(set(places))
    assert links - set(places) == set()
    assert {f"schema-{name}" for name in description["components"]["schemas"]} <= set(places)
    assert sum(place.startswith(("get-", "post-", "put-", "delete-")) for place in places) == len(list(calls(description)))


def strict_models(model: type[BaseModel] = Strict) -> Iterator[type[BaseModel]]:
    yield model
    for one in model.__subclasses__():
        yield from strict_models(one)


async def test_every_example_is_one_that_the_call_would_take(read: Read, description: dict[str, Any]) -> None:
    schemas, models = description["components"], {model.__name__: model for model in strict_models()}
    shown = {code.partition("\n")[0]: code.rpartition("\n\n")[2] for code in read.codes if "\n" in code}
    bodies = {f"{method} {path}": call["requestBody"] for method, path, call in calls(description) if "requestBody" in call}

    assert set(shown) == set(bodies)
    for call, body in bodies.items():
        schema = body["content"]["application/json"]["schema"]
        example = json.loads(shown[call])
        name = schema["$ref"].rpartition("/")[2]
        wrong = [error.message for error in jsonschema.Draft202012Validator(schema | {"components": schemas}).iter_errors(example)]
        assert wrong == [], f"write an example of {name} that fits, in api/examples.py"
        if name in models:
            models[name].model_validate_json(json.dumps(example), strict=True)


async def test_no_example_is_left_over(description: dict[str, Any]) -> None:
    assert set(EXAMPLES) - set(description["components"]["schemas"]) == set()


def test_an_example_that_nobody_wrote_is_the_least_that_fits() -> None:
    schemas = {"Inner": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}, "m": {}}, "required": ["n"]}}
    schema = {
        "type": "object",
        "required": ["inner", "when", "which", "maybe", "list"],
        "properties": {
            "inner": {"$ref": "#/components/schemas/Inner"},
            "when": {"type": "string", "format": "date-time"},
            "which": {"enum": ["a", "b"]},
            "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "list": {"type": "array", "minItems": 2, "items": {"const": "x"}},
        },
    }

    made = {"inner": {"n": 3}, "when": "2026-03-01T12:00:00Z", "which": "a", "maybe": True, "list": ["x", "x"]}
    assert example_of(schema, schemas) == made


def test_what_the_description_says_is_text_and_never_markup() -> None:
    hostile = "<script>alert(1)</script> \" onload='x' `<b>`"
    schema = {
        "description": hostile,
        "type": "object",
        "properties": {hostile: {"type": "string", "description": hostile, "pattern": hostile}},
    }
    call = {"summary": hostile, "description": hostile, "tags": ["a"], "responses": {"200": {"description": hostile}}}
    info = {"title": hostile, "version": "1", "description": hostile}

    read = Read(page({"info": info, "paths": {f"/{hostile}": {"get": call}}, "components": {"schemas": {"One": schema}}}))

    assert not {"script", "b"} & set(read.elements)
    assert [name for name, _ in read.attributes if name.startswith("on")] == []
