"""What Stripe was recorded to answer, as our own table, and the sandbox held against it.

Source: recorded against Stripe test mode 2026-09, API version 2026-08-26.dahlia (scenarios "refunds and disputes" and
"error envelope" of the MIT-licensed conformance recordings of Kiln-AI/stripe_world), retyped by field.
"""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

REFUND_KEYS = """
id object amount balance_transaction charge created currency customer customer_account destination_details metadata
payment_intent payment_method reason receipt_number source_transfer_reversal status transfer_reversal"""
DOCS = "https://stripe.com/docs/error-codes/"

# name, state of the payment, method and path, parameters, status, the whole error object but its log URL
ERRORS: list[tuple[str, str, str, dict[str, str], int, dict[str, str]]] = [
    (
        "a fully refunded charge wins over the amount check",
        "refunded",
        "POST /v1/refunds",
        {"charge": "ch_fact", "amount": "1"},
        400,
        {"code": "charge_already_refunded", "message": "Charge ch_fact has already been refunded."},
    ),
    (
        "more than is left names the amounts and has no code",
        "part refunded",
        "POST /v1/refunds",
        {"payment_intent": "pi_fact", "amount": "3000"},
        400,
        {"param": "amount", "message": "Refund amount ($30.00) is greater than unrefunded amount on charge ($25.00)"},
    ),
    (
        "neither payment_intent nor charge",
        "captured",
        "POST /v1/refunds",
        {"amount": "100"},
        400,
        {"message": "One of the following params should be provided for this request: payment_intent or charge."},
    ),
    (
        "an unknown charge is named id",
        "captured",
        "POST /v1/refunds",
        {"charge": "ch_unknown0000000000000000"},
        404,
        {"code": "resource_missing", "param": "id", "message": "No such charge: 'ch_unknown0000000000000000'"},
    ),
    (
        "a succeeded card refund cannot be cancelled",
        "part refunded",
        "POST /v1/refunds/{refund}/cancel",
        {},
        400,
        {"message": "Canceling this refund is unsupported."},
    ),
    (
        "a refund is found only under its own charge",
        "part refunded",
        "GET /v1/charges/ch_other/refunds/{refund}",
        {},
        404,
        {"code": "resource_missing", "param": "refund", "message": "No such refund: '{refund}'"},
    ),
    (
        "an authorisation is cancelled, not refunded",
        "authorised",
        "POST /v1/refunds",
        {"charge": "ch_fact", "amount": "100"},
        400,
        {
            "message": "This uncaptured Charge was created by a PaymentIntent (pi_fact). You must cancel the PaymentIntent to "
            "reverse the authorization instead of refunding the Charge directly. For more information, see "
            "https://stripe.com/docs/payments/place-a-hold-on-a-payment-method"
        },
    ),
    (
        "a charge that is charged back cannot be refunded",
        "disputed",
        "POST /v1/refunds",
        {"charge": "ch_fact", "amount": "100"},
        400,
        {"code": "charge_disputed", "message": "Charge ch_fact has been charged back; cannot issue a refund."},
    ),
    (
        "a closed dispute takes no evidence",
        "dispute lost",
        "POST /v1/disputes/{dispute}",
        {"evidence[uncategorized_text]": "winning_evidence"},
        400,
        {"message": "This dispute is already closed"},
    ),
    (
        "a closed dispute cannot be closed",
        "dispute lost",
        "POST /v1/disputes/{dispute}/close",
        {},
        400,
        {"message": "This dispute is already closed"},
    ),
    (
        "a charge without a dispute: no code",
        "captured",
        "GET /v1/charges/ch_fact/dispute",
        {},
        404,
        {"message": "No dispute for charge: ch_fact"},
    ),
    (
        "an unknown dispute",
        "captured",
        "GET /v1/disputes/du_nope",
        {},
        404,
        {"code": "resource_missing", "param": "dispute", "message": "No such dispute: 'du_nope'"},
    ),
    (
        "a limit that is no number",
        "captured",
        "GET /v1/customers",
        {"limit": "abc"},
        400,
        {"code": "parameter_invalid_integer", "param": "limit", "message": "Invalid integer: abc"},
    ),
    (
        "an unknown parameter",
        "captured",
        "GET /v1/customers",
        {"wat": "x"},
        400,
        {"code": "parameter_unknown", "param": "wat", "message": "Received unknown parameter: wat"},
    ),
    (
        "an unknown nested parameter",
        "captured",
        "POST /v1/customers",
        {"invoice_settings[nope]": "x"},
        400,
        {
            "code": "parameter_unknown",
            "param": "invoice_settings[nope]",
            "message": "Received unknown parameter: invoice_settings[nope]",
        },
    ),
    (
        "an unknown cursor is 400, not 404",
        "captured",
        "GET /v1/customers",
        {"starting_after": "cus_aaa"},
        400,
        {"code": "resource_missing", "param": "starting_after", "message": "No such customer: 'cus_aaa'"},
    ),
    (
        "both cursors",
        "captured",
        "GET /v1/customers",
        {"starting_after": "cus_a", "ending_before": "cus_b"},
        400,
        {"message": "Received both starting_after and ending_before parameters. Please pass in only one."},
    ),
]


