"""How long what is personal is kept, and taking away what has had its time."""

from fastapi import APIRouter, Response

from api import presenting
from api.bodies import parse
from api.calls import TheCall
from api.contract import errors, takes
from api.customers import RetentionDone, RetentionRun, RetentionView
from refunds.people import Role
from refunds.retention import periods
from store.retention import Retention

router = APIRouter(prefix="/v1/retention", tags=["customers"])


@router.get("", summary="How long what is personal is kept", responses={200: {"model": RetentionView}, **errors()})
async def show(call: TheCall) -> Response:
    """Each kind with its period, why it is that long, and how much has had its time by now."""
    async with call.begin(Role.OPERATOR, Role.AUDITOR):
        pass
    settings = call.services.settings
    due = await Retention(call.services.database, settings).due()
    kinds = [
        {"kind": one.kind.value, "days": one.days, "what": one.what, "reason": one.reason, "due": due[one.kind]}
        for one in periods(settings)
    ]
    return presenting.answer({"kinds": kinds})


@router.post(
    "/runs",
    summary="Take away what has had its time",
    responses={200: {"model": RetentionDone}, **errors(body=True)},
    openapi_extra=takes(RetentionRun),
)
async def run(call: TheCall) -> Response:
    """The worker does the same by itself at intervals. Nothing of a refund that is under way is touched; what is taken away is entered in the ledger."""
    raw = await call.body()
    async with call.begin(Role.OPERATOR):
        wanted = parse(RetentionRun, raw)
    done = await Retention(call.services.database, call.services.settings).run(actor=call.actor.principal_id, dry_run=wanted.dry_run)
    removed = {kind.value: count for kind, count in done.removed.items()}
    return presenting.answer({"id": done.id, "dry_run": wanted.dry_run, "removed": removed, "more": done.more})
