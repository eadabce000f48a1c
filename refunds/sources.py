"""Where each consequential field of a refund came from, kept with every revision.

A source says who *said* it, and is never a reason to believe it: the policy looks at what is true (:mod:`refunds.facts`), and a field that a model supplied can add
requirements and never satisfy one. What a field rests on changes only with the field: a reviewer who gives another reason leaves the amount the customer's.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from refunds.classification import Source

Sources = Mapping[str, str]


class Stated(StrEnum):
    """What a person or a support system may say of where it has a field from. That it says so is recorded, and nothing else follows from it."""

    CUSTOMER = Source.CUSTOMER.value
    PERSON = Source.PERSON.value
    VERIFIED_DOCUMENT = Source.VERIFIED_DOCUMENT.value
    THIRD_PARTY = Source.THIRD_PARTY.value


class Statable(StrEnum):
    """The fields of which it may be said."""

    AMOUNT = "amount"
    REASON = "reason"
    LINES = "lines"
    SHIPPING = "shipping"
    CUSTOMER_AUTHENTICATION = "customer_authentication"


GIVEN = (
    *("order_id", "payment_id", "amount", "full", "currency", "reason", "lines", "shipping", "message", "customer_authentication"),
    *("requested_by", "channel", "agent_model", "agent_reasoning", "conversation_context", "reverse_transfer", "refund_application_fee"),
)
"""What a caller may give: each is the caller's word, as far as it is given."""


def asked(request: object, asker: Source, stated: Mapping[Statable, Stated]) -> dict[str, str]:
    """The sources of a request's fields.

    What an integration says for somebody is theirs; the channel, and who asked it, is the support system's own record of its conversation. An agent's words
    about itself are the agent's. Customer and payment are found in the merchant's orders.
    """
    given = {name: asker.value for name in GIVEN if getattr(request, name, None)}
    if asker is not Source.AGENT:
        given |= {name: Source.SYSTEM_OF_RECORD.value for name in ("channel", "requested_by") if name in given}
    given |= {name: Source.AGENT.value for name in ("agent_model", "agent_reasoning", "conversation_context") if name in given}
    found = {"customer": Source.SYSTEM_OF_RECORD.value, "payment": Source.SYSTEM_OF_RECORD.value}
    order = {} if "order_id" in given else {"order_id": Source.SYSTEM_OF_RECORD.value}
    return found | order | given | {field.value: by.value for field, by in stated.items()}


def quoted(
    before: Sources, *, named: Iterable[str], stated: Mapping[str, str], read: Iterable[str], by_lines: bool, full: bool, by_hand: bool
) -> dict[str, str]:
    """The sources of a revision's fields, from those of the revision before.

    ``named`` are the fields that a person gave with this revision, ``stated`` what they said of where they have them from, ``read`` what was read from text.
    An amount that lines tell comes from the order, one for all that is left from the processor. Where it goes is how it was paid: the processor's knowledge, or
    the merchant's for what was paid by hand.
    """
    after = dict(before) | dict.fromkeys(named, Source.PERSON.value) | dict.fromkeys(read, Source.MODEL.value)
    after |= {field: by for field, by in stated.items() if field in after}
    if by_lines:
        after["amount"] = Source.SYSTEM_OF_RECORD.value
    elif full:
        after["amount"] = Source.PROCESSOR.value
    after.setdefault("currency", Source.PROCESSOR.value)
    after["destination"] = (Source.SYSTEM_OF_RECORD if by_hand else Source.PROCESSOR).value
    return after


def named_by(body: Mapping[str, Any]) -> list[str]:
    """The fields that a recorded revision names."""
    fields = ("amount", "currency", "payment", "reason", "full", "reverse_transfer", "refund_application_fee")
    return [field for field in fields if body.get(field) is not None and (body[field] is not False or field != "full")]