async def _bring_about(state: str, http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]) -> dict[str, str]:
    pay(id="pi_fact", amount=3200, captured=0 if state == "authorised" else None)
    pay(id="pi_other", amount=3200)
    names: dict[str, str] = {}
    if "refunded" in state:
        amount = "700" if state == "part refunded" else "3200"
        answer = await http.post("/v1/refunds", data={"charge": "ch_fact", "amount": amount})
        names["refund"] = answer.json()["id"]
    if "dispute" in state:
        status = "lost" if state == "dispute lost" else "needs_response"
        names["dispute"] = sandbox.control("POST", "/disputes", {"payment_intent": "pi_fact", "status": status})["id"]
    return names


@pytest.mark.parametrize(("state", "call", "params", "status", "error"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
async def test_errors_are_worded_as_recorded(
    state: str,
    call: str,
    params: dict[str, str],
    status: int,
    error: dict[str, str],
    http: httpx.AsyncClient,
    sandbox: Any,
    pay: Callable[..., Any],
):
    names = await _bring_about(state, http, sandbox, pay)
    method, path = call.format_map(names).split()
    answer = await (http.post(path, data=params) if method == "POST" else http.get(path, params=params))
    got = answer.json()["error"]
    assert got.pop("request_log_url").endswith(answer.headers["request-id"])
    expected = {**error, "message": error["message"].format_map(names), "type": "invalid_request_error"}
    if "code" in expected:
        expected["doc_url"] = DOCS + expected["code"].replace("_", "-")
    assert (answer.status_code, got) == (status, expected)


async def test_a_refund_has_exactly_the_recorded_keys_in_order(http: httpx.AsyncClient, pay: Callable[..., Any]):
    pay(id="pi_fact", customer="cus_1")
    form = {"charge": "ch_fact", "amount": "1500", "reason": "duplicate", "metadata[p]": "s05"}
    refund = (await http.post("/v1/refunds", data=form)).json()
    assert list(refund) == REFUND_KEYS.split()
    assert refund["destination_details"] == {
        "card": {"reference_status": "pending", "reference_type": "acquirer_reference_number", "type": "refund"},
        "type": "card",
    }
    known = {name: refund[name] for name in ("amount", "charge", "customer", "metadata", "payment_intent", "reason", "status")}
    assert known == {
        "amount": 1500,
        "charge": "ch_fact",
        "customer": "cus_1",
        "metadata": {"p": "s05"},
        "payment_intent": "pi_fact",
        "reason": "duplicate",
        "status": "succeeded",
    }


async def test_the_acquirers_reference_appears_seconds_later(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_fact")
    refund = (await http.post("/v1/refunds", data={"payment_intent": "pi_fact"})).json()
    sandbox.control("POST", "/clock", {"advance_seconds": 2})
    card = (await http.get(f"/v1/refunds/{refund['id']}")).json()["destination_details"]["card"]
    assert (card["reference_status"], len(card["reference"]), card["reference"].isdigit()) == ("available", 16, True)


async def test_only_some_lists_carry_counts(http: httpx.AsyncClient, pay: Callable[..., Any]):
    pay(id="pi_fact")
    for amount in ("1500", "3500"):
        await http.post("/v1/refunds", data={"charge": "ch_fact", "amount": amount})
    by_charge = (await http.get("/v1/refunds", params={"charge": "ch_fact", "limit": 100})).json()
    under_charge = (await http.get("/v1/charges/ch_fact/refunds")).json()
    expanded = (await http.get("/v1/charges/ch_fact", params={"expand[]": "refunds"})).json()["refunds"]
    plain = (await http.get("/v1/charges/ch_fact")).json()
    assert [item["amount"] for item in by_charge["data"]] == [3500, 1500]
    assert (by_charge["count"], by_charge["url"], "total_count" in by_charge) == (2, "/v1/refunds", False)
    assert (under_charge["url"], "count" in under_charge) == ("/v1/charges/ch_fact/refunds", False)
    assert (expanded["total_count"], expanded["has_more"], "count" in expanded) == (2, False, False)
    assert "refunds" not in plain


async def test_the_older_paths_answer_with_charge_and_with_refund(http: httpx.AsyncClient, pay: Callable[..., Any]):
    pay(id="pi_fact", amount=4100)
    charge = (await http.post("/v1/charges/ch_fact/refund", data={"amount": "800"})).json()
    refund = (await http.post("/v1/charges/ch_fact/refunds", data={"amount": "300"})).json()
    assert (charge["object"], charge["amount_refunded"], charge["refunded"]) == ("charge", 800, False)
    assert (refund["object"], refund["amount"]) == ("refund", 300)


async def test_a_chargeback_takes_the_money_and_a_won_one_returns_all_but_the_fee(
    http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]
):
    pay(id="pi_fact", amount=6000)
    opened = sandbox.control("POST", "/disputes", {"payment_intent": "pi_fact", "status": "needs_response"})
    charge = (await http.get("/v1/charges/ch_fact")).json()
    assert (charge["disputed"], charge["dispute"], charge["amount_refunded"]) == (True, opened["id"], 0)
    reviewed = await http.post(f"/v1/disputes/{opened['id']}", data={"evidence[uncategorized_text]": "winning_evidence"})
    assert (reviewed.json()["status"], reviewed.json()["is_charge_refundable"]) == ("under_review", False)
    sandbox.control("POST", "/clock", {"advance_seconds": 5})
    won = (await http.get(f"/v1/disputes/{opened['id']}")).json()
    rows = [(row["reporting_category"], row["amount"], row["fee"], row["net"], row["currency"]) for row in won["balance_transactions"]]
    assert (won["status"], won["is_charge_refundable"]) == ("won", True)
    assert rows == [("dispute", -8391, 1500, -9891, "cad"), ("dispute_reversal", 8391, 0, 8391, "cad")]
    assert won["balance_transaction"] == won["balance_transactions"][0]["id"]
    assert (await http.post("/v1/refunds", data={"charge": "ch_fact", "amount": "100"})).status_code == 200


async def test_an_inquiry_moves_no_money_and_leaves_the_charge_refundable(http: httpx.AsyncClient):
    form = {"amount": "1700", "currency": "usd", "payment_method": "pm_card_createDisputeInquiry", "confirm": "true"}
    intent = (await http.post("/v1/payment_intents", data=form)).json()
    [inquiry] = (await http.get("/v1/disputes", params={"charge": intent["latest_charge"]})).json()["data"]
    assert (inquiry["status"], inquiry["is_charge_refundable"], inquiry["balance_transactions"]) == (
        "warning_needs_response",
        True,
        [],
    )
    assert inquiry["payment_method_details"]["card"]["case_type"] == "inquiry"
    refund = await http.post("/v1/refunds", data={"charge": intent["latest_charge"]})
    assert (refund.status_code, refund.json()["amount"]) == (200, 1700)


async def test_no_dispute_while_only_authorised(http: httpx.AsyncClient):
    form = {"amount": "4400", "currency": "usd", "payment_method": "pm_card_createDispute", "confirm": "true"}
    intent = (await http.post("/v1/payment_intents", data={**form, "capture_method": "manual"})).json()
    assert (intent["status"], intent["amount_capturable"], intent["amount_received"]) == ("requires_capture", 4400, 0)
    before = (await http.get("/v1/disputes", params={"charge": intent["latest_charge"]})).json()
    captured = (await http.post(f"/v1/payment_intents/{intent['id']}/capture")).json()
    after = (await http.get("/v1/disputes", params={"charge": intent["latest_charge"]})).json()
    assert (before["count"], before["data"], captured["amount_received"], after["count"]) == (0, [], 4400, 1)
