"""The right to decide, handed to another person for a while."""

from typing import Annotated, Any, Literal

import typer

from cli.client import Api, segment
from cli.options import Json, Yes, confirm, instant
from cli.output import Output

delegations = typer.Typer(help="Who decides for whom, from when and until when.", no_args_is_help=True)


@delegations.command("add")
def add(
    to: Annotated[str, typer.Argument(metavar="WHO", help="Who is to decide on your behalf: a handle or an id.")],
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="RFC 3339; from that instant on it is over.")],
    role: Annotated[Literal["reviewer", "manager"], typer.Option("--role", help="Which of your own roles.")] = "reviewer",
    queue: Annotated[str | None, typer.Option("--queue", help="Only in this queue; in all by default.")] = None,
    since: Annotated[str | None, typer.Option("--from", metavar="TIME", help="RFC 3339; now by default.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Hand your right to decide to somebody else. They decide in their own name, never more than you may, and hand nothing on."""
    out = Output(as_json)
    body = {"to": to, "role": role, "queue": queue, "starts_at": instant(since, "--from"), "ends_at": instant(until, "--until")}
    confirm(out, f"Let {to} decide on your behalf as {role} until {until}?", yes=yes)
    with Api() as api:
        answer = api.post("/v1/delegations", {name: value for name, value in body.items() if value is not None})
    _answer(out, answer)


@delegations.command("list")
def list_delegations(
    mine: Annotated[bool, typer.Option("--mine", help="Only those you gave or have.")] = False,
    in_force: Annotated[bool, typer.Option("--in-force", help="Only those in force now.")] = False,
    as_json: Json = False,
) -> None:
    """List delegations, the latest first."""
    with Api() as api:
        answer = api.get("/v1/delegations", mine=mine or None, in_force=in_force or None)
    out = Output(as_json)
    if as_json:
        out.json(answer)
        return
    if not answer["delegations"]:
        out.say("No delegation matches.")
        return
    columns = ("delegation", "from", "to", "role", "queue", "starts at", "ends at", "state")
    out.table(columns, [_row(one) for one in answer["delegations"]])


@delegations.command("end")
def end(delegation: Annotated[str, typer.Argument(metavar="DELEGATION")], yes: Yes = False, as_json: Json = False) -> None:
    """End a delegation at once. What was decided before stands."""
    out = Output(as_json)
    confirm(out, f"End {delegation}?", yes=yes)
    with Api() as api:
        answer = api.delete(f"/v1/delegations/{segment(delegation)}")
    _answer(out, answer)


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    who = (one["from"]["handle"], one["to"]["handle"])
    return (one["id"], *who, one["role"], one["queue"] or "all", one["starts_at"], one["ends_at"], one["state"].replace("_", " "))


def _answer(out: Output, answer: dict[str, Any]) -> None:
    if out.as_json:
        out.json(answer)
    else:
        words = f"{answer['from']['handle']} lets {answer['to']['handle']} decide as {answer['role']}"
        out.say(f"{answer['id']}: {words} until {answer['ended_at'] or answer['ends_at']} ({answer['state'].replace('_', ' ')}).")
