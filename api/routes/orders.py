"""The merchant's orders."""

from fastapi import APIRouter, Response
from pydantic import BaseModel, ValidationError

from api import presenting
from api.bodies import parse
from api.calls import TheCall
from api.contract import errors, takes
from api.importing import OrderImport, import_view, read_import
from api.order_shapes import ImportView, OrderView
from api.problems import invalid
from refunds.errors import Code
from refunds.orders import ExternalId, Order
from refunds.payment_ids import TOLD_BY_ITSELF
from refunds.people import Role
from store import orders
from store.importing import import_orders

router = APIRouter(prefix="/v1/orders", tags=["orders"])


class _Named(BaseModel):
    order_id: ExternalId


def _order_id(path: str) -> str:
    try:
        return _Named(order_id=path).order_id
    except ValidationError as error:
        raise invalid(error) from None


@router.put(
    "/{order_id}",
    summary="Send an order, or a new version of it",
    responses={
        200: {"model": OrderView, "description": "Known already, or a new version."},
        201: {"model": OrderView, "description": "New."},
        **errors(Code.ORDER_CONFLICT, Code.UNKNOWN_CURRENCY, *TOLD_BY_ITSELF, body=True),
    },
    openapi_extra=takes(Order),
)
async def put(order_id: str, call: TheCall) -> Response:
    """The same content again makes no new version. An order never changes its customer, nor a payment its order."""
    raw = await call.body()
    async with call.begin(Role.INTEGRATOR) as connection:
        external = _order_id(order_id)
        order = parse(Order, raw)
        clock = call.services.database.clock
        row, new = await orders.put_order(connection, clock, external_ref=external, order=order, actor=call.actor.principal_id)
        view = orders.order_view(row, await orders.payments_of(connection, row["id"]))
    return presenting.answer(view, 201 if new else 200)


@router.post(
    "/import",
    summary="Send many orders at once",
    responses={200: {"model": ImportView, "description": "Of each order, what became of it."}, **errors(body=True)},
    openapi_extra=takes(OrderImport),
)
async def import_many(call: TheCall) -> Response:
    """Each order is judged as if it had been sent alone: one that is refused leaves nothing of itself and undoes none of the others.

    Safe to repeat: what is there already, with the same content, is `unchanged`. An error of the call as a whole means that nothing was stored.
    """
    raw = await call.body()
    async with call.begin(Role.INTEGRATOR) as connection:
        judged = read_import(raw)
        fit = [one.fit for one in judged if one.fit]
        stored = await import_orders(connection, call.services.database.clock, fit, actor=call.actor.principal_id) if fit else []
    return presenting.answer(import_view(judged, stored))


@router.get("/{order_id}", summary="An order as it is recorded", responses={200: {"model": OrderView}, **errors(Code.ORDER_NOT_FOUND)})
async def show(order_id: str, call: TheCall) -> Response:
    """The present version, with our own ids of its payments."""
    async with call.begin(Role.INTEGRATOR, Role.REVIEWER, Role.OPERATOR, Role.AUDITOR) as connection:
        row, its = await orders.get_order(connection, _order_id(order_id))
    return presenting.answer(orders.order_view(row, its))
