"""Orders pulled over HTTP by the whole product, and refunded like any other."""

from datetime import timedelta
from typing import Any

from refunds.clock import SystemClock, rfc3339
from tests.end_to_end.whole import Whole, eventually

PATH = "/v1/orders/pull"


async def pulled(whole: Whole, **body: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """A pull once it is done, and its report by payment."""
    begun = await whole.call("shop", "POST", PATH, {"since": rfc3339(SystemClock().now() - timedelta(hours=1))} | body)
    assert begun.status_code == 202, begun.text

    async def look() -> dict[str, Any]:
        return (await whole.call("olga", "GET", begun.headers["location"])).json()

    pull = await eventually(look, lambda seen: seen["finished_at"] is not None)
    report: dict[str, dict[str, Any]] = {}
    cursor = ""
    while cursor is not None:
        page = await whole.call("olga", "GET", f"{begun.headers['location']}/payments?limit=200{cursor and f'&cursor={cursor}'}")
        report |= {one["payment_id"]: one for one in page.json()["payments"]}
        cursor = page.json()["next_cursor"]
    return pull, report


async def test_payments_become_an_order_that_is_refunded_by_a_person(whole: Whole) -> None:
    number = whole.number()
    order, customer = f"pulled-{number}", f"puller-{number}"
    named = {"order_id": order, "customer_id": customer}
    ids = [f"pi_pulled{number}x{part}" for part in (1, 2, 3)]
    for intent, amount, metadata in ((ids[0], 4_000, named), (ids[1], 2_500, named), (ids[2], 900, {"order_id": order})):
        await whole.control("POST", "/payments", {"id": intent, "amount": amount, "currency": "usd", "metadata": metadata})

    # Stripe's times are whole seconds, and so is the end of a window: what was made in this very second is in the next pull.
    async def dry() -> dict[str, Any]:
        _, report = await pulled(whole, dry_run=True)
        return {intent: report.get(intent, {}).get("outcome") for intent in ids}

    would = {ids[0]: "created", ids[1]: "created", ids[2]: "skipped"}
    assert await eventually(dry, lambda seen: None not in seen.values()) == would
    assert (await whole.call("shop", "GET", f"/v1/orders/{order}")).status_code == 404

    pull, report = await pulled(whole)
    assert pull["phase"] == "done"
    assert {intent: report[intent]["outcome"] for intent in ids} == would
    assert report[ids[2]]["code"] == "NO_CUSTOMER_ID"
    _, again = await pulled(whole)
    assert {intent: again[intent]["outcome"] for intent in ids} == {ids[0]: "unchanged", ids[1]: "unchanged", ids[2]: "skipped"}

    # When it was delivered nobody knows, so a person looks; then it is a refund like any other.
    asked = {
        "order_id": order,
        "payment_id": ids[1],
        "customer_id": customer,
        "amount": 2_500,
        "currency": "USD",
        "reason": "product_issue",
        "channel": "email",
        "customer_authentication": {"method": "password", "at": "2026-01-01T00:00:00Z"},
    }
    answer = await whole.call("shop", "POST", "/v1/refunds", asked, Idempotency_Key=f"pulled-{number}")
    refund = answer.json()["id"]
    await whole.until(refund, "awaiting_review")
    assert (await whole.decide("rita", refund)).status_code == 200
    await whole.until(refund, "succeeded")
    assert (await whole.truth(ids[1])).amounts == [2_500]
    assert (await whole.truth(ids[0])).amounts == []
