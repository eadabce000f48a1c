"""Reconciliation with the processor: run one and watch it, look at what differs, and say what is done about it."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from cli import watching
from cli.client import PAGE, Api, segment
from cli.options import Json, Yes, confirm, past
from cli.output import Output
from cli.problems import Exit, Misused, Problem
from refunds.clock import parse_rfc3339
from refunds.discrepancies import Kind, Standing

discrepancies = typer.Typer(help="Differences between the processor and the record.", no_args_is_help=True)

_LIST_SHARE = 0.95
"""How much of a run is reading the processor's list; the rest is asking for what the list did not show."""

Identifier = Annotated[str, typer.Argument(metavar="DISCREPANCY", help="Its id, such as dis_06f2...")]
Words = Annotated[str, typer.Option("--note", help="What you found, and where. It is kept as it is: nothing personal.")]


def reconcile(
    since: Annotated[str, typer.Option("--since", metavar="WHEN", help="From when on: 2d, 36h, 2026-09-01 (UTC), or an RFC 3339 time.")],
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it is done, and show how far it has come.")] = False,
    as_json: Json = False,
) -> None:
    """Compare the processor's refunds with the record, both ways. It goes on whatever becomes of this command."""
    out = Output(as_json)
    with Api() as api:
        run = api.post("/v1/reconciliation/runs", {"since": past(since, "--since")})
        if wait:
            run = _wait(api, out, run)
    if as_json:
        out.json(run)
    elif run["finished_at"] is None:
        out.say(f"{run['id']} has begun. See: refunds reconciliations, or add --wait.")
    else:
        _show_run(out, run)
    if run["phase"] == "canceled":
        raise Problem(f"{run['id']} was cancelled before it was done.", Exit.REFUSED)


def reconciliations(as_json: Json = False) -> None:
    """List the latest reconciliations and how far they have come."""
    with Api() as api:
        answer = api.get("/v1/reconciliation", limit=1)
    out = Output(as_json)
    if as_json:
        out.json({"runs": answer["runs"], "counts": answer["counts"]})
        return
    columns = ("id", "phase", "since", "compared", "differences", "imported", "progressed_at", "last_error")
    out.table([name.replace("_", " ") for name in columns], [[run[name] for name in columns] for run in answer["runs"]], fold="last error")
    counts = answer["counts"]
    out.say(f"Discrepancies: {', '.join(f'{counts[standing]} {standing}' for standing in ('open', 'explained', 'closed'))}.")


