"""Marketplaces: where the money went, and each leg by itself: its key, its three errors, and finding it again (field reports 3, 7, 37)."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from activities.processors.base import Marketplace, Particulars, SendTooLate, uptime
from activities.processors.stripe import StripeProcessor
from refunds.marketplace import FundsFlow, LegKind, LegReceipt, LegRequest, MoneyFlow, leg_differences
from refunds.processor import NotSent, ProcessorError, Refused, Unknown
from refunds.submission import freeze_leg
from tests.activities.processors.conftest import MakeProcessor, answering, request_for, serving, soon
from tests.conftest import Sandbox

SELLER, OTHER = "acct_seller", "acct_other"


def leg(kind: LegKind, target: str, amount: int, operation: str = "op_1") -> LegRequest:
    return freeze_leg(
        kind,
        operation_id=operation,
        refund="rf_1",
        terms_hash="a" * 64,
        mode="test",
        processor_payment="pi_1",
        target=target,
        amount=amount,
        currency="USD",
    )


def placed(sandbox: Sandbox, available: dict[str, int] | None = None, **wanted: Any) -> None:
    for account in (SELLER, OTHER):
        sandbox.control("POST", "/accounts", {"id": account, "available": available})
    sandbox.control("POST", "/payments", {"id": "pi_1", "amount": 10_000, "currency": "usd"} | wanted)


def destination(sandbox: Sandbox, **wanted: Any) -> None:
    placed(sandbox, transfer_data={"destination": SELLER}, application_fee_amount=1_000, **wanted)


async def flow_of(processor: StripeProcessor, payment: str = "pi_1") -> MoneyFlow:
    flow = await processor.read_flow(payment)
    assert flow is not None
    return flow


async def sent_separately(processor: StripeProcessor, amount: int, to: str, **more: str) -> str:
    """A transfer as the platform's own program makes it."""
    params = {"amount": amount, "currency": "usd", "destination": to} | more
    made: Any = await processor._post("test", "/v1/transfers", f"made-{to}-{amount}", params)
    return made["id"]


async def targets(processor: StripeProcessor) -> dict[LegKind, str]:
    flow = await flow_of(processor)
    assert flow.fee is not None
    return {LegKind.REVERSE_TRANSFER: flow.transfers[0].id, LegKind.REFUND_FEE: flow.fee.id}


def caller(processor: StripeProcessor, kind: LegKind) -> Callable[..., Awaitable[LegReceipt]]:
    return processor.reverse_transfer if kind is LegKind.REVERSE_TRANSFER else processor.refund_fee


async def found(processor: StripeProcessor, kind: LegKind, target: str, operation: str = "op_1") -> LegReceipt | None:
    return next((receipt for receipt in await processor.returned_of(kind, target) if receipt.operation == operation), None)


OP = {LegKind.REVERSE_TRANSFER: "transfer_reversal", LegKind.REFUND_FEE: "fee_refund"}
MADE = {LegKind.REVERSE_TRANSFER: "reversals", LegKind.REFUND_FEE: "fee_refunds"}
both = pytest.mark.parametrize("kind", list(LegKind))


def truth(sandbox: Sandbox, kind: LegKind) -> list[int]:
    return [made["amount"] for made in sandbox.control("GET", "/truth?payment_intent=pi_1")[MADE[kind]]]


def test_the_processor_has_all_three_interfaces(processor: StripeProcessor) -> None:
    marketplace: Marketplace = processor
    particulars: Particulars = processor
    assert marketplace is particulars


# --- reading -------------------------------------------------------------------------------------------------------------------------------


async def test_a_payment_that_stayed_with_the_platform(processor: StripeProcessor, sandbox: Sandbox) -> None:
    placed(sandbox)

    flow = await flow_of(processor)

    assert (flow.flow, flow.charge, flow.transfers, flow.fee) == (FundsFlow.PLATFORM, "ch_1", (), None)


