"""Refunds on a marketplace: every leg is approved with the refund, sent once after it, by itself, and settled by itself (promises P1, P3, P4, P7)."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from refunds.errors import Code, RefundError
from refunds.marketplace import LegKind
from store import decisions
from tests.activities.shop import MakeShop, Shop, Tampered, all_of, crash

SELLER, OTHER = "acct_seller", "acct_other"
BOTH = {"reverse_transfer": True, "refund_application_fee": True}


@pytest.fixture
async def shop(make_shop: MakeShop) -> AsyncIterator[Shop]:
    shop = await make_shop(submit_max_attempts=2)
    for account in (SELLER, OTHER):
        await shop.control("POST", "/accounts", {"id": account, "available": None})
    yield shop
    await shop.stop(stopped=False)


async def sold(shop: Shop, **more: Any) -> str:
    """A destination charge of 100.00: all of it transferred to the seller, of which 10.00 came back as the platform's fee."""
    return await shop.paid(transfer_data={"destination": SELLER}, application_fee_amount=1_000, **more)


async def accepted(shop: Shop, intent: str, amount: int | None = 3_000, **wish: Any) -> str:
    """A refund with legs that the processor has accepted, and whose legs are due."""
    refund = await shop.approved(intent, amount, **(wish or BOTH))
    assert (await shop.submitted(refund)).legs_at is not None
    return refund


async def legs_of(shop: Shop, refund: str) -> list[dict[str, Any]]:
    return await shop.query("SELECT * FROM legs WHERE refund_id = :r ORDER BY created_at, number", r=refund)


async def states(shop: Shop, refund: str) -> dict[str, str]:
    return {leg["kind"]: leg["state"] for leg in await legs_of(shop, refund)}


async def made(shop: Shop, intent: str) -> dict[str, list[int]]:
    """What was really returned of transfers and fees of a payment."""
    truth = await shop.truth(intent)
    return {name: [found["amount"] for found in truth[name]] for name in ("reversals", "fee_refunds")}


async def until_over(shop: Shop, refund: str, **parts: Any) -> str:
    """Repeat the step as the run does, when it is due; returns what the legs wait for in the end."""
    for _ in range(40):
        row = await shop.row(refund)
        if row["legs_at"] is None or all(leg["state"] == "parked" for leg in await legs_of(shop, refund) if leg["state"] != "done"):
            return row["legs_detail"] or ""
        shop.clock.advance(max(row["legs_at"] - shop.clock.now(), timedelta(0)))
        await shop.send_legs(refund, **parts)
    raise AssertionError(f"it never ended: {await shop.row(refund)}")


async def lapse(shop: Shop, refund: str) -> None:
    """Let the time pass in which open attempts of legs may still be sent and answered."""
    await shop.query_nothing(
        "UPDATE leg_attempts SET send_by = clock_timestamp() - interval '1 hour' WHERE (outcome IS NULL OR outcome = 'unknown')"
        " AND leg_id IN (SELECT id FROM legs WHERE refund_id = :r)",
        r=refund,
    )


# --- the straight way ----------------------------------------------------------------------------------------------------------------------


async def test_the_legs_follow_the_refund_each_once_with_a_key_of_its_own(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    assert await made(shop, intent) == {"reversals": [], "fee_refunds": []}
    assert (await shop.row(refund))["final_at"] is None

    situation = await shop.send_legs(refund)

    assert (situation.status, situation.legs_at) == ("succeeded", None)
    assert (await shop.row(refund))["final_at"] is not None
    assert await states(shop, refund) == {"reverse_transfer": "done", "refund_fee": "done"}
    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}
    keys = {leg["idempotency_key"] for leg in await legs_of(shop, refund)}
    assert keys == {f"refunds-{leg['kind']}-test-{leg['id']}" for leg in await legs_of(shop, refund)}
    entries = [entry for entry in await shop.entries(refund) if entry.startswith("leg_")]
    assert entries == ["leg_intended", "leg_intended", *["leg_attempt_opened", "leg_done"] * 2]


async def test_a_finished_leg_is_never_repeated(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)

    for _ in range(4):
        await shop.send_legs(refund)

    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}
    assert (await shop.entries(refund)).count("leg_attempt_opened") == 2


async def test_the_terms_say_each_leg_exactly(shop: Shop) -> None:
    intent = await sold(shop)
    with_legs, without = await shop.approved(intent, 3_000, **BOTH), await shop.approved(intent, 2_000)

    terms = {r["refund_id"]: r for r in await shop.query("SELECT refund_id, terms, terms_hash FROM revisions")}

    assert [(leg["kind"], leg["account"], leg["amount"], leg["amount_text"]) for leg in terms[with_legs]["terms"]["legs"]] == [
        ("reverse_transfer", SELLER, 3_000, "$30.00"),
        ("refund_fee", SELLER, 300, "$3.00"),
    ]
    assert "legs" not in terms[without]["terms"]
    assert await legs_of(shop, without) == []
