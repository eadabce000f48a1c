"""Bad input: each kind has its own code, names its field, and leaves no refund behind."""

import json
from typing import Any

import pytest

from refunds.people import PrincipalKind, Role
from tests.api.conftest import Api

AMOUNTS: list[tuple[str, str]] = [
    ("0", "AMOUNT_NOT_POSITIVE"),
    ("-0", "AMOUNT_NOT_POSITIVE"),
    ("-1", "AMOUNT_NOT_POSITIVE"),
    ("null", "AMOUNT_REQUIRED"),
    ('""', "AMOUNT_NOT_INTEGER"),
    ('"0"', "AMOUNT_NOT_INTEGER"),
    ('"3000"', "AMOUNT_NOT_INTEGER"),
    ("0.5", "AMOUNT_NOT_INTEGER"),
    ("349.48", "AMOUNT_NOT_INTEGER"),
    ("30.0", "AMOUNT_NOT_INTEGER"),
    ("1e3", "AMOUNT_NOT_INTEGER"),
    ("true", "AMOUNT_NOT_INTEGER"),
    ("[3000]", "AMOUNT_NOT_INTEGER"),
    ("1" + "0" * 20, "AMOUNT_TOO_LARGE"),
]


@pytest.mark.parametrize(("amount", "code"), AMOUNTS)
async def test_field_43_45_an_amount_is_an_integer_above_zero(shared_api: Api, amount: str, code: str) -> None:
    api = shared_api
    body = json.dumps(api.asked(await api.order()) | {"amount": "HERE"}).replace('"HERE"', amount)
    before = await api.count("refunds")

    answer = await api.call("POST", "/v1/refunds", await api.shop(), body.encode(), Idempotency_Key="bad")

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, "amount")
    assert await api.count("refunds") == before


async def test_field_45_a_missing_amount_is_not_everything(shared_api: Api) -> None:
    body = shared_api.asked(await shared_api.order())
    del body["amount"]

    answer = await shared_api.ask(body)

    assert (answer.status_code, answer.json()["code"]) == (422, "AMOUNT_REQUIRED")


async def test_field_45_everything_is_asked_for_by_name_and_not_with_an_amount(shared_api: Api) -> None:
    body = shared_api.asked(await shared_api.order())

    assert (await shared_api.ask(body | {"full": True})).json()["code"] == "AMOUNT_AND_FULL"
    del body["amount"]
    assert (await shared_api.ask(body | {"full": True})).status_code == 202


FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"currency": "XXX"}, "UNKNOWN_CURRENCY", "currency"),
    ({"currency": None}, "UNKNOWN_CURRENCY", "currency"),
    ({"currency": 840}, "INVALID_FIELD", "currency"),
    ({"full": "yes"}, "INVALID_FIELD", "full"),
    ({"full": 1}, "INVALID_FIELD", "full"),
    ({"order_id": 7}, "INVALID_FIELD", "order_id"),
    ({"order_id": ""}, "INVALID_FIELD", "order_id"),
    ({"order_id": "o" * 201}, "INVALID_FIELD", "order_id"),
    ({"order_id": None}, "INVALID_FIELD", "order_id"),
    ({"customer_id": None}, "INVALID_FIELD", "customer_id"),
    ({"reason": "because"}, "INVALID_FIELD", "reason"),
    ({"reason": "payout"}, "OUT_OF_SCOPE", "reason"),
    ({"reason": "goodwill"}, "OUT_OF_SCOPE", "reason"),
    ({"lines": [{"id": "l1", "quantity": 0}]}, "INVALID_FIELD", "lines.0.quantity"),
    ({"lines": [{"id": "l1", "quantity": 1.0}]}, "INVALID_FIELD", "lines.0.quantity"),
    ({"lines": [{"id": "l1", "price": 3}]}, "UNKNOWN_FIELD", "lines.0.price"),
    ({"lines": [{"id": "l1"}, {"id": "l2"}, {"id": "l1", "quantity": 2}]}, "LINE_TWICE", "lines.2.id"),
    ({"lines": [{"id": "l1"}], "amount": None, "full": True}, "LINES_AND_FULL", "lines"),
    ({"shipping": True, "amount": None, "full": True}, "LINES_AND_FULL", "shipping"),
    ({"shipping": 1}, "INVALID_FIELD", "shipping"),
    ({"customer_authentication": {"method": "password"}}, "INVALID_FIELD", "customer_authentication.at"),
    ({"customer_authentication": {"method": "password", "at": "2026-01-01T10:00:00"}}, "INVALID_FIELD", "customer_authentication.at"),
    ({"customer_authentication": {"method": "password", "at": 1767261600}}, "INVALID_FIELD", "customer_authentication.at"),
    ({"message": "a\x00b"}, "INVALID_FIELD", "message"),
    ({"message": "a\x1bb"}, "INVALID_FIELD", "message"),
    ({"message": "\ud800"}, "INVALID_FIELD", "message"),
    ({"metadata": {"colour\x00": "red"}}, "INVALID_FIELD", "metadata"),
    ({"metadata": {"colour": "\udfff"}}, "INVALID_FIELD", "metadata.colour"),
    ({"metadata": {"colour": 3}}, "INVALID_FIELD", "metadata.colour"),
    ({"metadata": {f"key{n}": "x" for n in range(60)}}, "INVALID_FIELD", "metadata"),
    ({"metadata": {"refund_id": "x"}}, "INVALID_FIELD", "metadata.refund_id"),
    ({"metadata": {"k" * 41: "x"}}, "INVALID_FIELD", "metadata.kkk..."),
    ({"requested_by": ""}, "INVALID_FIELD", "requested_by"),
    ({"requested_by": "s\u0430m"}, "INVALID_FIELD", "requested_by"),
    ({"requested_by": "sam\u200b"}, "INVALID_FIELD", "requested_by"),
    ({"requested_by": "\u202emas"}, "INVALID_FIELD", "requested_by"),
    ({"channel": "E-Mail"}, "INVALID_FIELD", "channel"),
    ({"amount_cents": 3000}, "UNKNOWN_FIELD", "amount_cents"),
]


@pytest.mark.parametrize(("changed", "code", "field"), FIELDS)
async def test_a_wrong_field_is_named(shared_api: Api, changed: dict[str, Any], code: str, field: str) -> None:
    body = shared_api.asked(await shared_api.order()) | changed
    before = await shared_api.count("refunds")

    answer = await shared_api.call("POST", "/v1/refunds", await shared_api.shop(), json.dumps(body).encode(), Idempotency_Key="bad")

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, field)
    assert await shared_api.count("refunds") == before


async def test_every_problem_of_a_body_is_listed(shared_api: Api) -> None:
    body = shared_api.asked(await shared_api.order(), colour="red", full="no", customer_id=3)

    answer = await shared_api.ask(body)

    assert answer.json()["code"] == "INVALID_FIELD"
    found = {(one["field"], one["code"]) for one in answer.json()["errors"]}
    assert found == {("customer_id", "INVALID_FIELD"), ("full", "INVALID_FIELD"), ("colour", "UNKNOWN_FIELD")}


async def test_what_was_sent_is_not_repeated_in_the_answer(shared_api: Api) -> None:
    body = shared_api.asked(await shared_api.order(), message={"said": "my card is 4242"}, reason="my card is 4242")

    answer = await shared_api.ask(body)

    assert answer.status_code == 422
    assert "4242" not in answer.text


MALFORMED: list[tuple[bytes, str, int]] = [
    (b"", "MALFORMED_JSON", 400),
    (b"{", "MALFORMED_JSON", 400),
    (b"amount=3000", "MALFORMED_JSON", 400),
    (b"[]", "MALFORMED_JSON", 400),
    (b'"text"', "MALFORMED_JSON", 400),
    (b"null", "MALFORMED_JSON", 400),
    (b'{"amount": NaN}', "MALFORMED_JSON", 400),
    (b'{"amount": Infinity}', "MALFORMED_JSON", 400),
    (b'{"a": 1} {"b": 2}', "MALFORMED_JSON", 400),
    (b"\xff\xfe{}", "MALFORMED_JSON", 400),
    (b'{"message": "\xff"}', "MALFORMED_JSON", 400),
    (b'{"message": "a\x00b"}', "MALFORMED_JSON", 400),
    (b'{"a":' * 100_000, "MALFORMED_JSON", 400),
    (b"[" * 200_000 + b"]" * 200_000, "MALFORMED_JSON", 400),
    (b'{"amount": ' + b"9" * 5_000 + b"}", "MALFORMED_JSON", 400),
]


