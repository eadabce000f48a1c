"""What is asked for: errands, each with its customer, its order and its payment, carried out by people who answer what they are asked."""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from refunds.clock import SystemClock, rfc3339
from tests.chaos.book import Book, Payment
from tests.chaos.people import REVIEWERS, People
from tests.chaos.plan import Errand
from tests.chaos.settlers import settle_one

HASTY = 0.5
"""Share of parked refunds that somebody settles in the middle of it all; the rest is settled at the end."""
LONG_AGO = "2020-01-01T00:00:00Z"
ERRAND_S = 25.0
"""How long an errand is looked after; what is not over then is waited for at the end."""
SMALL, LARGE, HUGE = (500, 9_900), (10_100, 49_900), (50_100, 90_000)
"""Minor units of USD: under the policy the customer's word is enough, the team decides, a manager decides."""
WAITING = frozenset({"received", "classified", "awaiting_consent", "awaiting_review", "approved", "held", "submitting"})


@dataclass
class Minds:
    """What the people of an errand say when they are asked."""

    verdict: str | None = "approve"
    agreed: bool | None = True
    deliver: str = "update"
    revise_to: int | None = None


@dataclass
class Doing:
    """One errand under way."""

    errand: Errand
    people: People
    book: Book
    run: str
    stream: Random = field(init=False)
    minds: Minds = field(default_factory=Minds)

    def __post_init__(self) -> None:
        self.stream = self.errand.stream()
        self.minds.deliver = self.stream.choice(("update", "update", "signal"))

    @property
    def shop(self) -> str:
        """The client that asks."""
        return f"shop-{self.errand.client}"

    def key(self, part: object = "") -> str:
        """An idempotency key of this errand."""
        return f"{self.run}-{self.errand.number}-{part}"

    def amount(self, between: tuple[int, int]) -> int:
        """Some amount."""
        return self.stream.randint(*between)

    async def pay(self, amount: int, *, category: str = "household", **special: Any) -> Payment:
        """A new customer's order, delivered two days ago and paid; ``special`` is what is special about the payment at the sandbox."""
        name = f"{self.run}-{self.errand.number}"
        payment = Payment(f"pi_{self.run}{self.errand.number}", f"order-{name}", f"customer-{name}", amount, "USD")
        self.book.payments[payment.intent] = payment
        placed = {"id": payment.intent, "amount": amount, "currency": "usd", **special}
        await self.people.control("POST", "/payments", placed, accept=(200, 409))
        await self.order(payment, category=category)
        return payment

    async def order(self, payment: Payment, *, category: str = "household", besides: tuple[Payment, ...] = ()) -> None:
        """What the merchant's system says of the order, and of what it was paid with ``besides``; the same again changes nothing."""
        amount, now = payment.amount + sum(other.amount for other in besides), SystemClock().now()
        order = {
            "customer_id": payment.customer,
            "customer_since": LONG_AGO,
            "placed_at": rfc3339(now - timedelta(days=5)),
            "delivered_at": rfc3339(now - timedelta(days=2)),
            "currency": "USD",
            "lines": [{"id": "1", "title": "Goods", "category": category, "amount": amount}],
            "payments": [_paid(each) for each in (payment, *besides)],
        }
        answer = await self.people.call(self.shop, "PUT", f"/v1/orders/{payment.order}", order)
        if answer.status_code not in (200, 201):
            self.book.odd.append(("unexpected_answer", f"an order was answered {answer.status_code}: {answer.text[:300]}"))

    async def pay_more_than(self, asked: int, **special: Any) -> tuple[Payment, int]:
        """A payment of as much or several times as much as will be asked for: where more is left, a refund made twice would not be stopped by the processor."""
        return await self.pay(asked * self.stream.choice((1, 2, 3)), **special), asked

    def body(self, payment: Payment, amount: int | None, *, known: bool = True) -> dict[str, Any]:
        """A request; ``known`` is whether the customer was logged in and named the amount."""
        asked: dict[str, Any] = {
            "order_id": payment.order,
            "customer_id": payment.customer,
            "reason": "product_issue",
            "requested_by": "sam",
            "channel": "chat",
        }
        asked |= {"full": True} if amount is None else {"amount": amount, "currency": "USD"}
        if known:
            asked["customer_authentication"] = {"method": "password", "at": rfc3339(SystemClock().now())}
        return asked

    async def ask(self, payment: Payment, body: dict[str, Any], part: object = "") -> str | None:
        """Ask until there is an answer; the refund's id."""
        key = self.key(part)
        answer = await self.people.call(self.shop, "POST", "/v1/refunds", body, key=key)
        if answer.status_code not in (200, 201, 202):
            self.book.odd.append(
                ("unexpected_answer", f"errand {self.errand.number}: a request was answered {answer.status_code}: {answer.text[:300]}")
            )
            return None
        refund = answer.json()["id"]
        self.book.accept(self.errand.number, self.errand.kind, payment, key, refund)
        return refund

    async def see_through(self, refund: str | None, *, within_s: float = ERRAND_S, hasty: float = HASTY) -> dict[str, Any] | None:
        """Answer what is asked about a refund until nothing is asked any more, or time is over; how it stood last. ``hasty`` is how likely somebody settles it
        at once if it is parked."""
        if refund is None:
            return None
        until, pause = time.monotonic() + within_s, 0.1
        while (view := await self.people.view(refund)) is not None and view["status"] in WAITING and time.monotonic() < until:
            if view["status"] == "awaiting_consent":
                await self._consent(view)
            elif view["status"] == "awaiting_review" and self.minds.verdict is not None:
                await self._decide(view)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 1.0)
        if view is not None and view["status"] == "parked" and self.stream.random() < hasty:
            await settle_one(self.people, refund)  # at once, although a request may still be under way
        return view

    async def _consent(self, view: dict[str, Any]) -> None:
        if self.minds.agreed is None:
            return
        said = {"agreed": self.minds.agreed, "terms_hash": view["terms_hash"]}
        answer = await self.people.call(self.shop, "POST", f"/v1/refunds/{view['id']}/consent", said)
        if answer.status_code == 200 and not self.minds.agreed:
            self.book.told_no[view["id"]] = "the customer declined"

    async def _decide(self, view: dict[str, Any]) -> None:
        if self.minds.revise_to is not None:
            to, self.minds.revise_to = self.minds.revise_to, None
            said = {"amount": to, "currency": "USD", "terms_hash": view["terms_hash"], "note": "a part of it"}
            await self.people.call("ravi", "POST", f"/v1/refunds/{view['id']}/revisions", said)
            return
        said = {"verdict": self.minds.verdict, "terms_hash": view["terms_hash"], "deliver": self.minds.deliver, "note": "chaos"}
        for who in self.stream.sample(REVIEWERS, len(REVIEWERS)):
            answer = await self.people.call(who, "POST", f"/v1/refunds/{view['id']}/decisions", said)
            if answer.status_code in (200, 202):
                if self.minds.verdict == "deny":
                    self.book.told_no[view["id"]] = f"{who} denied it"
                return


