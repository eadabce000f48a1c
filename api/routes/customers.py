"""A customer as a person: forgetting one, and what is held of one. The merchant's id stands in the address, so it is in no log, no metric and no error."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from api import erasure_list, presenting
from api.bodies import parse
from api.calls import TheCall
from api.contract import errors, shows, takes
from api.customers import CustomerExport, ErasureRequest, ErasureView, ReplayRequest, ReplayView, erasure_view
from api.disclosing import written
from refunds.erasure import Erasure
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.people import Role
from store import disclosing, forgetting, orders
from store.db import Connection
from store.forgetting import mark
from store.vault import keys_of

router = APIRouter(prefix="/v1", tags=["customers"])


@router.post(
    "/customers/{customer_id:path}/erasure",
    summary="Forget a customer",
    responses={
        200: {"model": ErasureView},
        **errors(Code.CUSTOMER_NOT_FOUND, Code.CUSTOMER_HAS_OPEN_REFUNDS, Code.ERASURE_LIST_UNAVAILABLE, body=True),
    },
    openapi_extra=takes(ErasureRequest),
)
async def forget(customer_id: str, call: TheCall) -> Response:
    """Destroys the customer's key and everything that leads to the person, and keeps what the law and the accounts need without. Cannot be undone.

    Refused while refunds of the customer are under way. Safe to repeat: for some days the same is answered, then nobody knows any more that there was such a
    customer. It is written to the list outside the database first; if that cannot be done, nobody is forgotten.
    """
    raw = await call.body()
    clock = call.services.database.clock
    async with call.begin(Role.OPERATOR) as connection:
        wanted = parse(ErasureRequest, raw)
        keys, tombstone = keys_of(connection), mark(connection, customer_id)
        surrogate, earlier = await _whom(connection, customer_id, tombstone)
    erasure = Erasure(new_id(Prefix.ERASURE), surrogate, clock.now(), call.actor.principal_id, wanted.reason, wanted.reference)
    listed = call.services.erasures is not None
    if not earlier:
        await erasure_list.write_down(call.services.erasures, erasure, keys.erasures())
    async with call.begin(Role.OPERATOR) as connection:
        done = await forgetting.forget(connection, clock, erasure, actor=call.actor.principal_id, mark=tombstone, unless_open=not earlier)
    if done is None:
        raise RefundError(Code.CUSTOMER_NOT_FOUND)
    return presenting.answer(erasure_view(done, listed=listed))


async def _whom(connection: Connection, customer_id: str, tombstone: bytes) -> tuple[str, bool]:
    """Our id of the customer, and whether they are forgotten already. Raises ``CUSTOMER_NOT_FOUND`` and ``CUSTOMER_HAS_OPEN_REFUNDS``."""
    found = await orders.find_customer(connection, customer_id)
    if found is not None:
        await forgetting.check_may_be_forgotten(connection, found)
        return found, False
    earlier = await forgetting.erasure_of(connection, mark=tombstone)
    if earlier is None:
        raise RefundError(Code.CUSTOMER_NOT_FOUND)
    return earlier.customer, True


@router.get(
    "/customers/{customer_id:path}/export",
    summary="Everything that is held of a customer",
    responses={200: shows(CustomerExport), **errors(Code.CUSTOMER_NOT_FOUND, Code.CUSTOMER_FORGOTTEN)},
)
async def export(customer_id: str, call: TheCall) -> Response:
    """One JSON document, for a request for access: orders, refunds, texts as they were written, decisions, and what is entered in the ledger. That it was
    handed out is entered there as well. It is made part by part and kept nowhere.
    """
    clock = call.services.database.clock
    async with call.begin(Role.OPERATOR) as connection:
        found = await orders.find_customer(connection, customer_id)
        if found is None:
            forgotten = await forgetting.erasure_of(connection, mark=mark(connection, customer_id))
            raise RefundError(Code.CUSTOMER_NOT_FOUND if forgotten is None else Code.CUSTOMER_FORGOTTEN)
        extent = await disclosing.begin(connection, clock, customer_id=found, actor=call.actor.principal_id)
    name = {"Content-Disposition": f'attachment; filename="{extent.customer}.json"'}
    return StreamingResponse(written(call, customer_id, extent), media_type="application/json", headers=name)


@router.post(
    "/erasures/replays",
    summary="Go through the list of erasures after a restore",
    responses={200: {"model": ReplayView}, **errors(Code.ERASURE_LIST_UNREADABLE, body=True)},
    openapi_extra=takes(ReplayRequest),
)
async def replay(call: TheCall) -> Response:
    """Forgets again whoever stands on the list and is known. In parts of up to 500 lines; all of a part or none of it is done, and it is safe to repeat.

    Refunds that are under way again go on without what was written. Of a list that this process cannot read (a webhook's), the record of a complete replay is
    what lets an operator resume.
    """
    raw = await call.body()
    database = call.services.database
    async with call.begin(Role.OPERATOR) as connection:
        given = parse(ReplayRequest, raw)
        erasures = list(erasure_list.read_lines(iter(given.lines), keys_of(connection).erasures(), first=given.first_line))
        actor = call.actor.principal_id
        forgotten, absent = await forgetting.replay(connection, database.clock, erasures, actor=actor)
        told: dict[str, Any] = {
            "lines": given.lines_before + len(given.lines),
            "forgotten": given.forgotten_before + forgotten,
            "absent": given.absent_before + absent,
        }
        replay_id = await forgetting.note_replayed(connection, database.clock, actor=actor, **told) if given.complete else None
    return presenting.answer(told | {"id": replay_id})
