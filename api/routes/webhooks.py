"""What processors send: verified, stored once, acknowledged. Nothing is done about it here."""

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from api import events, presenting, signatures
from api.bodies import read_body
from api.calls import unambiguous
from api.contract import errors, sent_by_stripe
from api.services import Services, TheServices
from refunds.errors import Code
from refunds.events import USED, WhyIgnored
from refunds.processor import STRIPE
from refunds.settings import Mode, Settings
from store import events as inbox
from store import snapshots

router = APIRouter(tags=["machines"])


class Received(BaseModel):
    """What became of an event: ``stored``, ``repeated`` (it was there already), ``ignored`` (kept, not ours) or ``unused`` (of a type nobody asked for)."""

    received: Literal["stored", "repeated", "ignored", "unused"]


@router.post(
    "/webhooks/stripe",
    summary="An event of Stripe's",
    responses={
        200: {"model": Received},
        **errors(
            Code.SIGNATURE_MISSING,
            Code.SIGNATURE_INVALID,
            Code.SIGNATURE_EXPIRED,
            Code.AMBIGUOUS_HEADER,
            Code.MALFORMED_JSON,
            Code.UNSUPPORTED_MEDIA_TYPE,
            Code.BODY_TOO_LARGE,
            Code.INVALID_FIELD,
            Code.WEBHOOKS_NOT_CONFIGURED,
            key=False,
        ),
    },
    openapi_extra=sent_by_stripe(events.StripeEvent),
)
async def stripe_event(request: Request, services: TheServices) -> Response:
    """Signed instead of carrying a key. Answered 2xx once it is stored, or stored before, or none of ours; sent again by Stripe otherwise, for three days.

    An event that is not signed costs a hash of its body and nothing else: it is not parsed, and nothing is written or asked.
    """
    settings = services.settings
    unambiguous(request.headers, signatures.HEADER.lower())
    header = request.headers.get(signatures.HEADER)
    if not header or not settings.webhook_secrets:  # nothing of its body is worth reading
        signatures.check(b"", header, settings.webhook_secrets, tolerance_s=settings.webhook_tolerance_s)
    raw = await read_body(request, settings.api_max_body_bytes)
    signatures.check(raw, header, settings.webhook_secrets, tolerance_s=settings.webhook_tolerance_s)
    event = events.read(raw)
    with services.limits.at_once(
        signatures.HEADER
    ):  # Stripe sends a refused one again; operators' calls must not wait in line behind a burst
        outcome = await _kept(services, event)
    services.metrics.event(outcome)
    return presenting.answer({"received": outcome})


async def _kept(services: Services, event: events.StripeEvent) -> Literal["stored", "repeated", "ignored", "unused"]:
    if event.type not in USED:
        return "unused"
    ours = None
    if event.account is not None:  # only events of connected accounts name one
        async with services.database.read() as connection:
            ours = await snapshots.bound_account(connection, STRIPE)
    ignored = _why_not(event, services.settings, ours)
    reduced = events.reduced(event, usable=ignored is None)
    async with services.database.one() as connection:
        new = await inbox.keep(connection, services.database.clock.now(), reduced, processor=STRIPE, ignored=ignored)
    return "ignored" if ignored else "stored" if new else "repeated"


def _why_not(event: events.StripeEvent, settings: Settings, account: str | None) -> WhyIgnored | None:
    """Why a properly signed event is none of ours: the other mode, another account of a platform, or shapes of another API version (field report 23)."""
    if event.livemode is not (settings.refunds_mode is Mode.LIVE):
        return WhyIgnored.MODE
    if event.account is not None and event.account != account:
        return WhyIgnored.ACCOUNT
    return WhyIgnored.API_VERSION if event.api_version != settings.stripe_api_version else None