def _paid(payment: Payment) -> dict[str, Any]:
    """A payment as an order names it."""
    by_hand = {"processor": "manual", "tender": "gift_card"} if "manual" in payment.marks else {}
    return {"id": payment.intent, "amount": payment.amount, "currency": "USD"} | by_hand


async def _simple(doing: Doing, between: tuple[int, int], *, known: bool = True, category: str = "household", **special: Any) -> Any:
    payment, asked = await doing.pay_more_than(doing.amount(between), category=category, **special)
    return payment, await doing.see_through(await doing.ask(payment, doing.body(payment, asked, known=known)))


async def automatic(doing: Doing) -> None:
    """A small refund that goes by itself; now and then all that is left, named by no amount."""
    payment, asked = await doing.pay_more_than(doing.amount(SMALL))
    named = doing.stream.random() < 0.8 or asked < payment.amount
    await doing.see_through(await doing.ask(payment, doing.body(payment, asked if named else None)))


async def duplicated(doing: Doing) -> None:
    """The same request from several clients of one integration at once, and once more when it is over."""
    payment, asked = await doing.pay_more_than(doing.amount(SMALL))
    body = doing.body(payment, asked)
    pauses = [doing.stream.choice((0.0, 0.0, 0.3, 1.0)) for _ in range(3)]

    async def again(pause: float) -> str | None:
        await asyncio.sleep(pause)
        return await doing.ask(payment, body)

    refunds = await asyncio.gather(*(again(pause) for pause in pauses))
    await doing.see_through(refunds[0])
    await again(0)


