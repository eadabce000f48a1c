"""Collecting the facts, a few payments at a time, so that ten thousand refunds need no more memory than one."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from refunds.clock import rfc3339
from tests.chaos.book import Book, Payment
from tests.chaos.ending import batches
from tests.chaos.people import People
from tests.chaos.stand import Stand
from tests.chaos.truth import EVENTUAL, OUT, Facts, Violation, group_sum, judge, key_of

AT_ONCE = 50
TELL_EVERY_S = 5.0
_LEDGER = "SELECT id, refund_id, refund_version, type, at, data FROM ledger WHERE refund_id = ANY(%s) ORDER BY refund_id, refund_version"
_EXTERNAL = """SELECT p.processor_payment, r.id, r.amount FROM processor_refunds r JOIN payments p ON p.id = r.payment_id
    WHERE p.processor_payment = ANY(%s) AND r.operation_id IS NULL"""


class Gathering:
    """Reads the product's record and the sandbox's truth of every payment of a run."""

    def __init__(self, stand: Stand, people: People, book: Book) -> None:
        self._stand = stand
        self._people = people
        self._book = book

    async def facts(self, intents: list[str]) -> AsyncIterator[Facts]:
        """The facts of these payments, one after the other."""
        posts = self._stand.links["worker-sandbox"].posts
        for some in batches(intents, AT_ONCE):
            payments = [self._book.payments[intent] for intent in some]
            refunds = [refund for payment in payments for refund in payment.refunds]
            ledgers = await self._ledgers(refunds)
            external = await self._external(some)
            views = dict(zip(refunds, await asyncio.gather(*(self._people.view(refund) for refund in refunds)), strict=True))
            for payment in payments:
                yield await self._of(payment, views, ledgers, external.get(payment.intent, {}), posts)

    async def _of(
        self,
        payment: Payment,
        views: dict[str, Any],
        ledgers: dict[str, list[dict[str, Any]]],
        external: dict[str, int],
        posts: dict[str, list[float]],
    ) -> Facts:
        truth = self._by_hand(payment) if "manual" in payment.marks else await self._people.truth(payment.intent)
        mine = {refund: view for refund in payment.refunds if (view := views[refund]) is not None}
        return Facts(
            intent=payment.intent,
            captured=0 if "authorised" in payment.marks else payment.amount,
            marks=frozenset(payment.marks),
            accepted=tuple(payment.refunds),
            creates=truth["create_requests"],
            cancels=truth["cancel_requests"],
            refunds=truth["refunds"],
            views=mine,
            ledgers={refund: ledgers.get(refund, []) for refund in mine},
            external=external,
            posts=posts,
            stops=tuple(self._book.stops),
            returned=[*truth["reversals"], *truth["fee_refunds"]],
            leg_requests=[*truth["reversal_requests"], *truth["fee_refund_requests"]],
            targets={sent["id"]: sent["amount"] for sent in truth["transfers"]},
            fee=payment.fee,
            told_no={refund: self._book.told_no[refund] for refund in payment.refunds if refund in self._book.told_no},
        )

    def _by_hand(self, payment: Payment) -> dict[str, Any]:
        """What people did about a manual payment, in the shape of the sandbox's truth: there is no other."""
        given = [(refund, *self._book.given[refund]) for refund in payment.refunds if refund in self._book.given]
        requests = [{"key": key_of("manual", operation), "params": {}, "answered": 200} for _, operation, _ in given]
        refunds = [
            {
                "id": f"given-{refund}",
                "amount": amount,
                "status": "succeeded",
                "metadata": {"refunds_refund": refund, "refunds_operation": operation},
            }
            for refund, operation, amount in given
        ]
        nothing = ("cancel_requests", "reversals", "fee_refunds", "reversal_requests", "fee_refund_requests", "transfers")
        return {"create_requests": requests, "refunds": refunds} | {name: [] for name in nothing}

    async def judge_groups(self) -> list[Violation]:
        """Everything that is wrong with the sums of groups, once nothing is under way."""
        found: list[Violation] = []
        for group in self._book.groups.values():
            shown = (await self._people.call("anna", "GET", f"/v1/refund-groups/{group.id}")).json()
            out, refunds = 0, list[str]()
            for intent in group.payments:
                payment = self._book.payments[intent]
                truth = self._by_hand(payment) if "manual" in payment.marks else await self._people.truth(intent)
                out += sum(made["amount"] for made in truth["refunds"] if made["status"] in OUT)
                refunds += payment.refunds
            found += [Violation("group_sum", group.id, what) for what in group_sum(group, shown, out, refunds)]
        return found

    async def _ledgers(self, refunds: list[str]) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for seq, refund, version, kind, at, data in await asyncio.to_thread(self._stand.rows, _LEDGER, refunds):
            found.setdefault(refund, []).append({"seq": seq, "refund_version": version, "type": kind, "at": rfc3339(at), "data": data})
        return found

    async def _external(self, intents: list[str]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for intent, refund, amount in await asyncio.to_thread(self._stand.rows, _EXTERNAL, intents):
            found.setdefault(intent, {})[refund] = amount
        return found

    async def judge_until(
        self, intents: list[str], say: Callable[[str], None], *, within_s: float
    ) -> tuple[list[Violation], list[Violation]]:
        """Everything that is wrong with these payments, apart what may still be on its way: that is looked at again until it is right, or time is over."""
        until, told, found = time.monotonic() + within_s, 0.0, list[Violation]()
        while True:
            wrong = [violation for violation in await self._judge(intents) if violation not in found]
            found += [violation for violation in wrong if violation.check not in EVENTUAL]
            late = [violation for violation in wrong if violation.check in EVENTUAL]
            if not late or time.monotonic() > until:
                return found, late
            if time.monotonic() - told > TELL_EVERY_S:
                told = time.monotonic()
                say(f"{len(late)} things are not yet as they are at the processor")
            intents = sorted({violation.where for violation in late})
            await asyncio.sleep(1)

    async def _judge(self, intents: list[str]) -> list[Violation]:
        return [violation async for facts in self.facts(intents) for violation in judge(facts)]
