"""``python -m api`` as it is started, served and stopped; and what an accident shows to nobody."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from deploy.local import ports
from deploy.local.processes import Command
from store import views
from tests.api.conftest import TEXT_KEY, Api
from tests.conftest import ROOT, FreshDatabase, ready
from tests.conftest import running as process_running


def environment(database_url: str, home: Path, **more: str) -> dict[str, str]:
    """What the program needs; Temporal is where nothing listens."""
    config = home / "temporal.toml"
    config.touch()
    return {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": database_url,
        "REFUNDS_TEXT_KEY": TEXT_KEY,
        "TEMPORAL_ADDRESS": "127.0.0.1:1",
        "TEMPORAL_CONFIG_FILE": str(config),
        **more,
    }


@pytest.fixture
def address(api: Api, open_home: Path) -> Iterator[str]:
    """The program, serving the database of ``api`` on a port of its own."""
    [port] = ports.unused(1)
    command = Command((sys.executable, "-m", "api"), env=environment(api.fresh.url("refunds_api"), open_home, API_PORT=str(port)), cwd=ROOT)
    log = open_home / "api.log"
    with process_running(command, log) as process:
        ready(lambda: "startup complete" in log.read_text(), "The API", log)
        yield f"http://127.0.0.1:{port}"
        psutil.Process(process.pid).send_signal(signal.SIGTERM)
        assert process.wait(timeout=15) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    assert "rfk_" not in log.read_text()


async def test_it_serves_and_stops_when_told(api: Api, address: str) -> None:
    shop = await api.shop()
    body = api.asked(await api.order(), message="the box was crushed")
    async with httpx.AsyncClient(base_url=address, headers={"Authorization": f"Bearer {shop.key}"}) as http:
        taken = await http.post("/v1/refunds", json=body, headers={"Idempotency-Key": "1"})
        too_large = await http.post("/v1/refunds", json=body | {"message": "x" * 3_000_000}, headers={"Idempotency-Key": "2"})
        after = await http.get(f"/v1/refunds/{taken.json()['id']}")

    assert (taken.status_code, taken.json()["status"]) == (202, "received")
    assert (too_large.status_code, too_large.json()["code"]) == (413, "BODY_TOO_LARGE")
    assert after.status_code == 200


def start(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "api"], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("REFUNDS_TEXT_KEY", "", "REFUNDS_TEXT_KEY must be 32 bytes in base64"),
        ("API_PORT", "a door", "API_PORT: Input should be a valid integer"),
        ("DATABASE_URL", "postgresql://refunds_api@127.0.0.1:1/refunds", "The database cannot be reached"),
    ],
)
def test_a_start_that_cannot_succeed_says_why_in_one_line(
    database: FreshDatabase, open_home: Path, setting: str, value: str, said: str
) -> None:
    ended = start(environment(database.url("refunds_api"), open_home) | {setting: value})

    assert ended.returncode == 1
    [line] = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("The API cannot start: ")
    assert said in line


def test_an_unmigrated_database_stops_the_start(empty_database: FreshDatabase, open_home: Path) -> None:
    ended = start(environment(empty_database.url(), open_home))

    assert ended.returncode == 1
    assert "run: refunds migrate" in ended.stderr


def test_a_mistyped_temporal_configuration_stops_the_start(database: FreshDatabase, open_home: Path) -> None:
    given = environment(database.url("refunds_api"), open_home)
    Path(given["TEMPORAL_CONFIG_FILE"]).write_text("[profile.default]\nadress = 'somewhere'\n")

    ended = start(given)

    assert ended.returncode == 1
    assert "adress" in ended.stderr


async def test_an_accident_tells_its_place_to_the_log_and_its_words_to_nobody(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def accident(*_: object, **__: object) -> None:
        raise ValueError("the customer wrote 4242 4242")

    monkeypatch.setattr(views, "page", accident)

    answer = await api.call("GET", "/v1/refunds", await api.shop())

    assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (500, "INTERNAL", True)
    logged = capsys.readouterr()
    assert "test_program.py" in logged.out + logged.err
    assert answer.headers["X-Request-Id"] in logged.out + logged.err
    assert "4242" not in answer.text + logged.out + logged.err


@pytest.mark.parametrize(
    ("reason", "sent"),
    [("product_issue", "requested_by_customer"), ("duplicate", "duplicate"), ("fraudulent", "requested_by_customer"), (None, None)],
)
async def test_field_38_the_processor_hears_its_own_words(shared_api: Api, reason: str | None, sent: str | None) -> None:
    api = shared_api
    refund_id = await api.received(reason=reason)
    await api.quote(refund_id)

    view = (await api.call("GET", f"/v1/refunds/{refund_id}", await api.reviewer())).json()

    assert view["terms"]["processor_reason"] == sent
