"""Where the money of a payment went, as a reading keeps it, and what legs of ours already claim of a transfer or a fee."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ARRAY, Text, any_, bindparam, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import parse_rfc3339, rfc3339
from refunds.marketplace import FeeState, FundsFlow, LegKind, LegReceipt, MoneyFlow, TransferState
from store.leg_rows import DONE, PARKED, WAITING
from store.sql import Query
from store.tables import legs

_CLAIMING = Query(
    select(legs.c.id, legs.c.target, legs.c.amount, legs.c.receipt_id).where(
        legs.c.target == any_(bindparam("targets", type_=ARRAY(Text))),
        legs.c.refund_id != bindparam("besides"),
        legs.c.state.in_([literal(state) for state in (WAITING, PARKED, DONE)]),
    )
)


async def claimed(connection: AsyncConnection, flow: MoneyFlow, *, besides: str) -> dict[str, int]:
    """What legs of other refunds claim of each target and the reading does not show yet. Read it with the payment locked."""
    targets = [*flow.transfers, *([] if flow.fee is None else [flow.fee])]
    if not targets:
        return {}
    shown = {name for target in targets for receipt in _receipts(target) for name in (receipt.id, receipt.operation) if name}
    found: dict[str, int] = {}
    for row in await _CLAIMING.all(connection, targets=[target.id for target in targets], besides=besides):
        if row["id"] not in shown and row["receipt_id"] not in shown:
            found[row["target"]] = found.get(row["target"], 0) + row["amount"]
    return found


def _receipts(target: TransferState | FeeState) -> tuple[LegReceipt, ...]:
    return target.reversals if isinstance(target, TransferState) else target.refunds


def to_plain(flow: MoneyFlow) -> dict[str, Any]:
    """The way of the money as JSON values."""
    return {
        "processor_payment": flow.processor_payment,
        "charge": flow.charge,
        "flow": flow.flow.value,
        "read_at": rfc3339(flow.read_at),
        "transfers": [
            {name: getattr(found, name) for name in ("id", "destination", "amount", "reversed", "currency", "charge")}
            | {"reversals": [_receipt_plain(receipt) for receipt in found.reversals]}
            for found in flow.transfers
        ],
        "fee": None
        if flow.fee is None
        else {name: getattr(flow.fee, name) for name in ("id", "account", "amount", "refunded", "currency")}
        | {"refunds": [_receipt_plain(receipt) for receipt in flow.fee.refunds]},
    }


def _receipt_plain(receipt: LegReceipt) -> dict[str, Any]:
    plain = {name: getattr(receipt, name) for name in ("id", "target", "amount", "currency", "operation", "source_refund")}
    return plain | {"kind": receipt.kind.value, "created_at": rfc3339(receipt.created_at)}


def from_plain(body: Mapping[str, Any]) -> MoneyFlow:
    """Rebuild it from :func:`to_plain`."""
    fee = body["fee"]
    return MoneyFlow(
        processor_payment=body["processor_payment"],
        charge=body["charge"],
        flow=FundsFlow(body["flow"]),
        transfers=tuple(TransferState(**(found | {"reversals": _receipts_from(found["reversals"])})) for found in body["transfers"]),
        fee=None if fee is None else FeeState(**(fee | {"refunds": _receipts_from(fee["refunds"])})),
        read_at=parse_rfc3339(body["read_at"]),
    )


def _receipts_from(plain: list[dict[str, Any]]) -> tuple[LegReceipt, ...]:
    return tuple(replace(LegReceipt(**one), kind=LegKind(one["kind"]), created_at=parse_rfc3339(one["created_at"])) for one in plain)
