"""The description of the API, its error catalogue in the docs, and whatever anybody may send."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.app import ROUTES
from api.catalogue import printed
from api.routes.access import Approving
from api.routes.deciding import Decision
from api.routes.delegations import NewDelegation
from api.routes.reviewing import Assignment, Evidence
from refunds.errors import CATALOGUE, Code
from refunds.orders import Order
from refunds.people import Role
from refunds.requests import RefundRequest, Ticket
from refunds.wording import PATTERNS
from tests.api.conftest import Api

ROOT = Path(__file__).parents[2]


async def test_the_description_is_whole(shared_api: Api) -> None:
    schema = (await shared_api.http.get("/openapi.json")).json()

    assert schema["openapi"].startswith("3.1")
    calls = {(path, method) for path, methods in schema["paths"].items() for method in methods}
    assert len(calls) == sum(len(route.methods or ()) for route in ROUTES)
    for path, method in calls:
        call = schema["paths"][path][method]
        assert call["summary"], (path, method)
        if path.startswith("/v1/"):
            assert {"401", "403", "429", "500", "503"} <= set(call["responses"]), (path, method)
        if method in ("post", "put"):
            assert call["requestBody"]["content"]["application/json"]["schema"]["$ref"], (path, method)
    for name in _references(schema):
        assert name in schema["components"]["schemas"], f"{name} is referred to and not described"
    used = set(_references(schema))
    assert set(schema["components"]["schemas"]) - used == set()
    for body in schema["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(body)


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].removeprefix("#/components/schemas/")] if isinstance(value.get("$ref"), str) else []
        return own + [name for item in value.values() for name in _references(item)]
    return [name for item in value for name in _references(item)] if isinstance(value, list) else []


async def test_every_form_that_a_body_asks_for_has_words(shared_api: Api) -> None:
    """So that nobody has to read a regular expression to correct what they sent."""
    schemas = (await shared_api.http.get("/openapi.json")).json()
    bodies = [call["requestBody"] for methods in schemas["paths"].values() for call in methods.values() if "requestBody" in call]
    seen: set[str] = set()
    todo = set(_references(bodies))
    while todo:
        name = todo.pop()
        seen.add(name)
        todo |= set(_references(schemas["components"]["schemas"][name])) - seen
    forms = {form for name in seen for form in _patterns(schemas["components"]["schemas"][name])}

    assert len(forms) >= 5
    assert forms - set(PATTERNS) == {"^event$", "^evt_[A-Za-z0-9_]{1,250}$"}, "an event is the processor's, and nobody corrects it"


def _patterns(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["pattern"]] if isinstance(value.get("pattern"), str) else []
        return own + [form for item in value.values() for form in _patterns(item)]
    return [form for item in value for form in _patterns(item)] if isinstance(value, list) else []


async def test_the_docs_page_is_served(shared_api: Api) -> None:
    assert (await shared_api.http.get("/docs")).status_code == 200


def test_docs_errors_is_printed_from_the_catalogue() -> None:
    assert (ROOT / "docs" / "errors.md").read_text() == printed(), "print it again: python -m api.catalogue > docs/errors.md"


def test_docs_api_names_every_call_and_no_other() -> None:
    named = set(re.findall(r"^\| `([A-Z]+ /\S*)` \|", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE))

    assert named == {f"{method} {route.path}" for route in ROUTES for method in route.methods or ()}


def test_every_code_of_the_catalogue_is_printed() -> None:
    page = printed()

    assert {code for code in Code if f"| `{code}` |" in page} == set(CATALOGUE)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def bodies(*models: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with the models' own fields, some right, some with anything in them."""
    names = sorted({name for model in models for name in model.model_fields})
    plausible = st.sampled_from(
        ["usd", "order-1", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", 3000, True, "approve", "product_issue"]
    )
    return st.dictionaries(st.sampled_from(names) | st.text(max_size=8), plausible | ANYTHING, max_size=8)


REFUND = "/v1/refunds/rf_00000000000000000000000000"
FUZZED = [
    ("POST", "/v1/refunds", bodies(RefundRequest)),
    ("POST", "/v1/tickets", bodies(Ticket)),
    ("POST", "/v1/quotes", bodies(RefundRequest)),
    ("PUT", "/v1/orders/fuzzed", bodies(Order)),
    ("POST", f"{REFUND}/decisions", bodies(Decision)),
    ("POST", f"{REFUND}/revisions", bodies(RefundRequest, Decision)),
    ("POST", f"{REFUND}/consent", bodies(Decision)),
    ("POST", f"{REFUND}/settlement", bodies(Decision)),
    ("POST", f"{REFUND}/assignment", bodies(Assignment)),
    ("POST", f"{REFUND}/evidence", bodies(Evidence)),
    ("POST", "/v1/delegations", bodies(NewDelegation)),
    ("PUT", "/v1/people/pr_00000000000000000000000000/approving", bodies(Approving)),
    ("PUT", "/v1/controls", ANYTHING),
    ("POST", "/v1/keys", ANYTHING),
    ("POST", "/v1/people", ANYTHING),
    ("POST", "/v1/policy/versions", ANYTHING),
]


RAW = st.binary(max_size=60) | st.text(alphabet='{}[]":,\\u0123456789.eE+-tfn', max_size=60).map(str.encode)


@pytest.mark.parametrize(("method", "path", "body"), FUZZED, ids=[f"{method} {path}" for method, path, _ in FUZZED])
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_whatever_is_sent_is_answered_and_never_an_accident(
    shared_api: Api, method: str, path: str, body: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    sent = data.draw(body.map(lambda value: json.dumps(value).encode()) | RAW)

    answer = await shared_api.call(method, path, await shared_api.caller("everybody", *Role), sent, Idempotency_Key="fuzz")

    assert answer.status_code < 500, answer.text
