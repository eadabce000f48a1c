"""Commands that only look: ``list`` and ``show``."""

from typing import Annotated

import typer

from cli import refund_view
from cli.client import PAGE, Api
from cli.options import Json, RefundId, instant
from cli.output import Output
from refunds.status import Status


def list_refunds(
    status: Annotated[Status | None, typer.Option("--status", help="Only those that stand there.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only those in this queue, such as team, managers or settle.")] = None,
    assigned_to: Annotated[
        str | None, typer.Option("--assigned-to", metavar="WHO", help="Only those in review that are given to this person.")
    ] = None,
    order: Annotated[str | None, typer.Option("--order", help="Only those of this order.")] = None,
    customer: Annotated[str | None, typer.Option("--customer", help="Only those of this customer.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Only the parts of this group.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only those that this agent asked for.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only those asked for after this RFC 3339 time.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = PAGE,
    as_json: Json = False,
) -> None:
    """List refunds, newest first: what each is worth, where it stands, what it waits for."""
    out = Output(as_json)
    filters = {
        "status": status.value if status else None,
        "queue": queue,
        "assigned_to": assigned_to,
        "order_id": order,
        "customer_id": customer,
        "agent_id": agent,
        "group_id": group,
        "created_after": instant(since, "--since"),
    }
    found, more = [], None
    with Api() as api:
        while len(found) < limit:
            page = api.get("/v1/refunds", limit=min(PAGE, limit - len(found)), cursor=more, **filters)
            found += page["refunds"]
            more = page.get("next_cursor")
            if not more or not page["refunds"]:
                break
    if as_json:
        out.json({"refunds": found, "next_cursor": more})
        return
    refund_view.show_list(out, found)
    if not found:
        out.say("No refund matches.")
    elif more:
        out.say(f"There are more; these are the first {len(found)} (see --limit).")


def show(refund: RefundId, as_json: Json = False) -> None:
    """Show everything about one refund: terms, checks, decisions, what happens next."""
    out = Output(as_json)
    with Api() as api:
        found = api.refund(refund)
    if as_json:
        out.json(found)
    else:
        refund_view.show(out, found)
