"""Commands that act on one refund. Each reads it first, shows the exact terms it is about, and names them by their hash: terms that changed meanwhile
are refused by the API, not decided by accident."""

from typing import Annotated, Any

import typer

from cli import refund_view
from cli.client import Api
from cli.options import Json, Note, RefundId, Yes, confirm
from cli.output import Output
from cli.problems import Misused
from refunds.money import Money, format_money, parse_amount
from refunds.reasons import Reason

Signal = Annotated[bool, typer.Option("--signal", help="Deliver it as a signal and do not wait for the run.")]


OnBehalf = Annotated[
    str | None, typer.Option("--on-behalf-of", metavar="WHO", help="Whose right you use by a delegation; found by itself if there is one.")
]


def approve(
    refund: RefundId, note: Note = None, on_behalf_of: OnBehalf = None, signal: Signal = False, yes: Yes = False, as_json: Json = False
) -> None:
    """Approve the exact terms of a refund. They are shown, and asked about, first."""
    _decide("approve", refund, note, on_behalf_of, signal=signal, yes=yes, as_json=as_json)


def deny(
    refund: RefundId, note: Note = None, on_behalf_of: OnBehalf = None, signal: Signal = False, yes: Yes = False, as_json: Json = False
) -> None:
    """Deny a refund. Its terms are shown, and asked about, first."""
    _decide("deny", refund, note, on_behalf_of, signal=signal, yes=yes, as_json=as_json)


def _decide(verdict: str, refund: str, note: str | None, on_behalf_of: str | None, *, signal: bool, yes: bool, as_json: bool) -> None:
    out = Output(as_json)
    with Api() as api:
        found = api.refund(refund)
        _show_terms(out, found)
        if not as_json:
            refund_view.show_changes(out, found)
            refund_view.show_review(out, found)
        confirm(out, f"{verdict.capitalize()} this?", yes=yes)
        body = {
            "verdict": verdict,
            "terms_hash": found.get("terms_hash"),
            "note": note,
            "on_behalf_of": on_behalf_of,
            "deliver": "signal" if signal else "update",
        }
        _answer(out, api.act(refund, "decisions", body))