async def test_a_destination_charge_its_transfer_and_its_fee(processor: StripeProcessor, sandbox: Sandbox) -> None:
    destination(sandbox)
    await processor.refund(request_for("pi_1", 2_500, reverse_transfer=True, refund_application_fee=True), send_before=soon())

    flow = await flow_of(processor)

    assert flow.flow is FundsFlow.DESTINATION
    [transfer], fee = flow.transfers, flow.fee
    assert fee is not None
    assert (transfer.destination, transfer.charge, transfer.amount, transfer.reversed, transfer.left) == (
        SELLER,
        "ch_1",
        10_000,
        2_500,
        7_500,
    )
    assert (fee.account, fee.amount, fee.refunded, fee.left) == (SELLER, 1_000, 250, 750)
    [reversal], [returned] = transfer.reversals, fee.refunds
    assert (reversal.amount, reversal.operation, returned.amount, returned.operation) == (2_500, None, 250, None)
    ours = await processor.find("pi_1", "op_1")
    assert ours is not None
    assert reversal.source_refund == ours.id


async def test_a_fixed_part_is_transferred(processor: StripeProcessor, sandbox: Sandbox) -> None:
    placed(sandbox, transfer_data={"destination": SELLER, "amount": 8_770}, captured=9_000)

    flow = await flow_of(processor, "ch_1")

    assert (flow.flow, [transfer.amount for transfer in flow.transfers], flow.fee) == (FundsFlow.DESTINATION, [8_770], None)


async def test_field_37_a_fee_of_zero_is_no_fee(processor: StripeProcessor, sandbox: Sandbox) -> None:
    """The flow shows none, so that no request carries the parameter; one that did would be refused whole."""
    placed(sandbox, transfer_data={"destination": SELLER}, application_fee_amount=0)

    flow = await flow_of(processor)
    with pytest.raises(Refused) as refused:
        await processor.refund(request_for("pi_1", refund_application_fee=True), send_before=soon())

    assert flow.fee is None
    assert refused.value.reason == "no_application_fee"
    assert sandbox.control("GET", "/truth")["refunds"] == []


async def test_field_37_a_transfer_that_does_not_apply_refuses_the_whole_refund(processor: StripeProcessor, sandbox: Sandbox) -> None:
    placed(sandbox)

    with pytest.raises(Refused) as refused:
        await processor.refund(request_for("pi_1", reverse_transfer=True), send_before=soon())

    assert refused.value.reason == "no_transfer"
    assert sandbox.control("GET", "/truth")["refunds"] == []


async def test_separate_transfers_out_of_the_charge_and_of_its_group(processor: StripeProcessor, sandbox: Sandbox) -> None:
    placed(sandbox, transfer_group="ORDER17")
    out_of_it = await sent_separately(processor, 6_000, SELLER, source_transaction="ch_1")
    beside_it = await sent_separately(processor, 3_000, OTHER, transfer_group="ORDER17")
    await sent_separately(processor, 500, OTHER, transfer_group="ORDER18")
    sandbox.control("POST", "/payments", {"id": "pi_2", "amount": 700, "currency": "usd", "transfer_group": "ORDER17"})
    await sent_separately(processor, 700, OTHER, source_transaction="ch_2")

    flow = await flow_of(processor)

    assert flow.flow is FundsFlow.SEPARATE
    assert [(transfer.id, transfer.charge, transfer.destination) for transfer in flow.transfers] == [
        (beside_it, None, OTHER),
        (out_of_it, "ch_1", SELLER),
    ]


async def test_a_charge_without_a_group_has_the_one_that_stripe_gives_it(processor: StripeProcessor, sandbox: Sandbox) -> None:
    placed(sandbox)
    made = await sent_separately(processor, 6_000, SELLER, source_transaction="ch_1")

    assert [transfer.id for transfer in (await flow_of(processor)).transfers] == [made]


async def test_reversals_are_read_to_the_last_page(processor: StripeProcessor, sandbox: Sandbox) -> None:
    """Ours is the oldest of 103: on the second page."""
    destination(sandbox)
    target = (await targets(processor))[LegKind.REVERSE_TRANSFER]
    ours = await processor.reverse_transfer(leg(LegKind.REVERSE_TRANSFER, target, 40), send_before=soon())
    for number in range(102):
        await processor.reverse_transfer(leg(LegKind.REVERSE_TRANSFER, target, 10, f"op_more{number}"), send_before=soon())

    [transfer] = (await flow_of(processor)).transfers

    assert (len({reversal.id for reversal in transfer.reversals}), transfer.left) == (103, 10_000 - 40 - 1_020)
    assert await found(processor, LegKind.REVERSE_TRANSFER, target) == ours


async def test_what_was_never_captured_and_what_nobody_knows_has_no_flow(processor: StripeProcessor, sandbox: Sandbox) -> None:
    destination(sandbox, captured=0)

    flow = await flow_of(processor)

    assert (flow.flow, flow.charge, flow.transfers, flow.fee) == (FundsFlow.PLATFORM, None, (), None)
    assert await processor.read_flow("pi_nobody") is None


