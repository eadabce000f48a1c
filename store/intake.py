"""Accepting a request: stored whole in one transaction before anything else happens (promise P6), once per idempotency key for ever."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds import points
from refunds.classification import Source
from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.money import Money
from refunds.people import Actor, PrincipalKind
from refunds.requests import GroupRequest, RefundRequest, Ticket
from refunds.status import Status
from store import lines, orders
from store.sql import Query, Row
from store.tables import customers, ledger, refunds
from store.texts import Texts


@dataclass(frozen=True, slots=True)
class Accepted:
    """The refund that a request became; ``replayed`` when it was there already. ``row`` is what its run is started with: status, payment, order, amount,
    currency and ``full``, as far as they are known."""

    refund_id: str
    replayed: bool
    row: Row


_BEGINNING = ("status", "payment_id", "order_id", "amount", "currency", "full")
_REPLAY = Query(
    select(refunds.c.id, refunds.c.body_hash, *(refunds.c[name] for name in _BEGINNING)).where(
        refunds.c.integration == bindparam("integration"), refunds.c.idempotency_key == bindparam("key")
    )
)
_GIVEN = (
    *("id", "version", "status", "created_at", "status_since"),
    *("integration", "idempotency_key", "body_hash", "requester_id", "requested_by", "agent_id"),
    *("customer_id", "order_id", "payment_id", "amount", "currency", "full", "reason", "channel"),
    *("group_id", "details", "sources", "has_text", "revision", "rung", "reminded", "reverse_transfer", "refund_application_fee"),
)
_STORE = Query(
    insert(refunds)
    .values({name: bindparam(name) for name in _GIVEN})
    .on_conflict_do_nothing(index_elements=["integration", "idempotency_key"])
)
_ENTER = Query(
    insert(ledger).values(
        {name: bindparam(name) for name in ("at", "type", "refund_id", "refund_version", "actor", "on_behalf_of", "data")}
    )
)


async def find_replay(connection: AsyncConnection, actor: Actor, key: str, body_hash: str) -> Accepted | None:
    """The refund this integration already made with this key. Raises ``IDEMPOTENCY_KEY_REUSED`` when the body differs."""
    row = await _REPLAY.first(connection, integration=actor.integration, key=key)
    if row is None:
        return None
    if row["body_hash"] != body_hash:
        raise RefundError(Code.IDEMPOTENCY_KEY_REUSED, field="Idempotency-Key", refund=row["id"])
    return Accepted(row["id"], replayed=True, row=row)


async def accept(
    connection: AsyncConnection, clock: Clock, texts: Texts, *, actor: Actor, key: str, request: RefundRequest | Ticket
) -> Accepted:
    """Store a request as a refund in status ``received``.

    Safe to call again with the same key and body: the same refund is returned. Raises what the call alone or ownership decides
    (``ORDER_NOT_FOUND``, ``PAYMENT_NOT_FOUND``, ``AMBIGUOUS_PAYMENT``, ``CURRENCY_MISMATCH``, ``IDEMPOTENCY_KEY_REUSED``, and what
    :func:`store.lines.check` raises); nothing is stored then.
    """
    body_hash = request.body_hash()
    if (replay := await find_replay(connection, actor, key, body_hash)) is not None:
        return replay
    values = await _columns(connection, clock, request)
    details, sources = _details(request), _sources(request, asker_of(actor, request.requested_by))
    return await store_refund(connection, clock, texts, actor, key, body_hash, request, values | {"details": details, "sources": sources})


def asker_of(actor: Actor, requested_by: str | None) -> Source:
    """Where what a caller gave comes from: an agent, a person of the merchant, or the customer."""
    return Source.AGENT if actor.kind is PrincipalKind.AGENT else Source.PERSON if requested_by else Source.CUSTOMER


async def store_refund(
    connection: AsyncConnection,
    clock: Clock,
    texts: Texts,
    actor: Actor,
    key: str,
    body_hash: str,
    request: RefundRequest | GroupRequest | Ticket,
    values: dict[str, Any],
) -> Accepted:
    """Store one refund in status ``received`` with its first ledger entry and its texts. ``values`` are the columns that tell what is asked for.

    Safe to call again with the same key and body. Raises ``IDEMPOTENCY_KEY_REUSED``.
    """
    now = clock.now()
    refund_id = new_id(Prefix.REFUND)
    is_agent = actor.kind is PrincipalKind.AGENT
    row: dict[str, Any] = values | {"status": Status.RECEIVED.value}
    stored = await _STORE.do(
        connection,
        id=refund_id,
        version=1,
        created_at=now,
        status_since=now,
        integration=actor.integration,
        idempotency_key=key,
        body_hash=body_hash,
        requester_id=actor.principal_id,
        requested_by=request.requested_by,
        agent_id=actor.handle if is_agent else None,
        channel=request.channel,
        revision=0,
        rung=0,
        reminded=False,
        **({"group_id": None} | row),
    )
    if not stored:  # the same request, a moment earlier, through another process
        replay = await find_replay(connection, actor, key, body_hash)
        assert replay is not None
        return replay
    await _ENTER.do(
        connection,
        at=now,
        type="refund_received",
        refund_id=refund_id,
        refund_version=1,
        actor=actor.principal_id,
        on_behalf_of=values["customer_id"],
        data={"body_hash": body_hash, "kind": "ticket" if isinstance(request, Ticket) else "refund"},
    )
    points.writes("refund_received")
    await texts.write(
        connection,
        refund_id=refund_id,
        customer_id=values["customer_id"],
        values={
            "message": request.message,
            "agent_reasoning": request.agent_reasoning,
            "conversation": request.conversation_context,
        },
    )
    return Accepted(refund_id, replayed=False, row=row)


async def _columns(connection: AsyncConnection, clock: Clock, request: RefundRequest | Ticket) -> dict[str, Any]:
    if isinstance(request, Ticket):
        return await _ticket_columns(connection, clock, request)
    target, money = await target_of(connection, request), request.money
    return {
        "customer_id": target.customer_id,
        "order_id": target.order["id"],
        "payment_id": target.payment["id"],
        "amount": money.amount if money else None,
        "currency": target.payment["currency"],
        "full": request.full,
        "reason": request.reason.value if request.reason else None,
        "reverse_transfer": request.reverse_transfer,
        "refund_application_fee": request.refund_application_fee,
        "has_text": request.message is not None and bool(request.message.strip()),
    }


async def target_of(connection: AsyncConnection, request: RefundRequest) -> orders.Target:
    """The payment a request is about. Raises all that the call and the recorded order decide, as :func:`accept` does."""
    try:
        target = await orders.find_target(
            connection, customer_ref=request.customer_id, order_ref=request.order_id, payment_ref=request.payment_id
        )
    except RefundError as error:
        if error.code is Code.AMBIGUOUS_PAYMENT and request.units:  # naming one of them would not help
            raise RefundError(Code.LINES_OF_SEVERAL_PAYMENTS, field="lines") from error
        raise
    await lines.check(connection, target.order, request.units)
    check_currency(request.currency, request.money, target.payment["currency"])
    return target


def check_currency(stated: str | None, money: Money | None, of_payment: str) -> None:
    """Raise ``CURRENCY_MISMATCH`` when the amount is not in the payment's currency: nothing is converted anywhere (field report 34)."""
    asked = money.currency if money else (stated.strip().upper() if stated else of_payment)
    if asked != of_payment:
        raise RefundError(
            Code.CURRENCY_MISMATCH, f"The payment is in {of_payment}, the amount in {asked}.", field="currency", payment_currency=of_payment
        )


