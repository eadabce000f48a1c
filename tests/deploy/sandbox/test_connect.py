"""Stripe Connect: destination charges, separate transfers, direct charges; what a refund returns of each, to the last unit; and whose call is whose."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import stripe

Pay = Callable[..., dict[str, Any]]
SELLER, OTHER = "acct_seller", "acct_other"


@pytest.fixture
async def market(client: stripe.StripeClient, sandbox: Any) -> AsyncIterator[stripe.StripeClient]:
    """The SDK on a platform with two connected accounts."""
    for account in (SELLER, OTHER):
        sandbox.control("POST", "/accounts", {"id": account})
    yield client


def truth(sandbox: Any, name: str) -> list[int]:
    return [made["amount"] for made in sandbox.control("GET", "/truth")[name]]


async def destination(client: stripe.StripeClient, amount: int = 10_000, **more: Any) -> stripe.Charge:
    given: Any = {"amount": amount, "currency": "usd", "payment_method": "pm_card_visa", "confirm": True} | more
    given.setdefault("transfer_data", {"destination": SELLER})
    intent = await client.v1.payment_intents.create_async(given)
    return await client.v1.charges.retrieve_async(str(intent.latest_charge))


async def refund(client: stripe.StripeClient, charge: stripe.Charge, amount: int | None = None, **flags: Any) -> stripe.Refund:
    given: Any = {"charge": charge.id} | ({} if amount is None else {"amount": amount}) | flags
    return await client.v1.refunds.create_async(given)


async def text_of(call: Any) -> str:
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await call
    return str(caught.value.user_message)


async def test_a_destination_charge_moves_all_of_it_and_the_fee_comes_back(market: stripe.StripeClient, sandbox: Any):
    charge = await destination(market, application_fee_amount=1_000)
    transfer = await market.v1.transfers.retrieve_async(str(charge.transfer))
    fee = await market.v1.application_fees.retrieve_async(str(charge.application_fee))

    assert (transfer.amount, transfer.destination, transfer.source_transaction, transfer.reversed) == (10_000, SELLER, charge.id, False)
    assert transfer.transfer_group == charge.transfer_group == f"group_{charge.payment_intent}"
    assert (fee.amount, fee.account, fee.charge, fee.originating_transaction) == (1_000, SELLER, transfer.destination_payment, charge.id)
    assert (charge.application_fee_amount, charge.destination, truth(sandbox, "transfers")) == (1_000, SELLER, [10_000])
    arrived = await market.v1.charges.retrieve_async(str(transfer.destination_payment), {}, {"stripe_account": SELLER})
    assert (arrived.amount, arrived.source_transfer) == (10_000, transfer.id)
    with pytest.raises(stripe.InvalidRequestError):
        await market.v1.charges.retrieve_async(str(transfer.destination_payment))


async def test_a_part_captured_moves_a_part_and_caps_the_fee(market: stripe.StripeClient, sandbox: Any, pay: Pay):
    pay(id="pi_m", amount=10_000, captured=0, transfer_data={"destination": SELLER}, application_fee_amount=5_000)
    assert truth(sandbox, "transfers") == []
    await market.v1.payment_intents.capture_async("pi_m", {"amount_to_capture": 4_000})
    charge = await market.v1.charges.retrieve_async("ch_m")

    assert (truth(sandbox, "transfers"), charge.application_fee_amount) == ([4_000], 4_000)


@pytest.mark.parametrize(
    ("transferred", "fee", "refunds", "reversed_by", "fees_by"),
    [
        (None, 1_000, [10_000], [10_000], [1_000]),
        (None, 1_000, [2_500], [2_500], [250]),
        (None, 1_000, [2_500, 7_500], [2_500, 7_500], [250, 750]),
        (None, 1_001, [3_333, 3_333, 3_334], [3_333, 3_333, 3_334], [334, 333, 334]),
        (8_770, None, [5_000, 5_000], [4_385, 4_385], []),
        (8_771, None, [3_333, 3_333, 3_334], [2_923, 2_924, 2_924], []),
    ],
)
async def test_what_a_refund_returns_is_proportional_and_ends_at_the_whole(
    market: stripe.StripeClient,
    sandbox: Any,
    transferred: int | None,
    fee: int | None,
    refunds: list[int],
    reversed_by: list[int],
    fees_by: list[int],
):
    to = {"destination": SELLER} | ({} if transferred is None else {"amount": transferred})
    charge = await destination(market, transfer_data=to, **({} if fee is None else {"application_fee_amount": fee}))
    flags = {"reverse_transfer": True} | ({} if fee is None else {"refund_application_fee": True})
    made = [await refund(market, charge, amount, **flags) for amount in refunds]
    transfer = await market.v1.transfers.retrieve_async(str(charge.transfer))

    assert (truth(sandbox, "reversals"), truth(sandbox, "fee_refunds")) == (reversed_by, fees_by)
    assert (transfer.amount_reversed, transfer.reversed) == (sum(reversed_by), sum(refunds) == 10_000)
    assert [one.transfer_reversal for one in made] == [reversal.id for reversal in reversed(transfer.reversals.data)]
    assert [reversal.source_refund for reversal in reversed(transfer.reversals.data)] == [one.id for one in made]


async def test_without_the_flags_nothing_but_the_refund_is_made(market: stripe.StripeClient, sandbox: Any):
    charge = await destination(market, application_fee_amount=1_000)
    assert (await refund(market, charge)).transfer_reversal is None
    assert (truth(sandbox, "refunds"), truth(sandbox, "reversals"), truth(sandbox, "fee_refunds")) == ([10_000], [], [])


async def test_field_37_a_parameter_that_does_not_apply_refuses_the_refund(market: stripe.StripeClient, sandbox: Any):
    plain = await destination(market, transfer_data=None)
    no_fee = await destination(market, application_fee_amount=0)

    assert "does not have an associated transfer" in await text_of(refund(market, plain, reverse_transfer=True))
    assert await text_of(refund(market, plain, refund_application_fee=True)) == (
        f"Attempting to refund_application_fee on {plain.id}, but it has no application fee"
    )
    assert "no application fee" in await text_of(refund(market, no_fee, reverse_transfer=True, refund_application_fee=True))
    assert no_fee.application_fee is None
    assert (truth(sandbox, "refunds"), truth(sandbox, "reversals")) == ([], [])


async def test_a_transfer_that_was_reversed_by_itself_refuses_a_refund_that_would_reverse_it_again(
    market: stripe.StripeClient, sandbox: Any
):
    charge = await destination(market)
    await market.v1.transfers.reversals.create_async(str(charge.transfer), {"amount": 8_000})

    assert "greater than unreversed amount on transfer ($20.00)" in await text_of(refund(market, charge, 5_000, reverse_transfer=True))
    assert (truth(sandbox, "refunds"), truth(sandbox, "reversals")) == ([], [8_000])
    await refund(market, charge, 2_000, reverse_transfer=True)
    assert truth(sandbox, "reversals") == [8_000, 2_000]


async def test_reversals_and_refunds_of_fees_by_themselves(market: stripe.StripeClient, sandbox: Any):
    charge = await destination(market, application_fee_amount=1_000)
    transfer, fee = str(charge.transfer), str(charge.application_fee)
    part = await market.v1.transfers.reversals.create_async(transfer, {"amount": 4_000, "metadata": {"k": "v"}})
    rest = await market.v1.transfers.reversals.create_async(transfer)
    given = await market.v1.application_fees.refunds.create_async(fee, {"amount": 300})

    assert (part.amount, part.to_dict()["metadata"], rest.amount, given.amount, given.fee) == (4_000, {"k": "v"}, 6_000, 300, fee)
    assert "already been fully reversed" in await text_of(market.v1.transfers.reversals.create_async(transfer, {"amount": 1}))
    assert await text_of(market.v1.application_fees.refunds.create_async(fee, {"amount": 701})) == (
        "Application fee could not be refunded: Refund amount ($7.01) is greater than unrefunded amount on fee ($7.00)"
    )
    assert [one.id for one in (await market.v1.transfers.reversals.list_async(transfer)).data] == [rest.id, part.id]
    assert [one.id for one in (await market.v1.application_fees.refunds.list_async(fee)).data] == [given.id]
    assert (await market.v1.transfers.reversals.retrieve_async(transfer, part.id)).id == part.id
    assert (await market.v1.application_fees.refunds.retrieve_async(fee, given.id)).id == given.id
    assert (truth(sandbox, "refunds"), truth(sandbox, "reversals"), truth(sandbox, "fee_refunds")) == ([], [4_000, 6_000], [300])


async def test_separate_transfers_out_of_a_charge_and_out_of_the_balance(market: stripe.StripeClient, sandbox: Any, pay: Pay):
    pay(id="pi_s")
    sourced: Any = {"amount": 3_000, "currency": "usd", "destination": SELLER, "source_transaction": "ch_s"}
    out_of_it = await market.v1.transfers.create_async(sourced)
    beside_it = await market.v1.transfers.create_async(
        {"amount": 500, "currency": "usd", "destination": OTHER, "transfer_group": str(out_of_it.transfer_group)}
    )

    assert out_of_it.transfer_group == "group_ch_s"
    assert "cannot be greater than what is left" in await text_of(market.v1.transfers.create_async(sourced))
    grouped = (await market.v1.transfers.list_async({"transfer_group": "group_ch_s"})).data
    assert [(transfer.id, transfer.source_transaction) for transfer in grouped] == [(beside_it.id, None), (out_of_it.id, "ch_s")]
    assert [transfer.id for transfer in (await market.v1.transfers.list_async({"destination": OTHER})).data] == [beside_it.id]
    assert "does not have an associated transfer" in await text_of(
        market.v1.refunds.create_async({"charge": "ch_s", "reverse_transfer": True})
    )


async def test_a_separate_transfer_needs_the_balance_to_be_reversed_and_a_destination_charge_does_not(
    market: stripe.StripeClient, sandbox: Any, pay: Pay
):
    pay(id="pi_s")
    separate = await market.v1.transfers.create_async(
        {"amount": 3_000, "currency": "usd", "destination": SELLER, "source_transaction": "ch_s"}
    )
    charge = await destination(market)
    sandbox.control("PUT", "/balance", {"account": SELLER, "currency": "usd", "available": 2_999})
    with pytest.raises(stripe.InvalidRequestError) as refused:
        await market.v1.transfers.reversals.create_async(separate.id)
    await refund(market, charge, reverse_transfer=True)

    assert refused.value.error is not None
    assert (refused.value.error.code, truth(sandbox, "reversals")) == ("balance_insufficient", [10_000])
    balance = await market.v1.balance.retrieve_async({}, {"stripe_account": SELLER})
    assert {row.currency: row.amount for row in balance.available}["usd"] == 2_999 - 10_000


async def test_a_direct_charge_belongs_to_the_connected_account_and_its_fee_to_the_platform(market: stripe.StripeClient, sandbox: Any):
    for_them: Any = {"stripe_account": SELLER}
    intent = await market.v1.payment_intents.create_async(
        {"amount": 5_000, "currency": "usd", "payment_method": "pm_card_visa", "confirm": True, "application_fee_amount": 400}, for_them
    )
    charge = await market.v1.charges.retrieve_async(str(intent.latest_charge), {}, for_them)
    fee = await market.v1.application_fees.retrieve_async(str(charge.application_fee))
    made = await market.v1.refunds.create_async({"charge": charge.id, "amount": 2_500, "refund_application_fee": True}, for_them)

    assert (fee.account, fee.charge, fee.amount) == (SELLER, charge.id, 400)
    assert (made.amount, truth(sandbox, "fee_refunds")) == (2_500, [200])
    assert "No such payment_intent" in await text_of(market.v1.payment_intents.retrieve_async(intent.id))
    assert (await market.v1.refunds.list_async()).data == []
    [event] = [one for one in (await market.v1.events.list_async({}, for_them)).data if one.type == "refund.created"]
    assert event.to_dict()["account"] == SELLER
    asked = sandbox.control("GET", "/truth")["create_requests"]
    assert [(request["account"], request["made"]) for request in asked] == [(SELLER, made.id)]


async def test_a_fee_without_anybody_to_take_it_from_is_refused(market: stripe.StripeClient):
    given: Any = {"amount": 100, "currency": "usd", "application_fee_amount": 10}
    assert "application_fee_amount" in await text_of(market.v1.payment_intents.create_async(given))


@pytest.mark.parametrize("account", ["acct_nobody", "not an account"])
async def test_an_account_that_is_not_connected_is_403(http: httpx.AsyncClient, sandbox: Any, account: str):
    answer = await http.get("/v1/refunds", headers={"Stripe-Account": account})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "account_invalid")
    assert "sk_test_*" in answer.json()["error"]["message"]


async def test_a_key_is_kept_for_each_account_by_itself(market: stripe.StripeClient, sandbox: Any, pay: Pay):
    pay(id="pi_p")
    pay(id="pi_c", account=SELLER)
    own = await market.v1.refunds.create_async({"payment_intent": "pi_p", "amount": 10}, {"idempotency_key": "same"})
    theirs = await market.v1.refunds.create_async(
        {"payment_intent": "pi_c", "amount": 20}, {"idempotency_key": "same", "stripe_account": SELLER}
    )
    again = await market.v1.refunds.create_async(
        {"payment_intent": "pi_c", "amount": 20}, {"idempotency_key": "same", "stripe_account": SELLER}
    )

    assert own.id != theirs.id == again.id
    assert truth(sandbox, "refunds") == [10, 20]


@pytest.mark.parametrize(("on", "name"), [("transfer_reversal.create", "reversals"), ("fee_refund.create", "fee_refunds")])
async def test_faults_hit_each_leg_by_itself(market: stripe.StripeClient, sandbox: Any, on: str, name: str):
    charge = await destination(market, application_fee_amount=1_000)
    transfer, fee = str(charge.transfer), str(charge.application_fee)
    sandbox.control("POST", "/faults", {"on": on, "match": {"payment_intent": charge.payment_intent}, "fault": {"kind": "lose_answer"}})
    calls: Any = {
        "reversals": lambda: market.v1.transfers.reversals.create_async(transfer, {"amount": 10}, {"idempotency_key": "leg"}),
        "fee_refunds": lambda: market.v1.application_fees.refunds.create_async(fee, {"amount": 10}, {"idempotency_key": "leg"}),
    }
    with pytest.raises(stripe.APIConnectionError):
        await calls[name]()
    again = await calls[name]()

    asked = sandbox.control("GET", f"/truth?payment_intent={charge.payment_intent}")
    assert [made["id"] for made in asked[name]] == [again.id]
    assert [(one["answered"], one["replayed"]) for one in asked["reversal_requests" if name == "reversals" else "fee_refund_requests"]] == [
        ("lost", False),
        (200, True),
    ]


async def test_a_hidden_reversal_is_in_no_list_and_in_the_truth(market: stripe.StripeClient, sandbox: Any):
    charge = await destination(market)
    sandbox.control("POST", "/faults", {"on": "transfer_reversal.create", "fault": {"kind": "hide"}})
    await market.v1.transfers.reversals.create_async(str(charge.transfer), {"amount": 10})

    assert (await market.v1.transfers.reversals.list_async(str(charge.transfer))).data == []
    assert truth(sandbox, "reversals") == [10]


async def test_a_restricted_key_needs_a_permission_of_its_own(http: httpx.AsyncClient, sandbox: Any):
    sandbox.control("PUT", "/keys", {"key": "rk_test_refunds", "permissions": {"refunds": "write"}})
    answer = await http.post("/v1/transfers/tr_1/reversals", headers={"Authorization": "Bearer rk_test_refunds"})
    assert answer.status_code == 403
    assert "rak_transfer_write" in answer.json()["error"]["message"]
