"""The last live reading of each payment, as the processor's side of the store left it."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import parse_rfc3339, rfc3339
from refunds.processor import MANUAL, MISSING, DisputeState, PaymentState, PaymentStatus, ProcessorRefund, RefundState
from store import flows
from store.changes import SYSTEM, enter
from store.sql import Query, Row
from store.tables import payment_snapshots, payments, processor_binding


def _refund_plain(refund: ProcessorRefund) -> dict[str, Any]:
    return {
        "id": refund.id,
        "processor_payment": refund.processor_payment,
        "amount": refund.amount,
        "currency": refund.currency,
        "state": refund.state.value,
        "raw_state": refund.raw_state,
        "operation": refund.operation,
        "failure_reason": refund.failure_reason,
    }


def to_plain(state: PaymentState) -> dict[str, Any]:
    """A reading as JSON values."""
    return {
        "processor_payment": state.processor_payment,
        "status": state.status.value,
        "raw_status": state.raw_status,
        "currency": state.currency,
        "captured": state.captured,
        "capturable": state.capturable,
        "charge": state.charge,
        "transfer": state.transfer,
        "application_fee": state.application_fee,
        "dispute": state.dispute.value,
        "risk_level": state.risk_level,
        "read_at": rfc3339(state.read_at),
        "not_a_payment": state.not_a_payment,
        "payer": state.payer,
        "country": state.country,
        "failed_checks": list(state.failed_checks),
        "refunds": [_refund_plain(r) for r in state.refunds],
    } | ({} if state.flow is None else {"flow": flows.to_plain(state.flow)})


def from_plain(body: dict[str, Any]) -> PaymentState:
    """Rebuild a reading from :func:`to_plain`."""
    return PaymentState(
        processor_payment=body["processor_payment"],
        status=PaymentStatus(body["status"]),
        raw_status=body["raw_status"],
        currency=body["currency"],
        captured=body["captured"],
        capturable=body["capturable"],
        charge=body["charge"],
        transfer=body.get("transfer"),
        application_fee=body.get("application_fee"),
        dispute=DisputeState(body["dispute"]),
        risk_level=body["risk_level"],
        read_at=parse_rfc3339(body["read_at"]),
        not_a_payment=body.get("not_a_payment", ""),
        payer=body.get("payer", ""),
        country=body.get("country", ""),
        failed_checks=tuple(body.get("failed_checks", ())),
        refunds=tuple(ProcessorRefund(**(r | {"state": RefundState(r["state"])})) for r in body["refunds"]),
        flow=flows.from_plain(body["flow"]) if body.get("flow") else None,
    )


CLOCKS_DIFFER = timedelta(seconds=5)
"""How far the clocks of two of our machines may be apart before a reading is taken for one from the future."""

_MADE = insert(payment_snapshots)
_SAVE = Query(
    _MADE.on_conflict_do_update(
        index_elements=["payment_id"],
        # What only some readings have (the way of the money) is kept from the last one that had it: it has a time of its own.
        set_={"read_at": _MADE.excluded.read_at, "body": payment_snapshots.c.body.concat(_MADE.excluded.body)},
        # A stored reading from the future was made by a clock that is wrong; it must not keep true ones out.
        where=(payment_snapshots.c.read_at < _MADE.excluded.read_at) | (payment_snapshots.c.read_at > bindparam("not_after")),
    )
)
_LATEST = Query(
    select(payments, payment_snapshots.c.body)
    .outerjoin(
        payment_snapshots,
        (payment_snapshots.c.payment_id == payments.c.id)
        & payment_snapshots.c.read_at.between(bindparam("not_before"), bindparam("not_after")),
    )
    .where(payments.c.id == bindparam("payment"))
)


async def save(connection: AsyncConnection, payment_id: str, state: PaymentState, *, now: datetime) -> None:
    """Keep a reading unless a newer one is there already."""
    await _SAVE.do(connection, payment_id=payment_id, read_at=state.read_at, body=to_plain(state), not_after=now + CLOCKS_DIFFER)


async def latest(
    connection: AsyncConnection, payment_id: str, *, now: datetime, within: timedelta, with_flow: bool = False
) -> PaymentState | None:
    """The last reading that is not older than ``within``, nor from the future; ``None`` when there is none. A manual payment is what is recorded, now.

    ``with_flow``: one that says where the money went, too, and since when is held to the same.
    """
    row = await _LATEST.first(connection, payment=payment_id, not_before=now - within, not_after=now + CLOCKS_DIFFER)
    if row is not None and row["processor"] == MANUAL:
        return by_hand(row, now)
    state = None if row is None or row["body"] is None else from_plain(row["body"])
    if state is None or not with_flow or state.raw_status == MISSING:
        return state
    return state if state.flow is not None and now - within <= state.flow.read_at <= now + CLOCKS_DIFFER else None


def by_hand(payment: Row, now: datetime) -> PaymentState:
    """A manual payment as it stands: captured is what the merchant recorded, and what was given back is what our own refunds claim of it. One that its order
    names no more was never taken.

    Its name is our surrogate: a gift card's number is nothing for terms, which travel.
    """
    return PaymentState(
        processor_payment=payment["id"],
        status=PaymentStatus.CAPTURED if payment["amount"] else PaymentStatus.CANCELED,
        currency=payment["currency"],
        captured=payment["amount"],
        capturable=0,
        refunds=(),
        dispute=DisputeState.NONE,
        risk_level="not_assessed",
        read_at=now,
        raw_status=MANUAL,
    )


class WrongAccount(RuntimeError):
    """The database belongs to another processor account or mode."""


async def bind(connection: AsyncConnection, *, processor: str, account: str, mode: str, at: datetime) -> None:
    """Bind the database to one processor account and mode for ever, or raise :class:`WrongAccount` when it is bound to another."""
    new = insert(processor_binding).values(processor=processor, account=account, mode=mode, bound_at=at).on_conflict_do_nothing()
    if (await connection.execute(new)).rowcount:
        await enter(connection, "processor_bound", at, actor=SYSTEM, processor=processor, account=account, mode=mode)
    bound = (await connection.execute(select(processor_binding).where(processor_binding.c.processor == processor))).one()
    if (bound.account, bound.mode) != (account, mode):
        raise WrongAccount(
            f"this database is bound to {processor} account {bound.account} in {bound.mode} mode, but the key is of {account} in {mode} mode"
        )


async def bound_account(connection: AsyncConnection, processor: str) -> str | None:
    """The account this database is bound to, or ``None`` before the payments role ever started."""
    return (
        await connection.execute(select(processor_binding.c.account).where(processor_binding.c.processor == processor))
    ).scalar_one_or_none()