@pytest.mark.parametrize(("body", "code", "status"), MALFORMED, ids=lambda value: repr(value)[:40])
async def test_what_is_not_one_json_object_is_refused(shared_api: Api, body: bytes, code: str, status: int) -> None:
    answer = await shared_api.call("POST", "/v1/refunds", await shared_api.shop(), body, Idempotency_Key="bad")

    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(("more", "field"), [('"amount": 2', "amount"), ('"metadata": {"a": "1", "a": "2"}', "a")])
async def test_a_field_that_is_there_twice_is_refused(shared_api: Api, more: str, field: str) -> None:
    whole = json.dumps(shared_api.asked(await shared_api.order()))

    answer = await shared_api.call(
        "POST", "/v1/refunds", await shared_api.shop(), f"{whole[:-1]}, {more}}}".encode(), Idempotency_Key="bad"
    )

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "INVALID_FIELD", field)


BODIES = [
    ("POST", "/v1/refunds"),
    ("POST", "/v1/tickets"),
    ("POST", "/v1/quotes"),
    ("POST", "/v1/refunds/rf_00000000000000000000000000/decisions"),
    ("POST", "/v1/orders/import"),
    ("PUT", "/v1/orders/any"),
    ("PUT", "/v1/controls"),
    ("POST", "/v1/people"),
]


@pytest.mark.parametrize(("method", "path"), BODIES)
async def test_another_media_type_is_415_and_says_which_header_to_send(shared_api: Api, method: str, path: str) -> None:
    everybody = await shared_api.caller("everybody", *Role)

    for said in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "application/jsonp", "", "json"):
        answer = await shared_api.call(method, path, everybody, b"{}", Idempotency_Key="bad", Content_Type=said)

        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type"), said
        assert "application/json" in answer.json()["remedy"]


@pytest.mark.parametrize(
    "said", ["application/json", "Application/JSON", 'application/json; charset="UTF-8"', "application/json;v=1", None]
)
async def test_json_is_taken_however_its_header_is_written_and_without_one(shared_api: Api, said: str | None) -> None:
    headers = {"Authorization": f"Bearer {(await shared_api.shop()).key}", "Idempotency-Key": "bad"} | (
        {"Content-Type": said} if said else {}
    )

    answer = await shared_api.http.post("/v1/refunds", headers=headers, content=b'{"colour": 1}')

    assert (answer.status_code, answer.json()["errors"][-1]["code"]) == (422, "UNKNOWN_FIELD")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("colour", "colour"),
        ("betrag in cent", "betrag in cent"),
        ("größe", "größe"),
        ("x" * 41, "xxx... (41 characters)"),
        ("a\x1b[2Jb", "a... (6 characters)"),
        ("max.muster@mail.example", "max... (23 characters)"),
        ("4242 4242 4242 4242", "... (19 characters)"),
        ("tel 555-1234", "tel... (12 characters)"),
        ("rfk_abcdefghijk", "rfk... (15 characters)"),
        ("sk_live_abcd", "sk_... (12 characters)"),
        ("q1w2e3r4t5y6u7i8", "q... (16 characters)"),
        ("my card was stolen", "my... (18 characters)"),
    ],
)
async def test_a_name_that_is_not_ours_is_repeated_only_if_it_is_a_plain_one(shared_api: Api, name: str, shown: str) -> None:
    answers = [await shared_api.ask(shared_api.asked(await shared_api.order()) | {name: "x"})]
    answers.append(await shared_api.call("POST", "/v1/refunds", await shared_api.shop(), _twice(name), Idempotency_Key="bad"))

    for answer in answers:
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, shown)
        assert shown == name or name not in answer.text


def _twice(name: str) -> bytes:
    return f"{{{json.dumps(name)}: 1, {json.dumps(name)}: 2}}".encode()


async def test_of_very_many_problems_the_first_are_told_and_the_others_counted(shared_api: Api) -> None:
    body = shared_api.asked(await shared_api.order()) | {f"field{n}": 1 for n in range(500)}

    errors = (await shared_api.ask(body)).json()["errors"]

    assert [one["code"] for one in errors] == ["UNKNOWN_FIELD"] * 21
    assert errors[-1] == {"field": "", "code": "UNKNOWN_FIELD", "detail": "There are 480 more problems; correct these first."}


