"""Random lives of refunds beside a reference in memory: what is used is always the sum over what counts, and never over the limit."""

import random
from datetime import timedelta

import pytest

from refunds.errors import Code
from refunds.limits import Tally
from refunds.messages import Situation
from refunds.policy import Policy, load_policy
from refunds.processor import NotSent, ProcessorRefund, RefundState, Refused
from tests.policies import with_limits
from tests.store.world import World

LIMITS = (
    "name: amount, who: everyone, amount: 300.00, window: 6h, taken: reserved, when_exceeded: deny",
    "name: number, who: everyone, refunds: 4, window: day, zone: Asia/Kolkata, taken: reserved, when_exceeded: deny",
)
STEPS = 40


class Lives:
    """Refunds in the database, and the same in memory."""

    def __init__(self, world: World, policy: Policy, chance: random.Random) -> None:
        self.world = world
        self.policy = policy
        self.chance = chance
        self.money, self.number = Tally(), Tally()
        self.orders = 0

    def fits(self, refund: str, amount: int) -> bool:
        """What the reference says of a refund of this amount now."""
        money, number = self.policy.limits
        at = self.world.clock.at
        if refund in self.money.taken and amount <= self.money.taken[refund][1]:
            return True  # it keeps the place it has
        others = sum(one for _, one in self.number.used(number, at, besides=refund))
        return self.money.stands(money, at, key=refund, own=amount).fits and others + 1 <= number.at_most

    def take(self, refund: str, amount: int) -> None:
        """Count it in the reference; both limits keep or move together, because they are one row."""
        self.money.take(refund, self.world.clock.at, amount)
        self.number.taken[refund] = (self.money.taken[refund][0], 1)

    def give_back(self, refund: str) -> None:
        self.money.give_back(refund)
        self.number.give_back(refund)

    def with_status(self, *statuses: str) -> str | None:
        """One of the refunds that stand so, by chance."""
        found = self.world.rows("SELECT id FROM refunds WHERE status = ANY(%s) ORDER BY id", list(statuses))
        return self.chance.choice(found)["id"] if found else None

    async def ask(self) -> None:
        number = self.orders = self.orders + 1
        [payment] = await self.world.order(ref=f"order-{number}", customer=f"customer-{number}", amounts=(20_000,))
        await self.world.read(payment, 20_000)
        amount = self.chance.choice((2_000, 5_000, 9_000, 12_000, 15_000))
        fits = self.fits("new", amount)
        refund, seen = await self.world.quoted(order_id=f"order-{number}", customer_id=f"customer-{number}", amount=amount)
        assert (seen.code == "LIMIT_EXCEEDED") is not fits, seen
        if fits:
            self.take(refund, amount)

    async def revise(self) -> None:
        refund = self.with_status("awaiting_review", "awaiting_consent")
        if refund is None:
            return
        row = self.world.row(refund)
        amount = self.chance.choice((1_000, 6_000, 11_000, 14_000)) + 10 * row["revision"]
        [payment] = self.world.rows("SELECT processor_payment AS p FROM payments WHERE id = %s", row["payment_id"])
        await self.world.read(payment["p"], 20_000)
        fits = self.fits(refund, amount)
        seen = await self.world.revise(refund, self.world.ann, amount=amount)
        assert (seen.refused == "LIMIT_EXCEEDED") is not fits, seen
        if fits:
            self.take(refund, amount)

    async def deny(self) -> None:
        if (refund := self.with_status("awaiting_review")) is not None:
            await self.world.decide(refund, self.world.mia, verdict="deny")
            self.give_back(refund)

    async def withdraw(self) -> None:
        if (refund := self.with_status("approved", "held", "awaiting_review", "awaiting_consent")) is not None:
            await self.world.withdraw(refund)
            self.give_back(refund)

    async def expire(self) -> None:
        refund = self.with_status("awaiting_review", "awaiting_consent")
        if refund is None:
            return
        self.world.clock.advance(hours=49)
        before = {row["id"] for row in self.world.rows("SELECT id FROM refunds WHERE status LIKE 'awaiting%%'")}
        for one in sorted(before):
            for _ in range(3):
                await self.world.steps.pass_deadline(one)
            if self.world.row(one)["status"] == "expired":
                self.give_back(one)

    async def send(self) -> None:
        refund = self.with_status("approved")
        if refund is None:
            return
        opened = await self.world.attempt(refund, 20_000)
        if isinstance(opened, Situation):
            assert opened.code == "TERMS_EXPIRED"
            return
        operation, attempt = opened
        payments, money, payment = self.world.submitting, operation.amount, operation.request.processor_payment
        match self.chance.randrange(5):
            case 0:
                await payments.failed_attempt(operation, attempt, Refused("declined"))
                self.give_back(refund)
            case 1:
                await payments.failed_attempt(operation, attempt, NotSent("no_connection"))
                await payments.hold_unsent(refund, Code.PROCESSOR_UNREACHABLE, "test")
            case 2:
                await payments.park(operation, Code.OUTCOME_UNKNOWN, "test")
            case _:
                made = ProcessorRefund(
                    f"re_{refund}", payment, money.amount, money.currency, RefundState.SUCCEEDED, "succeeded", operation.id
                )
                await payments.receipt(operation, made, attempt=attempt)
                if self.chance.random() < 0.3:
                    self.world.clock.advance(hours=self.chance.choice((1, 30)))
                    failed = ProcessorRefund(made.id, payment, money.amount, money.currency, RefundState.FAILED, "failed", operation.id)
                    await payments.observed(operation, failed)
                    self.give_back(refund)

    async def wait(self) -> None:
        self.world.clock.advance(minutes=self.chance.choice((1, 5, 45, 361)))

    def check(self) -> None:
        """The database and the reference agree, what is used is what the statuses say, and no limit is passed."""
        money, number = self.policy.limits
        at = self.world.clock.at
        query = "SELECT count(*) AS n, coalesce(sum(worth), 0)::bigint AS s FROM limit_uses WHERE stage = 'reserved' AND given_back_at IS NULL AND taken_at >= %s"
        [by_money], [by_number] = self.world.rows(query, money.over.begins(at)), self.world.rows(query, number.over.begins(at))
        assert by_money["s"] == sum(amount for _, amount in self.money.used(money, at)) <= money.at_most
        assert by_number["n"] == sum(amount for _, amount in self.number.used(number, at)) <= number.at_most
        counted = self.world.rows("SELECT refund_id AS id FROM limit_uses WHERE stage = 'reserved' AND given_back_at IS NULL ORDER BY 1")
        going = self.world.rows(
            "SELECT id FROM refunds WHERE status IN ('awaiting_consent', 'awaiting_review', 'approved', 'held', 'submitting', 'pending', 'parked',"
            " 'succeeded') ORDER BY 1"
        )
        assert counted == going
        sent = self.world.rows("SELECT refund_id AS id FROM limit_uses WHERE stage = 'sent' AND given_back_at IS NULL ORDER BY 1")
        moving = self.world.rows("SELECT id FROM refunds WHERE status IN ('submitting', 'pending', 'parked', 'succeeded') ORDER BY 1")
        assert sent == moving


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_used_is_what_counts_and_never_over_the_limit(world: World, seed: int) -> None:
    source = with_limits(*LIMITS)
    await world.policy(source)
    lives = Lives(world, load_policy(source), random.Random(seed))
    acts = [lives.ask] * 9 + [lives.send] * 3 + [lives.revise] * 2 + [lives.wait] * 3 + [lives.deny, lives.withdraw, lives.expire]

    for _ in range(STEPS):
        await lives.chance.choice(acts)()
        lives.check()

    assert world.count("refunds WHERE code = 'LIMIT_EXCEEDED'") > 0
    assert world.clock.at > world.rows("SELECT min(created_at) AS at FROM refunds")[0]["at"] + timedelta(hours=6)
