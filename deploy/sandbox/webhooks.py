"""Webhooks: which events are delivered, signed as Stripe signs them, retried, and disturbed on request.

Signature scheme: https://docs.stripe.com/webhooks#verify-manually (t=, v1= HMAC-SHA256 over "t.payload").
"""

import asyncio
import hashlib
import hmac
import logging
import time

from deploy.sandbox.faults import WEBHOOK, Faults
from deploy.sandbox.objects import Body
from deploy.sandbox.poster import FAILURES, Poster
from deploy.sandbox.state import State
from deploy.sandbox.words import words

RETRY_AFTER_MS = (1_000, 5_000, 30_000, 300_000, 1_800_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000)
"""Stripe retries for up to three days with growing pauses; the first ones are shorter here."""
ANSWER_SECONDS = 10.0
LONGEST_NAP_SECONDS = 0.5
DELIVERED = words("""refund.created refund.updated refund.failed charge.refunded charge.dispute.created charge.dispute.updated
    charge.dispute.closed""")
_log = logging.getLogger("sandbox.webhooks")


def signature(payload: str, secret: str, timestamp: int) -> str:
    """The value of the Stripe-Signature header."""
    digest = hmac.new(secret.encode(), f"{timestamp}.{payload}".encode(), hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


class Outbox:
    """Deliveries on disk: written in the transaction of the change, sent afterwards, at least once, in order when due.

    `lanes` of them are under way at once: with more than one, events that follow each other closely may arrive in another order, as Stripe's do.
    """

    def __init__(self, state: State, faults: Faults, lanes: int = 1) -> None:
        self._state = state
        self._faults = faults
        self._lanes = lanes
        self._under_way: set[int] = set()
        self.url: str | None = None
        self.secret = ""
        self.wake = asyncio.Event()
        self.load()

    def load(self) -> None:
        target = self._state.setting("webhook", {})
        self.url, self.secret = target.get("url"), target.get("secret", "")

    def aim(self, url: str | None, secret: str) -> None:
        """Where events go from now on; None stops them."""
        self._state.set_setting("webhook", {"url": url, "secret": secret})
        self.load()

    def wants(self, kind: str) -> bool:
        return self.url is not None and kind in DELIVERED

    def add(self, event_id: str, kind: str, subject: Body) -> None:
        """Queues an event's delivery, disturbed by a webhook fault that matches its type or the payment it is about."""
        if not self.wants(kind):
            return
        seen = {"type": kind, "payment_intent": subject.get("payment_intent")}
        hit = self._faults.take(WEBHOOK, seen.get) if self._faults else {}
        if "drop" in hit:
            return
        due = self._state.clock.now_ms() + (hit["delay"]["ms"] if "delay" in hit else 0)
        state = "held" if "hold" in hit else "due"
        for _ in range(2 if "duplicate" in hit else 1):
            self._state.db.execute("INSERT INTO deliveries (event, due_ms, state) VALUES (?, ?, ?)", (event_id, due, state))
        self.wake.set()

    def release(self, reverse: bool) -> int:
        """Lets held deliveries go, oldest first or, to reorder them, newest first. Returns how many."""
        order = "DESC" if reverse else "ASC"
        held = self._state.db.execute(f"SELECT seq FROM deliveries WHERE state = 'held' ORDER BY seq {order}").fetchall()
        now = self._state.clock.now_ms() - len(held)
        for place, (seq,) in enumerate(held):
            self._state.db.execute("UPDATE deliveries SET state = 'due', due_ms = ? WHERE seq = ?", (now + place, seq))
        self.wake.set()
        return len(held)

    def outstanding(self) -> dict[str, int]:
        return dict(self._state.db.execute("SELECT state, count(*) FROM deliveries GROUP BY state").fetchall())

    async def run(self) -> None:
        """Sends what is due, for ever."""
        async with asyncio.TaskGroup() as lanes:
            for _ in range(self._lanes):
                lanes.create_task(self._lane(Poster(ANSWER_SECONDS)))

    async def _lane(self, poster: Poster) -> None:
        try:
            while True:
                self.wake.clear()
                if not await self._send_next(poster):
                    try:
                        await asyncio.wait_for(self.wake.wait(), LONGEST_NAP_SECONDS)
                    except TimeoutError:
                        continue
        finally:
            poster.hang_up()

    def _next(self) -> tuple[int, int, str] | None:
        """The first delivery that is due and not under way: its number, how often it was tried, the event."""
        rows = self._state.db.execute(
            "SELECT d.seq, d.attempt, o.body FROM deliveries d JOIN objects o ON o.id = d.event "
            "WHERE d.state = 'due' AND d.due_ms <= ? ORDER BY d.due_ms, d.seq LIMIT ?",
            (self._state.clock.now_ms(), len(self._under_way) + 1),
        )
        return next((row for row in rows.fetchall() if row[0] not in self._under_way), None)

    async def _send_next(self, poster: Poster) -> bool:
        row = None if self.url is None else self._next()
        if row is None or self.url is None:
            return False
        seq, attempt, payload = row
        self._under_way.add(seq)
        try:
            answered = await self._post(poster, self.url, payload)
        finally:
            self._under_way.discard(seq)
        if answered:
            self._state.db.execute("UPDATE deliveries SET state = 'done' WHERE seq = ?", (seq,))
        elif attempt < len(RETRY_AFTER_MS):
            self._state.db.execute(
                "UPDATE deliveries SET attempt = attempt + 1, due_ms = ? WHERE seq = ?",
                (self._state.clock.now_ms() + RETRY_AFTER_MS[attempt], seq),
            )
        else:
            self._state.db.execute("UPDATE deliveries SET state = 'failed' WHERE seq = ?", (seq,))
        return True

    async def _post(self, poster: Poster, url: str, payload: str) -> bool:
        # Real time, not the sandbox's: the receiver's SDK compares it with its own clock.
        signed = signature(payload, self.secret, int(time.time()))
        headers = {"Stripe-Signature": signed, "Content-Type": "application/json; charset=utf-8"}
        try:
            status = await poster.post(url, headers, payload.encode())
        except FAILURES as error:
            _log.info("webhook not delivered: %s", type(error).__name__)
            return False
        return 200 <= status < 300