async def test_field_72_three_megabytes_are_too_many_and_200_000_characters_are_not(shared_api: Api) -> None:
    api = shared_api
    order = await api.order()
    too_large = await api.ask(api.asked(order, message="x" * 3_000_000))
    assert (too_large.status_code, too_large.json()["code"]) == (413, "BODY_TOO_LARGE")

    taken = await api.ask(api.asked(order, message="x" * 200_000))

    assert taken.status_code == 202
    view = await api.call("GET", f"/v1/refunds/{taken.json()['id']}", await api.reviewer())
    assert view.json()["texts"]["message"] == "x" * 200_000


async def test_field_72_the_size_is_counted_while_reading(shared_api: Api) -> None:
    async def drops() -> Any:
        for _ in range(30):
            yield b" " * 100_000

    headers = {"Authorization": f"Bearer {(await shared_api.shop()).key}", "Idempotency-Key": "bad", "Content-Type": "application/json"}

    answer = await shared_api.http.post("/v1/refunds", headers=headers, content=drops())

    assert answer.status_code == 413


@pytest.mark.parametrize("key", [None, "", "k" * 256, "k\u00e4se", "tab\there"])
async def test_a_refund_needs_a_plain_idempotency_key(shared_api: Api, key: str | None) -> None:
    body = shared_api.asked(await shared_api.order())
    headers: dict[str, Any] = {} if key is None else {"Idempotency_Key": key.encode()}
    before = await shared_api.count("refunds")

    answer = await shared_api.call("POST", "/v1/refunds", await shared_api.shop(), body, **headers)

    assert (answer.status_code, answer.json()["code"]) == (400, "IDEMPOTENCY_KEY_REQUIRED")
    assert await shared_api.count("refunds") == before


async def test_field_26_an_order_with_several_payments_needs_one_named(shared_api: Api) -> None:
    api = shared_api
    payments = [{"id": "pi_first", "amount": 4_000, "currency": "USD"}, {"id": "pi_upgrade", "amount": 2_000, "currency": "USD"}]
    order = await api.order(payments=payments)

    ambiguous = await api.ask(api.asked(order, amount=2_000))
    named = await api.ask(api.asked(order, amount=2_000, payment_id="pi_upgrade"))
    foreign = await api.ask(api.asked(order, amount=2_000, payment_id="pi_nine"))

    assert (ambiguous.status_code, ambiguous.json()["code"]) == (409, "AMBIGUOUS_PAYMENT")
    assert [(p["payment_id"], p["text"]) for p in ambiguous.json()["payments"]] == [("pi_first", "$40.00"), ("pi_upgrade", "$20.00")]
    assert named.json()["payment_id"] == "pi_upgrade"
    assert (foreign.status_code, foreign.json()["code"]) == (404, "PAYMENT_NOT_FOUND")


async def test_field_34_an_amount_in_another_currency_is_refused_and_case_does_not_matter(shared_api: Api) -> None:
    api = shared_api
    order = await api.order(currency="INR", payments=[{"id": "pi_rupees", "amount": 9_650_000, "currency": "INR"}])

    pounds = await api.ask(api.asked(order, amount=100_000, currency="GBP"))
    rupees = await api.ask(api.asked(order, amount=100_000, currency="inr"))

    assert (pounds.status_code, pounds.json()["code"], pounds.json()["payment_currency"]) == (422, "CURRENCY_MISMATCH", "INR")
    assert (rupees.status_code, rupees.json()["currency"]) == (202, "INR")


async def test_field_62_somebody_elses_order_is_simply_not_there_and_the_ledger_knows(api: Api) -> None:
    mine, theirs = await api.order(), await api.order()

    by_order = await api.ask(api.asked(theirs, customer_id=mine["customer_id"]))
    by_payment = await api.ask(api.asked(mine, payment_id=theirs["payments"][0]["id"]))
    nowhere = await api.ask(api.asked(mine, order_id="no-such-order"))

    assert (by_order.status_code, by_order.json()["code"]) == (404, "ORDER_NOT_FOUND")
    assert (by_payment.status_code, by_payment.json()["code"]) == (404, "PAYMENT_NOT_FOUND")
    told = [{k: v for k, v in a.json().items() if k != "request_id"} for a in (by_order, nowhere)]
    assert told[0] == told[1]
    rows = await api.rows("SELECT data FROM ledger WHERE type = 'ownership_mismatch' ORDER BY id")
    assert [row["data"]["code"] for row in rows] == ["ORDER_NOT_FOUND", "PAYMENT_NOT_FOUND"]
    assert await api.count("refunds") == 0


