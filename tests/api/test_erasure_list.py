"""The list of erasures outside the database: written first, so that it cannot lack what was done; gone through after a restore, before anything is sent again."""

import asyncio
import http.server
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from api.erasure_list import InDirectory, InFile, erasure_list, read_lines
from refunds import points
from refunds.erasure import Because, Erasure, read_line
from refunds.errors import Code, RefundError
from refunds.people import Role
from tests.api.conftest import Api, running, settings_for
from tests.api.test_forgetting import MARK, forget, signing, withdrawn, written
from tests.conftest import FreshDatabase
from tests.store.world import START

BOUND = "INSERT INTO processor_binding (processor, account, mode, bound_at) VALUES ('stripe', 'acct_1', 'test', now())"
RESUME = {"scope": "processor:stripe", "state": "running", "reason": "compared"}
KEY = b"k" * 32


@pytest.fixture
def listed(open_home: Path) -> Path:
    return open_home / "erasures.jsonl"


@pytest.fixture
async def api(database: FreshDatabase, listed: Path) -> AsyncIterator[Api]:
    async with running(database, erasure_list=str(listed)) as started:
        yield started


def backup(api: Api) -> dict[str, bytes]:
    """Every table as it is now."""
    with api.fresh.connect("postgres") as connection:
        tables = [row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()]
        kept: dict[str, bytes] = {}
        for table in tables:
            with connection.cursor().copy(f'COPY "{table}" TO STDOUT'.encode()) as copy:
                kept[table] = b"".join(bytes(part) for part in copy)
        return kept


def restore(api: Api, kept: dict[str, bytes]) -> None:
    """Put every table back as it was."""
    with api.fresh.connect("postgres") as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(f"TRUNCATE {', '.join(kept)}".encode())
        for table, content in kept.items():
            with connection.cursor().copy(f'COPY "{table}" FROM STDIN'.encode()) as copy:
                copy.write(content)


async def doubted(api: Api) -> None:
    """The database is halted because it was restored, and the full reconciliation that is owed is done."""
    answer = await api.call("POST", "/v1/reconciliation/restored", api.administrator, {"reason": "restored to yesterday"})
    assert answer.status_code == 202, answer.text
    async with api.owner.begin() as connection:
        await connection.execute(text("UPDATE reconciliations SET phase = 'done', finished_at = now()"))


async def replay(api: Api, lines: list[str], **more: Any) -> Any:
    return await api.call("POST", "/v1/erasures/replays", api.administrator, {"lines": lines, "complete": True} | more)


def cut(listed: Path, lines: int) -> None:
    """Leave the first lines of it."""
    listed.write_text("".join(line + "\n" for line in written(listed)[:lines]))


def spoil(listed: Path) -> None:
    """Put a directory in its place."""
    listed.mkdir()


# --- written first


async def test_where_it_cannot_be_written_nobody_is_forgotten(api: Api, listed: Path) -> None:
    order = await api.order()
    await withdrawn(api, order)
    before = backup(api)
    spoil(listed)

    answer = await forget(api, order["customer_id"])

    assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (503, "ERASURE_LIST_UNAVAILABLE", True)
    assert str(listed) not in answer.text
    assert backup(api) == before


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_process_that_dies_around_the_commit_leaves_it_on_the_list(api: Api, listed: Path, when: str) -> None:
    order = await api.order()
    await withdrawn(api, order)

    async def dies(point: str) -> None:
        if point == f"{when}:customer_forgotten":
            raise points.Crashed(point)

    with points.watched_by(dies):
        assert (await forget(api, order["customer_id"])).status_code == 500

    assert len(written(listed)) == 1
    assert await api.count("erasures") == (0 if when == "before" else 1)
    repeated = await forget(api, order["customer_id"])
    assert repeated.status_code == 200
    assert await api.count("erasures") == 1
    done = {read_line(line, signing(api)).customer for line in written(listed)}
    assert done == {repeated.json()["customer"]}, "what was done is on the list"