async def racing(doing: Doing) -> None:
    """Three requests at once for a payment that has enough for one of them."""
    payment = await doing.pay(doing.amount(SMALL))
    body = doing.body(payment, payment.amount * 2 // 3)
    refunds = await asyncio.gather(*(doing.ask(payment, body, number) for number in range(3)))
    await asyncio.gather(*(doing.see_through(refund) for refund in refunds))


async def parts(doing: Doing) -> None:
    """Three honest parts of one payment at once, which together are the whole of it."""
    third = doing.amount(SMALL) // 3
    payment = await doing.pay(third * 3)
    refunds = await asyncio.gather(*(doing.ask(payment, doing.body(payment, third), number) for number in range(3)))
    await asyncio.gather(*(doing.see_through(refund) for refund in refunds))


async def reviewed(doing: Doing) -> None:
    """The team approves."""
    await _simple(doing, LARGE)


async def refused(doing: Doing) -> None:
    """The team denies."""
    doing.minds.verdict = "deny"
    await _simple(doing, LARGE)


async def two_people(doing: Doing) -> None:
    """Two different persons have to approve."""
    await _simple(doing, LARGE, category="jewellery")


async def managed(doing: Doing) -> None:
    """A manager has to approve."""
    await _simple(doing, HUGE)


async def agreed(doing: Doing) -> None:
    """The customer is asked and agrees, then a person looks."""
    await _simple(doing, SMALL, known=False)


async def declined(doing: Doing) -> None:
    """The customer is asked and declines."""
    doing.minds.agreed = False
    await _simple(doing, SMALL, known=False)


async def revised(doing: Doing) -> None:
    """A reviewer asks for other terms, the customer agrees, another reviewer approves."""
    payment = await doing.pay(doing.amount(LARGE))
    doing.minds.revise_to = payment.amount - doing.amount((500, 5_000))
    await doing.see_through(await doing.ask(payment, doing.body(payment, payment.amount)))


async def withdrawn(doing: Doing) -> None:
    """The shop takes it back at some moment; too late, or nothing is sent."""
    payment = await doing.pay(doing.amount(doing.stream.choice((SMALL, LARGE))))
    refund = await doing.ask(payment, doing.body(payment, payment.amount))
    if refund is None:
        return
    looking = asyncio.create_task(doing.see_through(refund))
    await asyncio.sleep(doing.stream.choice((0.0, 0.05, 0.2, 0.5)))
    answer = await doing.people.call(doing.shop, "POST", f"/v1/refunds/{refund}/withdrawal", {})
    if answer.status_code == 200:
        doing.book.told_no[refund] = "the shop withdrew it"
    await looking


async def unanswered(doing: Doing) -> None:
    """Nobody decides in time."""
    doing.minds.verdict = None
    await _simple(doing, LARGE, category="perishable")


async def left_waiting(doing: Doing) -> None:
    """Nobody has decided yet when the run ends: it says until when somebody may."""
    payment = await doing.pay(doing.amount(LARGE))
    await doing.ask(payment, doing.body(payment, payment.amount))


async def pending(doing: Doing) -> None:
    """The processor takes its time."""
    after = doing.stream.choice((200, 1_500, 4_000))
    await _simple(doing, SMALL, refund_outcome={"initial": "pending", "then": "succeeded", "after_ms": after})


async def pending_fails(doing: Doing) -> None:
    """The processor takes its time and fails."""
    after = doing.stream.choice((200, 1_500, 4_000))
    await _simple(doing, SMALL, refund_outcome={"initial": "pending", "then": "failed", "after_ms": after})


async def fails_later(doing: Doing) -> None:
    """It succeeds, and the customer's bank sends the money back."""
    payment, asked = await doing.pay_more_than(doing.amount(SMALL))
    payment.marks.add("fails_later")
    view = await doing.see_through(await doing.ask(payment, doing.body(payment, asked)))
    if view is None or view["status"] != "succeeded":
        return
    for made in (await doing.people.truth(payment.intent))["refunds"]:
        failed = {"status": "failed", "failure_reason": "expired_or_canceled_card"}
        await doing.people.control("POST", f"/refunds/{made['id']}", failed, accept=(200, 400))


async def authorised(doing: Doing) -> None:
    """The payment was never captured: its authorisation is cancelled."""
    payment = await doing.pay(doing.amount(SMALL), captured=0)
    payment.marks.add("authorised")
    await doing.see_through(await doing.ask(payment, doing.body(payment, payment.amount)))


async def disputed(doing: Doing) -> None:
    """A dispute is opened at some moment."""
    payment = await doing.pay(doing.amount(doing.stream.choice((SMALL, LARGE))))
    payment.marks.add("disputed")
    status = doing.stream.choice(("needs_response", "under_review", "warning_needs_response", "lost", "won"))
    refund = await doing.ask(payment, doing.body(payment, payment.amount))
    looking = asyncio.create_task(doing.see_through(refund))
    await asyncio.sleep(doing.stream.choice((0.0, 0.1, 0.4)))
    await doing.people.control("POST", "/disputes", {"payment_intent": payment.intent, "status": status}, accept=(200, 400))
    await looking


async def altered(doing: Doing) -> None:
    """The processor makes another amount than was approved. Another refund of the payment waits until a person has said what that is, and what was said stays."""
    third = doing.amount(SMALL) // 3
    payment = await doing.pay(third * 3)
    payment.marks.add("altered")
    other = {"kind": "alter", "fields": {"amount": third // 2}}
    ordered = {"on": "refund.create", "match": {"payment_intent": payment.intent}, "times": 1, "fault": other}
    await doing.people.control("POST", "/faults", ordered)
    first = await doing.ask(payment, doing.body(payment, third), 1)
    view = await doing.see_through(first, hasty=0)
    second = await doing.ask(payment, doing.body(payment, third), 2)
    waiting = asyncio.create_task(doing.see_through(second))
    await asyncio.sleep(doing.stream.choice((0.0, 0.5, 2.0)))
    if first is not None and view is not None and view["status"] == "parked":
        await settle_one(doing.people, first)
    # Whatever makes the payment be read again must not undo what the person said.
    payment.marks.add("past_us")
    await doing.people.control("POST", "/refunds", {"payment_intent": payment.intent, "amount": third // 4}, accept=(200, 400))
    await waiting


async def past_us(doing: Doing) -> None:
    """Somebody refunds a part in the dashboard while we refund the rest, or the whole of it."""
    payment = await doing.pay(doing.amount(SMALL))
    payment.marks.add("past_us")
    part = payment.amount // doing.stream.choice((2, 3, 5))
    wanted = payment.amount - (part if doing.stream.random() < 0.5 else 0)
    looking = asyncio.create_task(_ask_and_see(doing, payment, wanted))
    await asyncio.sleep(doing.stream.choice((0.0, 0.1, 0.4)))
    await doing.people.control("POST", "/refunds", {"payment_intent": payment.intent, "amount": part}, accept=(200, 400))
    await looking


async def _ask_and_see(doing: Doing, payment: Payment, amount: int) -> None:
    await doing.see_through(await doing.ask(payment, doing.body(payment, amount)))
