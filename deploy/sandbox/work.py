"""What the code behind one request (or one thing that happens by itself) has at hand."""

from dataclasses import dataclass, field
from typing import Any

from deploy.sandbox import objects
from deploy.sandbox.objects import Body
from deploy.sandbox.params import Params
from deploy.sandbox.scopes import account_of
from deploy.sandbox.state import State
from deploy.sandbox.webhooks import Outbox


def _balances(scope: str) -> str:
    return f"balances {scope}" if scope else "balances"


@dataclass(slots=True)
class Work:
    """One moment of work on the state. `request` names the API request that caused it, for its events."""

    state: State
    outbox: Outbox
    now: int
    request: dict[str, Any] = field(default_factory=lambda: {"id": None, "idempotency_key": None})

    def balances(self) -> dict[str, int]:
        """What the control API set as available in each currency, of the account that is acted for; a currency that is absent has always enough."""
        return self.state.setting(_balances(self.state.scope), {})

    def book(self, code: str, amount: int) -> None:
        """Moves what was set for a currency; nothing where nothing was set."""
        balances = self.balances()
        if code in balances:
            self.set_balances(balances | {code: balances[code] + amount})

    def set_balances(self, balances: dict[str, int]) -> None:
        self.state.set_setting(_balances(self.state.scope), balances)

    def emit(self, kind: str, subject: Body, previous: Body | None = None) -> None:
        """Records an event and, where a webhook is set, its delivery; in the caller's transaction."""
        body = objects.event(
            kind=kind,
            subject=subject,
            previous=previous,
            request=self.request,
            pending_webhooks=int(self.outbox.wants(kind)),
            now=self.now,
        )
        account = account_of(self.state.scope)
        if account is not None:
            body["account"] = account
        self.state.insert(body, type=kind)
        self.outbox.add(body["id"], kind, subject)


@dataclass(slots=True)
class Call(Work):
    """One API request: its parameters, the ids in its path, whether refunds are hidden from its lists, and the life of a refund that it makes."""

    params: Params = field(default_factory=dict)
    args: tuple[str, ...] = ()
    hide_refunds: bool = False
    life: dict[str, Any] | None = None