def restored(
    reason: Annotated[str, typer.Option("--reason", help="What was restored, and to which moment; it is recorded.")],
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Say that the database was restored: submitting is halted until a full reconciliation is done and you resume."""
    out = Output(as_json)
    confirm(out, "Halt submitting and reconcile everything?", yes=yes)
    with Api() as api:
        answer = api.post("/v1/reconciliation/restored", {"reason": reason})
    if as_json:
        out.json(answer)
    else:
        out.say(
            f"Submitting is halted. {answer['reconciliation']['id']} has begun; when it is done: refunds resume --processor stripe --reason ..."
        )


@discrepancies.command("list")
def list_discrepancies(
    state: Annotated[Standing | None, typer.Option("--state", help="Only those that stand there.")] = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only this kind.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RECONCILIATION", help="Only those this reconciliation found.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = PAGE,
    as_csv: Annotated[bool, typer.Option("--csv", help="Everything that matches, as a table for spreadsheets.")] = False,
    as_json: Json = False,
) -> None:
    """List discrepancies, newest first."""
    if as_csv and as_json:
        raise Misused("Give --csv or --json, not both.")
    out = Output(as_json)
    filters = {"state": state.value if state else None, "kind": kind.value if kind else None, "run": run}
    with Api() as api:
        if as_csv:
            for part in api.text("/v1/reconciliation", format="csv", **filters):
                out.part(part)
            return
        found, more = _pages(api, filters, limit)
    if as_json:
        out.json({"discrepancies": found, "next_cursor": more})
        return
    columns = ("id", "kind", "state", "processor_refund_id", "refund_id", "payment_id", "owner", "first_seen_at", "meaning")
    rows = [[one["owner"] and one["owner"]["handle"] if name == "owner" else one[name] for name in columns] for one in found]
    out.table([name.removesuffix("_id").replace("_", " ") for name in columns], rows, fold="meaning")
    if not found:
        out.say("No discrepancy matches.")
    elif more:
        out.say(f"There are more; these are the first {len(found)} (see --limit).")


def _pages(api: Api, filters: dict[str, Any], limit: int) -> tuple[list[dict[str, Any]], str | None]:
    found: list[dict[str, Any]] = []
    more = None
    while len(found) < limit:
        page = api.get("/v1/reconciliation", limit=min(PAGE, limit - len(found)), cursor=more, **filters)
        found += page["discrepancies"]
        more = page.get("next_cursor")
        if not more or not page["discrepancies"]:
            break
    return found, more


@discrepancies.command()
def assign(
    discrepancy: Identifier, owner: Annotated[str, typer.Argument(metavar="WHO", help="A person's handle or id.")], as_json: Json = False
) -> None:
    """Give a discrepancy to somebody."""
    _judge(discrepancy, as_json, owner=owner)


@discrepancies.command()
def explain(discrepancy: Identifier, note: Words, as_json: Json = False) -> None:
    """Explain a discrepancy: it stays, and is understood. If what it shows changes, it is open again."""
    _judge(discrepancy, as_json, state=Standing.EXPLAINED.value, note=note)


@discrepancies.command()
def close(discrepancy: Identifier, note: Words, as_json: Json = False) -> None:
    """Close a discrepancy: it is gone. If it is seen again, it is a new one."""
    _judge(discrepancy, as_json, state=Standing.CLOSED.value, note=note)


def _judge(discrepancy: str, as_json: bool, **body: str) -> None:
    with Api() as api:
        answer = api.post(f"/v1/reconciliation/discrepancies/{segment(discrepancy)}", body)
    out = Output(as_json)
    if as_json:
        out.json(answer)
        return
    owner = f", with {answer['owner']['handle']}" if answer["owner"] else ""
    out.say(f"{answer['id']} ({answer['kind']}) is {answer['state']}{owner}.")


# --- waiting -----------------------------------------------------------------------------------------------------------------------------


def _wait(api: Api, out: Output, run: dict[str, Any]) -> dict[str, Any]:
    seen = run

    def look() -> dict[str, Any]:
        nonlocal seen
        seen = api.get(f"/v1/reconciliation/runs/{segment(run['id'])}")
        return seen

    try:
        return watching.watch(out, _KIND, run, look)
    except KeyboardInterrupt:
        out.say(f"{run['id']} goes on without this command.")
        return seen


def _figures(run: dict[str, Any]) -> str:
    return f"{run['compared']} compared, {run['differences']} differ"


def share(run: dict[str, Any]) -> float:
    """How much of a run is done, by the time its pages have reached: newest first in the processor's list, oldest first in the record."""
    if run["finished_at"] is not None:
        return 1.0
    since, until = parse_rfc3339(run["since"]), parse_rfc3339(run["until"])
    reached = parse_rfc3339(run["reached"]) if run["reached"] else None
    if run["phase"] == "theirs":
        return _LIST_SHARE * _part(until - (reached or until), until - since)
    return _LIST_SHARE + (1 - _LIST_SHARE) * _part((reached or since) - since, until - since)


def _part(done: timedelta, whole: timedelta) -> float:
    return min(1.0, max(0.0, done / whole)) if whole > timedelta(0) else 1.0


_KIND = watching.Kind("Reconciling", {"theirs": "Their list against our record", "ours": "Our record against their list"}, _figures, share)


def _show_run(out: Output, run: dict[str, Any]) -> None:
    took: datetime | None = parse_rfc3339(run["finished_at"]) if run["finished_at"] else None
    seconds = round((took - parse_rfc3339(run["started_at"])).total_seconds()) if took else None
    out.fields(
        [
            ("reconciliation", run["id"]),
            ("phase", run["phase"]),
            ("since", run["since"]),
            ("compared", run["compared"]),
            ("not ours", run["elsewhere"]),
            ("differences", run["differences"]),
            ("imported", run["imported"]),
            ("pages", run["pages"]),
            ("seconds", seconds),
        ]
    )
    if run["differences"]:
        out.say(f"See: refunds discrepancies list --run {run['id']}")
