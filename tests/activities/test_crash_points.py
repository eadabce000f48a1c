"""Every story of a refund, cut short at each point it reaches: it ends as it would have, with nothing done twice and nothing lost (promises P1, P6, P7, P8)."""

import re
from pathlib import Path

import pytest

from tests.activities.lives import LOSE_REQUEST, REFUSE, STORIES, Life, Story, mortality
from tests.activities.shop import MakeShop

PAGE = Path(__file__).parents[2] / "docs" / "crash-points.md"

EXPECTED = {
    "automatic": ("succeeded", 1),
    "consented": ("succeeded", 1),
    "reviewed": ("succeeded", 1),
    "denied": ("denied", 0),
    "revised": ("succeeded", 1),
    "withdrawn": ("withdrawn", 0),
    "held by a stop": ("succeeded", 1),
    "lost answer found": ("succeeded", 1),
    "lost request repeated": ("succeeded", 1),
    "parked and settled as refunded": ("succeeded", 1),
    "parked and settled as not refunded": ("failed", 0),
    "refused by the processor": ("failed", 0),
    "pending, then succeeded": ("succeeded", 1),
    "pending, then failed": ("failed", 1),
    "failed at once": ("failed", 1),
    "released": ("released", 0),
}
"""How each story ends, and how many refunds (failed ones too) the processor has then."""


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_a_crash_at_any_point_changes_nothing_of_how_it_ends(make_shop: MakeShop, story: Story) -> None:
    shop = await make_shop(submit_max_attempts=story.attempts)
    with mortality():
        whole = Life(shop)
        await story.told([whole])
        wanted = await whole.record()
        assert (wanted.status, len(wanted.made)) == EXPECTED[story.name]
        assert row_of(story, whole) in PAGE.read_text().splitlines()

        fresh = whole.acts[story.fresh]
        lives = [Life(shop, dies_at=fresh + number) for number in firsts_and_lasts(whole.reached[fresh:])]
        await story.told(lives)

    for life in lives:
        assert life.died == whole.reached[life.dies_at or 0]
        ended = await life.record()
        if story.doubtful and life.died_unanswered:
            assert (life.died, ended.status, ended.code, ended.made) == (life.died, "parked", "OUTCOME_UNKNOWN", ())
        else:
            assert (life.died, ended) == (life.died, wanted)


def test_the_page_names_the_points_around_every_call_that_moves_money() -> None:
    source = "".join(file.read_text() for file in (PAGE.parents[1] / "activities" / "processors").glob("*.py"))
    calls = re.findall(r'self\._post\(\s*"([a-z._]+)"', source)
    assert len(calls) == source.count("self._post(") == 4

    named = set(re.findall(r"`((?:before|after):[a-z]+\.[a-z]+)`", PAGE.read_text()))
    assert named == {f"{when}:{call}" for call in calls for when in ("before", "after")}


def firsts_and_lasts(reached: list[str]) -> list[int]:
    """Where each point is reached first and last: what is repeated in between is the same again."""
    last = {point: number for number, point in enumerate(reached)}
    return sorted({reached.index(point) for point in reached} | set(last.values()))


def row_of(story: Story, life: Life) -> str:
    """How the page lists a story: what is written and called in it, in its order."""
    steps = dict.fromkeys(point.partition(":")[2] for point in life.reached)
    return f"| {story.name} | {', '.join(f'`{step}`' for step in steps)} |"


async def test_field_9_no_answer_and_no_id_is_no_licence_to_send_again(make_shop: MakeShop) -> None:
    """A parked refund whose run is started again, and again, is not sent again and keeps its money; a refused one frees it for a request of its own."""
    shop = await make_shop(submit_max_attempts=2)
    intent = await shop.paid()
    refund = await shop.approved(intent)
    await shop.fault("refund.create", LOSE_REQUEST, times=9, intent=intent)
    assert (await shop.submitted(refund)).status == "parked"
    before = await shop.asked_and_made(intent)

    for attempt in (1, 2, 3):
        assert (await shop.submit(refund, attempt=attempt)).status == "parked"

    assert await shop.asked_and_made(intent) == before == (2, 0)
    assert await shop.remaining(intent) == 7_000

    other = await shop.paid()
    refused = await shop.approved(other)
    await shop.fault("refund.create", REFUSE, intent=other)
    assert (await shop.submit(refused)).status == "failed"
    assert await shop.remaining(other) == 10_000
    again = await shop.approved(other)
    assert (await shop.submitted(again)).status == "succeeded"
    asked = (await shop.truth(other))["create_requests"]
    assert len({request["key"] for request in asked}) == len(asked) == 2
