"""``refunds groups``: order-wide refunds over several payments, shown and decided as the one wish they are."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli import refund_view
from cli.client import Api, segment
from cli.options import Json, Note, Yes, confirm
from cli.output import Output, age
from cli.problems import Misused

groups = typer.Typer(name="groups", help="Order-wide refunds over all payments of an order.", no_args_is_help=True, rich_markup_mode=None)
GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id, such as rg_06f2...")]
PAGE = 100


@groups.command("list")
def list_groups(
    order: Annotated[str | None, typer.Option("--order", help="Only those of this order.")] = None,
    customer: Annotated[str | None, typer.Option("--customer", help="Only those of this customer.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 20,
    as_json: Json = False,
) -> None:
    """List groups, newest first: what each is worth, and where its money stands."""
    out = Output(as_json)
    found: list[Any] = []
    more: str | None = None
    with Api() as api:
        while len(found) < limit:
            page = api.get("/v1/refund-groups", limit=min(PAGE, limit - len(found)), cursor=more, order_id=order, customer_id=customer)
            found += page["groups"]
            more = page.get("next_cursor")
            if not more or not page["groups"]:
                break
    if as_json:
        out.json({"groups": found, "next_cursor": more})
        return
    rows = [(g["id"], g["order_id"], _asked(g), len(g["refunds"]), _stands(g), age(g.get("created_at"))) for g in found]
    out.table(("group", "order", "asked", "parts", "stands", "age"), rows, fold="stands")
    if not found:
        out.say("No group matches.")
    elif more:
        out.say(f"There are more; these are the first {len(found)} (see --limit).")


@groups.command("show")
def show_group(group: GroupId, as_json: Json = False) -> None:
    """Show how an order-wide refund was divided, where each part stands, and the sums of it."""
    out = Output(as_json)
    with Api() as api:
        found = _read(api, group)
    if as_json:
        out.json(found)
    else:
        _show(out, found)


@groups.command("approve")
def approve_group(group: GroupId, note: Note = None, yes: Yes = False, as_json: Json = False) -> None:
    """Approve the exact terms of every part that waits. They are shown, and asked about, first; all are recorded, or none."""
    _decide("approve", group, note, yes=yes, as_json=as_json)


@groups.command("deny")
def deny_group(group: GroupId, note: Note = None, yes: Yes = False, as_json: Json = False) -> None:
    """Deny every part that waits. They are shown, and asked about, first; all are recorded, or none."""
    _decide("deny", group, note, yes=yes, as_json=as_json)


def _decide(verdict: str, group: str, note: str | None, *, yes: bool, as_json: bool) -> None:
    out = Output(as_json)
    with Api() as api:
        found = _read(api, group)
        if not found["decide"]:
            raise Misused(f"No part of {group} waits for a decision: {found.get('next_step') or 'it is over'}.")
        if not as_json:
            _show(out, found)
        confirm(out, f"{verdict.capitalize()} these {len(found['decide'])} together?", yes=yes)
        body = {"verdict": verdict, "terms": found["decide"], "note": note}
        answer = api.post(_address(group, "decisions"), {name: value for name, value in body.items() if value is not None})
    _answer(out, answer)


@groups.command("consent")
def consent_group(
    group: GroupId,
    agree: Annotated[bool, typer.Option("--agree", help="The customer agreed to the exact terms of all parts.")] = False,
    decline: Annotated[bool, typer.Option("--decline", help="The customer does not want them, which ends the parts that asked.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Record what the customer said to every part that asks: --agree or --decline."""
    if agree == decline:
        raise Misused("Say --agree or --decline, one of the two: what the customer said is never assumed.")
    out = Output(as_json)
    with Api() as api:
        found = _read(api, group)
        if not found["agree"]:
            raise Misused(f"No part of {group} waits for consent: {found.get('next_step') or 'it is over'}.")
        if not as_json:
            _show(out, found)
        confirm(out, f"Did the customer {'agree to' if agree else 'decline'} all of these?", yes=yes)
        answer = api.post(_address(group, "consent"), {"agreed": agree, "terms": found["agree"]})
    _answer(out, answer)


@groups.command("withdraw")
def withdraw_group(group: GroupId, note: Note = None, yes: Yes = False, as_json: Json = False) -> None:
    """Withdraw every part of which nothing was sent; what may have been sent is named."""
    out = Output(as_json)
    with Api() as api:
        if not as_json:
            _show(out, _read(api, group))
        confirm(out, "Withdraw what can be?", yes=yes)
        answer = api.post(_address(group, "withdrawal"), {} if note is None else {"note": note})
    if as_json:
        out.json(answer)
        return
    rows = [(p["refund_id"], p["outcome"].replace("_", " "), p["status"]) for p in answer["parts"]]
    out.table(("refund", "outcome", "status"), rows)


def _address(group: str, what: str = "") -> str:
    return f"/v1/refund-groups/{segment(group)}" + (f"/{what}" if what else "")


def _read(api: Api, group: str) -> dict[str, Any]:
    return api.get(_address(group))


def _asked(group: Mapping[str, Any]) -> str:
    asked = group["asked"]
    return "in full" if asked["full"] else str(asked["amount_text"] or "-")


def _stands(group: Mapping[str, Any]) -> str:
    return "; ".join(one["in_words"] for one in group["sums"])


def _show(out: Output, group: Mapping[str, Any]) -> None:
    out.fields(
        [
            ("group", group["id"]),
            ("order", f"{group['order_id'] or 'forgotten'} (version {group['order_version']})"),
            ("customer", group["customer_id"] or refund_view.customer_gone(group)),
            ("asked", _asked(group)),
            ("reason", group["asked"]["reason"]),
            ("requested by", group["asked"]["requested_by"]),
            ("stands", _stands(group)),
            ("created", group["created_at"]),
        ]
    )
    rows = [
        (
            r["id"],
            r["payment_id"],
            (r.get("tender") or "processor").replace("_", " "),
            refund_view.amount_of(r),
            r["status"],
            r.get("terms_hash"),
            refund_view.waiting(r),
        )
        for r in group["refunds"]
    ]
    out.heading("Parts")
    columns = ("refund", "payment", "goes back by", "amount", "status", "terms hash", "waits for, or how it ended")
    out.table(columns, rows, fold="waits for, or how it ended")
    if left_out := group["allocation"]["left_out"]:
        out.heading("Payments that give nothing")
        out.table(("payment", "because"), [(one["payment_id"], one["words"]) for one in left_out], fold="because")


def _answer(out: Output, answer: dict[str, Any]) -> None:
    if out.as_json:
        out.json(answer)
        return
    for one in answer["group"]["refunds"]:
        out.say(f"{one['id']} is {one['status']}{f': {w}' if (w := refund_view.waiting(one)) and not one.get('final') else ''}.")
