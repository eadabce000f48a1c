"""The test stand: the whole local stack in a directory of its own, and beside it the two things it is measured against."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
from pydantic import SecretStr

from cli.client import Api
from cli.connection import Connection
from deploy.local import environment, ports
from deploy.local.parts import PARTS, Context, Part
from deploy.local.postgres import OWNER
from deploy.local.processes import Command
from deploy.local.progress import Reporter
from deploy.local.stack import LocalStack
from refunds.people import PrincipalKind, Role
from refunds.policy import sample_policy_text
from tests.bench import peer

ROOT = Path(__file__).parents[2]
BARE = "bare"
PEERS = ("dbos-1", "dbos-2")
"""As many processes of ours as the product has (API and worker), so that both can use both cores."""

ROLES = {"REFUNDS": "refunds_worker", "CLASSIFY": "refunds_classify", "PAYMENTS": "refunds_payments"}
OVERRIDES = {
    "API_RATE_PER_MINUTE": "1000000",  # one key sends everything here
    "LOG_LEVEL": "WARNING",
}


def _bare(context: Context) -> Command:
    return Command((sys.executable, "-m", "tests.bench.bare"), env=environment.program(context.wired(), ()), cwd=ROOT)


def _peer(name: str) -> Part:
    def prepare(context: Context) -> list[str]:
        assert context.postgres is not None
        context.postgres.create_database("dbos")
        return []

    def command(context: Context) -> Command:
        assert context.postgres is not None
        urls = {f"DATABASE_URL_{role}": context.database_url(login) for role, login in ROLES.items()}
        source = {**context.wired(), **urls, "DATABASE_URL": context.database_url("refunds_api")}
        env = environment.program(source, {*environment.API_SECRETS, *environment.WORKER_SECRETS})
        env |= {peer.SYSTEM_DATABASE_URL: context.postgres.url(OWNER, "dbos"), peer.EXECUTOR: name}
        env |= {peer.STEPS: os.environ.get(peer.STEPS, str(peer.SINGLE))}
        env |= {"API_HOST": ports.HOST, "API_PORT": str(context.ports[name])}
        return Command((sys.executable, "-m", "tests.bench.peer"), env=env, cwd=ROOT)

    def is_ready(context: Context, pid: int) -> bool:
        try:
            return httpx.get(f"{context.url(name)}/healthz", timeout=2, trust_env=False).is_success
        except httpx.TransportError:
            return False

    return Part(name, command=command, is_ready=is_ready, prepare=prepare, ports=(name,), grace_seconds=20)


TABLE = (*PARTS, Part(BARE, command=_bare), *(_peer(name) for name in PEERS))


_LIMIT = re.compile(r"(who: (?:everyone|reviewer), )(refunds: \d+|amount: [\d.]+)")


def unbound(policy: str) -> str:
    """The policy with the same limits of everyone and of reviewers, judged as ever, that nothing here reaches: what is measured is the work, not the pace."""
    raised, count = _LIMIT.subn(lambda found: found[1] + ("refunds: 1000000" if "refunds" in found[2] else "amount: 9000000000.00"), policy)
    assert count == 4, "the sample has other limits; what should the bench do about them?"
    return raised


class Stand:
    """A running stand: addresses, keys, and the requester and reviewer that take part."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self.parts = [*(part.name for part in PARTS if part.once is None), BARE, *PEERS]
        self._pids = {name: stack.pid(name) for name in self.parts}
        with Api(Connection(self.url("api"), stack.admin_key)) as admin:
            self.requester = _key(admin, "bench-shop", PrincipalKind.SERVICE, Role.REQUESTER)
            self.reviewer = _key(admin, "bench-rita", PrincipalKind.PERSON, Role.REVIEWER)
            admin.post(
                "/v1/policy/versions", {"source": unbound(sample_policy_text()), "note": "as the sample, with limits that never bind"}
            )

    def url(self, name: str) -> str:
        """The HTTP address of a part."""
        return self.stack.addresses[name]

    @property
    def pids(self) -> dict[str, int]:
        """The process of each part. Raises ``RuntimeError`` when one died and was started again: figures over that would mean nothing."""
        for name, pid in self._pids.items():
            if self.stack.pid(name) != pid:
                raise RuntimeError(f"{name} ended in the middle of the measurement; see {self.stack.home / 'logs' / name}.log")
        return self._pids

    @property
    def postgres_url(self) -> str:
        """The address of the product's database for its owner, in libpq's form."""
        assert self.stack.context.postgres is not None
        return self.stack.context.postgres.url(OWNER).replace("postgresql+psycopg://", "postgresql://")

    @property
    def text_key(self) -> SecretStr:
        """The master key of the stack."""
        return SecretStr((self.stack.home / "text-key").read_text().strip())

    def new_database(self, name: str) -> Callable[[str], str]:
        """Make an empty database on the same server; returns what gives its address for a login."""
        server = self.stack.context.postgres
        assert server is not None
        server.create_database(name)
        return lambda login: server.url(login, name)

    def connect(self) -> psycopg.Connection:
        """A connection to the product's database, in autocommit mode."""
        return psycopg.connect(self.postgres_url, autocommit=True)


def _key(admin: Api, handle: str, kind: PrincipalKind, role: Role) -> str:
    person = admin.post("/v1/people", {"kind": kind.value, "handle": handle, "name": handle})
    return admin.post("/v1/keys", {"principal_id": person["id"], "roles": [role.value]})["key"]


@contextmanager
def running(reporter: Reporter, say: Callable[[str], None]) -> Iterator[Stand]:
    """Start everything and stop it again. After a failure the files stay, and ``say`` tells where.

    The directory is on a disk where there is one: durable commits in memory would measure nothing.
    """
    on_disk = Path("/var/tmp")
    home = Path(tempfile.mkdtemp(prefix="refunds-bench-", dir=on_disk if on_disk.is_dir() else None))
    home.chmod(0o711)  # the database's own account must get to its files when root starts this
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    names = [name for part in TABLE for name in part.ports]
    wanted = dict(zip(names, ports.unused(len(names)), strict=True))
    stack = LocalStack(home, ports=wanted, overrides=OVERRIDES, environment=plain, reporter=reporter, table=TABLE)
    keep = True
    try:
        with stack:
            yield Stand(stack)
        keep = False
    except KeyboardInterrupt:
        keep = False
        raise
    finally:
        if keep:
            say(f"Everything is stopped; the logs are in {home / 'logs'}.")
        else:
            shutil.rmtree(home)
