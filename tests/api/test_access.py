"""Who gets in, and how far: keys, roles, rates, people."""

import contextlib
from datetime import timedelta

import pytest
from sqlalchemy import text
from starlette.datastructures import Headers

from api.calls import unambiguous
from api.limits import AT_ONCE, FAILURES_PER_MINUTE, Limits
from refunds.errors import Code, RefundError
from refunds.people import PrincipalKind, Role
from tests.api.conftest import Api, running
from tests.conftest import FreshDatabase


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer wrong", "Bearer rfk_unknown", "rfk_unknown"])
async def test_a_wrong_or_missing_key_is_refused(shared_api: Api, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}

    answer = await shared_api.http.get("/v1/refunds", headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_revoked_key_is_out_at_once(api: Api) -> None:
    person = await api.call("POST", "/v1/people", api.administrator, {"kind": "service", "handle": "shop", "name": "Shop"})
    made = await api.call("POST", "/v1/keys", api.administrator, {"principal_id": person.json()["id"], "roles": ["requester"]})
    key = made.json()["key"]
    assert (await api.call("GET", "/v1/refunds", key)).status_code == 200

    revoked = await api.call("DELETE", f"/v1/keys/{made.json()['id']}", api.administrator)

    assert revoked.status_code == 204
    assert (await api.call("GET", "/v1/refunds", key)).status_code == 401
    assert (await api.call("DELETE", f"/v1/keys/{made.json()['id']}", api.administrator)).status_code == 204
    assert (await api.call("DELETE", "/v1/keys/key_none", api.administrator)).json()["code"] == "NOT_FOUND"


async def test_a_key_expires(api: Api) -> None:
    shop = await api.shop()
    until = (api.clock.now() + timedelta(hours=1)).isoformat()
    made = await api.call("POST", "/v1/keys", api.administrator, {"principal_id": shop.id, "roles": ["requester"], "expires_at": until})
    assert (await api.call("GET", "/v1/refunds", made.json()["key"])).status_code == 200

    api.clock.advance(timedelta(hours=1))

    assert (await api.call("GET", "/v1/refunds", made.json()["key"])).status_code == 401


async def test_keys_are_shown_once_and_never_again(api: Api) -> None:
    shop = await api.shop()
    made = await api.call("POST", "/v1/keys", api.administrator, {"principal_id": shop.id, "roles": ["requester"], "integration": "web"})

    listed = await api.call("GET", "/v1/keys", api.administrator)

    assert made.json()["key"].startswith("rfk_")
    assert made.json()["integration"] == "web"
    assert made.json()["key"] not in listed.text
    assert [key["principal_id"] for key in listed.json()["keys"]].count(shop.id) == 2


async def test_a_replaced_key_keeps_the_idempotency_keys_of_its_integration(api: Api) -> None:
    shop = await api.shop()
    body = api.asked(await api.order())
    first = await api.ask(body, key="once")
    new = {"principal_id": shop.id, "roles": ["requester"], "integration": shop.id}
    made = await api.call("POST", "/v1/keys", api.administrator, new)

    again = await api.call("POST", "/v1/refunds", made.json()["key"], body, Idempotency_Key="once")

    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


@pytest.mark.parametrize("roles", [["reviewer"], ["requester", "settler"], ["manager"], ["fraud"]])
async def test_roles_that_judge_are_for_persons(shared_api: Api, roles: list[str]) -> None:
    api = shared_api
    shop = await api.shop()

    answer = await api.call("POST", "/v1/keys", api.administrator, {"principal_id": shop.id, "roles": roles})

    assert (answer.status_code, answer.json()["field"]) == (422, "roles")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"principal_id": "pr_nobody", "roles": ["requester"]}, "principal_id"),
        ({"principal_id": "pr_nobody", "roles": []}, "roles"),
        ({"principal_id": "pr_nobody", "roles": ["emperor"]}, "roles.0"),
        ({"principal_id": "pr_nobody", "roles": ["requester"], "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ],
)
async def test_a_key_that_cannot_be_made_names_the_field(shared_api: Api, body: dict[str, object], field: str) -> None:
    answer = await shared_api.call("POST", "/v1/keys", shared_api.administrator, body)

    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_a_handle_is_taken_once_without_regard_to_case(api: Api) -> None:
    bodies = [{"kind": "person", "handle": handle, "name": "Rita"} for handle in ("rita", "Rita", "RITA")]

    answers = [await api.call("POST", "/v1/people", api.administrator, body) for body in bodies]

    assert [a.status_code for a in answers] == [201, 422, 422]
    assert {a.json()["field"] for a in answers if a.status_code == 422} == {"handle"}
    people = (await api.call("GET", "/v1/people", api.administrator)).json()["people"]
    assert [p["handle"].lower() for p in people] == ["administrator", "rita"]


FORBIDDEN = [
    ("GET", "/v1/keys", Role.REQUESTER),
    ("POST", "/v1/keys", Role.REVIEWER),
    ("POST", "/v1/people", Role.MANAGER),
    ("DELETE", "/v1/keys/key_1", Role.AUDITOR),
    ("PUT", "/v1/controls", Role.MANAGER),
    ("PUT", "/v1/orders/o1", Role.OPERATOR),
    ("POST", "/v1/refunds", Role.OPERATOR),
    ("POST", "/v1/refunds", Role.REVIEWER),
    ("POST", "/v1/tickets", Role.AUDITOR),
    ("POST", "/v1/quotes", Role.INTEGRATOR),
    ("GET", "/v1/refunds", Role.INTEGRATOR),
    ("POST", "/v1/policy/versions", Role.INTEGRATOR),
    ("GET", "/v1/policy", Role.REQUESTER),
    ("GET", "/v1/refunds/rf_00000000000000000000000000/ledger", Role.REQUESTER),
    ("POST", "/v1/refunds/rf_00000000000000000000000000/decisions", Role.REQUESTER),
    ("POST", "/v1/refunds/rf_00000000000000000000000000/revisions", Role.SETTLER),
    ("POST", "/v1/refunds/rf_00000000000000000000000000/consent", Role.REVIEWER),
    ("POST", "/v1/refunds/rf_00000000000000000000000000/withdrawal", Role.MANAGER),
    ("POST", "/v1/refunds/rf_00000000000000000000000000/settlement", Role.MANAGER),
]


@pytest.mark.parametrize(("method", "path", "role"), FORBIDDEN, ids=lambda value: str(value))
async def test_a_key_without_the_role_is_refused(shared_api: Api, method: str, path: str, role: Role) -> None:
    caller = await shared_api.caller(f"only-{role}", role)

    answer = await shared_api.call(method, path, caller, {} if method in ("POST", "PUT") else None, Idempotency_Key="k")

    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


async def test_text_is_only_for_those_who_may_read_it(api: Api) -> None:
    refund_id = await api.received(message="the box was crushed", requested_by="uwe", agent_reasoning="seems fair")
    path = f"/v1/refunds/{refund_id}"

    for name, role in (("rita", Role.REVIEWER), ("mia", Role.MANAGER), ("otto", Role.AUDITOR)):
        view = (await api.call("GET", path, await api.caller(name, role))).json()
        assert view["texts"] == {"message": "the box was crushed", "agent_reasoning": "seems fair"}
    for caller in (await api.shop(), await api.caller("sven", Role.SETTLER), api.administrator):
        answer = await api.call("GET", path, caller)
        assert answer.status_code == 200
        assert ("crushed" in answer.text) == (caller == api.administrator)  # the first administrator is an auditor too


async def test_one_key_may_only_call_so_often(database: FreshDatabase) -> None:
    async with running(database, api_rate_per_minute=5) as api:
        shop, other = await api.shop(), await api.reviewer()

        answers = [await api.call("GET", "/v1/refunds", shop) for _ in range(6)]

        assert [a.status_code for a in answers] == [200] * 5 + [429]
        assert answers[-1].json()["code"] == "RATE_LIMITED"
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 12
        assert (await api.call("GET", "/v1/refunds", other)).status_code == 200


async def test_guessing_keys_is_slowed_down_and_right_keys_still_get_in(database: FreshDatabase) -> None:
    async with running(database, api_rate_per_minute=3) as api:
        shop = await api.shop()
        assert (await api.call("GET", "/v1/refunds", shop)).status_code == 200

        guesses = [(await api.call("GET", "/v1/refunds", f"rfk_guess{n}")).status_code for n in range(5)]

        assert guesses == [401, 401, 401, 429, 429]
        assert (await api.call("GET", "/v1/refunds", shop)).status_code == 200


def test_a_bucket_fills_again_evenly() -> None:
    now = [0.0]
    limits = Limits(60, lambda: now[0])
    limits.right("key")
    for _ in range(59):
        limits.before("key")
    with pytest.raises(RefundError) as refused:
        limits.before("key")
    assert (refused.value.code, refused.value.ids["retry_after"]) == (Code.RATE_LIMITED, 1)

    now[0] = 1.0

    limits.before("key")
    with pytest.raises(RefundError):
        limits.before("key")


def test_failures_count_per_address() -> None:
    limits = Limits(6_000, lambda: 0.0)
    for _ in range(FAILURES_PER_MINUTE):
        limits.wrong("here")
    with pytest.raises(RefundError):
        limits.wrong("here")
    limits.wrong("elsewhere")


def test_wrong_keys_of_an_address_keep_no_right_key_from_being_looked_up() -> None:
    # Behind a proxy everybody shares an address, and an operator's key may be new to this process: the stop must go through.
    limits = Limits(6_000, lambda: 0.0)
    for _ in range(FAILURES_PER_MINUTE):
        limits.wrong("here")

    limits.before("an operator's key")


async def test_an_agent_asks_as_itself(api: Api) -> None:
    agent = await api.caller("helper-bot", Role.REQUESTER, kind=PrincipalKind.AGENT)

    answer = await api.ask(api.asked(await api.order(), agent_model="m", agent_session_id="s"), caller=agent)

    assert answer.json()["agent_id"] == "helper-bot"
    assert answer.json()["sources"]["amount"] == "agent"


async def test_roles_that_see_every_refund_do_not_let_a_key_speak_for_other_shops_customers(api: Api) -> None:
    view = await api.in_review()
    mixed = await api.caller("mixed", Role.REQUESTER, Role.REVIEWER)

    for what, body in (("consent", {"agreed": True, "terms_hash": view["terms_hash"]}), ("withdrawal", {})):
        answer = await api.call("POST", f"/v1/refunds/{view['id']}/{what}", mixed, body)
        assert (answer.status_code, answer.json()["code"]) == (404, "REFUND_NOT_FOUND")


async def test_text_that_cannot_be_decrypted_does_not_hide_the_refund(api: Api) -> None:
    refund_id = await api.received(message="the box was crushed")
    async with api.owner.begin() as connection:
        await connection.execute(text("UPDATE texts SET sealed = '\\x00'::bytea || sealed"))

    view = await api.call("GET", f"/v1/refunds/{refund_id}", await api.reviewer())

    assert (view.status_code, view.json()["texts"]) == (200, None)


async def test_answers_are_kept_by_no_cache(api: Api) -> None:
    assert (await api.call("GET", "/v1/refunds", await api.shop())).headers["Cache-Control"] == "no-store"


def test_one_key_cannot_crowd_out_the_rest() -> None:
    limits = Limits(6_000, lambda: 0.0)
    with contextlib.ExitStack() as under_way:
        for _ in range(AT_ONCE):
            under_way.enter_context(limits.at_once("crowd"))
        with pytest.raises(RefundError) as refused, limits.at_once("crowd"):
            pass
        assert refused.value.code is Code.RATE_LIMITED
        with limits.at_once("an operator's key"):
            pass
    with limits.at_once("crowd"):
        pass


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ([("authorization", "Bearer a"), ("authorization", "Bearer b")], "authorization"),
        ([("idempotency-key", "a"), ("idempotency-key", "b")], "idempotency-key"),
        ([("content-length", "2"), ("transfer-encoding", "chunked")], "content-length"),
    ],
)
def test_a_header_that_two_readers_could_read_differently_is_refused(headers: list[tuple[str, str]], named: str) -> None:
    with pytest.raises(RefundError) as refused:
        unambiguous(Headers(raw=[(name.encode(), value.encode()) for name, value in headers]))

    assert (refused.value.code, refused.value.field) == (Code.AMBIGUOUS_HEADER, named)


async def test_a_stranger_does_not_lengthen_the_record_of_a_refund(api: Api) -> None:
    view = await api.in_review()
    before = await api.ledger(view["id"])
    rival = await api.caller("rival", Role.REQUESTER)

    answer = await api.call("POST", f"/v1/refunds/{view['id']}/decisions", rival, {"verdict": "approve", "terms_hash": view["terms_hash"]})

    assert answer.status_code == 403
    assert await api.ledger(view["id"]) == before
