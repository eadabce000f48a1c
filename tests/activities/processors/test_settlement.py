"""What a refund took from the balance, kept apart from what the customer receives (field report 36)."""

import json
from typing import Any

import pytest

from activities.processors.stripe import StripeProcessor
from refunds.processor import NotSent, Settlement
from tests.activities.processors.conftest import MakeProcessor, answering, request_for, serving, soon
from tests.conftest import Sandbox


def placed(sandbox: Sandbox, **wanted: Any) -> None:
    sandbox.control("POST", "/payments", {"id": "pi_1", "amount": 10_000, "currency": "usd"} | wanted)


async def test_field_36_presentment_and_settlement_are_two_figures_and_a_rate(processor: StripeProcessor, sandbox: Sandbox) -> None:
    """60.00 USD left the recorded account's balance as 83.91 CAD."""
    placed(sandbox)
    made = await processor.refund(request_for("pi_1", 6_000), send_before=soon())

    assert await processor.settlement_of(made.id) == Settlement(
        processor_refund=made.id,
        presentment_amount=6_000,
        presentment_currency="USD",
        settlement_amount=8_391,
        settlement_currency="CAD",
        rate="1.3985",
        fee=0,
    )


async def test_field_36_a_refund_that_nobody_here_made_is_read_the_same_way(processor: StripeProcessor, sandbox: Sandbox) -> None:
    placed(sandbox)
    outside = sandbox.control("POST", "/refunds", {"payment_intent": "pi_1", "amount": 2_600})

    found = await processor.settlement_of(outside["id"])

    assert found is not None
    assert (found.presentment_amount, found.settlement_amount, found.rate) == (2_600, 3_636, "1.3985")


async def test_where_nothing_is_exchanged_there_is_no_rate(processor: StripeProcessor, sandbox: Sandbox) -> None:
    placed(sandbox, currency="eur")
    made = await processor.refund(request_for("pi_1", 6_000), send_before=soon())

    found = await processor.settlement_of(made.id)

    assert found is not None
    assert (found.settlement_amount, found.settlement_currency, found.rate) == (6_000, "EUR", None)


async def test_a_refund_that_failed_has_come_back(processor: StripeProcessor, sandbox: Sandbox) -> None:
    placed(sandbox)
    made = await processor.refund(request_for("pi_1", 6_000), send_before=soon())
    sandbox.control("POST", f"/refunds/{made.id}", {"status": "failed"})

    found = await processor.settlement_of(made.id)

    assert found is not None
    assert (found.settlement_amount, found.returned) == (8_391, 8_391)


async def test_what_took_nothing_yet_and_what_nobody_knows_has_none(processor: StripeProcessor, sandbox: Sandbox) -> None:
    placed(sandbox)
    sandbox.control("PUT", "/balance", {"currency": "usd", "available": 0})
    waits = await processor.refund(request_for("pi_1", 6_000), send_before=soon())

    assert waits.raw_state == "pending"
    assert [await processor.settlement_of(refund) for refund in (waits.id, "re_nobody", "not/an id")] == [None, None, None]


ROW = {"object": "balance_transaction", "amount": -8_391, "currency": "cad", "exchange_rate": 1.3985, "fee": 0}
REFUND = {"object": "refund", "id": "re_1", "amount": 6_000, "currency": "usd", "balance_transaction": ROW}


@pytest.mark.parametrize("written", ["1.3985", "0.0070000000000000001", "133.33333333333333333", "1"])
async def test_field_36_a_rate_is_kept_as_it_was_written(connected: MakeProcessor, written: str) -> None:
    """No float in between: one would make 0.007 and 133.33333333333333 of the second and the third."""
    body = json.dumps(REFUND).replace("1.3985", written)
    async with serving(answering("200 OK", body)) as server:
        found = await connected(server.url).settlement_of("re_1")

    assert found is not None
    assert found.rate == written


@pytest.mark.parametrize(
    "wrong",
    [{"exchange_rate": "1.3985"}, {"exchange_rate": True}, {"exchange_rate": -1}, {"amount": 8_391}, {"amount": -1.5}, {"currency": None}],
)
async def test_figures_of_another_shape_are_not_believed(connected: MakeProcessor, wrong: dict[str, Any]) -> None:
    async with serving(answering("200 OK", json.dumps(REFUND | {"balance_transaction": ROW | wrong}))) as server:
        with pytest.raises(NotSent):
            await connected(server.url).settlement_of("re_1")
