"""Errands of a marketplace: payments that went on to sellers, and refunds that take each seller's part and the platform's fee back."""

import asyncio
from random import Random
from typing import Any

from tests.chaos.book import Payment
from tests.chaos.load import HASTY, SMALL, Doing
from tests.chaos.people import People
from tests.chaos.plan import LEG_FAULTS, one_of
from tests.chaos.settlers import settle_legs

SELLERS = ("acct_anvil", "acct_bellows")
FEE_PERCENT = 10
DISTURBED = 0.6
"""Share of the payments with legs at which the calls for one of them meet something of their own, beside the faults of the plan."""
SETTLED_WITHIN_S = 12.0


async def sold(doing: Doing) -> None:
    """A refund of a destination charge, with the seller's part, the platform's fee, or both; now and then the refund is late, or fails after its legs,
    or somebody reverses another part of the transfer meanwhile."""
    asked = doing.amount(SMALL)
    whole = asked * doing.stream.choice((1, 2, 3))
    outcome = doing.stream.choice((None, None, None, None, "succeeded", "failed"))
    late = {} if outcome is None else {"refund_outcome": {"initial": "pending", "then": outcome, "after_ms": 1_500}}
    payment = await _sell(doing, whole, **late)
    wish = doing.stream.choice((_BOTH, _BOTH, {"reverse_transfer": True}, {"refund_application_fee": True}))
    await _disturb(doing, payment)
    looking = asyncio.create_task(_see(doing, await doing.ask(payment, doing.body(payment, asked) | wish)))
    if whole > asked and doing.stream.random() < 0.3:
        await asyncio.sleep(doing.stream.choice((0.0, 0.2, 0.5, 1.5)))
        await _reverse_past_us(doing, payment, asked // 4)
    await looking


async def sold_in_parts(doing: Doing) -> None:
    """Three parts of a destination charge at once, which together are the whole of it, with all its legs."""
    third = doing.amount(SMALL) // 3
    payment = await _sell(doing, third * 3)
    await _disturb(doing, payment)
    refunds = await asyncio.gather(*(doing.ask(payment, doing.body(payment, third) | _BOTH, number) for number in range(3)))
    await asyncio.gather(*(_see(doing, refund) for refund in refunds))


async def sold_on(doing: Doing) -> None:
    """A refund of a payment of which the platform's own program had sent a part to each of two sellers."""
    asked = doing.amount(SMALL)
    await _open_accounts(doing.people)
    payment = await doing.pay(asked * 2, charge=f"ch_{doing.run}{doing.errand.number}")
    payment.legs = True
    for seller, share in zip(SELLERS, (asked, asked * 2 // 3), strict=True):
        form = {"amount": share, "currency": "usd", "destination": seller, "source_transaction": f"ch_{doing.run}{doing.errand.number}"}
        await doing.people.dashboard("/v1/transfers", form, key=doing.key(seller))
    await _disturb(doing, payment)
    await _see(doing, await doing.ask(payment, doing.body(payment, asked) | {"reverse_transfer": True}))


_BOTH = {"reverse_transfer": True, "refund_application_fee": True}


async def _open_accounts(people: People) -> None:
    for seller in SELLERS:
        await people.control("POST", "/accounts", {"id": seller, "available": None})


async def _sell(doing: Doing, amount: int, **special: Any) -> Payment:
    """All of it goes to a seller, who pays the platform's fee out of it."""
    await _open_accounts(doing.people)
    fee = amount * FEE_PERCENT // 100
    destination = {"destination": doing.stream.choice(SELLERS)}
    payment = await doing.pay(amount, transfer_data=destination, application_fee_amount=fee, **special)
    payment.legs, payment.fee = True, fee
    return payment


async def _disturb(doing: Doing, payment: Payment) -> None:
    """The next calls for a leg of this payment meet this."""
    own = Random(f"{doing.errand.seed}/legs")
    if own.random() < DISTURBED:
        on = "fee_refund.create" if payment.fee and own.random() < 0.5 else "transfer_reversal.create"
        ordered = {
            "on": on,
            "match": {"payment_intent": payment.intent},
            "times": own.choice((1, 1, 2, 5)),
            "fault": one_of(own, LEG_FAULTS),
        }
        await doing.people.control("POST", "/faults", ordered)


async def _reverse_past_us(doing: Doing, payment: Payment, amount: int) -> None:
    """Somebody takes a part of the seller's back in the dashboard, for another reason."""
    [sent] = (await doing.people.truth(payment.intent))["transfers"]
    await doing.people.dashboard(f"/v1/transfers/{sent['id']}/reversals", {"amount": amount}, key=doing.key("past-us"))


async def _see(doing: Doing, refund: str | None) -> None:
    """See the refund through, and now and then settle a parked leg in the middle of it all."""
    view = await doing.see_through(refund)
    if refund is None or view is None or doing.stream.random() > HASTY:
        return
    try:
        async with asyncio.timeout(SETTLED_WITHIN_S):
            while view is not None and not view["final"] and view["processor"]["legs"]:
                await settle_legs(doing.people, refund)
                await asyncio.sleep(0.5)
                view = await doing.people.view(refund)
    except TimeoutError:
        return  # settled at the end
