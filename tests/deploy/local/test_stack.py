"""The supervisor: order, ports, deaths of parts and of itself, and nothing left behind."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from deploy.local import leftovers, ports, processes, stack
from deploy.local.environment import webhook_secret
from deploy.local.leftovers import AlreadyRunningError
from deploy.local.parts import PARTS, Context, Part, all_polled
from deploy.local.processes import Command, Identity, wait_until
from deploy.local.progress import Silent
from deploy.local.stack import LocalStack, PartFailedError

ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
BASE = ("postgres", "temporal", "sandbox")


def free_ports() -> dict[str, int]:
    return dict(zip(ports.DEFAULTS, ports.unused(len(ports.DEFAULTS)), strict=True))


def new_stack(home: Path, parts=BASE, **more) -> LocalStack:
    more.setdefault("ports", free_ports())
    return LocalStack(home / "stack", parts=parts, environment=ENVIRONMENT, **more)


def assert_nothing_left(home: Path, numbers: dict[str, int]) -> None:
    assert processes.marked(home) == []
    assert {name: number for name, number in numbers.items() if not ports.is_free(number)} == {}
    assert list((home / "run").iterdir()) == []
    assert not (home / "stack.json").exists()


@pytest.fixture(scope="module")
def shared(request):
    """One stack for the tests that only hurt it; it heals."""
    with open_directory(request) as home, new_stack(home, None, reporter=Silent()) as started:
        yield started


def open_directory(request):
    """The helper of tests/conftest.py, which cannot be imported under import-mode importlib."""
    plugin = next(p for p in request.config.pluginmanager.get_plugins() if getattr(p, "__file__", None) == str(CONFTEST))
    return plugin.open_directory()


CONFTEST = Path(__file__).parents[2] / "conftest.py"


def test_starts_in_the_order_of_the_table_and_leaves_nothing_behind(open_home):
    begun: list[str] = []
    reporter = Silent()
    reporter.begin = begun.append
    with new_stack(open_home, reporter=reporter) as started:
        numbers = dict(started.context.ports)
        state = json.loads((started.home / "stack.json").read_text())
        assert state["addresses"] == started.addresses
        assert {name: part["pid"] for name, part in state["parts"].items()} == {name: started.pid(name) for name in BASE}
        assert state["pid"] == os.getpid()
    assert begun == list(BASE)
    assert set(numbers) == {"postgres", "temporal", "ui", "sandbox"}
    assert_nothing_left(open_home / "stack", numbers)


def test_the_administrators_key_is_made_once_and_secrets_are_closed_to_others(shared):
    assert shared.admin_key.startswith("rfk_")
    [told] = [note for note in shared._reporter.notes if shared.admin_key in note]
    assert "shown this once" in told
    assert not (shared.home / "admin-key.partial").exists()
    for name in ("admin-key", "postgres-passwords.json", "webhook-secret"):
        assert (shared.home / name).stat().st_mode & 0o077 == 0, name


@pytest.mark.parametrize("part", (*BASE, "api", "worker"))
def test_a_part_that_is_killed_is_started_again_with_its_data(shared, part):
    with shared.context.postgres.connect("refunds_owner") as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS public.kept (part text)")
        connection.execute("INSERT INTO public.kept VALUES (%s)", (part,))
    before = shared.pid(part)
    shared.kill(part, signal.SIGKILL)
    shared.wait_ready(part)
    assert shared.pid(part) != before
    with shared.context.postgres.connect("refunds_owner") as connection:
        assert connection.execute("SELECT count(*) FROM public.kept WHERE part = %s", (part,)).fetchone() == (1,)
    assert any(note.startswith(f"{part} ended unexpectedly (killed by SIGKILL); starting it again") for note in shared._reporter.notes)
    assert wait_until(lambda: leftovers.read_state(shared.home)["parts"][part]["pid"] == shared.pid(part), 10)


def test_parts_that_need_each_other_recover_when_all_are_killed_at_once(shared):
    killed = ("worker", "api", "temporal", "postgres")
    before = {name: shared.pid(name) for name in killed}
    for name in killed:
        shared.kill(name)
    for name in killed:
        shared.wait_ready(name)
    # The API and the worker may have needed more than one try; what counts is that all are new and work.
    assert {name for name in killed if shared.pid(name) == before[name]} == set()
    assert httpx.get(f"{shared.addresses['api']}/readyz", trust_env=False).status_code == 200


def test_a_second_supervisor_of_the_same_home_is_refused_and_learns_the_addresses(shared):
    with pytest.raises(AlreadyRunningError) as refused:
        LocalStack(shared.home, environment=ENVIRONMENT).start()
    assert refused.value.state["addresses"] == shared.addresses
    assert processes.load_identity(leftovers.pid_file(shared.home, "postgres")).find() is not None


def test_a_taken_port_is_named_and_another_is_used_and_remembered(open_home):
    with socket.create_server((ports.HOST, 0)) as stranger:
        taken = stranger.getsockname()[1]
        reporter = Silent()
        with new_stack(open_home, ("sandbox",), ports={"sandbox": taken}, reporter=reporter) as started:
            other = started.context.ports["sandbox"]
        assert other != taken
        [note] = reporter.notes
        assert note.startswith(f"Port {taken} for sandbox is taken by ")
        assert f"(pid {os.getpid()})" in note
        assert note.endswith(f"using {other} instead.")
    again = Silent()
    with LocalStack(open_home / "stack", parts=("sandbox",), environment=ENVIRONMENT, reporter=again) as started:
        assert started.context.ports["sandbox"] == other
    assert again.notes == []


def supervisor(home: Path, *parts: str) -> subprocess.Popen[str]:
    """`refunds up` as a program of its own."""
    home.mkdir(exist_ok=True)
    home.chmod(0o711)
    if not (home / "ports.json").exists():
        (home / "ports.json").write_text(json.dumps(free_ports()))
    return subprocess.Popen(
        [sys.executable, "-m", "deploy.local", "up", *parts],
        env={**ENVIRONMENT, "REFUNDS_HOME": str(home), "PYTHONUNBUFFERED": "1"},
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(process: subprocess.Popen[str], text: str) -> str:
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    pytest.fail(f"it ended before it said {text!r}:\n{seen}")


def test_killed_supervisor_leaves_orphans_that_the_next_one_clears(open_home):
    home = open_home / "stack"
    with supervisor(home, *BASE) as first:
        read_until(first, "Ctrl-C stops")
        orphans = {name: processes.load_identity(leftovers.pid_file(home, name)) for name in BASE}
        first.kill()
    assert all(identity.find() for identity in orphans.values())
    with supervisor(home, *BASE) as second:
        said = read_until(second, "Ctrl-C stops")
        assert "Ended what an earlier start had left running: sandbox, temporal, postgres." in said
        assert "is taken" not in said
        assert not any(identity.find() for identity in orphans.values())
        second.terminate()
        assert second.wait(timeout=60) == 0
    assert_nothing_left(home, json.loads((home / "ports.json").read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_stop_everything_in_order(open_home, number):
    home = open_home / "stack"
    with supervisor(home, "sandbox") as process:
        read_until(process, "Ctrl-C stops")
        process.send_signal(number)
        assert "Stopped." in process.stdout.read()
        assert process.wait(timeout=30) == 0
    assert_nothing_left(home, json.loads((home / "ports.json").read_text()))


def test_a_stranger_that_got_an_old_pid_is_left_alone(open_home):
    home = open_home / "stack"
    (home / "run").mkdir(parents=True)
    with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE) as stranger:
        real = Identity.of(psutil.Process(stranger.pid))
        processes.save_identity(leftovers.pid_file(home, "sandbox"), Identity(real.pid, real.started + "1"))
        assert leftovers.clear(home, PARTS) == []
        assert stranger.poll() is None
        assert real.find() is not None
        stranger.stdin.close()


def test_an_orphan_without_a_pid_file_is_found_by_its_mark(open_home):
    home = open_home / "stack"
    (home / "run").mkdir(parents=True)
    env = {**ENVIRONMENT, processes.HOME_MARK: str(home), processes.PART_MARK: "sandbox"}
    with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE, env=env) as orphan:
        assert wait_until(lambda: [name for name, _ in processes.marked(home)] == ["sandbox"], 5)
        assert leftovers.clear(home, PARTS) == ["sandbox"]
        assert orphan.wait(timeout=5) == -signal.SIGTERM


def python_part(name: str, code: str, is_ready=lambda context, pid: True) -> Part:
    return Part(name, lambda context: Command((sys.executable, "-c", code), env=ENVIRONMENT), is_ready)


def test_a_part_that_does_not_start_stops_the_others_and_shows_its_log(open_home):
    steady = python_part("steady", "import signal; signal.pause()")
    broken = python_part("broken", "print('no such table'); raise SystemExit(3)", lambda context, pid: False)
    with pytest.raises(PartFailedError, match=r"broken: ended while starting \(exit code 3\).*\n.*no such table") as failure:
        new_stack(open_home, None, table=(steady, broken)).start()
    assert failure.value.name == "broken"
    assert_nothing_left(open_home / "stack", {})


def test_a_part_that_dies_again_and_again_is_given_up(open_home, monkeypatch):
    monkeypatch.setattr(stack, "FIRST_BACK_OFF_SECONDS", 0.01)
    monkeypatch.setattr(stack, "RESTARTS", 3)
    reporter = Silent()
    started = new_stack(open_home, None, table=(python_part("brief", "raise SystemExit(7)"),), reporter=reporter)
    with started, pytest.raises(PartFailedError, match="brief: ended 3 times in a row"):
        started.wait()
    assert len([note for note in reporter.notes if "ended unexpectedly (exit code 7)" in note]) == 3
    assert len([note for note in reporter.notes if "is given up" in note]) == 1
    assert_nothing_left(open_home / "stack", {})


def test_what_the_person_has_is_used_and_not_started(open_home):
    reporter = Silent()
    own = {"DATABASE_URL": "postgresql://me@db/refunds", "TEMPORAL_ADDRESS": "temporal:7233"}
    with new_stack(open_home, BASE, overrides=own, reporter=reporter) as started:
        assert set(started.addresses) == {"sandbox"}
    assert reporter.notes == [
        "postgres: using the one named by DATABASE_URL, starting none.",
        "temporal: using the one named by TEMPORAL_ADDRESS, starting none.",
    ]


def test_unknown_parts_are_refused_by_name(open_home):
    with pytest.raises(ValueError, match=r"No such part: cache\. There are: postgres, migrations"):
        LocalStack(open_home, parts=["cache"])


def test_each_program_gets_only_its_own_secrets(open_home):
    names = ("STRIPE_API_KEY", "MODEL_API_KEY", "AWS_SECRET_ACCESS_KEY", "REFUNDS_TEXT_KEY", "REFUNDS_LEDGER_KEY", "STRIPE_WEBHOOK_SECRETS")
    secrets = {name: f"secret-{name}" for name in names}
    urls = {
        f"DATABASE_URL{end}": f"postgresql://u{end}@db/refunds" for end in ("", "_OWNER", "_REFUNDS", "_CLASSIFY", "_PAYMENTS", "_LEDGER")
    }
    context = Context(
        open_home, {**ENVIRONMENT, **secrets, **urls, "LOG_LEVEL": "DEBUG", "TEMPORAL_ADDRESS": "t:1"}, {"api": 1, "sandbox": 2}
    )
    given = {part.name: part.command(context).env for part in PARTS if part.name not in ("postgres", "temporal")}
    known = {name: {key for key in env if key in secrets or key.startswith("DATABASE_URL")} for name, env in given.items()}
    worker = {"DATABASE_URL", *(f"DATABASE_URL_{name}" for name in ("REFUNDS", "CLASSIFY", "PAYMENTS", "LEDGER"))}
    assert known == {
        "migrations": {"DATABASE_URL", "REFUNDS_TEXT_KEY"},
        "administrator": {"DATABASE_URL"},
        "sandbox": set(),
        "api": {"DATABASE_URL", "REFUNDS_TEXT_KEY", "STRIPE_WEBHOOK_SECRETS"},
        "worker": {*worker, "STRIPE_API_KEY", "MODEL_API_KEY", "REFUNDS_TEXT_KEY", "REFUNDS_LEDGER_KEY"},
    }
    assert given["migrations"]["DATABASE_URL"] == urls["DATABASE_URL_OWNER"]
    assert given["api"]["LOG_LEVEL"] == given["worker"]["LOG_LEVEL"] == "DEBUG"
    # The sandbox of this stack is spoken to with its own key, never with the person's.
    assert given["worker"]["STRIPE_API_KEY"].startswith("sk_test_")
    # And its events are verified by its own secret, which is in no list of processes.
    assert given["api"]["STRIPE_WEBHOOK_SECRETS"] == given["sandbox"]["SANDBOX_WEBHOOK_SECRET"] == webhook_secret(open_home)


def test_events_of_the_person_s_own_stripe_are_verified_by_the_person_s_secrets(tmp_path):
    own = {"STRIPE_API_KEY": "sk_test_own", "STRIPE_WEBHOOK_SECRETS": "whsec_old,whsec_new", "DATABASE_URL": "postgresql://me@db/refunds"}
    context = Context(tmp_path, {**ENVIRONMENT, **own, "TEMPORAL_ADDRESS": "t:1"}, {"api": 1})
    [api] = [part for part in PARTS if part.name == "api"]
    assert api.command(context).env["STRIPE_WEBHOOK_SECRETS"] == "whsec_old,whsec_new"
    assert not (tmp_path / "webhook-secret").exists()


def test_the_sandbox_sends_its_events_to_the_api_wherever_that_is(tmp_path):
    [sandbox] = [part for part in PARTS if part.name == "sandbox"]
    context = Context(tmp_path, ENVIRONMENT, {"api": 1, "sandbox": 2})
    before = sandbox.command(context)
    context.move({"api": 3})
    after = sandbox.command(context)
    assert before.argv[-2:] == ("--webhook-url", "http://127.0.0.1:1/webhooks/stripe")
    assert after.argv[-2:] == ("--webhook-url", "http://127.0.0.1:3/webhooks/stripe")
    assert before != after, "what a part was told is compared by its command: this one is started again"
    assert before.env == after.env
    assert not any("whsec_" in word for word in before.argv)
    assert "--webhook-url" not in sandbox.command(Context(tmp_path, ENVIRONMENT, {"sandbox": 2})).argv


def test_events_flow_from_the_sandbox_to_the_api_also_after_either_was_killed(shared):
    """A refund made at the processor past us is told and acknowledged: of each kind that is delivered, all of them in the end."""
    url = f"{shared.addresses['sandbox']}/_sandbox"

    def told() -> dict[str, int]:
        return httpx.get(f"{url}/webhooks", trust_env=False).json()

    httpx.post(f"{url}/payments", json={"id": "pi_told", "amount": 5_000, "currency": "usd"}, trust_env=False).raise_for_status()
    for number, killed in enumerate((None, "sandbox", "api")):
        if killed:
            shared.kill(killed)
            shared.wait_ready("sandbox")
        refund = httpx.post(f"{url}/refunds", json={"payment_intent": "pi_told", "amount": 100}, trust_env=False)
        assert refund.status_code == 200
        shared.wait_ready("api")
        assert wait_until(lambda: told() == {"done": 2 * number + 2}, 30), told()  # noqa: B023 - asked before the next round


def test_clean_removes_everything_but_not_under_a_running_stack(open_home):
    with new_stack(open_home, ("sandbox",)) as started:
        with pytest.raises(AlreadyRunningError):
            leftovers.remove(started.home, PARTS)
        assert started.home.exists()
    leftovers.remove(started.home, PARTS)
    assert not started.home.exists()


def test_clean_ends_and_removes_a_demo_whose_supervisor_was_killed(open_home):
    """The demo keeps to a home within the home; started by root in a closed one, its database lies outside."""
    demo = open_home / "closed" / "demo"
    demo.parent.mkdir(mode=0o700)
    with supervisor(demo, "postgres", "sandbox") as killed:
        read_until(killed, "Ctrl-C stops")
        killed.kill()
    numbers = json.loads((demo / "ports.json").read_text())
    data = (demo / "postgres" / "data").resolve()
    assert data.exists()
    assert data.is_relative_to(open_home) == (os.geteuid() != 0)
    assert {name for name, _ in processes.marked(demo)} >= {"postgres", "sandbox"}

    cleaned = subprocess.run(
        [sys.executable, "-m", "deploy.local", "clean"],
        env={**ENVIRONMENT, "REFUNDS_HOME": str(demo.parent)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (cleaned.returncode, cleaned.stdout, cleaned.stderr) == (0, "", "")
    assert not demo.parent.exists()
    assert not data.parent.exists()
    assert processes.marked(demo) == []
    assert {name: number for name, number in numbers.items() if not ports.is_free(number)} == {}


def test_clean_removes_nothing_while_a_demo_runs(open_home):
    with LocalStack(open_home / "demo", parts=("sandbox",), ports=free_ports(), environment=ENVIRONMENT) as started:
        (open_home / "kept").touch()
        with pytest.raises(AlreadyRunningError):
            leftovers.remove(open_home, PARTS)
        assert (open_home / "kept").exists()
        assert httpx.get(f"{started.addresses['sandbox']}/_sandbox/clock", trust_env=False).is_success


def test_a_worker_of_the_stack_serves_a_temporal_server_of_the_persons_own(open_home, temporal_server):
    own = {"TEMPORAL_ADDRESS": temporal_server.address}
    subset = ("postgres", "migrations", "administrator", "sandbox", "worker")
    with new_stack(open_home, subset, overrides=own) as started:
        assert set(started.addresses) == {"postgres", "sandbox"}
        assert not (started.home / "temporal").exists()
        served = temporal_server.address, temporal_server.namespace, started.pid("worker")
        assert wait_until(lambda: asyncio.run(all_polled(*served)), 30)


def test_programs_are_told_of_our_temporal_also_before_it_was_ever_started(open_home):
    """Whatever the order of the parts: what the setting names is there."""
    wired = Context(open_home, ENVIRONMENT, {"temporal": 1, "ui": 2}).wired()
    assert Path(wired["TEMPORAL_CONFIG_FILE"]).read_text() == ""
