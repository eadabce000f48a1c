"""The export of a period: every file as its manifest says, the manifest as the ledger says, and the ledger as it was signed."""

import hashlib
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from refunds.ledger import period_verifier, verifier
from refunds.people import Role
from refunds.period import COLUMNS, manifest_text
from tests.api.conftest import Api
from tests.store.chained import KEY, Chained

KEYS = [verifier.read_key(KEY.vkey)]


@pytest.fixture
async def chained(api: Api) -> AsyncIterator[Chained]:
    made = Chained(api.fresh)
    made.clock.at = api.clock.now()
    yield made
    await made.close()


async def exported(api: Api, **period: str) -> list[dict[str, Any]]:
    now = api.clock.now()
    asked = {"from": (now - timedelta(days=1)).isoformat(), "to": now.isoformat()} | period
    answer = await api.call("POST", "/v1/ledger/periods", await api.caller("otto", Role.AUDITOR), asked)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def taken(api: Api, chained: Chained, directory: Path) -> Path:
    """The export in a directory, as the command writes it, with the proof of its entry."""
    lines = await exported(api)
    for line in lines[:-1]:
        with (directory / line["file"]).open("a", encoding="utf-8", newline="") as file:
            file.write(line["text"])
    (directory / "manifest.json").write_text(manifest_text(lines[-1]["manifest"]))
    await chained.numbered()
    await chained.signed()
    [row] = chained.rows("SELECT seq FROM ledger_entries WHERE ledger_id = %s", lines[-1]["entry"])
    proof = await api.call("GET", f"/v1/ledger/proofs/{row[0]}", await api.caller("otto", Role.AUDITOR))
    (directory / "manifest.proof.json").write_text(proof.text)
    return directory


def verified(api: Api, directory: Path) -> str:
    return period_verifier.verify_period(directory, KEYS, verifier.Kept([]), api.clock.now()).said


def wrong(api: Api, directory: Path) -> tuple[str, str]:
    with pytest.raises(verifier.Wrong) as found:
        verified(api, directory)
    return found.value.kind, str(found.value)


async def test_the_export_is_whole_and_every_change_of_it_is_found(api: Api, chained: Chained, tmp_path: Path) -> None:
    view = await api.in_review(message=None, requested_by="=cmd|' /C calc'!A0")
    directory = await taken(api, chained, tmp_path)

    assert verified(api, directory).startswith("12 files of ")
    refunds = [json.loads(line) for line in (directory / "refunds.jsonl").read_text().splitlines()]
    assert [(one["id"], one["status"], one["amount"]) for one in refunds] == [(view["id"], "awaiting_review", 20_000)]
    assert tuple(sorted(refunds[0])) == tuple(sorted(COLUMNS["refunds"]))
    header, row = (directory / "refunds.csv").read_bytes().decode().split("\r\n")[:2]
    assert header == ",".join(f'"{name}"' for name in COLUMNS["refunds"])
    assert "\"'=cmd|" in row
    said = json.loads((directory / "manifest.json").read_text())["files"]
    assert set(said) == {f"{kind}.{form}" for kind in COLUMNS for form in ("jsonl", "csv")}
    for name, file in said.items():
        assert hashlib.sha256((directory / name).read_bytes()).hexdigest() == file["sha256"]
    # nothing of the customer
    whole = "".join(path.read_text() for path in directory.iterdir())
    assert view["order_id"] not in whole
    assert view["customer_id"] not in whole

    kept = {path.name: path.read_bytes() for path in directory.iterdir()}
    for name, data in kept.items():
        changed = bytes([*data[:20], data[20] ^ 1, *data[21:]]) if len(data) > 20 else data + b"x"
        (directory / name).write_bytes(changed)
        kind, _ = wrong(api, directory)
        assert kind in ("changed", "malformed", "other_entry", "version"), name
        (directory / name).unlink()
        if name not in ("manifest.json", "manifest.proof.json"):
            assert wrong(api, directory)[0] == "missing"
        (directory / name).write_bytes(data)
    for name in ("more.csv", "Refunds2.CSV", "refunds-2.jsonl"):
        (directory / name).write_text("x")
        assert wrong(api, directory) == ("changed", f"{name} is no part of this export.")
        (directory / name).unlink()


async def test_an_export_is_one_entry_and_changes_nothing_else(api: Api) -> None:
    await api.in_review(message=None)
    await api.caller("otto", Role.AUDITOR)
    before = await api.count("ledger")

    lines = await exported(api)

    assert await api.count("ledger") == before + 1
    [entry] = await api.rows("SELECT * FROM ledger WHERE id = :id", id=lines[-1]["entry"])
    assert (entry["type"], entry["actor"]) == ("period_exported", (await api.caller("otto")).id)
    assert entry["data"]["manifest"] == hashlib.sha256(manifest_text(lines[-1]["manifest"]).encode()).hexdigest()


@pytest.mark.parametrize(("period", "why"), [({"to": "2020-01-01T00:00:00Z"}, "end after"), ({"to": "2199-01-01T00:00:00Z"}, "over")])
async def test_a_period_that_is_none_is_refused(shared_api: Api, period: dict[str, str], why: str) -> None:
    asked = {"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"} | period
    otto = await shared_api.caller("otto", Role.AUDITOR)
    before = await shared_api.count("ledger")

    answer = await shared_api.call("POST", "/v1/ledger/periods", otto, asked)

    assert (answer.status_code, answer.json()["field"]) == (422, "to")
    assert why in answer.json()["detail"]
    assert await shared_api.count("ledger") == before
