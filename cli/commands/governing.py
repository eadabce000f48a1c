"""Commands of operators and integrators: stop and resume, orders, people and keys, the policy."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import Api, segment
from cli.options import Json, Yes, confirm
from cli.output import Output
from cli.problems import Misused
from refunds.clock import parse_rfc3339
from refunds.people import PrincipalKind, Role
from refunds.policy import PolicyError, load_policy, policy_hash, sample_policy_text

ReasonText = Annotated[str, typer.Option("--reason", help="Why; it is recorded.")]
File = Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, readable=True)]


def stop(reason: ReasonText, as_json: Json = False) -> None:
    """Stop all refunds at once. What had already been sent is listed. Never asks: stopping is always safe."""
    _control(True, reason, Output(as_json))


def resume(reason: ReasonText, yes: Yes = False, as_json: Json = False) -> None:
    """Let refunds go on after a stop; what was held back is sent."""
    out = Output(as_json)
    confirm(out, "Resume all refunds?", yes=yes)
    _control(False, reason, out)


def _control(stopped: bool, reason: str, out: Output) -> None:
    with Api() as api:
        answer = api.put("/v1/controls", {"scope": "everything", "state": "stopped" if stopped else "running", "reason": reason})
    _show_controls(out, answer)


def controls(as_json: Json = False) -> None:
    """Show whether refunds are stopped, by whom and why."""
    with Api() as api:
        _show_controls(Output(as_json), api.get("/v1/controls"))


def _show_controls(out: Output, answer: Any) -> None:
    if out.as_json:
        out.json(answer)
        return
    for control in answer.get("controls", [answer]):
        out.fields([(name, control.get(name)) for name in ("scope", "state", "mode", "reason", "changed_by", "changed_at")])
    if under_way := answer.get("calls_in_flight"):
        out.heading("Calls that had already started")
        columns = ("refund", "attempt", "opened_at", "confirmed", "may_still_send")
        out.table([name.replace("_", " ") for name in columns], [[call.get(name) for name in columns] for call in under_way])
    if answer.get("resumed"):
        out.say(f"{answer['resumed']} held refunds go on.")


orders = typer.Typer(help="The merchant's orders.", no_args_is_help=True)


@orders.command("put")
def put_orders(file: File, as_json: Json = False) -> None:
    """Send orders: a JSON file with one order, or a list of them, each with its ``order_id`` beside the fields of the API."""
    out = Output(as_json)
    given = _read_json(file)
    wanted = given if isinstance(given, list) else [given]
    for index, order in enumerate(wanted):
        if not isinstance(order, dict) or not isinstance(order.get("order_id"), str) or not order["order_id"]:
            raise Misused(f"{file}: order {index + 1} needs an order_id.")
    with Api() as api:
        answers = [
            api.put(f"/v1/orders/{segment(order['order_id'])}", {k: v for k, v in order.items() if k != "order_id"}) for order in wanted
        ]
    if as_json:
        out.json(answers)
    else:
        out.table(("order", "version"), [(answer["order_id"], answer["version"]) for answer in answers])


@orders.command("show")
def show_order(order: Annotated[str, typer.Argument(metavar="ORDER")], as_json: Json = False) -> None:
    """Show an order as it is recorded."""
    with Api() as api:
        answer = api.get(f"/v1/orders/{segment(order)}")
    out = Output(as_json)
    if as_json:
        out.json(answer)
        return
    out.fields([(name, answer.get(name)) for name in ("order_id", "id", "version", "updated_at")])
    out.table(("payment", "currency"), [(p["payment_id"], p["currency"]) for p in answer["payments"]])


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


@keys.command("list")
def list_keys(as_json: Json = False) -> None:
    """List keys, without the keys themselves."""
    _listed("/v1/keys", "keys", ("id", "principal_id", "roles", "hint", "created_at", "expires_at", "revoked_at"), as_json)


@keys.command("add")
def add_key(
    owner: Annotated[str, typer.Argument(metavar="WHO", help="Whose it is: a handle or an id from people list.")],
    role: Annotated[list[Role], typer.Option("--role", help="May be repeated.")],
    integration: Annotated[str | None, typer.Option("--integration", help="Whose Idempotency-Keys it shares; survives rotation.")] = None,
    expires: Annotated[str | None, typer.Option("--expires", metavar="TIME", help="RFC 3339; never by default.")] = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it, this once."""
    body = {"roles": [r.value for r in role], "integration": integration, "expires_at": _time(expires)}
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


policy = typer.Typer(help="The rules that are in force.", no_args_is_help=True)


@policy.command("show")
def show_policy(
    sample: Annotated[bool, typer.Option("--sample", help="The embedded sample instead; asks nobody.")] = False, as_json: Json = False
) -> None:
    """Print the policy in force as the YAML it was published as."""
    out = Output(as_json)
    if sample:
        answer = {"source": sample_policy_text()}
    else:
        with Api() as api:
            answer = api.get("/v1/policy")
    if as_json:
        out.json(answer)
        return
    if "version" in answer:
        out.say(f"Version {answer['version']}, in force since {answer.get('effective_from')}, hash {answer.get('hash')}.")
    out.text(answer["source"])


@policy.command("check")
def check_policy(file: File, as_json: Json = False) -> None:
    """Check a policy file and explain what is wrong with it, line by line. Asks nobody."""
    out = Output(as_json)
    checked = load_policy(_policy_text(file))
    if as_json:
        out.json({"name": checked.name, "hash": policy_hash(checked)})
        return
    out.fields(
        [("name", checked.name), ("hash", policy_hash(checked)), ("rules", len(checked.rules)), ("ladders", ", ".join(checked.review))]
    )
    out.say(f"{file} can be published.")


@policy.command("publish")
def publish_policy(
    file: File,
    note: Annotated[str, typer.Option("--note", help="Why; it is recorded.")],
    effective: Annotated[str | None, typer.Option("--effective", metavar="TIME", help="RFC 3339; at once by default.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Publish a policy version. Refunds that are under way keep the version they were quoted under."""
    out = Output(as_json)
    text = _policy_text(file)
    checked = load_policy(text)
    confirm(out, f"Publish {checked.name!r} for every new refund?", yes=yes)
    body = {"source": text, "effective_from": _time(effective), "note": note}
    with Api() as api:
        answer = api.post("/v1/policy/versions", {name: value for name, value in body.items() if value is not None})
    if as_json:
        out.json(answer)
    else:
        out.fields([(name, answer.get(name)) for name in ("version", "hash", "effective_from")])


def _policy_text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
        load_policy(text)
    except UnicodeDecodeError as error:
        raise Misused(f"{file} is not UTF-8 text: byte {error.start} cannot be read.") from error
    except PolicyError as error:
        raise Misused("\n".join(f"{file}: {problem}" for problem in error.problems)) from error
    return text


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Misused(f"{file} is not JSON: {error}.") from error


def _listed(path: str, name: str, columns: tuple[str, ...], as_json: bool) -> None:
    with Api() as api:
        answer = api.get(path)
    out = Output(as_json)
    if as_json:
        out.json(answer)
        return
    rows = [[", ".join(v) if isinstance(v := row.get(column), list) else v for column in columns] for row in answer[name]]
    out.table([column.replace("_", " ") for column in columns], rows)


def _time(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        parse_rfc3339(text)
    except ValueError as error:
        raise Misused(f"{error}.") from error
    return text