async def test_field_53_a_long_reason_is_kept_and_too_much_metadata_is_not(shared_api: Api) -> None:
    api = shared_api
    order = await api.order()

    taken = await api.ask(api.asked(order, message="r" * 20_000))
    refused = await api.ask(api.asked(order, metadata={f"k{n}": "v" for n in range(60)}))

    assert taken.status_code == 202
    assert (refused.status_code, refused.json()["field"]) == (422, "metadata")


async def test_a_refund_of_another_integration_is_not_there(api: Api) -> None:
    refund_id = await api.received()
    other = await api.caller("other-shop", Role.REQUESTER, kind=PrincipalKind.SERVICE)

    seen = await api.call("GET", f"/v1/refunds/{refund_id}", other)
    withdrawn = await api.call("POST", f"/v1/refunds/{refund_id}/withdrawal", other, {})
    listed = await api.call("GET", "/v1/refunds", other)

    assert (seen.status_code, seen.json()["code"]) == (404, "REFUND_NOT_FOUND")
    assert (withdrawn.status_code, withdrawn.json()["code"]) == (404, "REFUND_NOT_FOUND")
    assert listed.json() == {"refunds": [], "next_cursor": None}
    assert await api.ledger(refund_id) == ["refund_received"]


@pytest.mark.parametrize("path", ["/v1/refunds/rf_1", "/v1/refunds/rf_%00", "/v1/refunds/" + "x" * 3_000, "/v1/refunds/rf_" + "0" * 26])
async def test_an_id_of_nothing_is_not_found(shared_api: Api, path: str) -> None:
    answer = await shared_api.call("GET", path, await shared_api.shop())

    assert (answer.status_code, answer.json()["code"]) == (404, "REFUND_NOT_FOUND")


async def test_an_unknown_address_and_a_wrong_method_are_problems_too(shared_api: Api) -> None:
    nowhere = await shared_api.call("GET", "/v1/nothing", await shared_api.shop())
    wrong = await shared_api.call("PATCH", "/v1/refunds", await shared_api.shop(), {})

    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "NOT_FOUND")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert set(wrong.headers["Allow"].split(", ")) == {"GET", "POST"}


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ("limit=0", "limit", "INVALID_FIELD"),
        ("limit=101", "limit", "INVALID_FIELD"),
        ("status=paid", "status", "INVALID_FIELD"),
        ("cursor=abc", "cursor", "INVALID_FIELD"),
        ("cursor=bnVsbA", "cursor", "INVALID_FIELD"),
        ("created_after=yesterday", "created_after", "INVALID_FIELD"),
        ("created_after=2026-01-01T00:00:00", "created_after", "INVALID_FIELD"),
        ("order_id=%00", "order_id", "INVALID_FIELD"),
        ("colour=red", "colour", "UNKNOWN_FIELD"),
    ],
)
async def test_a_wrong_filter_is_named(shared_api: Api, query: str, field: str, code: str) -> None:
    answer = await shared_api.call("GET", f"/v1/refunds?{query}", await shared_api.shop())

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, field)


@pytest.mark.parametrize(
    ("reason", "said"),
    [("   ", "It is blank: write it out."), ("\u200b", "it is blank: write it out"), ("x" * 501, "Write at most 500 characters.")],
)
async def test_a_reason_that_is_none_is_told_in_words_and_stops_nothing(api: Api, reason: str, said: str) -> None:
    olga = await api.caller("olga", Role.OPERATOR)
    answer = await api.call("PUT", "/v1/controls", olga, {"state": "stopped", "reason": reason})

    assert (answer.status_code, answer.json()["field"], answer.json()["detail"]) == (422, "reason", said)
    assert await api.rows("SELECT 1 FROM controls WHERE stopped") == []