async def test_a_refund_that_is_asked_for_between_the_line_and_the_commit_keeps_its_words(api: Api, listed: Path) -> None:
    order = await api.order()
    await withdrawn(api, order)
    refund: list[str] = []

    async def asks(point: str) -> None:
        if point == "before:commit" and written(listed) == [] and not refund:
            refund.append("")
            refund[0] = await api.received(order, agent_reasoning=MARK)

    with points.watched_by(asks):
        refused = await forget(api, order["customer_id"])

    assert (refused.status_code, refused.json()["code"]) == (409, "CUSTOMER_HAS_OPEN_REFUNDS")
    assert [one["id"] for one in refused.json()["refunds"]] == refund
    view = (await api.call("GET", f"/v1/refunds/{refund[0]}", await api.reviewer())).json()
    assert (view["status"], view["texts"], view["customer_id"]) == ("received", {"agent_reasoning": MARK}, order["customer_id"])
    assert (len(written(listed)), await api.count("erasures")) == (1, 0), "it stands on the list as asked for, and was not done"
    assert (await api.call("POST", f"/v1/refunds/{refund[0]}/withdrawal", await api.shop(), {})).is_success
    again = await forget(api, order["customer_id"])
    assert (again.status_code, again.json()["removed"]["keys"]) == (200, 1)
    assert [read_line(line, signing(api)).customer for line in written(listed)] == [again.json()["customer"]] * 2


# --- gone through after a restore


async def test_after_a_restore_nobody_is_resumed_before_the_list_was_gone_through(api: Api, listed: Path) -> None:
    async with api.owner.begin() as connection:
        await connection.execute(text(BOUND))
    order, other = await api.order(customer_id="zqgoneqz"), await api.order()
    await withdrawn(api, order)
    kept = await withdrawn(api, other)
    before = backup(api)
    first = (await forget(api, "zqgoneqz")).json()
    restore(api, before)
    await doubted(api)
    second = await api.caller("second", Role.OPERATOR)

    refused = await api.call("PUT", "/v1/controls", second, RESUME)
    told = await replay(api, written(listed))
    resumed = await api.call("PUT", "/v1/controls", second, RESUME)

    assert (refused.status_code, refused.json()["code"], refused.json()["known"]) == (409, "ERASURES_NOT_REPLAYED", 1)
    assert (told.status_code, told.json()["lines"], told.json()["forgotten"], told.json()["absent"]) == (200, 1, 1, 0)
    assert (resumed.status_code, resumed.json()["state"]) == (200, "running"), resumed.text
    [erasure] = await api.rows("SELECT * FROM erasures")
    assert (erasure["id"], erasure["customer_id"]) == (first["id"], first["customer"])
    assert "zqgoneqz" not in str(backup(api))
    assert (await api.call("GET", f"/v1/refunds/{kept['id']}", await api.reviewer())).json()["texts"] == kept["texts"]
    assert (await replay(api, written(listed))).json()["forgotten"] == 0, "it is safe to repeat"


@pytest.mark.parametrize("left", [0, 1])
async def test_a_list_that_lacks_what_the_database_has_is_not_the_list(api: Api, listed: Path, left: int) -> None:
    async with api.owner.begin() as connection:
        await connection.execute(text(BOUND))
    for _ in range(2):
        order = await api.order()
        await withdrawn(api, order)
        await forget(api, order["customer_id"])
    await doubted(api)
    second = await api.caller("second", Role.OPERATOR)
    cut(listed, left)

    refused = await api.call("PUT", "/v1/controls", second, RESUME)
    await replay(api, written(listed))
    resumed = await api.call("PUT", "/v1/controls", second, RESUME)

    assert (refused.status_code, refused.json()["code"], refused.json()["lacking"]) == (409, "ERASURES_NOT_REPLAYED", 2 - left)
    assert (resumed.status_code, resumed.json()["state"]) == (200, "running"), "an operator said that there is no other"