async def test_a_transfer_that_stripe_names_and_does_not_know_is_no_unknown_payment(processor: StripeProcessor, sandbox: Sandbox) -> None:
    destination(sandbox)
    missing = {"error": {"type": "invalid_request_error", "code": "resource_missing", "message": "No such transfer"}}
    sandbox.control("POST", "/faults", {"on": "transfer.retrieve", "fault": {"kind": "status", "status": 404, "body": missing}})

    with pytest.raises(NotSent):
        await processor.read_flow("pi_1")


# --- acting --------------------------------------------------------------------------------------------------------------------------------


@both
async def test_a_leg_is_sent_once_whatever_is_repeated(processor: StripeProcessor, sandbox: Sandbox, kind: LegKind) -> None:
    destination(sandbox)
    target = (await targets(processor))[kind]
    request = leg(kind, target, 300)

    first = await caller(processor, kind)(request, send_before=soon())
    again = await caller(processor, kind)(request, send_before=soon())

    assert first == again
    assert (first.kind, first.target, first.amount, first.currency, first.operation) == (kind, target, 300, "USD", "op_1")
    assert leg_differences(first, request) == ""
    assert await found(processor, kind, target) == first
    assert truth(sandbox, kind) == [300]


@both
async def test_field_7_a_leg_whose_answer_is_lost_is_found(processor: StripeProcessor, sandbox: Sandbox, kind: LegKind) -> None:
    destination(sandbox)
    target = (await targets(processor))[kind]
    sandbox.control("POST", "/faults", {"on": f"{OP[kind]}.create", "fault": {"kind": "lose_answer"}})

    with pytest.raises(Unknown):
        await caller(processor, kind)(leg(kind, target, 300), send_before=soon())
    ours = await found(processor, kind, target)

    assert ours is not None
    assert (ours.amount, truth(sandbox, kind)) == (300, [300])
    assert await found(processor, kind, target, "op_2") is None


@both
@pytest.mark.parametrize(
    ("given", "error", "reason", "made"),
    [
        ({"kind": "lose_request"}, Unknown, "no_answer", []),
        ({"kind": "status", "status": 500, "after_work": True}, Unknown, "server_error", [300]),
        ({"kind": "status", "status": 502, "body": "<html>nginx</html>"}, Unknown, "server_error", []),
        ({"kind": "malformed"}, Unknown, "malformed_answer", [300]),
        ({"kind": "key_in_use"}, Unknown, "key_in_use", []),
        ({"kind": "rate_limit"}, NotSent, "rate_limited", []),
        ({"kind": "rate_limit", "lock_timeout": True}, Unknown, "lock_timeout", []),
    ],
)
async def test_an_error_of_a_leg_means_what_it_means_of_a_refund(
    processor: StripeProcessor,
    sandbox: Sandbox,
    kind: LegKind,
    given: dict[str, Any],
    error: type[ProcessorError],
    reason: str,
    made: list[int],
) -> None:
    destination(sandbox)
    target = (await targets(processor))[kind]
    sandbox.control("POST", "/faults", {"on": f"{OP[kind]}.create", "match": {"payment_intent": "pi_1"}, "fault": given})

    with pytest.raises(error) as caught:
        await caller(processor, kind)(leg(kind, target, 300), send_before=soon())

    assert (type(caught.value), caught.value.reason, truth(sandbox, kind)) == (error, reason, made)


@both
async def test_more_than_is_left_is_refused(processor: StripeProcessor, sandbox: Sandbox, kind: LegKind) -> None:
    destination(sandbox)
    target = (await targets(processor))[kind]

    with pytest.raises(Refused) as refused:
        await caller(processor, kind)(leg(kind, target, 10_001), send_before=soon())

    assert (refused.value.reason, truth(sandbox, kind)) == ("amount_too_large", [])


@both
async def test_past_its_moment_no_leg_is_sent(processor: StripeProcessor, sandbox: Sandbox, kind: LegKind) -> None:
    destination(sandbox)
    target = (await targets(processor))[kind]

    with pytest.raises(SendTooLate):
        await caller(processor, kind)(leg(kind, target, 300), send_before=uptime() - 1)

    assert truth(sandbox, kind) == []


