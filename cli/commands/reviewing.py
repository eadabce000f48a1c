"""What goes before a decision: who looks at a refund, and the evidence it needs."""

import hashlib
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import refund_view
from cli.client import Api, segment
from cli.options import Json, RefundId, Yes, confirm
from cli.output import Output
from cli.problems import Misused


def assign(
    refund: RefundId,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is recorded.")],
    to: Annotated[str | None, typer.Option("--to", metavar="WHO", help="The person who is to look at it: a handle or an id.")] = None,
    nobody: Annotated[bool, typer.Option("--nobody", help="Take it from whoever it was given to.")] = False,
    queue: Annotated[str | None, typer.Option("--queue", help="Another queue of its ladder.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give a refund in review to a person, or move it to another queue of its ladder. No deadline moves by it."""
    if to is not None and nobody:
        raise Misused("Give --to or --nobody, not both.")
    if to is None and queue is None and not nobody:
        raise Misused("Say --to WHO, --nobody or --queue QUEUE.")
    out = Output(as_json)
    what = " and ".join(
        [f"give it to {to}"] * (to is not None) + ["take it back"] * nobody + [f"move it to queue {queue}"] * (queue is not None)
    )
    confirm(out, f"{what.capitalize()}?", yes=yes)
    body: dict[str, Any] = {"reason": reason} | ({"queue": queue} if queue else {}) | ({"to": to} if to or nobody else {})
    with Api() as api:
        answer = api.post(f"/v1/refunds/{segment(refund)}/assignment", body)
    _answer(out, answer)


def attach(
    refund: RefundId,
    kind: Annotated[str, typer.Option("--kind", help="As the policy names it, such as photo or police_report.")],
    statement: Annotated[str | None, typer.Option("--statement", help="What is known, in words.")] = None,
    reference: Annotated[str | None, typer.Option("--reference", help="Where it is kept; with --file or --digest.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, readable=True, help="The file itself: only its digest is sent.")
    ] = None,
    digest: Annotated[str | None, typer.Option("--digest", help="SHA-256 of what the reference leads to, in hex.")] = None,
    as_json: Json = False,
) -> None:
    """Attach evidence: a statement, or a reference to where it is kept with the digest of what is there."""
    if (statement is None) == (reference is None):
        raise Misused("Give --statement or --reference, one of the two.")
    if reference is not None and (file is None) == (digest is None):
        raise Misused("A --reference needs --file (its digest is taken) or --digest, so that nothing else can be put in its place.")
    if statement is not None and (file or digest):
        raise Misused("--file and --digest belong to a --reference.")
    taken = hashlib.sha256(file.read_bytes()).hexdigest() if file is not None else digest
    out = Output(as_json)
    with Api() as api:
        answer = api.act(refund, "evidence", {"kind": kind, "statement": statement, "reference": reference, "digest": taken})
    _answer(out, answer)


def _answer(out: Output, refund: dict[str, Any]) -> None:
    if out.as_json:
        out.json(refund)
        return
    refund_view.show_review(out, refund)
    out.say(f"{refund['id']} is {refund['status']}.")
