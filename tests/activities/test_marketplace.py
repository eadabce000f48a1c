"""Refunds on a marketplace: every leg is approved with the refund, sent once after it, by itself, and settled by itself (promises P1, P3, P4, P7)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from refunds.marketplace import LegKind
from tests.activities.shop import MakeShop, Shop, Tampered, all_of, crash

SELLER, OTHER = "acct_seller", "acct_other"
BOTH: dict[str, Any] = {"reverse_transfer": True, "refund_application_fee": True}


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


async def test_field_3_the_legs_follow_the_refund_each_once_with_a_key_of_its_own(shop: Shop) -> None:
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


async def test_parts_in_any_order_end_at_exactly_the_whole(shop: Shop) -> None:
    intent = await sold(shop)
    for amount in (3_333, 1, 3_333, None):
        refund = await accepted(shop, intent, amount)
        await until_over(shop, refund)

    returned = await made(shop, intent)
    assert (sum(returned["reversals"]), sum(returned["fee_refunds"])) == (10_000, 1_000)


async def test_separate_transfers_are_each_reversed_by_themselves(shop: Shop) -> None:
    intent = await shop.paid()
    charge = (await reading(shop, intent)).charge
    for account, amount in ((SELLER, 6_001), (OTHER, 3_000)):
        await sent_on(shop, charge, account, amount)
    refund = await accepted(shop, intent, 5_000, reverse_transfer=True)

    await shop.send_legs(refund)

    assert sorted((leg["account"], leg["amount"], leg["state"]) for leg in await legs_of(shop, refund)) == [
        (OTHER, 1_500, "done"),
        (SELLER, 3_001, "done"),
    ]
    assert sorted((await made(shop, intent))["reversals"]) == [1_500, 3_001]


# --- what makes no sense, and what changed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payment", "wish", "code"),
    [
        ({}, {"reverse_transfer": True}, "NO_TRANSFER"),
        ({}, {"refund_application_fee": True}, "NO_APPLICATION_FEE"),
        ({"transfer_data": {"destination": SELLER}}, BOTH, "NO_APPLICATION_FEE"),
        ({"transfer_data": {"destination": SELLER}, "application_fee_amount": 0}, {"refund_application_fee": True}, "NO_APPLICATION_FEE"),
        ({"captured": 0}, {"reverse_transfer": True}, "NO_TRANSFER"),
    ],
)
async def test_field_37_a_leg_that_does_not_apply_is_refused_by_name(
    shop: Shop, payment: dict[str, Any], wish: dict[str, Any], code: str
) -> None:
    intent = await shop.paid(**payment)
    refund = await shop.received(intent, None, **wish)

    situation = await shop.prepared(refund)

    assert (situation.status, situation.code) == ("denied", code)
    assert await shop.asked_and_made(intent) == (0, 0)


async def test_what_came_back_already_is_refused_by_name(shop: Shop) -> None:
    intent = await sold(shop)
    transfer = await target(shop, intent, LegKind.REVERSE_TRANSFER)
    await by_hand(shop, transfer, 10_000)

    refund = await shop.received(intent, 3_000, **BOTH)

    assert (await shop.prepared(refund)).code == "TRANSFER_REVERSED"


async def test_a_way_of_the_money_that_changed_voids_the_terms(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await shop.approved(intent, 3_000, **BOTH)
    before = (await shop.row(refund))["terms_hash"]
    await by_hand(shop, await target(shop, intent, LegKind.REVERSE_TRANSFER), 9_000)

    situation = await shop.submitted(refund)

    assert (situation.status, situation.code) == ("held", "TERMS_EXPIRED")
    assert await shop.asked_and_made(intent) == (0, 0)
    assert await legs_of(shop, refund) == []
    await shop.payments.save_snapshot(
        (await shop.row(refund))["payment_id"],
        await reading(shop, intent),
    )
    await shop.steps.resume_held(refund)
    row = await shop.row(refund)
    assert row["terms_hash"] not in (None, before)
    [revision] = await shop.query("SELECT terms FROM revisions WHERE refund_id = :r AND revision = 2", r=refund)
    assert [leg["amount"] for leg in revision["terms"]["legs"]] == [1_000, 300]


async def test_an_ordinary_refund_asks_nobody_where_the_money_went(shop: Shop) -> None:
    asked: list[str] = []

    async def note() -> None:
        asked.append("flow")

    processor = Tampered(shop.processor, before={"read_flow": note})
    refund = await shop.approved(await sold(shop), 3_000)

    situation = await shop.submitted(refund, step=shop.submitting(processor))

    assert (situation.status, situation.legs_at, asked) == ("succeeded", None, [])


# --- trouble ---------------------------------------------------------------------------------------------------------------------------------


async def test_field_37_a_reversal_refused_for_want_of_money_parks_that_leg_only(shop: Shop) -> None:
    poor = f"acct_poor{len(await shop.query('SELECT id FROM refunds'))}"
    await shop.control("POST", "/accounts", {"id": poor, "available": {"usd": 0}})
    intent = await shop.paid()
    charge = (await reading(shop, intent)).charge
    for account in (poor, SELLER):
        await sent_on(shop, charge, account, 3_000)
    await shop.control("POST", "/accounts", {"id": poor, "available": {"usd": 0}})
    refund = await accepted(shop, intent, 10_000, reverse_transfer=True)

    waits_for = await until_over(shop, refund)
    for _ in range(3):
        await shop.send_legs(refund)

    found = {leg["account"]: (leg["state"], leg["code"]) for leg in await legs_of(shop, refund)}
    assert found == {poor: ("parked", "LEG_REFUSED"), SELLER: ("done", None)}
    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": []}
    row = await shop.row(refund)
    assert (row["status"], row["queue"], row["final_at"]) == ("succeeded", "settle", None)
    assert "a person to settle" in waits_for
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_an_answer_that_was_lost_is_found_and_adopted(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    await shop.fault("transfer_reversal.create", {"kind": "lose_answer"})

    assert await until_over(shop, refund) == ""

    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}
    assert await states(shop, refund) == {"reverse_transfer": "done", "refund_fee": "done"}


async def test_a_lost_request_is_repeated_with_the_same_key(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    await shop.fault("transfer_reversal.create", {"kind": "lose_request"})

    assert await until_over(shop, refund) == ""

    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}
    assert len({leg["idempotency_key"] for leg in await legs_of(shop, refund)}) == 2


@pytest.mark.parametrize("fault", [{"kind": "lose_request"}, {"kind": "status", "status": 500}])
async def test_what_nobody_can_know_is_parked_and_the_other_leg_goes_on(shop: Shop, fault: dict[str, Any]) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    await shop.fault("transfer_reversal.create", fault, times=9)

    waits_for = await until_over(shop, refund)

    assert await states(shop, refund) == {"reverse_transfer": "parked", "refund_fee": "done"}
    assert [leg["code"] for leg in await legs_of(shop, refund)] == ["OUTCOME_UNKNOWN", None]
    assert waits_for.startswith("a person to settle the reversal of $30.00")


async def test_after_the_safe_window_nothing_is_posted_again(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    await shop.fault("transfer_reversal.create", {"kind": "lose_request"}, times=1)
    await shop.send_legs(refund)
    await shop.query_nothing("UPDATE leg_attempts SET opened_at = opened_at - interval '24 hours'")

    await until_over(shop, refund)

    assert (await states(shop, refund))["reverse_transfer"] == "parked"
    assert (await made(shop, intent))["reversals"] == []


async def test_a_stop_between_the_refund_and_its_legs_keeps_them_back(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    await shop.stop()

    situation = await shop.send_legs(refund)

    assert await made(shop, intent) == {"reversals": [], "fee_refunds": []}
    assert [leg["code"] for leg in await legs_of(shop, refund)] == ["EMERGENCY_STOP"] * 2
    assert "an operator has stopped all refunds" in situation.waits_for
    await shop.stop(stopped=False)
    await shop.send_legs(refund)
    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}
    assert (await shop.entries(refund)).count("leg_held") == 2


async def test_two_workers_on_one_leg_make_it_once(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)

    await all_of([shop.send_legs(refund) for _ in range(4)])
    await until_over(shop, refund)

    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}
    assert await states(shop, refund) == {"reverse_transfer": "done", "refund_fee": "done"}


async def test_an_answer_that_is_not_what_was_approved_parks_the_leg(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)

    await shop.send_legs(refund, processor=Miscounting(shop.processor))

    [reversal, fee] = await legs_of(shop, refund)
    assert (reversal["state"], reversal["code"], reversal["detail"]) == (
        "parked",
        "RESPONSE_MISMATCH",
        "amount: approved 3000, answered 2999",
    )
    assert fee["state"] == "done"


async def test_a_crash_after_sending_is_looked_up(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    [died] = await all_of([shop.send_legs(refund, processor=Tampered(shop.processor, after={"reverse_transfer": crash}))])
    assert isinstance(died, Exception)
    await lapse(shop, refund)

    await until_over(shop, refund)

    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}


# --- a refund that fails ---------------------------------------------------------------------------------------------------------------------


async def test_a_refund_that_fails_before_its_legs_voids_them(shop: Shop) -> None:
    intent = await sold(shop, refund_outcome={"initial": "pending"})
    refund = await accepted(shop, intent)
    [at_stripe] = (await shop.truth(intent))["refunds"]
    await shop.control("POST", f"/refunds/{at_stripe['id']}", {"status": "failed"})

    situation = await shop.reconciled(refund)

    assert (situation.status, situation.legs_at) == ("failed", None)
    assert await states(shop, refund) == {"reverse_transfer": "void", "refund_fee": "void"}
    await shop.send_legs(refund)
    assert await made(shop, intent) == {"reversals": [], "fee_refunds": []}


async def test_a_refund_that_fails_after_its_legs_tells_a_person(shop: Shop) -> None:
    intent = await sold(shop, refund_outcome={"initial": "pending"})
    refund = await accepted(shop, intent)
    await shop.send_legs(refund)
    [at_stripe] = (await shop.truth(intent))["refunds"]
    await shop.control("POST", f"/refunds/{at_stripe['id']}", {"status": "failed"})

    await shop.reconciled(refund)

    notices = await shop.query("SELECT body->>'kind' AS kind FROM outbox WHERE refund_id = :r AND kind = 'notice'", r=refund)
    assert sorted(notice["kind"] for notice in notices) == ["failed", "leg_of_failed_refund", "leg_of_failed_refund"]
    assert (await shop.entries(refund)).count("leg_outlived_refund") == 2
    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}


class Miscounting(Tampered):
    """A processor that answers with another amount."""

    async def reverse_transfer(self, request: Any, **options: Any) -> Any:
        return replace(await self._inner.reverse_transfer(request, **options), amount=request.amount - 1)


class Blind(Tampered):
    """A processor whose lists do not show yet what was made."""

    async def returned_of(self, kind: LegKind, target: str) -> tuple[()]:
        return ()


# --- helpers ---------------------------------------------------------------------------------------------------------------------------------


async def reading(shop: Shop, intent: str) -> Any:
    """The payment as it is at the processor, with where its money went."""
    state = await shop.processor.read_payment(intent)
    assert state is not None
    return replace(state, flow=await shop.processor.read_flow(intent))


async def target(shop: Shop, intent: str, kind: LegKind) -> str:
    flow = (await reading(shop, intent)).flow
    return flow.transfers[0].id if kind is LegKind.REVERSE_TRANSFER else flow.fee.id


async def by_hand(shop: Shop, transfer: str, amount: int) -> str:
    """A person reverses a part of a transfer in the dashboard."""
    made: Any = await shop.processor._post("test", f"/v1/transfers/{transfer}/reversals", f"hand-{transfer}-{amount}", {"amount": amount})
    return made["id"]


async def sent_on(shop: Shop, charge: str, account: str, amount: int) -> None:
    """The platform's own program sends a part of a charge on to an account."""
    params = {"amount": amount, "currency": "usd", "destination": account, "source_transaction": charge}
    await shop.processor._post("test", "/v1/transfers", f"{charge}-{account}", params)
