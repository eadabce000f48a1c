"""What Prometheus reads. Labels hold routes, methods and statuses; never an id."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """The counters of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "refunds_http_requests", "HTTP calls by route, method and status.", ("route", "method", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "refunds_http_request_seconds",
            "Time from the head of a call to the end of its answer.",
            ("route", "method"),
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=self._registry,
        )
        self._open = Gauge("refunds_open", "Refunds that are not final, by status.", ("status",), registry=self._registry)
        self._accepted = Counter("refunds_accepted", "Refunds accepted, by kind of request.", ("kind",), registry=self._registry)
        self._events = Counter(
            "refunds_webhook_events", "Signed events received, by what became of them.", ("outcome",), registry=self._registry
        )
        self._inbox = Gauge("refunds_webhook_inbox", "Events kept that are not dealt with, by state.", ("state",), registry=self._registry)
        self._ledger = Gauge(
            "refunds_ledger",
            "How the chained ledger stands: entries with a number, rows that wait for one, the oldest of those in seconds, entries that are signed, the age of"
            " the newest checkpoint in seconds, copies of checkpoints that have not arrived, and those of them that were tried.",
            ("what",),
            registry=self._registry,
        )
        self._breakers = Gauge("refunds_breakers", "Breakers that are not closed, by state.", ("state",), registry=self._registry)
        self._store_up = Gauge("refunds_store_up", "Whether the last look at the database succeeded.", registry=self._registry)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answered call."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def accepted(self, kind: str) -> None:
        """Count one accepted request."""
        self._accepted.labels(kind).inc()

    def event(self, outcome: str) -> None:
        """Count one properly signed event."""
        self._events.labels(outcome).inc()

    def render(
        self,
        open_by_status: Mapping[str, int] | None,
        inbox_by_state: Mapping[str, int] | None = None,
        ledger: Mapping[str, float] | None = None,
        breakers_by_state: Mapping[str, int] | None = None,
    ) -> bytes:
        """The text form; ``None`` when the database could not be asked."""
        self._store_up.set(0 if open_by_status is None else 1)
        if open_by_status is not None:
            self._open.clear()
            for status, count in open_by_status.items():
                self._open.labels(status).set(count)
        self._inbox.clear()
        for state, count in (inbox_by_state or {}).items():
            self._inbox.labels(state).set(count)
        self._ledger.clear()
        for what, value in (ledger or {}).items():
            self._ledger.labels(what).set(value)
        self._breakers.clear()
        for state, count in (breakers_by_state or {}).items():
            self._breakers.labels(state).set(count)
        return generate_latest(self._registry)
