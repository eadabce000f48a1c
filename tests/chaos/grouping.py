"""Errands about orders that were paid in several ways: one refund a payment, asked for, decided and withdrawn together, a gift card's part given by hand."""

import asyncio
import time
from typing import Any

from tests.chaos.book import Group, Payment
from tests.chaos.load import ERRAND_S, LARGE, SMALL, Doing
from tests.chaos.people import REVIEWERS
from tests.chaos.settlers import settle_one


async def grouped(doing: Doing) -> None:
    """Everything of two cards and a gift card, or nearly: by itself, approved or denied by the team, asked for twice, or withdrawn at some moment."""
    payments = await _pay(doing)
    whole = sum(payment.amount for payment in payments)
    doing.minds.verdict = doing.stream.choice(("approve", "approve", "approve", "deny"))
    body = doing.body(payments[0], None if doing.stream.random() < 0.5 else whole - payments[2].amount // 2)
    known = doing.stream.random() < 0.8
    if not known:
        del body["customer_authentication"]  # the customer is asked
    group = await _ask(doing, payments, body)
    if group is None:
        return
    looking = asyncio.create_task(_see_through(doing, group))
    if doing.stream.random() < 0.2:
        await asyncio.sleep(doing.stream.choice((0.0, 0.1, 0.5)))
        await _withdraw(doing, group)
    await looking
    if doing.stream.random() < 0.3:
        await _ask(doing, payments, body)  # the same once more: the same group


async def _pay(doing: Doing) -> tuple[Payment, ...]:
    between = doing.stream.choice((SMALL, SMALL, LARGE))
    first = await doing.pay(doing.amount(between) // 3)
    number = f"{doing.run}{doing.errand.number}"
    second = Payment(f"pi_{number}second", first.order, first.customer, doing.amount(between) // 3, "USD")
    card = Payment(f"card-{number}", first.order, first.customer, doing.amount(between) // 3, "USD", marks={"manual"})
    placed = {"id": second.intent, "amount": second.amount, "currency": "usd"}
    await doing.people.control("POST", "/payments", placed, accept=(200, 409))
    for payment in (second, card):
        doing.book.payments[payment.intent] = payment
    await doing.order(first, besides=(second, card))
    return first, second, card


async def _ask(doing: Doing, payments: tuple[Payment, ...], body: dict[str, Any]) -> str | None:
    """Ask until there is an answer; the group's id. Each part is a refund that was accepted."""
    key = doing.key("group")
    answer = await doing.people.call(doing.shop, "POST", "/v1/refund-groups", body, key=key)
    if answer.status_code not in (200, 201, 202):
        doing.book.odd.append(
            ("unexpected_answer", f"errand {doing.errand.number}: a group was answered {answer.status_code}: {answer.text[:300]}")
        )
        return None
    shown = answer.json()
    named = {payment.intent: payment for payment in payments}
    for part in shown["allocation"]["parts"]:
        payment = named[part["payment_id"]]
        doing.book.accept(doing.errand.number, doing.errand.kind, payment, f"{key}/{payment.intent}", part["refund_id"])
    asked = sum(payment.amount for payment in payments) if body.get("full") else body["amount"]
    known = doing.book.groups.setdefault(shown["id"], Group(shown["id"], key, asked, tuple(named)))
    if any(other.key == key and other.id != known.id for other in doing.book.groups.values()):
        doing.book.odd.append(("one_key_two_refunds", f"the key {key} made two groups"))
    return shown["id"]


async def _see_through(doing: Doing, group: str) -> None:
    """Answer what is asked about the parts together, and settle what is for a person, until nothing is asked or time is over."""
    until, pause, hasty = time.monotonic() + ERRAND_S, 0.1, doing.stream.random() < 0.5
    while time.monotonic() < until:
        shown = (await doing.people.call("anna", "GET", f"/v1/refund-groups/{group}")).json()
        if shown["final"]:
            return
        if shown["agree"]:
            said = {"agreed": True, "terms": shown["agree"]}
            await doing.people.call(doing.shop, "POST", f"/v1/refund-groups/{group}/consent", said)
        elif shown["decide"]:
            await _decide(doing, group, shown["decide"])
        parked = [refund["id"] for refund in shown["refunds"] if refund["status"] == "parked"]
        if parked and not hasty:
            return  # settled at the end
        for refund in parked:
            await settle_one(doing.people, refund)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 1.0)


async def _decide(doing: Doing, group: str, terms: dict[str, str]) -> None:
    said = {"verdict": doing.minds.verdict, "terms": terms, "deliver": doing.minds.deliver, "note": "chaos"}
    for who in doing.stream.sample(REVIEWERS, len(REVIEWERS)):
        answer = await doing.people.call(who, "POST", f"/v1/refund-groups/{group}/decisions", said)
        if answer.status_code in (200, 202):
            if doing.minds.verdict == "deny":
                doing.book.told_no.update(dict.fromkeys(answer.json()["refunds"], f"{who} denied the group"))
            return


async def _withdraw(doing: Doing, group: str) -> None:
    answer = await doing.people.call(doing.shop, "POST", f"/v1/refund-groups/{group}/withdrawal", {})
    if answer.status_code == 200:
        withdrawn = (part["refund_id"] for part in answer.json()["parts"] if part["outcome"] == "withdrawn")
        doing.book.told_no.update(dict.fromkeys(withdrawn, "the shop withdrew the group"))