async def test_a_refund_that_is_open_again_goes_on_without_what_was_written(api: Api, listed: Path) -> None:
    order = await api.order(lines=[{"id": MARK, "title": MARK, "amount": 20_000}, {"id": "2", "amount": 10_000}])
    view = await api.in_review(order, agent_reasoning=MARK, lines=[{"id": MARK}])
    before = backup(api)
    assert (await api.call("POST", f"/v1/refunds/{view['id']}/withdrawal", await api.shop(), {})).status_code == 200
    await forget(api, order["customer_id"])
    restore(api, before)

    told = await replay(api, written(listed))

    assert told.json()["forgotten"] == 1
    again = (await api.call("GET", f"/v1/refunds/{view['id']}", await api.reviewer())).json()
    assert (again["status"], again["terms_hash"], again["texts"]) == ("awaiting_review", view["terms_hash"], {})
    decided = await api.call(
        "POST", f"/v1/refunds/{view['id']}/decisions", await api.reviewer("ravi"), {"verdict": "approve", "terms_hash": view["terms_hash"]}
    )
    assert decided.status_code in (200, 202), decided.text
    assert (await api.rows("SELECT status FROM refunds"))[0]["status"] == "approved"


async def test_who_is_not_in_the_restored_database_is_counted(api: Api, listed: Path) -> None:
    before = backup(api)
    order = await api.order()
    await withdrawn(api, order)
    await forget(api, order["customer_id"])
    restore(api, before | {name: content for name, content in backup(api).items() if name in ("principals", "api_keys")})

    told = (await replay(api, written(listed))).json()

    assert (told["lines"], told["forgotten"], told["absent"]) == (1, 0, 1)


async def test_a_list_that_cannot_be_read_back_needs_a_replay_since_the_doubt(database: FreshDatabase) -> None:
    with receiver() as (url, received):
        async with running(database, erasure_list=url) as api:
            async with api.owner.begin() as connection:
                await connection.execute(text(BOUND))
            order = await api.order(customer_id=MARK)
            await withdrawn(api, order)
            assert (await forget(api, MARK)).status_code == 200
            second = await api.caller("second", Role.OPERATOR)
            assert (await replay(api, received)).status_code == 200  # before the doubt: says nothing of what comes
            await doubted(api)

            refused = await api.call("PUT", "/v1/controls", second, RESUME)
            part = await replay(api, received, complete=False)
            still = await api.call("PUT", "/v1/controls", second, RESUME)
            whole = await replay(api, [], lines_before=part.json()["lines"], absent_before=part.json()["absent"])
            resumed = await api.call("PUT", "/v1/controls", second, RESUME)

            assert [answer.json()["code"] for answer in (refused, still)] == ["ERASURES_NOT_REPLAYED"] * 2
            assert (part.json()["id"], whole.json()["lines"]) == (None, 1)
            assert resumed.status_code == 200, resumed.text
            assert [read_line(line, signing(api)).reason for line in received] == ["customer_asked"]
            assert MARK not in str(received)


async def test_a_webhook_that_does_not_take_it_is_not_written(database: FreshDatabase) -> None:
    with receiver(status=500) as (url, _):
        async with running(database, erasure_list=url) as api:
            order = await api.order()
            answer = await forget(api, order["customer_id"])
            assert (answer.status_code, answer.json()["code"]) == (503, "ERASURE_LIST_UNAVAILABLE")
            assert await api.count("erasures") == 0


@contextmanager
def receiver(status: int = 204) -> Iterator[tuple[str, list[str]]]:
    """A webhook and what it was sent."""
    received: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            assert json.loads(body)["erasure"] == self.headers["Idempotency-Key"]
            received.append(body)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/erasures", received
        finally:
            server.shutdown()
            thread.join()


# --- bad input


