"""Who may call: people, services and agents, and their keys."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from cli.client import Api, segment
from cli.options import Json, Yes, confirm, instant
from cli.output import Output
from refunds.money import Money, format_money, parse_amount
from refunds.people import PrincipalKind, Role

people = typer.Typer(help="Persons, services and agents.", no_args_is_help=True)
keys = typer.Typer(help="Their keys. A key is shown once.", no_args_is_help=True)


@people.command("list")
def list_people(as_json: Json = False) -> None:
    """List everybody."""
    _listed("/v1/people", "people", ("id", "kind", "handle", "name", "disabled_at"), as_json)


@people.command("add")
def add_person(
    handle: Annotated[str, typer.Argument(help="Short and unique; requests name people by it in requested_by.")],
    name: Annotated[str, typer.Option("--name", help="As people know them.")],
    kind: Annotated[PrincipalKind, typer.Option("--kind")] = PrincipalKind.PERSON,
    as_json: Json = False,
) -> None:
    """Add a person, service or agent."""
    with Api() as api:
        answer = api.post("/v1/people", {"kind": kind.value, "handle": handle, "name": name})
    out = Output(as_json)
    if as_json:
        out.json(answer)
    else:
        out.fields([(field, answer.get(field)) for field in ("id", "kind", "handle", "name")])


@people.command("approving")
def approving(
    who: Annotated[str, typer.Argument(metavar="WHO", help="A handle or an id from people list.")],
    up_to: Annotated[
        list[str] | None,
        typer.Option("--up-to", metavar="AMOUNT CURRENCY", help='The most they may approve, such as "500.00 USD"; may be repeated.'),
    ] = None,
    operates_classifier: Annotated[
        bool, typer.Option("--operates-classifier", help="They choose or instruct the reader of free text.")
    ] = False,
    acts_for: Annotated[str | None, typer.Option("--acts-for", metavar="WHO", help="Of an agent: the person it acts for.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Say what somebody may approve, or for whom an agent acts. It replaces what was said before: without --up-to there is no ceiling of their own."""
    ceilings = dict(_ceiling(one) for one in up_to or ())
    out = Output(as_json)
    out.say(
        f"{who}: {_up_to(ceilings)}{', operates the reader of free text' if operates_classifier else ''}{f', acts for {acts_for}' if acts_for else ''}."
    )
    confirm(out, "Record this?", yes=yes)
    body: dict[str, Any] = {"approves_up_to": ceilings or None, "operates_classifier": operates_classifier, "owner": acts_for}
    with Api() as api:
        answer = api.put(f"/v1/people/{segment(_principal(api, who))}/approving", body)
    if as_json:
        out.json(answer)
    else:
        out.fields(
            [
                *((name, answer.get(name)) for name in ("id", "kind", "handle")),
                ("approves up to", _up_to(answer.get("approves_up_to"))),
                ("operates the reader of free text", answer.get("operates_classifier") or None),
                ("acts for", answer.get("owner_id")),
            ]
        )


def _up_to(ceilings: Mapping[str, int] | None) -> str:
    told = ", ".join(f"{format_money(Money(amount, code))} ({code})" for code, amount in (ceilings or {}).items())
    return told or "no ceiling of their own"


def _ceiling(text: str) -> tuple[str, int]:
    amount, _, code = text.strip().partition(" ")
    money = parse_amount(amount, code.strip(), "en_US")
    return money.currency, money.amount


@keys.command("list")
def list_keys(as_json: Json = False) -> None:
    """List keys, without the keys themselves."""
    out = Output(as_json)
    with Api() as api:
        answer = api.get("/v1/keys")
        if as_json:
            out.json(answer)
            return
        handles = {one["id"]: one["handle"] for one in api.get("/v1/people")["people"]}
    _table(out, [key | {"whose": handles.get(key["principal_id"])} for key in answer["keys"]], _KEY_COLUMNS)


_AGAIN_S = 0.2
_KEY_COLUMNS = ("id", "whose", "principal_id", "roles", "hint", "created_at", "expires_at", "revoked_at")


