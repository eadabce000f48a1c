"""Stop and resume."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli.client import Api
from cli.options import Json, Yes, confirm
from cli.output import Output

ReasonText = Annotated[str, typer.Option("--reason", help="Why; it is recorded.")]


Processor = Annotated[str | None, typer.Option("--processor", help="Only this payment processor, such as stripe; otherwise everything.")]


def stop(reason: ReasonText, processor: Processor = None, as_json: Json = False) -> None:
    """Stop all refunds at once. What had already been sent is listed. Never asks: stopping is always safe."""
    _control(True, processor, reason, Output(as_json))


def resume(reason: ReasonText, processor: Processor = None, yes: Yes = False, as_json: Json = False) -> None:
    """Let refunds go on after a stop, or lift the halt of a processor; what was held back is sent, one after the other."""
    out = Output(as_json)
    confirm(out, "Resume all refunds?" if processor is None else f"Let refunds go to {processor} again?", yes=yes)
    _control(False, processor, reason, out)


def _control(stopped: bool, processor: str | None, reason: str, out: Output) -> None:
    scope = "everything" if processor is None else f"processor:{processor}"
    with Api() as api:
        answer = api.put("/v1/controls", {"scope": scope, "state": "stopped" if stopped else "running", "reason": reason})
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
        out.fields(
            [
                ("scope", control.get("scope")),
                ("state", control.get("state")),
                ("sends money", _sends_money(control)),
                ("reason", control.get("reason")),
                ("code", control.get("code")),
                ("changed by", control.get("changed_by_handle") or ("the orchestrator" if control.get("changed_at") else None)),
                ("changed at", control.get("changed_at")),
            ]
        )
    if under_way := answer.get("calls_in_flight"):
        out.heading("Calls that had already started")
        columns = ("refund", "attempt", "opened_at", "confirmed", "may_still_send")
        out.table([name.replace("_", " ") for name in columns], [[call.get(name) for name in columns] for call in under_way])
    elif under_way is not None and answer.get("state") == "stopped":
        out.say("No call was under way.")
    if resumed := answer.get("resumed"):
        out.say("1 held refund goes on." if resumed == 1 else f"{resumed} held refunds go on.")


def _sends_money(control: Mapping[str, Any]) -> str:
    """The mode and the stop in one word: ``draft`` prepares refunds and sends none."""
    why = [name for name, holds in (("stopped", control.get("state") == "stopped"), ("draft", control.get("mode") == "draft")) if holds]
    return f"no ({', '.join(why)})" if why else "yes"