async def test_a_line_that_somebody_wrote_forgets_nobody(api: Api) -> None:
    order = await api.order()
    await withdrawn(api, order)
    [customer] = await api.rows("SELECT id FROM customers")
    [(_, ours)] = [("", Erasure("era_" + "0" * 26, customer["id"], START, "pr_1", Because.CUSTOMER_ASKED))]
    good = ours.line(signing(api))
    before = backup(api)

    for line, words in (
        (ours.line(b"x" * 32), "seal does not fit"),
        (good.replace("customer_asked", "recorded_in_error"), "seal does not fit"),
        (good.replace('"v":1', '"v":2'), "version '2'"),
        (good[:-9] + "}", "not JSON"),
        ("[" * 900 + "}", "not JSON"),
        ("5", "not a JSON object"),
    ):
        answer = await replay(api, [good, line], first_line=7)
        assert (answer.status_code, answer.json()["code"], answer.json()["line"]) == (422, "ERASURE_LIST_UNREADABLE", 8), answer.text
        assert words in answer.json()["detail"]
    assert backup(api) == before, "all of a part or nothing of it"


def test_what_was_cut_off_while_it_was_written_counts_as_not_written(tmp_path: Path) -> None:
    chosen = InFile(tmp_path / "list")
    one, other = (Erasure(f"era_{n * 26}", f"cu_{n * 26}", START, "pr_1", Because.CUSTOMER_ASKED) for n in "01")
    chosen.path.write_text(one.line(KEY)[:60])

    chosen.write(other.id, other.line(KEY))

    assert list(read_lines(chosen.lines(), KEY)) == [other]
    assert len(chosen.path.read_text().splitlines()) == 2


def test_a_directory_has_a_file_for_each(tmp_path: Path) -> None:
    chosen = erasure_list(settings_for(erasure_list=str(tmp_path)))
    assert isinstance(chosen, InDirectory)
    made = [Erasure(f"era_{n * 26}", f"cu_{n * 26}", START, "pr_1", Because.CUSTOMER_ASKED, "case-1") for n in "ab"]

    for one in reversed(made):
        chosen.write(one.id, one.line(KEY))

    assert list(read_lines(chosen.lines(), KEY)) == made
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"era_{n * 26}.json" for n in "ab"]


@pytest.mark.parametrize(("kind", "synced"), [(InFile, 1), (InDirectory, 2)])
def test_what_was_written_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[InFile | InDirectory], synced: int
) -> None:
    done: list[int] = []
    monkeypatch.setattr(os, "fsync", done.append)

    kind(tmp_path / "list" if kind is InFile else tmp_path).write("era_1", "{}")

    assert len(done) == synced, "a directory is synced as well: it holds the name"


async def test_many_at_once_write_whole_lines(tmp_path: Path) -> None:
    chosen = InFile(tmp_path / "list")
    made = [Erasure(f"era_{n:026}", f"cu_{n:026}", START, "pr_1", Because.CUSTOMER_ASKED) for n in range(50)]

    await asyncio.gather(*(asyncio.to_thread(chosen.write, one.id, one.line(KEY)) for one in made))

    assert sorted(read_lines(chosen.lines(), KEY), key=lambda one: one.id) == made


def test_a_list_nobody_can_write_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ERASURE_LIST names a file or directory that this process cannot write"):
        erasure_list(settings_for(erasure_list=str(tmp_path / "none" / "list")))


def test_a_line_is_read_as_it_was_written_and_by_the_same_key_only() -> None:
    one = Erasure("era_" + "0" * 26, "cu_" + "1" * 26, START, "pr_1", Because.AUTHORITY_ORDERED, "A-1")

    assert read_line(one.line(KEY), KEY) == one
    with pytest.raises(ValueError, match="other keys"):
        read_line(one.line(KEY), b"other" * 8)


def test_refusals_of_lines_name_the_code() -> None:
    with pytest.raises(RefundError) as refused:
        list(read_lines(iter(["no"]), KEY))
    assert refused.value.code is Code.ERASURE_LIST_UNREADABLE
