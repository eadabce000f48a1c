"""Settling a leg of a marketplace refund by hand."""

from typing import Annotated

import typer

from cli import refund_view
from cli.client import Api
from cli.options import Json, RefundId, Yes, confirm
from cli.output import Output
from cli.problems import Misused


def settle_leg(
    refund: RefundId,
    leg: Annotated[str, typer.Argument(metavar="LEG", help="Its id (leg_...), as refunds show lists it.")],
    reversed_by: Annotated[
        str | None,
        typer.Option("--reversed", metavar="TRR", help="It was made; the processor's id of the reversal, or of the fee's refund."),
    ] = None,
    not_reversed: Annotated[bool, typer.Option("--not-reversed", help="It was not made; two persons must say so.")] = False,
    evidence: Annotated[str | None, typer.Option("--evidence", help="What you saw or did, and where; needed without an id.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Settle a parked leg: what you say is checked live at the processor before it counts. The refund itself stays what it is."""
    if (reversed_by is not None) == not_reversed:
        raise Misused("Say --reversed TRR or --not-reversed, one of the two.")
    if not_reversed and not evidence:
        raise Misused("--not-reversed needs --evidence: what you saw or did, and where.")
    out = Output(as_json)
    with Api() as api:
        found = api.refund(refund)
        wanted = next((one for one in found["processor"]["legs"] if one["id"] == leg), None)
        if wanted is None:
            raise Misused(f"{refund} has no leg {leg}: refunds show lists them.")
        if not as_json:
            refund_view.show_leg(out, wanted)
        how = f"made as {reversed_by}" if reversed_by else "not made"
        confirm(out, f"Settle it as {how}?", yes=yes)
        body = {
            "outcome": "not_reversed" if not_reversed else "reversed",
            "reversal_id": reversed_by,
            "evidence": evidence or f"{reversed_by} in the processor's dashboard",
        }
        answer = api.act(refund, f"legs/{leg}/settlement", body)
        if as_json:
            out.json(answer)
            return
        if missing := answer.get("waits_for"):
            out.say(f"Recorded. It counts after {missing}.")
        now = next(one for one in answer["refund"]["processor"]["legs"] if one["id"] == leg)
        out.say(f"{leg} is {now['state'].replace('_', ' ')}.")
