"""Forgetting a customer: why, what is written down outside the database about it, and what an order and a request are without the person.

A line of the list outside says which of our surrogates was forgotten and when. It names nobody, means nothing without the database, and is signed: whoever
can write into that list must not be able to have somebody forgotten by it.
"""

import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, cast

from refunds.alike import ALIKE
from refunds.clock import parse_rfc3339, rfc3339
from refunds.ids import Prefix, is_id

VERSION = 1
MOST_CHARACTERS = 1_000
"""The longest line that is read."""

_REFERENCE = re.compile(r"[A-Za-z0-9#/_.:-]{1,60}")


class Because(StrEnum):
    """Why somebody is forgotten. Fixed words, because what is entered in the ledger stays, and a sentence could name the person."""

    CUSTOMER_ASKED = "customer_asked"
    AUTHORITY_ORDERED = "authority_ordered"
    NO_LONGER_NEEDED = "no_longer_needed"
    RECORDED_IN_ERROR = "recorded_in_error"


def is_reference(text: str) -> bool:
    """Whether this can be the number of a case: no blanks and no at sign, so that neither a name nor an address fits."""
    return _REFERENCE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure, as it is written down outside the database. Every id is a surrogate of ours."""

    id: str
    customer: str
    at: datetime
    by: str
    reason: Because
    reference: str | None = None

    def line(self, key: bytes) -> str:
        """One line of JSON without its line feed, signed with ``key``."""
        content = {
            "v": VERSION,
            "erasure": self.id,
            "customer": self.customer,
            "at": rfc3339(self.at),
            "by": self.by,
            "reason": self.reason.value,
        } | ({"reference": self.reference} if self.reference else {})
        return json.dumps(content | {"seal": _seal(key, content)}, separators=(",", ":"), sort_keys=True)


def read_line(text: str, key: bytes) -> Erasure:
    """Read a line of the list. Raises ``ValueError`` with what is wrong with it: no line of ours, of a later version, or not signed with this key."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError("it is longer than a line of the list ever is")
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON; was it cut off?") from None
    if not isinstance(given, dict):
        raise ValueError("it is not a JSON object")
    content = cast(dict[str, Any], given)
    if content.get("v") != VERSION:
        raise ValueError(f"it is of version {str(content.get('v'))[:20]!r}; this program reads {VERSION}")
    seal = content.pop("seal", None)
    if not isinstance(seal, str) or not hmac.compare_digest(seal.encode("utf-8", "replace"), _seal(key, content).encode()):
        raise ValueError("its seal does not fit: it was changed, or was written with other keys")
    reference = content.get("reference")
    if not is_id(content.get("erasure"), Prefix.ERASURE) or not is_id(content.get("customer"), Prefix.CUSTOMER):
        raise ValueError("its ids are none of ours")
    return Erasure(
        content["erasure"],
        content["customer"],
        parse_rfc3339(content["at"]),
        content["by"],
        Because(content["reason"]),
        reference,
    )


def _seal(key: bytes, content: Mapping[str, Any]) -> str:
    plain = json.dumps(content, separators=(",", ":"), sort_keys=True)
    return hmac.digest(key, plain.encode("utf-8", "surrogatepass"), "sha256").hex()


def order_without_person(body: Mapping[str, Any], customer: str, names: dict[str, str]) -> dict[str, Any]:
    """An order's body reduced to what was paid for what part of it: amounts, counts, taxes, categories and times.

    Lines are named by numbers: ``names`` are those they have in other versions of the order, and is added to. What is reduced already stays as it is. What was
    bought, and the merchant's and the processor's ids of the customer, are left out.
    """
    for line in body.get("lines", ()):
        names.setdefault(line["id"], str(len(names) + 1))
    lines = [line | {"id": names[line["id"]]} | ({"title": ""} if "title" in line else {}) for line in body.get("lines", ())]
    paid = [{name: value for name, value in payment.items() if name != "processor_customer"} for payment in body.get("payments", ())]
    return {**body, "customer_id": customer, "lines": lines, "payments": paid}


def details_without_person(details: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """What a request's details keep: which lines of the order by their new names, that (not how) the customer was made sure of, and that (not which)
    an agent was named: a stop of what agents ask for keeps covering it."""
    kept = {name: value for name, value in details.items() if name not in _PERSONAL}
    if any(details.get(name) is not None for name in BY_AGENT):
        kept[NAMED_AGENT] = True
    if "lines" in kept:
        # A line that the order does not have any more is named by its place among those asked for.
        kept["lines"] = [line | {"id": names.get(line["id"], f"asked-{place}")} for place, line in enumerate(kept["lines"], 1)]
    if "customer_authentication" in kept:
        kept["customer_authentication"] = {name: value for name, value in kept["customer_authentication"].items() if name != "method"}
    return kept


NAMED_AGENT = "named_agent"
"""What is left in the details of a request that named an agent's session or model."""

BY_AGENT = ("agent_session_id", "agent_model", NAMED_AGENT)
"""The details of which any says that an agent asked, although with no key of its own."""

_PERSONAL = frozenset({"metadata", "agent_session_id", "agent_model", ALIKE})
