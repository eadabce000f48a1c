"""What settlers do about whatever is parked: they look at the processor, or give back by hand, and say what they found or did."""

import time
from random import Random
from typing import Any

from refunds.clock import parse_rfc3339
from tests.chaos.people import People, Refusal

BY_HAND = 0.3
"""Share of the legs that were not made which a person makes by hand; of the rest two persons say that they were not."""
CARD_CLOSED = 0.2
"""Share of the manual parts that cannot be given back."""
SURELY_OVER_S = 8.0
"""How long after the time by which an attempt had to leave nothing of it can be on its way any more: longer than its answer is waited for."""


async def settle_one(people: People, refund: str) -> str:
    """What a settler does about a parked refund: look at the processor for our operation, name its refund, or have a second person say that there is none; or
    give a manual part back."""
    view = await people.view(refund)
    if view is None or view["status"] != "parked":
        return "not parked"
    operation = view["processor"]["operations"][-1]
    if operation["kind"] == "manual":
        return await _give_by_hand(people, view, operation)
    truth = await people.truth(view["payment_id"])
    said: dict[str, Any] = {"outcome": "not_refunded", "evidence": "not at the processor, all pages read"}
    if operation["kind"] == "release":
        if any(request["answered"] == 200 for request in truth["cancel_requests"]):
            said = {"outcome": "refunded", "processor_refund_id": view["payment_id"], "evidence": "the authorisation is cancelled"}
    else:
        ours = [made for made in truth["refunds"] if made["metadata"].get("refunds_operation") == operation["id"]]
        if ours:
            said = {"outcome": "refunded", "processor_refund_id": ours[0]["id"], "evidence": "seen at the processor"}
    return await _say(people, f"/v1/refunds/{refund}/settlement", said, alone="refunded")


async def _give_by_hand(people: People, view: dict[str, Any], operation: dict[str, Any]) -> str:
    """Give it first, once, and say so afterwards; or find that it cannot be given."""
    path = f"/v1/refunds/{view['id']}/settlement"
    if Random(view["payment_id"]).random() < CARD_CLOSED:
        return "by hand: " + await _say(people, path, {"outcome": "not_refunded", "evidence": "the gift card is closed"}, alone="refunded")
    people.book.given.setdefault(view["id"], (operation["id"], view["amount"]))
    return "by hand: " + await _say(people, path, {"outcome": "refunded", "evidence": "credited to the gift card"}, alone="refunded")


async def settle_legs(people: People, refund: str) -> list[str]:
    """The same for the parked legs of a refund: name what was made, make it by hand, or have a second person say that it was not made."""
    view = await people.view(refund)
    legs = [] if view is None else [leg for leg in view["processor"]["legs"] if leg["state"] == "parked"]
    return [await _settle_leg(people, view["id"], view["payment_id"], leg) for leg in legs if view is not None]


async def _settle_leg(people: People, refund: str, intent: str, leg: dict[str, Any]) -> str:
    sent_by = max((parse_rfc3339(attempt["send_by"]).timestamp() for attempt in leg["attempts"]), default=0.0)
    if time.time() < sent_by + SURELY_OVER_S:
        return "leg: it may be under way"
    truth = await people.truth(intent)
    ours = [m["id"] for m in (*truth["reversals"], *truth["fee_refunds"]) if m["metadata"].get("refunds_operation") == leg["id"]]
    if not ours and Random(leg["target"] + str(leg["amount"])).random() < BY_HAND:
        ours = await _make_by_hand(people, leg)
    said: dict[str, Any] = {"outcome": "not_reversed", "evidence": "all pages read; the platform bears it"}
    if ours:
        said = {"outcome": "reversed", "reversal_id": ours[0], "evidence": "seen at the processor"}
    return "leg: " + await _say(people, f"/v1/refunds/{refund}/legs/{leg['id']}/settlement", said, alone="reversed")


async def _make_by_hand(people: People, leg: dict[str, Any]) -> list[str]:
    """What a person does in the dashboard: the same amount of the same transfer or fee, without our id. The processor's id of it; nothing when so much is not
    left."""
    path = f"/v1/transfers/{leg['target']}/reversals"
    if leg["kind"] == "refund_fee":
        path = f"/v1/application_fees/{leg['target']}/refunds"
    try:
        made = await people.dashboard(path, {"amount": leg["amount"]}, key=f"by-hand-{leg['id']}")
    except Refusal:
        return []
    return [made["id"]]


async def _say(people: People, path: str, said: dict[str, Any], *, alone: str) -> str:
    """One person says what was done; that nothing was, two."""
    outcome = ""
    for who in ("sven",) if said["outcome"] == alone else ("sven", "sara"):
        answer = await people.call(who, "POST", path, said)
        outcome = f"{said['outcome']} {answer.status_code}"
    return outcome
