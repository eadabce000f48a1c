"""The merchant's orders out of Stripe itself: begin a pull, watch it, and read what became of each payment."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from cli import watching
from cli.client import Api, segment
from cli.options import Json, past
from cli.output import Output
from cli.problems import Exit, Problem
from refunds.clock import parse_rfc3339
from refunds.pulls import PullOutcome

_PAGE = 500
_SHOWN = (PullOutcome.ERROR, PullOutcome.SKIPPED)
"""What a person must look at is listed; of the rest there is a count."""


def pull_orders(
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHEN", help="Payments made since then: 90d, 2026-09-01 (UTC), or an RFC 3339 time; all unless given."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Store nothing; say what would become of each payment.")] = False,
    as_json: Json = False,
) -> None:
    """Make orders of Stripe's payments, by the order and customer that their metadata names. It goes on whatever becomes of this command."""
    body: dict[str, Any] = {"dry_run": dry_run} | ({} if since is None else {"since": past(since, "--since")})
    out = Output(as_json)
    with Api() as api:
        pull = api.post("/v1/orders/pull", body)
        _finish(api, out, pull)


def pulled_orders(
    pull: Annotated[str, typer.Argument(metavar="PULL", help="Its id, such as pull_06f2...")],
    outcome: Annotated[PullOutcome | None, typer.Option("--outcome", help="List the payments with this outcome.")] = None,
    as_json: Json = False,
) -> None:
    """Watch a pull of orders to its end, and say what became of each payment."""
    out = Output(as_json)
    with Api() as api:
        _finish(api, out, api.get(f"/v1/orders/pull/{segment(pull)}"), outcome)


def _finish(api: Api, out: Output, pull: dict[str, Any], outcome: PullOutcome | None = None) -> None:
    pull = _wait(api, out, pull)
    wanted = [outcome] if outcome else list(PullOutcome) if out.as_json else list(_SHOWN)
    found = [payment for one in wanted for payment in _payments(api, pull["id"], one)]
    if out.as_json:
        out.json(pull | {"report": found})
    else:
        _show(out, pull, found)
    if pull["phase"] == "canceled":
        raise Problem(f"{pull['id']} was cancelled before it was done.", Exit.REFUSED)
    if pull["counts"]["error"]:
        raise Problem(f"{pull['counts']['error']} payments contradict what is recorded, or cannot be read.", Exit.REFUSED)


def _payments(api: Api, pull_id: str, outcome: PullOutcome) -> Iterator[dict[str, Any]]:
    after = None
    while True:
        page = api.get(f"/v1/orders/pull/{segment(pull_id)}/payments", outcome=outcome.value, limit=_PAGE, cursor=after)
        yield from page["payments"]
        after = page["next_cursor"]
        if after is None:
            return


def _show(out: Output, pull: dict[str, Any], found: list[dict[str, Any]]) -> None:
    counts, would = pull["counts"], " (nothing is stored: a dry run)" if pull["dry_run"] else ""
    out.fields(
        [
            ("pull", pull["id"]),
            ("phase", f"{pull['phase']}{would}"),
            ("since", pull["since"] or "the beginning"),
            ("payments", pull["payments"]),
            ("order made", counts["created"]),
            ("added to an order", counts["new_version"]),
            ("unchanged", counts["unchanged"]),
            ("skipped", counts["skipped"]),
            ("errors", counts["error"]),
        ]
    )
    if found:
        columns = ("payment", "order", "outcome", "code", "why")
        rows = [[one["payment_id"], one["order_id"], one["outcome"], one["code"], one["detail"]] for one in found]
        out.table(columns, rows, fold="why")


# --- waiting -----------------------------------------------------------------------------------------------------------------------------


def _wait(api: Api, out: Output, pull: dict[str, Any]) -> dict[str, Any]:
    try:
        return watching.watch(out, _KIND, pull, lambda: api.get(f"/v1/orders/pull/{segment(pull['id'])}"))
    except KeyboardInterrupt:
        raise Problem(f"{pull['id']} goes on without this command. See: refunds orders pulled {pull['id']}", Exit.REFUSED) from None


def _figures(pull: dict[str, Any]) -> str:
    return f"{pull['payments']} payments read, {pull['judged']} judged"


def share(pull: dict[str, Any]) -> float:
    """How much of a pull is done: half is reading, by the time its pages have reached where the window is known, and half is judging."""
    if pull["finished_at"] is not None:
        return 1.0
    if pull["phase"] == "making":
        return 0.5 + 0.5 * (pull["judged"] / pull["payments"] if pull["payments"] else 1.0)
    if pull["since"] is None or pull["reached"] is None:
        return 0.0
    since, until, reached = (parse_rfc3339(pull[name]) for name in ("since", "until", "reached"))
    return 0.5 * min(1.0, max(0.0, (until - reached) / (until - since)))


_KIND = watching.Kind("Pulling orders", {"reading": "Reading payments", "making": "Making orders"}, _figures, share)
