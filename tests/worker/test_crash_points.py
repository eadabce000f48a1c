"""Worker processes killed at every commit and every call on the way of money, while others go on and new ones take their place (promises P1, P6, P7)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.activities.lives import LOSE_ANSWER, STORIES, Life, Story, mortality
from tests.worker.site import Site, Worker, until

WORKERS = 3
MONEY = frozenset(
    {"intent", "submitting", "attempt_opened", "attempt_ended", "receipt", "adopted", "succeeded", "released"}
    | {"refund.create", "authorisation.cancel"}
)
SETTINGS = {"SUBMIT_MAX_ATTEMPTS": "100", "SUBMIT_RETRY_MAX_S": "1", "PENDING_POLL_INITIAL_S": "0.3", "SUBMIT_SEND_WITHIN_S": "1"}
WALKED = ("automatic", "lost answer found", "pending, then succeeded", "released")
"""Stories that need nobody but the workers and the processor."""


@dataclass
class Troop:
    """Worker processes that look into one file for where to die, each started again when it has."""

    site: Site
    rules: Path
    alive: list[Worker] = field(default_factory=list)

    def start(self) -> None:
        """Have as many as there should be."""
        self.alive = [worker for worker in self.alive if worker.process.poll() is None]
        while len(self.alive) < WORKERS:
            self.alive.append(self.site.launch("all", CRASH_POINTS=f"file:{self.rules}", **SETTINGS))

    def arm(self, rule: str) -> None:
        """Whoever gets there first dies there."""
        fresh = self.rules.with_suffix(".new")
        fresh.write_text(rule)
        fresh.rename(self.rules)

    @property
    def dead(self) -> list[Worker]:
        """Those that died since they were last started."""
        return [worker for worker in self.alive if worker.process.poll() is not None]


@pytest.fixture
def troop(site: Site) -> Iterator[Troop]:
    """All at work, and nobody is to die yet."""
    made = Troop(site, site.home / "points")
    made.start()
    yield made
    made.rules.unlink(missing_ok=True)


async def points_of(site: Site, story: Story) -> list[str]:
    """The points on the way of money that workers reach in a story."""
    with mortality():
        life = Life(site.shop)
        await story.told([life])
    assert (await life.record()).status in ("succeeded", "released")
    return [
        point for point in dict.fromkeys(life.reached) if point not in life.of_callers and MONEY & set(point.partition(":")[2].split("+"))
    ]


async def begun(site: Site, story: str) -> tuple[str, str]:
    """A refund of that story whose run has been started; returns it and its payment."""
    wanted: dict[str, Any] = {
        "pending, then succeeded": {"refund_outcome": {"initial": "pending", "then": "succeeded", "after_ms": 500}},
        "released": {"captured": 0, "amount": 3_000},
    }
    intent = await site.shop.paid(**wanted.get(story, {}))
    if story == "lost answer found":
        await site.shop.fault("refund.create", LOSE_ANSWER, intent=intent)
    refund = await site.shop.received(intent)
    await site.run(refund)
    return refund, intent


async def test_workers_die_at_every_point_and_nothing_is_lost_or_done_twice(site: Site, troop: Troop) -> None:
    first = {point: story.name for story in reversed(STORIES) if story.name in WALKED for point in await points_of(site, story)}
    assert {point.partition(":")[0] for point in first} == {"before", "after"}
    begun_refunds: dict[str, str] = {}
    for point, story in first.items():
        troop.arm(f"{point}!=kill")
        died = len(troop.dead)

        async def somebody_died(died: int = died) -> bool:
            return len(troop.dead) > died

        for name in (story, "automatic", story):
            refund, intent = await begun(site, name)
            begun_refunds[refund] = intent
        await until(somebody_died, lambda point=point: f"nobody reached {point}\n{site.logs()[-3000:]}")
        [line] = troop.dead[-1].text.splitlines()[-1:]
        assert line == f"crash point {point}: kill"
        troop.start()

    for refund, intent in begun_refunds.items():
        assert await site.reaches(refund, "succeeded", "released", "failed", "parked", "held") in ("succeeded", "released")
        await assert_done_once(site, refund, intent)


async def assert_done_once(site: Site, refund: str, intent: str) -> None:
    """One operation, one key, one refund or release there, each change of status recorded once, and no version missing."""
    row, truth = await site.shop.row(refund), await site.shop.truth(intent)
    asked = truth["create_requests"] + truth["cancel_requests"]
    effects = [request for request in asked if request["answered"] == 200 or request["made"]]
    assert len({request["key"] for request in asked}) == 1
    assert [found["amount"] for found in truth["refunds"]] == ([3_000] if row["status"] == "succeeded" else [])
    assert effects
    moves = await site.shop.moves(refund)
    assert len(moves) == len(set(moves)), moves
    entries = await site.shop.query("SELECT refund_version AS v FROM ledger WHERE refund_id = :r ORDER BY v", r=refund)
    assert [entry["v"] for entry in entries] == list(range(1, row["version"] + 1))
    [counts] = await site.shop.query("SELECT count(*) AS n FROM operations WHERE refund_id = :r", r=refund)
    assert counts["n"] == 1
