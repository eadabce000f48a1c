"""What is not as it was: the differences between two revisions of a refund's terms, and of what they rested on, in words for whoever decides again.

Compared are what was recorded with each revision (terms and facts as JSON values), so that a difference can be shown for as long as the record is kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from refunds.money import CURRENCIES, Money, format_money

Plain = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was. ``before`` and ``after`` are as recorded, ``None`` where there was or is nothing; ``words`` says it in one sentence.

    With ``by_itself`` it is not what somebody asked for, but what has become of the order or the payment meanwhile.
    """

    field: str
    before: Any
    after: Any
    words: str
    by_itself: bool = False

    def plain(self) -> dict[str, Any]:
        """As it is recorded and shown."""
        return {"field": self.field, "before": self.before, "after": self.after, "words": self.words}


TERMS: dict[str, str] = {
    "operation": "What is done",
    "processor": "The processor",
    "processor_account": "The processor's account",
    "mode": "The processor's mode",
    "api_version": "The processor's API version",
    "order": "The order",
    "payment": "The payment",
    "processor_payment": "The payment at the processor",
    "currency": "The currency",
    "full": "Everything that is left",
    "destination": "Where it goes",
    "reverse_transfer": "Taking the transfer back",
    "refund_application_fee": "Giving the platform's fee back",
    "reason": "The reason",
    "processor_reason": "What the processor is told",
    "policy_version": "The policy version",
}
"""Terms that are compared as they stand, and what they are called. Those of :data:`OTHERWISE` are compared in their own way, or not."""

OTHERWISE = frozenset({"refund", "revision", "amount", "amount_text", "legs", "flow", "order_version", "expires_at"})
"""``refund`` never differs, ``revision`` and ``expires_at`` always do; the amount is compared in both its forms at once, the order's version below."""

_ORDER = {
    "placed_at": "When the order was placed",
    "delivered_at": "When the order was delivered",
    "categories": "The categories of goods",
    "total": "What the order comes to",
}


def differences(before: Plain, after: Plain) -> tuple[Difference, ...]:
    """The differences between two revisions, each with ``amount``, ``currency``, ``terms`` (or ``None``) and ``facts``; first what happened by itself."""
    facts = (before["facts"], after["facts"])
    found = [*_of_payment(*facts), *_of_order(*facts), *_of_amount(before, after)]
    old, new = before["terms"], after["terms"]
    if old is not None and new is not None:
        found += [_named(words, name, old.get(name), new.get(name)) for name, words in TERMS.items() if old.get(name) != new.get(name)]
        if old.get("legs", []) != new.get("legs", []):
            found.append(_shown("legs", old.get("legs", []), new.get("legs", []), "What comes back from connected accounts", _legs))
        if old.get("flow", []) != new.get("flow", []):
            found.append(_named("The transfers and the fee of the payment", "flow", old.get("flow", []), new.get("flow", [])))
    elif (old is None) != (new is None):
        words = "There are exact terms now, and there were none." if old is None else "There are no exact terms any more."
        found.append(Difference("terms", old is not None, new is not None, words))
    return tuple(found)


def moved_meanwhile(found: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """What a person looks at again: the refundable amount where it no longer bears the terms, a dispute, the order."""
    amount = any(one.field == "amount" for one in found)
    return tuple(one for one in found if one.by_itself and (one.field != "refundable" or amount))


def _of_payment(before: Plain, after: Plain) -> list[Difference]:
    old, new = before["payment"], after["payment"]
    money, found = _money(new["currency"]), list[Difference]()
    if old["remaining"] != new["remaining"]:
        found.append(_shown("refundable", old["remaining"], new["remaining"], "What is still refundable", money, by_itself=True))
    if old["dispute"] != new["dispute"]:
        found.append(_shown("dispute", old["dispute"], new["dispute"], "The dispute of the payment", str, by_itself=True))
    if old["status"] != new["status"]:
        found.append(_shown("payment_status", old["status"], new["status"], "The payment's state at the processor", str, by_itself=True))
    return found


def _of_order(before: Plain, after: Plain) -> list[Difference]:
    old, new = before["order"], after["order"]
    if old["version"] == new["version"]:
        return []
    found = [_shown("order_version", old["version"], new["version"], "The version of the order", str, by_itself=True)]
    written = _money(new.get("currency"))
    for name, words in _ORDER.items():
        if (was := old.get(name)) != (now := new.get(name)):
            shown = written if name == "total" else _time if name.endswith("_at") else _words
            found.append(_shown(f"order_{name}", was, now, words, shown, by_itself=True))
    return found


def _of_amount(before: Plain, after: Plain) -> list[Difference]:
    if (before["amount"], before["currency"]) == (after["amount"], after["currency"]):
        return []
    was, now = _money(before["currency"])(before["amount"]), _money(after["currency"])(after["amount"])
    return [Difference("amount", before["amount"], after["amount"], f"The amount is {now}; it was {was}.")]


def _money(code: str | None) -> Callable[[Any], str]:
    def written(amount: Any) -> str:
        known = isinstance(amount, int) and code in CURRENCIES
        return format_money(Money(amount, code)) if known and code else _words(amount)

    return written


def _named(words: str, name: str, before: Any, after: Any) -> Difference:
    return _shown(name, before, after, words, _words)


def _shown(field: str, before: Any, after: Any, words: str, shown: Callable[[Any], str], *, by_itself: bool = False) -> Difference:
    return Difference(field, before, after, f"{words}: {shown(after)}; it was {shown(before)}.", by_itself)


def _words(value: Any) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, cast(list[object], value))) if isinstance(value, list) else str(value).replace("_", " ")


def _time(recorded: Any) -> str:
    return _words(recorded).replace(".000000", "")


def _legs(legs: Any) -> str:
    return (
        ", ".join(f"{leg['amount_text']} of {leg['target']} ({leg['kind'].replace('_', ' ')}, {leg['account']})" for leg in legs) or "none"
    )
