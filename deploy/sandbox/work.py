"""What the code behind one request (or one thing that happens by itself) has at hand."""

from dataclasses import dataclass, field
from typing import Any

from deploy.sandbox import objects
from deploy.sandbox.objects import Body
from deploy.sandbox.params import Params
from deploy.sandbox.state import State
from deploy.sandbox.webhooks import Outbox


@dataclass(slots=True)
class Work:
    """One moment of work on the state. `request` names the API request that caused it, for its events."""

    state: State
    outbox: Outbox
    now: int
    request: dict[str, Any] = field(default_factory=lambda: {"id": None, "idempotency_key": None})

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
        self.state.insert(body, type=kind)
        self.outbox.add(body["id"], kind, subject)


@dataclass(slots=True)
class Call(Work):
    """One API request: its parameters, the ids in its path, whether refunds are hidden from its lists, and the life of a refund that it makes."""

    params: Params = field(default_factory=dict)
    args: tuple[str, ...] = ()
    hide_refunds: bool = False
    life: dict[str, Any] | None = None
