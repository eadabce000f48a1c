"""Accepting a request: stored whole in one transaction before anything else happens (promise P6), once per idempotency key for ever."""

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, cast, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds import points, sources
from refunds.alike import ALIKE, marks
from refunds.apart import DETAILS, apart
from refunds.classification import Source
from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.money import Money
from refunds.people import Actor, PrincipalKind
from refunds.requests import GroupRequest, RefundRequest, Ticket
from refunds.status import Status
from store import identifiers, lines, orders
from store.changes import plain
from store.sql import Query, Row
from store.tables import customers, ledger, refunds
from store.texts import Texts
from store.vault import keys_of


@dataclass(frozen=True, slots=True)
class Accepted:
    """The refund that a request became; ``replayed`` when it was there already. ``row`` is what its run is started with: status, payment, order, amount,
    currency and ``full``, as far as they are known."""

    refund_id: str
    replayed: bool
    row: Row


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose refund it is: our id, their key, and the commitment of their id when this request recorded them first."""

    id: str
    key: bytes | None
    made: str | None = None


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
# Only for a customer who is known at this moment, and is so until the transaction is over: whoever is just being forgotten gets nothing new.
_KNOWN = (
    select(*(cast(bindparam(name, type_=refunds.c[name].type), refunds.c[name].type) for name in _GIVEN))
    .select_from(customers)
    .where(customers.c.id == bindparam("customer_id"), customers.c.forgotten_at.is_(None))
    .with_for_update(read=True, key_share=True)
)
_STORED = (
    insert(refunds)
    .from_select(_GIVEN, _KNOWN)
    .on_conflict_do_nothing(index_elements=["integration", "idempotency_key"])
    .returning(refunds.c.id)
    .cte("stored")
)
_ENTERED = ("at", "type", "refund_id", "refund_version", "actor", "on_behalf_of", "data", "commitments")
_ENTRY = select(*(cast(bindparam(name, type_=ledger.c[name].type), ledger.c[name].type) for name in _ENTERED)).select_from(_STORED)
_STORE = Query(insert(ledger).from_select(_ENTERED, _ENTRY, include_defaults=False))
"""Stores a refund with its first ledger entry, or neither."""


NOT_KEPT = "This Idempotency-Key was used before, and what was asked for with it is not kept any more. Read what it made."
"""What is said once the fingerprint of a body has had its time: it cannot be told from another body, so nothing is made, and nothing is taken for a repetition."""


async def find_replay(connection: AsyncConnection, actor: Actor, key: str, body_hash: str) -> Accepted | None:
    """The refund this integration already made with this key. Raises ``IDEMPOTENCY_KEY_REUSED`` when the body differs.

    What is kept of either is keyed (:func:`fingerprints`), so that nobody who has the database can try keys or bodies against it.
    """
    of_key, of_body = fingerprints(connection, key, body_hash)
    row = await _REPLAY.first(connection, integration=actor.integration, key=of_key)
    if row is None:
        return None
    if row["body_hash"] != of_body:
        raise RefundError(Code.IDEMPOTENCY_KEY_REUSED, None if row["body_hash"] else NOT_KEPT, field="Idempotency-Key", refund=row["id"])
    return Accepted(row["id"], replayed=True, row=row)


def fingerprints(connection: AsyncConnection, key: str, body_hash: str) -> tuple[str, str]:
    """What is stored of an idempotency key and of a body: HMAC-SHA256 under keys that are not in the database."""
    keys = keys_of(connection)
    return keys.fingerprint("idempotency key", key), keys.fingerprint("body", body_hash)


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
    owner, values = await _columns(connection, clock, request)
    details, sources = _details(request), sources_of(actor, request)
    values |= {"details": details, "sources": sources}
    return await store_refund(connection, clock, texts, actor, key, body_hash, request, owner, values)


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
    owner: Owner,
    values: dict[str, Any],
) -> Accepted:
    """Store one refund in status ``received`` with its first ledger entry and its texts. ``values`` are the columns that tell what is asked for.

    Safe to call again with the same key and body. Raises ``IDEMPOTENCY_KEY_REUSED``, and ``ORDER_NOT_FOUND`` when its customer was forgotten meanwhile.
    """
    now = clock.now()
    refund_id = new_id(Prefix.REFUND)
    is_agent = actor.kind is PrincipalKind.AGENT
    fingerprint = keys_of(connection).fingerprint
    details, personal = apart(values["details"], fingerprint)
    if alike := marks(request.metadata, request.agent_session_id, request.message):
        details[ALIKE] = [fingerprint(kind, value) for kind, value in alike]
    row: dict[str, Any] = values | {"status": Status.RECEIVED.value, "customer_id": owner.id, "details": details}
    of_key, of_body = fingerprints(connection, key, body_hash)
    words = {"message": request.message, "agent_reasoning": request.agent_reasoning, "conversation": request.conversation_context}
    words[DETAILS] = json.dumps(personal, ensure_ascii=False) if personal else None
    sealed = texts.seal(owner.key, refund_id=refund_id, customer_id=owner.id, values=words)
    first = {identifiers.CUSTOMER: owner.made} if owner.made else {}
    kind = "ticket" if isinstance(request, Ticket) else "refund"
    stored = await _STORE.do(
        connection,
        id=refund_id,
        version=1,
        created_at=now,
        status_since=now,
        integration=actor.integration,
        idempotency_key=of_key,
        body_hash=of_body,
        requester_id=actor.principal_id,
        requested_by=request.requested_by,
        agent_id=actor.handle if is_agent else None,
        channel=request.channel,
        revision=0,
        rung=0,
        reminded=False,
        at=now,
        type="refund_received",
        refund_id=refund_id,
        refund_version=1,
        actor=actor.principal_id,
        on_behalf_of=owner.id,
        data=plain({"body_hash": of_body, "kind": kind, "masked": sealed.masked or None}),
        commitments=(sealed.commitments | first) or None,
        **({"group_id": None} | row),
    )
    if not stored:  # the same request, a moment earlier, through another process; or its customer was forgotten since their order was found
        replay = await find_replay(connection, actor, key, body_hash)
        if replay is None:
            raise RefundError(Code.ORDER_NOT_FOUND, field="order_id")
        return replay
    await texts.store(connection, sealed)
    points.writes("refund_received")
    return Accepted(refund_id, replayed=False, row=row)


async def _columns(connection: AsyncConnection, clock: Clock, request: RefundRequest | Ticket) -> tuple[Owner, dict[str, Any]]:
    if isinstance(request, Ticket):
        return await _ticket_columns(connection, clock, request)
    target, money = await target_of(connection, request), request.money
    return Owner(target.customer_id, target.key), {
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


async def _ticket_columns(connection: AsyncConnection, clock: Clock, ticket: Ticket) -> tuple[Owner, dict[str, Any]]:
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
    customer = await identifiers.put_customer(connection, ticket.customer_id, since=None, at=clock.now())
    return Owner(customer.id, customer.key, customer.made), {
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


def sources_of(actor: Actor, request: RefundRequest | GroupRequest | Ticket) -> dict[str, str]:
    """Where each field of a request came from. Raises ``INVALID_FIELD`` for an agent that vouches for where it has a field from: its word is its own."""
    asker = asker_of(actor, request.requested_by)
    if asker is Source.AGENT and request.sources:
        raise RefundError(Code.INVALID_FIELD, "An agent cannot vouch for where a field comes from: leave sources out.", field="sources")
    return sources.asked(request, asker, request.sources)