def revise(
    refund: RefundId,
    amount: Annotated[str | None, typer.Option("--amount", help="As you write it, such as 25.00; read strictly by --locale.")] = None,
    currency: Annotated[str | None, typer.Option("--currency", help="Its three-letter code; must be the payment's.")] = None,
    locale: Annotated[str, typer.Option("--locale", help="How you write amounts, such as de_DE for 1.234,50.")] = "en_US",
    full: Annotated[bool, typer.Option("--full", help="Everything that is still refundable.")] = False,
    reason: Annotated[Reason | None, typer.Option("--reason", help="Another reason.")] = None,
    payment: Annotated[str | None, typer.Option("--payment", help="Another payment of the same customer.")] = None,
    reverse_transfer: Annotated[
        bool | None,
        typer.Option("--reverse-transfer/--keep-transfer", help="On a marketplace: take the connected accounts' part back, or not."),
    ] = None,
    refund_fee: Annotated[
        bool | None, typer.Option("--refund-fee/--keep-fee", help="On a marketplace: give the platform's fee back, or not.")
    ] = None,
    note: Note = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Ask for other terms: a new revision that needs its own consent and decision. The amount is shown back before it counts."""
    out = Output(as_json)
    legs = {"reverse_transfer": reverse_transfer, "refund_application_fee": refund_fee}
    if amount is None and not full and (reason, payment, *legs.values()) == (None,) * 4:
        raise Misused("A revision changes something: give --amount with --currency, --full, --reason, --payment or a leg.")
    money = _typed_amount(amount, currency, locale, full=full)
    with Api() as api:
        found = api.refund(refund)
        _show_terms(out, found)
        changes = _changes(money, locale, full=full, reason=reason, payment=payment) + _leg_changes(legs)
        # Said before it is asked, so that also where nobody can be asked the reading of what was typed is seen.
        out.say(f"New terms: {', '.join(changes)}.")
        confirm(out, "Ask for these terms?", yes=yes)
        body = {
            "terms_hash": found.get("terms_hash"),
            "amount": money.amount if money else None,
            "currency": money.currency if money else None,
            "full": full or None,
            "reason": reason.value if reason else None,
            "payment_id": payment,
            "note": note,
            **legs,
        }
        _answer(out, api.act(refund, "revisions", body))


def _typed_amount(amount: str | None, currency: str | None, locale: str, *, full: bool) -> Money | None:
    """Read what was typed. Raises the money rules' own errors: an amount that could be read in two ways is not read at all."""
    if amount is None:
        return None
    if full:
        raise Misused("Give --amount or --full, not both.")
    if currency is None:
        raise Misused("An amount needs its --currency: nothing is guessed.")
    return parse_amount(amount, currency, locale)


def _changes(money: Money | None, locale: str, *, full: bool, reason: Reason | None, payment: str | None) -> list[str]:
    changes: list[str] = []
    if money is not None:
        changes.append(f"{format_money(money, locale)} ({money.amount} {money.currency} in the processor's unit)")
    if full:
        changes.append("everything that is still refundable")
    if reason is not None:
        changes.append(f"reason {reason.value}")
    if payment is not None:
        changes.append(f"payment {payment}")
    return changes


def _leg_changes(legs: dict[str, bool | None]) -> list[str]:
    """Which legs are asked for, or no more."""
    words = {"reverse_transfer": "taking the transfer back", "refund_application_fee": "giving the platform's fee back"}
    return [words[name] if wanted else f"not {words[name]}" for name, wanted in legs.items() if wanted is not None]


def consent(
    refund: RefundId,
    agree: Annotated[bool, typer.Option("--agree", help="The customer agreed to the exact terms.")] = False,
    decline: Annotated[bool, typer.Option("--decline", help="The customer does not want them, which ends the refund.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Record what the customer said to the exact terms: --agree or --decline."""
    if agree == decline:
        raise Misused("Say --agree or --decline, one of the two: what the customer said is never assumed.")
    out = Output(as_json)
    with Api() as api:
        found = api.refund(refund)
        _show_terms(out, found)
        confirm(out, f"Did the customer {'agree to' if agree else 'decline'} these terms?", yes=yes)
        body = {"agreed": agree, "terms_hash": found.get("terms_hash")}
        _answer(out, api.act(refund, "consent", body))


def settle(
    refund: RefundId,
    refunded: Annotated[str | None, typer.Option("--refunded", metavar="RE", help="It was refunded; the processor's refund id.")] = None,
    given_back: Annotated[bool, typer.Option("--given-back", help="A manual part was given back by a person; needs --evidence.")] = False,
    not_refunded: Annotated[bool, typer.Option("--not-refunded", help="Nothing was refunded; two persons must say so.")] = False,
    evidence: Annotated[
        str | None, typer.Option("--evidence", help="What you saw or did, and where; needed without a refund's id.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Settle a parked refund: what you say is checked live at the processor before it counts."""
    if (refunded is not None) + given_back + not_refunded != 1:
        raise Misused("Say --refunded RE, --given-back or --not-refunded, one of the three.")
    if refunded is None and not evidence:
        raise Misused(f"{'--given-back' if given_back else '--not-refunded'} needs --evidence: what you saw or did, and where.")
    out = Output(as_json)
    with Api() as api:
        found = api.refund(refund)
        _show_terms(out, found)
        how = f"refunded by {refunded}" if refunded else "given back by hand" if given_back else "not refunded"
        confirm(out, f"Settle it as {how}?", yes=yes)
        body = {
            "outcome": "not_refunded" if not_refunded else "refunded",
            "processor_refund_id": refunded,
            "evidence": evidence or f"refund {refunded} in the processor's dashboard",
        }
        answer = api.act(refund, "settlement", body)
        if missing := answer.get("waits_for"):
            out.say(f"Recorded. It counts after {missing}.")
        _answer(out, answer)


def withdraw(refund: RefundId, yes: Yes = False, as_json: Json = False) -> None:
    """Withdraw a refund of which nothing was sent yet."""
    out = Output(as_json)
    with Api() as api:
        _show_terms(out, api.refund(refund))
        confirm(out, "Withdraw it?", yes=yes)
        _answer(out, api.act(refund, "withdrawal", {}))


def _show_terms(out: Output, refund: dict[str, Any]) -> None:
    """The exact terms for the person who decides; with ``--json`` stdout stays one document."""
    if not out.as_json:
        refund_view.show_terms(out, refund)


def _answer(out: Output, answer: dict[str, Any]) -> None:
    """The API's answer as it is, or how the refund stands now in one sentence."""
    if out.as_json:
        out.json(answer)
        return
    refund = answer.get("refund")
    now = refund if isinstance(refund, dict) else answer
    what = refund_view.waiting(now)
    out.say(f"{now['id']} is {now['status']}{f': {what}' if what and not now.get('final') else ''}.")
