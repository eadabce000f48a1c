"""What an auditor asks of one refund: the whole chain behind it."""

from fastapi import APIRouter, Response

from api import auditing, presenting
from api.calls import READ_TEXT, TheCall, refund_id_in
from api.contract import errors
from refunds.errors import Code
from store.auditing import audit

router = APIRouter(prefix="/v1", tags=["ledger"])


@router.get(
    "/refunds/{refund_id}/audit",
    summary="The whole chain behind a refund",
    responses={200: {"model": auditing.AuditView}, **errors(Code.REFUND_NOT_FOUND)},
)
async def show(refund_id: str, call: TheCall) -> Response:
    """Who asked for what and where each field came from, what agent and classifier said (kept apart), every revision with its terms, policy and checks, who agreed and
    decided, what was sent under which key and what was answered, all times, and the entries of the ledger with what opens their commitments."""
    services = call.services
    async with call.begin(*READ_TEXT) as connection:
        now = services.database.clock.now()
        found = await audit(connection, services.texts, refund_id_in(refund_id), integration=call.sees, now=now)
    return presenting.answer(auditing.view(found))
