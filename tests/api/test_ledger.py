"""The ledger over the API: what an auditor is given holds without any program of ours, and shows nothing of anybody else (promise P8)."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from api.ledger import in_words
from refunds.ledger import verifier
from refunds.people import Role
from store.chain import Standing
from tests.api.conftest import Api, Caller
from tests.store.chained import KEY, Chained

KEYS = [verifier.read_key(KEY.vkey)]


@pytest.fixture
async def chained(api: Api) -> AsyncIterator[Chained]:
    made = Chained(api.fresh)
    made.clock.at = api.clock.now()
    yield made
    await made.close()


async def auditor(api: Api) -> Caller:
    return await api.caller("otto", Role.AUDITOR)


async def signed(chained: Chained) -> int | None:
    await chained.numbered()
    return await chained.signed()


def judged(api: Api, body: dict[str, Any]) -> verifier.Report:
    """What the standalone verifier says of a file, which is the answer as it came."""
    data = json.dumps(body).encode()
    if body["format"] == verifier.CONSISTENCY:
        return verifier.verify_consistency(data, KEYS, verifier.Kept([]))
    return verifier.verify_proof(data, KEYS, verifier.Kept([]), api.clock.now())


async def test_a_proof_holds_and_shows_nothing_of_other_customers(api: Api, chained: Chained) -> None:
    views = [(await api.ask(api.asked(await api.order()))).json() for _ in range(2)]
    await signed(chained)
    mine, other = (view["id"] for view in views)
    entries = (await api.call("GET", f"/v1/refunds/{mine}/ledger", await auditor(api))).json()["entries"]

    answer = await api.call("GET", f"/v1/ledger/proofs/{entries[0]['seq']}", await auditor(api))

    assert answer.status_code == 200, answer.text
    assert f"Entry {entries[0]['seq']} is one of the " in judged(api, answer.json()).said
    assert answer.json()["entry"]["refund"] == mine
    assert other not in answer.text
    customers = [customer for (customer,) in chained.rows("SELECT customer_id FROM refunds WHERE id = %s", other)]
    assert all(str(customer) not in answer.text for customer in customers)


async def test_a_refund_s_record_comes_with_proofs_when_they_are_asked_for(api: Api, chained: Chained) -> None:
    view = (await api.ask(api.asked(await api.order()))).json()
    path = f"/v1/refunds/{view['id']}/ledger"
    before = (await api.call("GET", path, await auditor(api))).json()["entries"]
    assert [(entry["seq"], entry["proof"]) for entry in before] == [(None, None)] * len(before)
    await signed(chained)

    plain = (await api.call("GET", path, await auditor(api))).json()["entries"]
    proven = (await api.call("GET", f"{path}?proofs=true", await api.reviewer())).json()["entries"]

    assert all(entry["seq"] and entry["proof"] is None for entry in plain)
    assert [entry["proof"]["entry"]["refund_version"] for entry in proven] == [entry["refund_version"] for entry in plain]
    for entry in proven:
        judged(api, entry["proof"])


async def test_checkpoints_continue_each_other_and_that_is_proven(api: Api, chained: Chained) -> None:
    await api.order()
    first = await signed(chained)
    await api.order()
    second = await signed(chained)
    assert first is not None and second is not None and second > first

    answer = await api.call("GET", f"/v1/ledger/consistency?older={first}", await auditor(api))
    assert judged(api, answer.json()).said.startswith(f"The {second} entries signed begin with the {first} signed earlier")
    same = await api.call("GET", f"/v1/ledger/consistency?older={second}&newer={second}", await auditor(api))
    assert same.json()["hashes"] == []
    wrong = await api.call("GET", f"/v1/ledger/consistency?older={second}&newer={first}", await auditor(api))
    assert (wrong.status_code, wrong.json()["field"]) == (422, "newer")
    missing = await api.call("GET", f"/v1/ledger/consistency?older={second + 1}", await auditor(api))
    assert (missing.status_code, missing.json()["code"]) == (404, "CHECKPOINT_NOT_FOUND")


async def test_entries_come_page_by_page_and_make_the_root_that_was_signed(api: Api, chained: Chained) -> None:
    for _ in range(4):
        await api.order()
    size = await signed(chained)
    lines, after = [], 0
    while after is not None:
        page = (await api.call("GET", f"/v1/ledger/entries?after={after}&limit=3", await auditor(api))).json()
        assert page["size"] == size
        for one in page["entries"]:
            line = verifier.canonical(one["entry"])
            assert verifier.leaf_hash(line).hex() == one["hash"]
            lines.append(line)
        after = page["next_after"]
    chain = verifier.Chain(api.clock.now())
    for line in lines:
        chain.add(line)
    checkpoint = (await api.call("GET", "/v1/ledger/checkpoint", await auditor(api))).json()
    assert verifier.open_checkpoint(checkpoint["note"].encode(), KEYS).root == chain.root()
    assert (checkpoint["size"], checkpoint["keys"], checkpoint["copies"]) == (size, [KEY.vkey], [])


async def test_asking_for_a_checkpoint_is_entered_and_the_sequencer_makes_one(
    api: Api, chained: Chained, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = api.settings.model_copy(update={"api_decision_wait_s": 60})
    monkeypatch.setattr(api.app.state, "services", replace(api.app.state.services, settings=patient))
    asking = asyncio.create_task(api.call("POST", "/v1/ledger/checkpoint", await auditor(api), {}))
    for _ in range(500):
        if chained.rows("SELECT 1 FROM ledger WHERE type = 'checkpoint_requested'"):
            break
        await asyncio.sleep(0.01)
    await signed(chained)
    answer = await asking
    assert answer.status_code == 201, answer.text
    [(seq,)] = chained.rows("SELECT seq FROM ledger_entries e JOIN ledger l ON l.id = e.ledger_id WHERE type = 'checkpoint_requested'")
    assert answer.json()["checkpoint"]["size"] == seq


async def test_a_checkpoint_that_does_not_come_in_time_is_asked_for_all_the_same(api: Api, chained: Chained) -> None:
    answer = await api.call("POST", "/v1/ledger/checkpoint", await auditor(api), {})
    assert (answer.status_code, answer.json()) == (202, {"checkpoint": None})
    assert len(chained.rows("SELECT 1 FROM ledger WHERE type = 'checkpoint_requested'")) == 1


async def test_what_is_not_there_is_named(api: Api, chained: Chained) -> None:
    nothing = await api.call("GET", "/v1/ledger/checkpoint", await auditor(api))
    assert (nothing.status_code, nothing.json()["code"]) == (404, "CHECKPOINT_NOT_FOUND")
    unsigned = await chained.numbered()
    for path, code in (
        (f"/v1/ledger/proofs/{unsigned}", "CHECKPOINT_NOT_FOUND"),
        (f"/v1/ledger/proofs/{unsigned + 1}", "LEDGER_ENTRY_NOT_FOUND"),
        ("/v1/ledger/proofs/1?size=77", "CHECKPOINT_NOT_FOUND"),
    ):
        answer = await api.call("GET", path, await auditor(api))
        assert (answer.status_code, answer.json()["code"]) == (404, code)
    for path in ("/v1/ledger/proofs/0", "/v1/ledger/proofs/x", "/v1/ledger/entries?limit=0", "/v1/ledger/consistency?older=0"):
        assert (await api.call("GET", path, await auditor(api))).status_code == 422


@pytest.mark.parametrize("path", ["/v1/ledger/checkpoint", "/v1/ledger/entries", "/v1/ledger/proofs/1", "/v1/ledger/consistency?older=1"])
async def test_a_requester_sees_nothing_of_the_ledger(api: Api, path: str) -> None:
    assert (await api.call("GET", path, await api.shop())).status_code == 403
    assert (await api.call("POST", "/v1/ledger/checkpoint", await api.shop(), {})).status_code == 403


async def test_how_far_it_is_behind_is_in_the_metrics_and_in_readyz(api: Api, chained: Chained) -> None:
    await api.order()
    ready = (await api.call("GET", "/readyz", None)).json()
    assert ready["ledger"] == "ok"
    metrics = (await api.call("GET", "/metrics", None)).text
    waiting = len(chained.rows("SELECT 1 FROM ledger"))
    assert f'refunds_ledger{{what="unnumbered"}} {float(waiting)}' in metrics
    await signed(chained)
    metrics = (await api.call("GET", "/metrics", None)).text
    assert 'refunds_ledger{what="unnumbered"} 1.0' in metrics, "the entry that names the log's keys"
    assert f'refunds_ledger{{what="signed"}} {float(waiting)}' in metrics


def test_being_behind_is_said_in_words(api: Api) -> None:
    now = api.clock.now()
    fine = Standing(10, 3, now, 10, now, 0, 0)
    assert in_words(fine, now, rows=3, seconds=1) == "ok"
    late = Standing(10, 4, now, 10, now, 2, 2)
    assert in_words(late, now, rows=3, seconds=1) == (
        "behind: 4 entries wait for a number, the oldest for 0 s; 2 copies of checkpoints do not arrive"
    )
