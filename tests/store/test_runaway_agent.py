"""The runaway agent: it asks as fast as it can for a whole weekend, by a clock that a test moves, over real PostgreSQL and the real quotes and attempts.

Whatever it asks, no more moves than what the policy in force permits, which is computed from the policy alone.
"""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from refunds.clock import parse_rfc3339
from refunds.limits import Who
from refunds.messages import Situation
from refunds.money import Money
from refunds.people import Actor, PrincipalKind, Role
from refunds.policy import Policy, load_policy
from refunds.processor import ProcessorRefund, RefundState
from tests.policies import with_limits
from tests.store.world import World

WEEKEND = timedelta(hours=48)
SATURDAY = datetime(2026, 6, 6, tzinfo=UTC)
AT_ONCE = 3
LIMITS = (
    "name: agent_ten_minutes, who: agent, refunds: 2, window: 10m, taken: both, when_exceeded: deny",
    "name: agent_hours, who: agent, amount: 10000.00, window: 2h, taken: both, when_exceeded: hold",
    "name: agent_day, who: agent, amount: 900.00, window: day, zone: America/New_York, taken: reserved, when_exceeded: deny",
    "name: agents_day, who: agents, refunds: 15, window: day, zone: UTC, taken: reserved, when_exceeded: deny",
    "name: everyone_hour, who: everyone, refunds: 4, window: 1h, taken: sent",
)


@dataclass(frozen=True)
class Bound:
    """The most that a policy lets one agent move in a stretch of time."""

    refunds: int
    amount: int

    @classmethod
    def of(cls, policy: Policy, begins: datetime, ends: datetime) -> "Bound":
        """Of every limit that counts the agent, what fits in a window times the windows that the stretch touches; the least of all."""
        counts: list[int] = []
        amounts: list[int] = []
        for limit in policy.limits:
            if limit.who not in (Who.AGENT, Who.AGENTS, Who.EVERYONE):
                continue
            touched = 0
            if limit.over.calendar is None:
                touched = -(-(ends - begins) // timedelta(seconds=limit.over.seconds))  # so many cover the stretch, and none holds more
            else:
                at = begins
                while at < ends:
                    touched, at = touched + 1, limit.over.next_begins(at)
            (amounts if limit.counts_money else counts).append(limit.at_most * touched)
        return cls(min(counts), min(amounts))


@dataclass
class Runaway:
    """The agent, and whoever sends what is approved for it the moment it may go."""

    world: World
    agent: Actor
    orders: int = 0
    asked: int = 0
    refused: int = 0
    held: set[str] = field(default_factory=set[str])
    free: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    amounts: "itertools.count[int]" = field(default_factory=lambda: itertools.count(8_900))

    async def ask(self) -> Situation:
        """Ask for nearly as much as goes without a person, for a customer who has not been refunded yet, and agree for them at once."""
        self.asked += 1
        number, payment = self.free.pop() if self.free else await self.another()
        await self.world.read(payment, 50_000)
        refund, seen = await self.world.quoted(
            actor=self.agent, order_id=f"order-{number}", customer_id=f"customer-{number}", amount=next(self.amounts)
        )
        if seen.status == "awaiting_consent":
            await self.world.consent(refund)
            await self.send(refund)
        else:
            self.free.append((number, payment))
        return seen

    async def another(self) -> tuple[int, str]:
        """One more customer with an order; returns its number and the payment."""
        number = self.orders = self.orders + 1
        [payment] = await self.world.order(ref=f"order-{number}", customer=f"customer-{number}", amounts=(50_000,))
        return number, payment

    async def send(self, refund: str) -> None:
        """Send it if it may go now; else it is held."""
        opened = await self.world.attempt(refund, 50_000)
        if isinstance(opened, Situation):
            assert (opened.status, opened.code) == ("held", "LIMIT_EXCEEDED"), opened
            self.held.add(refund)
            return
        operation, attempt = opened
        money = operation.amount
        payment = operation.request.processor_payment
        made = ProcessorRefund(f"re_{refund}", payment, money.amount, money.currency, RefundState.SUCCEEDED, "succeeded", operation.id)
        await self.world.submitting.receipt(operation, made, attempt=attempt)

    async def wake(self) -> None:
        """Let everything held that is due look again, as its run would."""
        for refund in sorted(self.held):
            if self.world.row(refund)["wake_at"] <= self.world.clock.at:
                await self.world.read(self.paid_with(refund), 50_000)
                if (await self.world.steps.resume_held(refund)).status == "approved":
                    self.held.discard(refund)
                    await self.send(refund)

    def paid_with(self, refund: str) -> str:
        """The processor's id of its payment."""
        [row] = self.world.rows("SELECT processor_payment AS p FROM payments WHERE id = %s", self.world.row(refund)["payment_id"])
        return row["p"]

    def opens_at(self, denied: list[Situation]) -> datetime:
        """The next moment at which the answers to the denied say that anything could go. Before it there is no use in asking."""
        wanted: list[datetime] = []
        for one in denied:
            [row] = self.world.rows("SELECT decision FROM revisions WHERE refund_id = %s", one.refund)
            opens = [limit["opens_at"] for limit in row["decision"]["limits"] if limit["exceeded"] and limit["opens_at"]]
            wanted.append(max(parse_rfc3339(text) for text in opens))
        return min(wanted)

    def next_wake(self) -> list[datetime]:
        """When the next of what is held looks again."""
        return [self.world.row(one)["wake_at"] for one in self.held]


async def test_an_agent_that_runs_away_for_a_weekend_moves_no_more_than_the_policy_permits(
    world: World, figures: Callable[[str], None]
) -> None:
    source = with_limits(*LIMITS)
    await world.policy(source)
    agent = Runaway(world, await world.actor("bot", PrincipalKind.AGENT, Role.REQUESTER))
    world.clock.at = SATURDAY

    opens_at = SATURDAY
    while world.clock.at < SATURDAY + WEEKEND:
        await agent.wake()
        if world.clock.at >= opens_at:
            seen = await asyncio.gather(*(agent.ask() for _ in range(AT_ONCE)))
            denied = [one for one in seen if one.status == "denied"]
            agent.refused += len(denied)
            assert {one.code for one in denied} <= {"LIMIT_EXCEEDED"}
            if not denied:
                continue
            opens_at = agent.opens_at(denied)
        world.clock.at = max(min([opens_at, *agent.next_wake()]), world.clock.at + timedelta(seconds=1))

    sent = "attempts a JOIN operations o ON o.id = a.operation_id WHERE a.opened_at < %s"
    [moved] = world.rows(f"SELECT count(*) AS n, coalesce(sum(o.amount), 0)::bigint AS amount FROM {sent}", SATURDAY + WEEKEND)
    bound = Bound.of(load_policy(source), SATURDAY, SATURDAY + WEEKEND)
    figures(
        f"runaway agent, 48 h: asked {agent.asked} times, refused {agent.refused}; moved {moved['n']} refunds of {Money(moved['amount'], 'USD')};"
        f" the policy permits {bound.refunds} refunds and {Money(bound.amount, 'USD')}"
    )
    assert moved["n"] <= bound.refunds
    assert moved["amount"] <= bound.amount
    assert moved["n"] >= bound.refunds // 2, "the bound is no empty one: the agent came near it"
    assert agent.refused > 0


def test_the_bound_is_what_the_windows_of_the_weekend_hold() -> None:
    assert Bound.of(load_policy(with_limits(*LIMITS)), SATURDAY, SATURDAY + WEEKEND) == Bound(30, 270_000)
