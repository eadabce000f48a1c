"""Books to reconcile: many recorded refunds made by one statement, and a processor's list that is never held in memory as a whole."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from refunds.processor import NotSent, PaymentState, ProcessorRefund, RefundPage, RefundState
from tests.store.world import START, World

OURS = "0123456789abcdefghjkmnpq"


def operation_id(number: int) -> str:
    """An operation of ours, by its number."""
    return f"op_{number:026d}"


def refund_id(number: int) -> str:
    """A refund of ours, by its number."""
    return f"rf_{number:026d}"


def made_at(number: int) -> datetime:
    """Refunds are made a second apart, the highest number last, one minute before the test begins."""
    return START - timedelta(minutes=1, seconds=number)


def record(world: World, count: int) -> None:
    """So many payments, each with one refund that succeeded; number 0 is the newest."""
    record_by(world.execute, count, world.desk.principal_id, made_at(0))


def record_by(execute: Callable[..., object], count: int, requester: str, newest: datetime) -> None:
    """The same by any hand that may do everything; the newest refund is of that time."""
    customer, order = "cu_1", "or_1"
    execute("INSERT INTO customers (id, created_at) VALUES (%s, now())", customer)
    execute(
        "INSERT INTO orders (id, customer_id, version, body, updated_at) VALUES (%s, %s, 1, '{}', now())",
        order,
        customer,
    )
    numbers = "FROM generate_series(0, %s - 1) n"
    execute(
        f"INSERT INTO payments (id, order_id, processor, processor_payment, currency, amount)"
        f" SELECT 'pay_' || n, %s, 'stripe', 'pi_' || n, 'USD', 10000 {numbers}",
        order,
        count,
    )
    execute(
        "INSERT INTO refunds (id, version, status, created_at, status_since, final_at, integration, idempotency_key, body_hash, requester_id,"
        ' customer_id, order_id, payment_id, amount, currency, "full", details, sources, has_text, revision, rung, reminded)'
        " SELECT 'rf_' || lpad(n::text, 26, '0'), 1, 'succeeded', %s - n * interval '1 s', now(), now(), 'shop', n::text, '', %s, %s, %s, 'pay_' || n,"
        f" 3000, 'USD', false, '{{}}', '{{}}', false, 1, 0, false {numbers}",
        newest,
        requester,
        customer,
        order,
        count,
    )
    execute(
        "INSERT INTO revisions (refund_id, revision, payment_id, amount, currency, terms, terms_hash, policy_version, policy_hash, facts, decision,"
        " author_id, loosened, created_at, expires_at)"
        " SELECT 'rf_' || lpad(n::text, 26, '0'), 1, 'pay_' || n, 3000, 'USD', '{\"api_version\": \"2026-08-26.dahlia\"}', '', 1, '',"
        f' \'{{"payment": {{"dispute": "none"}}}}\', \'{{}}\', %s, false, now(), now() {numbers}',
        requester,
        count,
    )
    execute(
        "INSERT INTO operations (id, refund_id, revision, kind, terms_hash, payment_id, amount, currency, request, idempotency_key, created_at)"
        " SELECT o, 'rf_' || lpad(n::text, 26, '0'), 1, 'refund', '', 'pay_' || n, 3000, 'USD', jsonb_build_object('operation', o, 'kind', 'refund',"
        " 'processor_payment', 'pi_' || n, 'amount', 3000, 'currency', 'USD', 'idempotency_key', n::text, 'params', '{}'::jsonb), n::text, now()"
        f" {numbers}, LATERAL (SELECT 'op_' || lpad(n::text, 26, '0') AS o) named",
        count,
    )
    execute(
        "INSERT INTO processor_refunds (id, processor, payment_id, operation_id, amount, currency, state, raw_state, created_at, first_seen_at, updated_at)"
        " SELECT 're_' || n, 'stripe', 'pay_' || n, 'op_' || lpad(n::text, 26, '0'), 3000, 'USD', 'succeeded', 'succeeded', %s - n * interval '1 s',"
        f" %s - n * interval '1 s', %s - n * interval '1 s' {numbers}",
        newest,
        newest,
        newest,
        count,
    )


def theirs(number: int) -> ProcessorRefund:
    """The refund as the processor shows it when all is well."""
    return ProcessorRefund(
        id=f"re_{number}",
        processor_payment=f"pi_{number}",
        amount=3_000,
        currency="USD",
        state=RefundState.SUCCEEDED,
        raw_state="succeeded",
        operation=operation_id(number),
        created_at=made_at(number),
    )


@dataclass
class Books:
    """A processor that has the refunds 0 to ``count`` - 1, but for what is ``changed``: by number, ``None`` for one that is not there. ``extra`` are refunds
    besides, which are the newest of all."""

    count: int
    changed: dict[int, ProcessorRefund | None] = field(default_factory=dict)
    extra: list[ProcessorRefund] = field(default_factory=list)
    listed: list[str | None] = field(default_factory=list)
    retrieved: list[str] = field(default_factory=list)
    before_page: Callable[[int], None] = lambda number: None
    name: str = "stripe"

    def _from(self, after: str | None) -> Iterator[ProcessorRefund]:
        passed = after is None
        for refund in self.extra:
            if passed:
                yield refund
            passed = passed or refund.id == after
        first = 0 if passed else int(str(after).removeprefix("re_")) + 1
        for number in range(first, self.count):
            refund = self.changed.get(number, theirs(number))
            if refund is not None:
                yield refund

    async def list_refunds(self, *, created_from: datetime, created_to: datetime, after: str | None, limit: int = 100) -> RefundPage:
        """As the interface says."""
        self.before_page(len(self.listed))
        self.listed.append(after)
        page: list[ProcessorRefund] = []
        for refund in self._from(after):
            assert refund.created_at is not None
            if not created_from <= refund.created_at < created_to:
                continue
            if len(page) == limit:
                return RefundPage(tuple(page), page[-1].id)
            page.append(refund)
        return RefundPage(tuple(page), None)

    async def retrieve(self, processor_refund: str, *, of: str | None = None) -> ProcessorRefund | None:
        """As the interface says."""
        self.retrieved.append(processor_refund)
        number = processor_refund.removeprefix("re_")
        if number.isdigit() and int(number) < self.count:
            return self.changed.get(int(number), theirs(int(number)))
        return next((refund for refund in self.extra if refund.id == processor_refund), None)


def external(number: int, **changed: object) -> ProcessorRefund:
    """A refund of payment ``number`` that somebody made past us."""
    refund = replace(theirs(number), id=f"re_x{number}", operation=None, amount=500, created_at=START - timedelta(seconds=30))
    return replace(refund, **changed)  # pyright: ignore[reportArgumentType]


def unreachable(reason: str = "connection_refused") -> Callable[[int], None]:
    """Something that happens before a page: the processor cannot be reached."""

    def happen(_number: int) -> None:
        raise NotSent(reason)

    return happen


@dataclass
class Watched:
    """An observer that notes whom it was asked to look at, and does what a test gives it to do."""

    does: Callable[[str], object] = lambda payment_id: None
    asked: list[str] = field(default_factory=list)

    async def observe(self, payment_id: str) -> PaymentState | None:
        """As the interface says."""
        self.asked.append(payment_id)
        self.does(payment_id)
        return None
