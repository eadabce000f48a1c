"""What tells that two requests may be one wish, however and by whomever it was brought in: the same ticket, the same conversation, the same words.

The marks are kept as keyed fingerprints. Two requests for one order that share one, within the policy's ``duplicates.within``, are shown to a person beside each
other (field report 73), whatever their amounts.
"""

import unicodedata
from collections.abc import Mapping

ALIKE = "alike"
"""The name among a refund's details under which the fingerprints of its marks stand."""

TICKET_FIELDS = ("ticket_id", "ticket")
"""The names in ``metadata`` under which a support system says to which ticket a request belongs."""


def marks(metadata: Mapping[str, str], session: str | None, message: str | None) -> list[tuple[str, str]]:
    """The kind and value of each mark of a request. Tickets and words count without regard to case, width and spacing: systems write one ticket in several ways."""
    ticket = next((folded for name in TICKET_FIELDS if (folded := _folded(metadata.get(name)))), "")
    found = (("ticket", ticket), ("agent session", session), ("message", _folded(message)))
    return [(kind, value) for kind, value in found if value]


def _folded(text: str | None) -> str:
    return " ".join(unicodedata.normalize("NFKC", text or "").casefold().split())