async def _ticket_columns(connection: AsyncConnection, clock: Clock, ticket: Ticket) -> dict[str, Any]:
    order_id = payment_id = currency = None
    if ticket.order_id is not None:
        try:
            target = await orders.find_target(connection, customer_ref=ticket.customer_id, order_ref=ticket.order_id, payment_ref=None)
        except RefundError as error:
            if error.code is not Code.AMBIGUOUS_PAYMENT:
                raise
            row, _ = await orders.get_order(connection, ticket.order_id)
            order_id = row["id"]
        else:
            order_id, payment_id, currency = target.order["id"], target.payment["id"], target.payment["currency"]
    await connection.execute(
        insert(customers)
        .values(id=new_id(Prefix.CUSTOMER), external_ref=ticket.customer_id, account_created_at=None, created_at=clock.now())
        .on_conflict_do_nothing()
    )
    return {
        "customer_id": await orders.find_customer(connection, ticket.customer_id),
        "order_id": order_id,
        "payment_id": payment_id,
        "amount": None,
        "currency": currency,
        "full": False,
        "reason": None,
        "reverse_transfer": False,
        "refund_application_fee": False,
        "has_text": True,
    }


def _details(request: RefundRequest | Ticket) -> dict[str, Any]:
    body = request.model_dump(mode="json")
    kept = ("customer_authentication", "metadata", "lines", "shipping", "agent_session_id", "agent_model")
    return {name: body[name] for name in kept if body.get(name)} | {"kind": "ticket" if isinstance(request, Ticket) else "refund"}


def _sources(request: RefundRequest | Ticket, asker: Source) -> dict[str, str]:
    given = {
        name: asker.value
        for name in (
            *("order_id", "payment_id", "amount", "full", "currency", "reason", "lines", "shipping", "message"),
            *("reverse_transfer", "refund_application_fee"),
        )
        if getattr(request, name, None)
    }
    return {"customer": Source.SYSTEM_OF_RECORD.value, "payment": Source.SYSTEM_OF_RECORD.value} | given