@keys.command("add")
def add_key(
    owner: Annotated[str, typer.Argument(metavar="WHO", help="Whose it is: a handle or an id from people list.")],
    role: Annotated[list[Role], typer.Option("--role", help="May be repeated.")],
    integration: Annotated[str | None, typer.Option("--integration", help="Whose Idempotency-Keys it shares; survives rotation.")] = None,
    expires: Annotated[str | None, typer.Option("--expires", metavar="TIME", help="RFC 3339; never by default.")] = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it, this once."""
    body = {"roles": [r.value for r in role], "integration": integration, "expires_at": instant(expires, "--expires")}
    with Api() as api:
        whose = {"principal_id": _principal(api, owner)}
        answer = api.post("/v1/keys", whose | {name: value for name, value in body.items() if value is not None})
    out = Output(as_json)
    if as_json:
        out.json(answer)
    else:
        out.fields([("id", answer["id"]), ("roles", ", ".join(answer["roles"])), ("key", answer["key"])])
        out.say("The key is not shown again.")


def _principal(api: Api, owner: str) -> str:
    """The id of whoever has this handle; handles are unique without regard to case. Anything else is taken as an id, which the API checks."""
    everybody = api.get("/v1/people")["people"]
    return next((str(one["id"]) for one in everybody if str(one["handle"]).casefold() == owner.casefold()), owner)


@keys.command("revoke")
def revoke_key(key: Annotated[str, typer.Argument(metavar="KEY-ID")], yes: Yes = False) -> None:
    """Revoke a key at once."""
    out = Output()
    confirm(out, f"Revoke {key}?", yes=yes)
    with Api() as api:
        api.delete(f"/v1/keys/{segment(key)}")
    out.say(f"{key} is revoked.")


def _listed(path: str, name: str, columns: tuple[str, ...], as_json: bool) -> None:
    with Api() as api:
        answer = api.get(path)
    out = Output(as_json)
    if as_json:
        out.json(answer)
        return
    _table(out, answer[name], columns)


def _table(out: Output, records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    rows = [[", ".join(v) if isinstance(v := record.get(column), list) else v for column in columns] for record in records]
    out.table([column.replace("_", " ") for column in columns], rows)


@keys.command("master")
def master(as_json: Json = False) -> None:
    """Show which master key protects what is personal, and how far a rotation is."""
    with Api() as api:
        answer = api.get("/v1/master-key")
    out = Output(as_json)
    if as_json:
        out.json(answer)
    else:
        out.fields([(name.replace("_", " "), answer[name]) for name in ("master", "number", "customers", "left", "under_other_masters")])


@keys.command("rotate-master")
def rotate_master(yes: Yes = False, as_json: Json = False) -> None:
    """Change over to the master key that the API now has: a new wrapping key, and every customer's key wrapped anew.

    Give the API the new master key, with the old one beside it, before. Stopping in between loses nothing: call it again and it goes on.
    """
    out = Output(as_json)
    with Api() as api:
        before = api.get("/v1/master-key")
        total = before["left"] or before["customers"]
        out.say(
            f"Master key {before['master']}; {total} keys of customers are to be wrapped anew" + (" (going on)." if before["left"] else ".")
        )
        confirm(out, "Go on?", yes=yes)
        answer = api.post("/v1/master-key/rotation", {"anew": True})
        done = answer["rewrapped"]
        while not answer["done"]:
            if answer["rewrapped"]:
                out.say(f"{done} of {total}")
            else:  # what is left is held by somebody who is just forgetting or recording a customer
                time.sleep(_AGAIN_S)
            answer = api.post("/v1/master-key/rotation", {"anew": False})
            done += answer["rewrapped"]
        after = api.get("/v1/master-key")
    if as_json:
        out.json(after)
    else:
        out.say(f"{done} wrapped anew with wrapping key {after['number']} under {after['master']}; {after['left']} left.")
        if after["under_other_masters"]:
            out.say(f"{after['under_other_masters']} of our own keys still need an older master key: do not take it away.")
