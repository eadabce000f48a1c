"""Retention over HTTP: what is kept for how long and why, and taking away what has had its time when somebody asks."""

from datetime import timedelta

from refunds.people import Role
from refunds.retention import Kept
from tests.api.conftest import Api
from tests.api.test_forgetting import withdrawn


async def test_periods_are_shown_with_their_reasons_counted_and_applied_when_asked(api: Api) -> None:
    view = await withdrawn(api)
    api.clock.advance(timedelta(days=200))
    shown = (await api.call("GET", "/v1/retention", api.administrator)).json()["kinds"]
    counted = await api.call("POST", "/v1/retention/runs", api.administrator, {"dry_run": True})
    untouched = (await api.call("GET", f"/v1/refunds/{view['id']}", await api.reviewer())).json()

    done = await api.call("POST", "/v1/retention/runs", api.administrator, {})

    assert [one["kind"] for one in shown] == list(Kept)
    assert {one["kind"]: one["due"] for one in shown if one["due"]} == {"conversations": 1, "readings": 1}
    assert all(one["days"] and one["reason"] and one["what"] for one in shown)
    assert counted.json() == {"id": None, "dry_run": True, "removed": {"conversations": 1, "readings": 1}, "more": False}
    assert untouched == view
    assert done.json()["removed"] == counted.json()["removed"]
    after = (await api.call("GET", f"/v1/refunds/{view['id']}", await api.reviewer())).json()
    assert set(view["texts"]) - set(after["texts"]) == {"conversation"}
    assert after["reading"]["intent"] == view["reading"]["intent"], "the labels stay"
    assert len(await api.rows("SELECT 1 FROM ledger WHERE type = 'retention_applied'")) == 2


async def test_an_auditor_sees_them_and_only_an_operator_applies_them(api: Api) -> None:
    for role in Role:
        caller = await api.caller(f"one-{role}", role)
        seen = await api.call("GET", "/v1/retention", caller)
        run = await api.call("POST", "/v1/retention/runs", caller, {})
        assert seen.status_code == (200 if role in (Role.OPERATOR, Role.AUDITOR) else 403), role
        assert run.status_code == (200 if role is Role.OPERATOR else 403), role
