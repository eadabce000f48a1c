"""The refunds of the whole account, page by page: what the reconciliation sweep reads (promises P2 and P7)."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.processors.stripe import StripeProcessor
from refunds.processor import NotSent, ProcessorRefund
from tests.activities.processors.conftest import MakeProcessor, answering, request_for, serving, soon
from tests.activities.processors.test_foreign_answers import REFUND, WRONG
from tests.conftest import Sandbox

ALWAYS: dict[str, Any] = {"created_from": datetime(2000, 1, 1, tzinfo=UTC), "created_to": datetime(2100, 1, 1, tzinfo=UTC)}


def paid(sandbox: Sandbox, intent: str = "pi_1", amount: int = 1_000_000) -> str:
    sandbox.control("POST", "/payments", {"id": intent, "amount": amount, "currency": "usd"})
    return intent


def dashboard(sandbox: Sandbox, amount: int = 100, **more: Any) -> dict[str, Any]:
    """A refund made past us."""
    return sandbox.control("POST", "/refunds", {"payment_intent": "pi_1", "amount": amount} | more)


async def every_page(processor: StripeProcessor, limit: int, **window: Any) -> list[tuple[ProcessorRefund, ...]]:
    pages: list[tuple[ProcessorRefund, ...]] = []
    after = None
    while True:
        found = await processor.list_refunds(after=after, limit=limit, **(ALWAYS | window))
        pages.append(found.refunds)
        after = found.next_after
        if after is None:
            return pages


async def test_several_pages_hold_every_refund_of_the_account_once_and_newest_first(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    paid(sandbox, "pi_2")
    made = [dashboard(sandbox, 100 + n, payment_intent=f"pi_{n % 2 + 1}")["id"] for n in range(7)]

    pages = await every_page(processor, limit=3)

    assert [[refund.id for refund in page] for page in pages] == [made[:3:-1], made[3:0:-1], made[0:1]]
    assert [refund.amount for page in pages for refund in page] == [106, 105, 104, 103, 102, 101, 100]
    assert {refund.processor_payment for page in pages for refund in page} == {"pi_1", "pi_2"}


async def test_a_last_page_that_is_full_is_the_last(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    made = [dashboard(sandbox)["id"] for _ in range(4)]

    assert [[refund.id for refund in page] for page in await every_page(processor, limit=2)] == [made[:1:-1], made[1::-1]]


async def test_an_account_without_refunds_has_one_empty_page(processor: StripeProcessor, sandbox: Sandbox) -> None:
    assert await every_page(processor, limit=100) == [()]


async def test_ours_and_others_are_told_apart_by_their_metadata(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    ours = await processor.refund(request_for("pi_1", 500), send_before=soon())
    theirs = dashboard(sandbox, metadata={"order": "A-7"})
    failed = dashboard(sandbox)
    sandbox.control("POST", f"/refunds/{failed['id']}", {"status": "failed", "failure_reason": "lost_or_stolen_card"})

    found = await processor.list_refunds(**ALWAYS, after=None)

    assert [(r.id, r.operation, r.raw_state, r.failure_reason) for r in found.refunds] == [
        (failed["id"], None, "failed", "lost_or_stolen_card"),
        (theirs["id"], None, "succeeded", None),
        (ours.id, "op_1", "succeeded", None),
    ]
    assert found.charges == dict.fromkeys((failed["id"], theirs["id"], ours.id), "ch_1")


async def test_the_window_takes_its_first_second_and_leaves_its_end(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    created: list[datetime] = []
    for _ in range(3):
        created.append(datetime.fromtimestamp(dashboard(sandbox)["created"], UTC))
        sandbox.control("POST", "/clock", {"advance_seconds": 100})
    first, second, third = created
    instant = timedelta(microseconds=1)

    async def seen(begin: datetime, end: datetime) -> list[datetime]:
        pages = await every_page(processor, limit=100, created_from=begin, created_to=end)
        return [refund.created_at for page in pages for refund in page if refund.created_at]

    assert await seen(first, third) == [second, first]
    assert await seen(first, third + instant) == [third, second, first]
    assert await seen(first + instant, third) == [second]
    assert await seen(second, second) == []
    assert await seen(first, second) + await seen(second, third) + await seen(third, third + instant) == [first, second, third]


async def test_every_reading_of_a_refund_says_when_it_was_made(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    made = await processor.refund(request_for("pi_1"), send_before=soon())
    [row] = sandbox.control("GET", "/truth")["refunds"]
    state = await processor.read_payment("pi_1")
    assert state is not None

    readings = [
        made,
        await processor.retrieve(made.id),
        await processor.find("pi_1", "op_1"),
        *state.refunds,
        *(await processor.list_refunds(**ALWAYS, after=None)).refunds,
    ]

    assert [reading and reading.created_at for reading in readings] == [datetime.fromtimestamp(row["created"], UTC)] * 5


async def test_a_cursor_that_the_processor_does_not_know_is_named(processor: StripeProcessor, sandbox: Sandbox) -> None:
    with pytest.raises(NotSent) as caught:
        await processor.list_refunds(**ALWAYS, after="re_gone")

    assert caught.value.code == "resource_missing"


@pytest.mark.parametrize("limit", [0, 101])
async def test_a_page_has_one_to_a_hundred_refunds(processor: StripeProcessor, limit: int) -> None:
    with pytest.raises(ValueError, match="1 to 100"):
        await processor.list_refunds(**ALWAYS, after=None, limit=limit)


async def test_a_window_has_a_zone(processor: StripeProcessor) -> None:
    with pytest.raises(ValueError, match="zone"):
        await processor.list_refunds(created_from=datetime(2026, 9, 1), created_to=ALWAYS["created_to"], after=None)  # noqa: DTZ001 - the mistake


async def test_a_processor_that_is_not_there_was_not_asked(connected: MakeProcessor) -> None:
    with pytest.raises(NotSent):
        await connected("http://nobody.invalid").list_refunds(**ALWAYS, after=None)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"object": "list", "data": [], "has_more": True},
        {"object": "list", "data": [REFUND | {"id": "re_0"}], "has_more": True},
        {"object": "list", "data": [REFUND | {"created": 100}], "has_more": False},
        {"object": "list", "data": [REFUND | {"charge": 7}], "has_more": False},
        *({"object": "list", "data": [REFUND | wrong], "has_more": False} for wrong in WRONG),
    ],
)
async def test_a_page_that_cannot_be_believed_was_not_asked(connected: MakeProcessor, body: Any) -> None:
    """Among them a page that begins with its own cursor, which would never end, and refunds of another time than was asked for."""
    async with serving(answering("200 OK", json.dumps(body))) as server:
        with pytest.raises(NotSent) as caught:
            await connected(server.url).list_refunds(**ALWAYS, after="re_0")

    assert caught.value.reason == "unexpected_shape"


async def test_an_expired_authorisation_is_left_out_and_the_list_goes_on_behind_it(processor: StripeProcessor, sandbox: Sandbox) -> None:
    """Refunds that Stripe made of what was released, before 2025-03-31.basil, are still listed: they returned nothing."""
    paid(sandbox)
    made = [dashboard(sandbox, 100)["id"] for _ in range(3)]
    expired = {"on": "refund.list", "fault": {"kind": "alter", "fields": {"reason": "expired_uncaptured_charge"}}}
    sandbox.control("POST", "/faults", expired)

    first = await processor.list_refunds(**ALWAYS, after=None, limit=2)
    rest = await processor.list_refunds(**ALWAYS, after=first.next_after, limit=2)

    assert (first.refunds, first.next_after) == ((), made[1])
    assert ([refund.id for refund in rest.refunds], rest.next_after) == ([made[0]], None)
