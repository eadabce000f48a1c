"""Ids: a prefix that tells the kind, then 128 bits that sort by time (the layout of a UUID version 7, RFC 9562, section 5.7)."""

import secrets
import time
from enum import StrEnum

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case: no i, l, o, u to misread


class Prefix(StrEnum):
    """The kinds of thing that have ids of ours."""

    REFUND = "rf"
    GROUP = "rg"
    ORDER = "or"
    PAYMENT = "pay"
    CUSTOMER = "cu"
    PRINCIPAL = "pr"
    KEY = "key"
    DECISION = "dec"
    INSTRUCTION = "ins"
    OPERATION = "op"
    ATTEMPT = "att"
    LEG = "leg"
    TICKET = "tk"
    RECONCILIATION = "rec"
    DISCREPANCY = "dis"
    HALT = "halt"
    BREAKER = "brk"
    RATE = "rate"
    PULL = "pull"
    ERASURE = "era"
    REPLAY = "rep"
    RETENTION = "ret"
    DELEGATION = "dlg"
    EVIDENCE = "ev"


def new_id(prefix: Prefix) -> str:
    """Return a new id such as ``rf_06f2...``: unique, unguessable in 68 bits, sorting by creation.

    Twelve of the bits behind the millisecond are its fraction (RFC 9562, section 6.2, method 3), so that what one transaction makes sorts in its sequence.
    """
    millis, nanos = divmod(time.time_ns(), 1_000_000)
    return id_of(prefix, millis, (nanos * 4096 // 1_000_000) << 68 | secrets.randbits(68))


def id_of(prefix: Prefix, millis: int, bits: int) -> str:
    """The id of a moment and 80 random bits: for workflows, which take both from their engine so that a replay makes the same id."""
    value = (millis << 80) | bits
    digits: list[str] = []
    for _ in range(26):
        value, digit = divmod(value, 32)
        digits.append(_ALPHABET[digit])
    return f"{prefix}_{''.join(reversed(digits))}"


def is_id(value: object, *prefixes: Prefix) -> bool:
    """Tell whether a value, whatever it is, has the shape of an id of one of those kinds (not whether such a thing exists)."""
    if not isinstance(value, str):
        return False
    head, _, tail = value.partition("_")
    return head in prefixes and len(tail) == 26 and all(c in _ALPHABET for c in tail)


def reconciliation_workflow_id(run_id: str) -> str:
    """The Temporal workflow id of a reconciliation that somebody asked for; a scheduled one has the schedule's."""
    return f"reconciliation-{run_id}"


def pull_workflow_id(pull_id: str) -> str:
    """The Temporal workflow id of a pull of orders."""
    return f"orders-{pull_id}"


def workflow_id(refund_id: str) -> str:
    """The Temporal workflow id of a refund: part of the outside contract."""
    return f"refund-{refund_id}"
