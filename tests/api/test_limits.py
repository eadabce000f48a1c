"""Limits over time and breakers as the API says them."""

from sqlalchemy import text

from refunds.rates import Rate
from store import breakers, rates
from tests.api.conftest import Api
from tests.policies import with_breakers, with_limits


async def publish(api: Api, source: str) -> None:
    answer = await api.call("POST", "/v1/policy/versions", api.administrator, {"source": source, "note": "test"})
    assert answer.status_code == 201, answer.text


async def quoted(api: Api, **changed: object) -> dict[str, object]:
    refund = await api.received(await api.order(), **changed)
    await api.quote(refund)
    answer = await api.call("GET", f"/v1/refunds/{refund}", await api.reviewer())
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_limit_that_says_no_names_itself_what_is_used_and_left_and_when_it_opens(api: Api) -> None:
    await publish(api, with_limits("name: all_hour, who: everyone, refunds: 1, window: 1h, taken: reserved, when_exceeded: deny"))
    first = await quoted(api)

    refused = await quoted(api)

    assert first["limit"] is None
    assert (refused["status"], refused["code"]) == ("denied", "LIMIT_EXCEEDED")
    limit = refused["limit"]
    assert isinstance(limit, dict)
    opens_at = limit.pop("opens_at")
    assert opens_at > refused["created_at"]
    assert limit == {
        "name": "all_hour",
        "stage": "reserved",
        "rule": "at most 1 refund in one hour by everyone together",
        "currency": None,
        "at_most": 1,
        "used": 1,
        "used_text": "1 refund",
        "left": 0,
        "left_text": "0 refunds",
        "own": 1,
        "exceeded": True,
        "warns": False,
    }
    assert f"it opens again at {opens_at}" in str(refused["detail"])


async def test_what_waits_for_a_rate_names_the_limit_and_what_it_counts_as_once_there_is_one(api: Api) -> None:
    await publish(api, with_limits("name: day, who: everyone, amount: 200.00, window: day, zone: UTC, taken: reserved"))
    order = await api.order(currency="EUR", payments=[{"id": "pi_euros", "amount": 30_000, "currency": "EUR"}])
    refund = await api.received(order, currency="EUR")
    await api.quote(refund)
    async with api.owner.begin() as connection:
        await connection.execute(text("UPDATE refunds SET status = 'held', code = 'LIMIT_EXCEEDED' WHERE id = :id"), {"id": refund})

    waits = (await api.call("GET", f"/v1/refunds/{refund}", await api.reviewer())).json()
    async with api.owner.begin() as connection:
        rate = Rate("USD", "EUR", "1.10")
        await rates.record(connection, api.clock, rate=rate, effective_at=None, source="test", principal_id=(await api.reviewer()).id)
    knows = (await api.call("GET", f"/v1/refunds/{refund}", await api.reviewer())).json()

    assert (waits["limit"]["name"], waits["limit"]["own"], waits["limit"]["exceeded"]) == ("day", None, True)
    [counted] = knows["context"]["limits"]
    assert (counted["own"], counted["exceeded"], counted["opens_at"]) == (22_000, True, None), "more than the whole limit"


async def test_the_context_shows_what_is_used_and_left_by_now(api: Api) -> None:
    await publish(api, with_limits("name: day, who: everyone, amount: 20000.00, window: day, zone: UTC, warn_at_percent: 1"))
    await quoted(api, amount=20_000)

    second = await quoted(api, amount=10_000)

    context = second["context"]
    assert isinstance(context, dict)
    shown = {(one["name"], one["stage"]): (one["used_text"], one["left_text"], one["warns"]) for one in context["limits"]}
    assert shown == {("day", "reserved"): ("$200.00", "$19,800.00", True), ("day", "sent"): ("$0.00", "$20,000.00", False)}


async def test_a_reviewer_who_has_approved_enough_is_told_when_it_opens(api: Api) -> None:
    await publish(api, with_limits("name: reviewers, who: reviewer, refunds: 1, window: 24h"))
    rita = await api.reviewer()
    views = [await api.in_review(await api.order()) for _ in range(2)]
    answers = [
        await api.call("POST", f"/v1/refunds/{view['id']}/decisions", rita, {"verdict": "approve", "terms_hash": view["terms_hash"]})
        for view in views
    ]

    assert [answer.status_code for answer in answers] == [200, 409]
    said = answers[1].json()
    assert (said["code"], said["limit"], said["at_most"], said["used"], said["left"]) == ("REVIEWER_LIMIT", "reviewers", 1, 1, 0)
    assert said["opens_at"].endswith("Z")
    assert "decision_refused" in await api.ledger(views[1]["id"]) or "review_refused" in await api.ledger(views[1]["id"])


async def test_a_breaker_that_opened_is_among_the_controls_and_the_metrics(api: Api) -> None:
    await publish(
        api,
        with_breakers(
            "name: failing, scope: everything, watches: failures, percent: 10, at_least: 2, cool_down: 30m, half_open_per_hour: 5"
        ),
    )
    views = [await quoted(api, amount=5_000) for _ in range(2)]
    for view in views:
        await api.rows(
            "INSERT INTO limit_uses (refund_id, stage, revision, customer_id, by_agent, processor, amount, currency, taken_at)"
            " SELECT id, 'sent', 1, customer_id, false, 'stripe', 5000, 'USD', created_at FROM refunds WHERE id = :r RETURNING 1",
            r=view["id"],
        )
        await api.rows("UPDATE refunds SET status = 'failed' WHERE id = :r RETURNING 1", r=view["id"])
    await breakers.judge(api.owner)

    controls = (await api.call("GET", "/v1/controls", api.administrator)).json()
    metrics = (await api.call("GET", "/metrics", None)).text

    [breaker] = controls["breakers"]
    assert (breaker["name"], breaker["scope"], breaker["state"], breaker["figures"]["failed"]) == ("failing", "everything", "open", 2)
    assert controls["controls"][0]["state"] == "stopped"
    assert controls["controls"][0]["halts"][0]["code"] == "BREAKER_OPEN"
    assert 'refunds_breakers{state="open"} 1.0' in metrics
    closed = await api.call("PUT", "/v1/controls", api.administrator, {"state": "running", "reason": "an expired test card"})
    assert closed.status_code == 200, closed.text
    assert (await api.call("GET", "/v1/controls", api.administrator)).json()["breakers"] == []
