"""Everything the scenes need, made through the same addresses anybody would use: people with their own keys, the policy, orders, payments."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import httpx

from cli.client import Api
from cli.connection import Connection
from cli.demo.sample import Goods
from refunds.clock import SystemClock
from refunds.people import PrincipalKind, Role

PEOPLE: tuple[tuple[str, str, PrincipalKind, tuple[Role, ...]], ...] = (
    ("shop", "The shop's support system", PrincipalKind.SERVICE, (Role.REQUESTER,)),
    ("rita", "Rita, reviewer", PrincipalKind.PERSON, (Role.REVIEWER,)),
    ("ravi", "Ravi, reviewer", PrincipalKind.PERSON, (Role.REVIEWER,)),
    ("mona", "Mona, manager", PrincipalKind.PERSON, (Role.MANAGER,)),
    ("sven", "Sven, settler", PrincipalKind.PERSON, (Role.SETTLER,)),
    ("sara", "Sara, settler", PrincipalKind.PERSON, (Role.SETTLER,)),
    ("olga", "Olga, operator", PrincipalKind.PERSON, (Role.OPERATOR,)),
)
"""Who takes part. The requests name ``sam`` as the person who asked at the support system: nobody of these, so that nobody decides on their own."""


class Sandbox:
    """The payment sandbox through its own control address: the only place from which the demo makes trouble."""

    def __init__(self, address: str) -> None:
        self._http = httpx.Client(base_url=f"{address}/_sandbox", timeout=10, trust_env=False)

    def post(self, path: str, body: Any) -> Any:
        """POST; raises ``httpx.HTTPStatusError`` when the sandbox finds the order wrong."""
        return self._http.post(path, json=body).raise_for_status().json()

    def disturb(self, intent: str, *kinds: str, times: int | None) -> None:
        """Have the next ``times`` refunds of a payment (``None``: all) hit by these faults together."""
        order = {"on": "refund.create", "match": {"payment_intent": intent}, "times": times, "fault": [{"kind": kind} for kind in kinds]}
        self.post("/faults", order)

    def refunds_of(self, intent: str) -> list[dict[str, Any]]:
        """The refunds that were really made of a payment, hidden ones too."""
        answer = self._http.get("/truth", params={"payment_intent": intent}).raise_for_status()
        return answer.json()["refunds"]

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()


@dataclass(frozen=True)
class Cast:
    """One client of the API for everybody, by handle; ``administrator`` is the first administrator."""

    clients: dict[str, Api]

    def __getitem__(self, handle: str) -> Api:
        return self.clients[handle]

    def close(self) -> None:
        """Let go of the connections."""
        for client in self.clients.values():
            client.close()


def hire(url: str, admin_key: str, keys: Path) -> Cast:
    """Create the people and their keys through the API. The keys are kept in the directory ``keys``, readable for the owner only."""
    admin = Api(Connection(url, admin_key))
    clients = {"administrator": admin}
    keys.mkdir(mode=0o700, exist_ok=True)
    for handle, name, kind, roles in PEOPLE:
        person = admin.post("/v1/people", {"kind": kind.value, "handle": handle, "name": name})
        key = admin.post("/v1/keys", {"principal_id": person["id"], "roles": [role.value for role in roles]})["key"]
        with open(keys / handle, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(key + "\n")
        clients[handle] = Api(Connection(url, key))
    return Cast(clients)


def publish_policy(admin: Api) -> None:
    """Put the demo's policy into force, the embedded sample with deadlines of seconds, and record what yen count as in its base currency."""
    source = resources.files("cli.demo").joinpath("policy.yaml").read_text(encoding="utf-8")
    admin.post("/v1/policy/versions", {"source": source, "note": "demo: deadlines are seconds"})
    admin.put("/v1/rates", {"currency": "JPY", "rate": "0.0066", "source": "demo"})


def load(admin: Api, sandbox: Sandbox, goods: Iterable[Goods]) -> None:
    """Make the payments in the sandbox and send the orders to the API."""
    goods = list(goods)
    sandbox.post("/payments", [item.in_sandbox() for item in goods])
    now = SystemClock().now()
    for item in goods:
        admin.put(f"/v1/orders/{item.order}", item.as_order(now))
        if item.disputed:
            sandbox.post("/disputes", {"payment_intent": item.intent})
