"""Asking for a refund: what is stored, what is answered, and what a repeated request gets."""

import asyncio

from tests.api.conftest import Api


async def test_a_request_is_accepted_and_starts_later_when_temporal_is_down(api: Api) -> None:
    order = await api.order()

    answer = await api.ask(api.asked(order), key="once")

    assert answer.status_code == 202
    view = answer.json()
    assert (view["status"], view["final"], view["next_step"]) == ("received", False, "being read and quoted")
    assert answer.headers["Location"] == f"/v1/refunds/{view['id']}"
    assert await api.ledger(view["id"]) == ["refund_received"]


async def test_field_59_the_same_request_again_is_the_same_refund(api: Api) -> None:
    body = api.asked(await api.order())

    answers = await asyncio.gather(*(api.ask(body, key="click") for _ in range(5)))

    assert sorted(a.status_code for a in answers) == [200, 200, 200, 200, 202]
    assert len({a.json()["id"] for a in answers}) == 1
    assert [a.headers.get("Idempotent-Replayed") for a in answers].count("true") == 4
    assert await api.count("refunds") == 1


async def test_a_key_belongs_to_its_body(api: Api) -> None:
    order = await api.order()
    await api.ask(api.asked(order), key="once")

    answer = await api.ask(api.asked(order, amount=20_001), key="once")

    assert answer.status_code == 422
    assert answer.json()["code"] == "IDEMPOTENCY_KEY_REUSED"
    assert await api.count("refunds") == 1
