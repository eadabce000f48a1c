"""What this system never pays, by the names under which it is asked for: it returns money of captured payments and has no other operation.

Asked for, it is refused by name (``OUT_OF_SCOPE``), whatever the policy says: as the reason of a request, group or revision, or as a field of one. A ticket
that asks for it in words goes to a person, who is shown the policy's words for it. ``metadata`` is kept and never acted on, so nothing is asked for there.
"""

from typing import Any, cast

from refunds.errors import Code, RefundError

PAYOUTS, CREDITS, GOODWILL = "payouts", "credits", "goodwill"
"""The three, as the policy's section ``out_of_scope`` calls them."""

_NAMES: dict[str, str] = {
    **dict.fromkeys(
        ("payout", "payouts", "pay_out", "cash_out", "withdrawal", "transfer_out", "bank_transfer", "bank_account", "iban"), PAYOUTS
    ),
    **dict.fromkeys(("credit", "credits", "store_credit", "future_credit", "gift_card", "voucher", "coupon", "loyalty_points"), CREDITS),
    **dict.fromkeys(("goodwill", "goodwill_payment", "goodwill_credit", "compensation", "apology_payment"), GOODWILL),
}
_WORDS = {
    PAYOUTS: "paying money out that is no return of a captured payment",
    CREDITS: "credit for future purchases",
    GOODWILL: "a payment out of goodwill",
}


def asked_for(name: object) -> str | None:
    """Which of the three a name asks for, or ``None``."""
    return _NAMES.get(name.strip().lower().replace("-", "_").replace(" ", "_")) if isinstance(name, str) else None


def refusal(kind: str, field: str) -> RefundError:
    """The refusal that names what was asked for; ``asked`` is its name in the policy."""
    return RefundError(Code.OUT_OF_SCOPE, f"This asks for {_WORDS[kind]}, which is never paid here.", field=field, asked=kind)


def check_reason(value: Any) -> Any:
    """Give a reason back as it is. Raises ``OUT_OF_SCOPE`` for one that asks for what is never paid."""
    if (kind := asked_for(value)) is not None:
        raise refusal(kind, "reason")
    return value


def check_fields(body: Any) -> Any:
    """Give a body back as it is. Raises ``OUT_OF_SCOPE`` for one with a field that asks for what is never paid."""
    given: object = body
    names = cast("dict[object, object]", given) if isinstance(given, dict) else {}
    for name in names:
        if (kind := asked_for(name)) is not None:
            raise refusal(kind, str(name)[:40])
    return body