@both
async def test_a_request_of_another_kind_is_a_bug_and_is_loud(processor: StripeProcessor, kind: LegKind) -> None:
    other = next(one for one in LegKind if one is not kind)

    with pytest.raises(ValueError, match="is not one to"):
        await caller(processor, kind)(leg(other, "tr_1", 300), send_before=soon())


@both
@pytest.mark.parametrize(
    "wrong", [{"object": "refund"}, {"amount": -1}, {"amount": 3.0}, {"created": None}, {"target": "another"}, {"metadata": 7}]
)
async def test_an_answer_of_another_shape_is_unknown(connected: MakeProcessor, kind: LegKind, wrong: dict[str, Any]) -> None:
    """Something was done and it cannot be read: never a refusal, never believed."""
    field = "transfer" if kind is LegKind.REVERSE_TRANSFER else "fee"
    made = {"object": OP[kind], "id": "x_1", "amount": 300, "currency": "usd", "created": 1, "metadata": {}, field: "tr_1"}
    changed = made | ({field: wrong["target"]} if "target" in wrong else wrong)

    async with serving(answering("200 OK", json.dumps(changed))) as server:
        with pytest.raises(Unknown):
            await caller(connected(server.url), kind)(leg(kind, "tr_1", 300), send_before=soon())
        with pytest.raises(NotSent):
            await found(connected(server.url), kind, "tr_1")


async def test_field_3_legs_of_one_payment_carry_keys_of_their_own(processor: StripeProcessor, sandbox: Sandbox) -> None:
    destination(sandbox)
    at = await targets(processor)
    await processor.refund(request_for("pi_1", 3_000), send_before=soon())
    for kind in LegKind:
        await caller(processor, kind)(leg(kind, at[kind], 300), send_before=soon())

    asked = sandbox.control("GET", "/truth?payment_intent=pi_1")

    keys = [asked[name][0]["key"] for name in ("create_requests", "reversal_requests", "fee_refund_requests")]
    assert keys == ["refunds-refund-test-op_1", "refunds-reverse_transfer-test-op_1", "refunds-refund_fee-test-op_1"]
    [reversal] = asked["reversal_requests"]
    assert reversal["params"] == {
        "amount": "300",
        "metadata": {"refunds_operation": "op_1", "refunds_refund": "rf_1", "refunds_terms": "a" * 64},
    }


async def test_field_37_the_second_leg_is_refused_and_alone_is_tried_again(processor: StripeProcessor, sandbox: Sandbox) -> None:
    """The customer has the money; the seller's account is empty. Once it is not, only the reversal is sent again."""
    placed(sandbox, transfer_group="ORDER17")
    target = await sent_separately(processor, 6_000, SELLER, source_transaction="ch_1")
    sandbox.control("PUT", "/balance", {"account": SELLER, "currency": "usd", "available": 0})
    request = leg(LegKind.REVERSE_TRANSFER, target, 6_000)

    await processor.refund(request_for("pi_1", 10_000), send_before=soon())
    with pytest.raises(Refused) as refused:
        await processor.reverse_transfer(request, send_before=soon())
    none = truth(sandbox, LegKind.REVERSE_TRANSFER)
    sandbox.control("PUT", "/balance", {"account": SELLER, "currency": "usd", "available": 6_000})
    again = leg(LegKind.REVERSE_TRANSFER, target, 6_000, "op_2")
    await processor.reverse_transfer(again, send_before=soon())

    assert (refused.value.reason, none, truth(sandbox, LegKind.REVERSE_TRANSFER)) == ("insufficient_funds", [], [6_000])
    assert [refund["amount"] for refund in sandbox.control("GET", "/truth?payment_intent=pi_1")["refunds"]] == [10_000]
    with pytest.raises(Refused):
        await processor.reverse_transfer(request, send_before=soon())


async def test_an_altered_answer_shows_in_what_it_differs(processor: StripeProcessor, sandbox: Sandbox) -> None:
    destination(sandbox)
    target = (await targets(processor))[LegKind.REVERSE_TRANSFER]
    sandbox.control("POST", "/faults", {"on": "transfer_reversal.create", "fault": {"kind": "alter", "fields": {"amount": 450}}})
    request = leg(LegKind.REVERSE_TRANSFER, target, 300)

    receipt = await processor.reverse_transfer(request, send_before=soon())

    assert leg_differences(receipt, request) == "amount: approved 300, answered 450"
    assert truth(sandbox, LegKind.REVERSE_TRANSFER) == [450]
