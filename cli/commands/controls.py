"""Stop and resume."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from cli.client import Api
from cli.options import Json, Yes, confirm
from cli.output import Output
from cli.problems import Refused, Unreachable


class Mode(StrEnum):
    """What becomes of approved refunds."""

    LIVE = "live"
    DRAFT = "draft"


EVERYTHING = "everything"
ReasonText = Annotated[str, typer.Option("--reason", help="Why; it is recorded.")]


Agents = Annotated[bool, typer.Option("--agents", help="Only what agents ask for.")]
Agent = Annotated[str | None, typer.Option("--agent", help="Only what this agent asks for, by its handle or its principal's id.")]
Processor = Annotated[str | None, typer.Option("--processor", help="Only this payment processor, such as stripe; otherwise everything.")]


def stop(reason: ReasonText, agents: Agents = False, agent: Agent = None, processor: Processor = None, as_json: Json = False) -> None:
    """Stop refunds at once: all, or one scope. What had already been sent is listed. Never asks: stopping is always safe."""
    out, scope = Output(as_json), _scope(agents, agent, processor)
    try:
        _control(True, scope, reason, out)
    except (Refused, Unreachable) as error:
        if not isinstance(error, Refused) or error.http_status >= 500:
            out.say("It may not be stopped. Repeat it; while nothing answers, stop the workers of the role payments: nobody else can send.")
        raise


def resume(
    reason: ReasonText,
    agents: Agents = False,
    agent: Agent = None,
    processor: Processor = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let refunds go on after a stop by somebody else, or lift the halt of a scope; what was held is quoted again and sent, one after the other."""
    out, scope = Output(as_json), _scope(agents, agent, processor)
    confirm(out, "Resume all refunds?" if scope == EVERYTHING else f"Resume refunds of the scope {scope}?", yes=yes)
    _control(False, scope, reason, out)


def mode(
    wanted: Annotated[Mode, typer.Argument(metavar="live|draft", help="live sends money, draft only prepares.")],
    reason: ReasonText,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Send what is approved (live), or only prepare and decide (draft). Neither stops nor resumes; what was approved in draft is never sent."""
    out = Output(as_json)
    if wanted is Mode.LIVE:
        confirm(out, "Send what is approved from now on?", yes=yes)
    with Api() as api:
        _show_controls(out, api.put("/v1/controls", {"scope": EVERYTHING, "mode": wanted.value, "reason": reason}))


def _scope(agents: bool, agent: str | None, processor: str | None) -> str:
    """The one scope that is named; everything when none is."""
    named = [("agents" if agents else None), _of("agent", agent), _of("processor", processor)]
    scopes = [scope for scope in named if scope is not None]
    if len(scopes) > 1:
        raise typer.BadParameter("name one scope: --agents, --agent or --processor; without any it is everything")
    return scopes[0] if scopes else EVERYTHING


def _of(kind: str, name: str | None) -> str | None:
    if name is not None and not name.strip():
        raise typer.BadParameter(f"--{kind} needs a name; leave it out for everything")
    return None if name is None else f"{kind}:{name.strip()}"


def _control(stopped: bool, scope: str, reason: str, out: Output) -> None:
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
    shown = answer.get("controls", [answer])
    everything = next((control for control in shown if control.get("scope") == EVERYTHING), None)
    for number, control in enumerate(shown):
        if number:
            out.text("")
        out.fields(
            [
                ("scope", control.get("scope")),
                ("state", control.get("state")),
                ("sends money", _sends_money(control, everything)),
                ("reason", control.get("reason")),
                ("code", control.get("code")),
                ("changed by", control.get("changed_by_handle") or ("the orchestrator" if control.get("changed_at") else None)),
                ("changed at", control.get("changed_at")),
                *_whose(control),
            ]
        )
    if breakers := answer.get("breakers"):
        out.heading("Breakers that are not closed (resume their scope with a reason to close them)")
        columns = ("name", "scope", "state", "since", "cool_until", "per_hour", "reason")
        out.table([name.replace("_", " ") for name in columns], [[one.get(name) for name in columns] for one in breakers], fold="reason")
    if answer.get("moves_money") is False:
        out.say("test: no money moves. REFUNDS_MODE is test; everything runs to its end at the processor's test side.")
    if under_way := answer.get("calls_in_flight"):
        out.heading("Calls that had already started")
        columns = ("refund", "attempt", "opened_at", "confirmed", "may_still_send")
        out.table([name.replace("_", " ") for name in columns], [[call.get(name) for name in columns] for call in under_way])
    elif under_way is not None and answer.get("state") == "stopped":
        out.say("No call was under way.")
    if resumed := answer.get("resumed"):
        out.say("1 held refund goes on." if resumed == 1 else f"{resumed} held refunds go on.")


def _whose(control: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Whose the stop is, which another person has to resume, and every halt beside it."""
    if control.get("state") != "stopped":
        return []
    stopped = (
        [("stopped by", control["stopped_by_handle"]), ("stopped at", control["stopped_at"])] if control.get("stopped_by_handle") else []
    )
    halts = [f"{halt['code']} by {halt['opened_by_handle'] or 'the orchestrator'}: {halt['reason']}" for halt in control.get("halts", ())]
    return stopped + ([("halts", "; ".join(halts))] if halts else [])


def _sends_money(control: Mapping[str, Any], everything: Mapping[str, Any] | None) -> str | None:
    """The mode and the stop in one word: ``draft`` prepares refunds and sends none. A scope sends nothing either while everything does not; whether that is so
    is not known (``None``) where only the scope was asked of."""
    why = [name for name, holds in (("stopped", control.get("state") == "stopped"), ("draft", control.get("mode") == "draft")) if holds]
    if control is not everything and not why:
        if everything is None:
            return None
        of_all = _sends_money(everything, everything)
        return of_all if of_all == "yes" else f"{of_all}: everything"
    return f"no ({', '.join(why)})" if why else "yes"
