"""What every error of the SDK and of HTTP means, as one table: did money move, or may it have?

Definite refusals are named; everything that is not named is unknown. Sources: https://docs.stripe.com/api/errors, https://docs.stripe.com/api/idempotent_requests,
https://docs.stripe.com/error-low-level, and what Stripe's test mode was recorded to answer (2026-09, API version 2026-08-26.dahlia).
"""

from dataclasses import dataclass

import httpcore
import stripe

from refunds.processor import NotSent, ProcessorError, Refused, Unknown


@dataclass(frozen=True, slots=True)
class Row:
    """One row: which answers it covers, what they are, the fixed reason, and why."""

    status: str
    code: str
    becomes: type[Refused] | type[NotSent] | type[Unknown]
    reason: str
    why: str


TABLE: tuple[Row, ...] = (
    Row("400", "idempotency_error", Unknown, "idempotency_conflict", "Stripe knows the key with other content: an earlier attempt exists"),
    Row("400", "*", Refused, "refused", "the request was judged and refused; nothing moved"),
    Row("401", "*", NotSent, "key_refused", "the key was not accepted; the request was not looked at"),
    Row("402", "*", Refused, "refused", "the refund was judged and declined"),
    Row("403", "*", NotSent, "permission", "the key may not do this; the request was not carried out"),
    Row("404", "*", Refused, "not_found", "the payment is not known to this account and mode"),
    Row("409", "*", Unknown, "key_in_use", "an earlier request with the same key is still being carried out"),
    Row("429", "lock_timeout", Unknown, "lock_timeout", "the object was busy; Stripe does not say whether the request had begun"),
    Row("429", "*", NotSent, "rate_limited", "turned away before it was carried out"),
    Row("5xx", "*", Unknown, "server_error", "a failure inside Stripe is indeterminate and is stored under the key"),
    Row("2xx", "*", Unknown, "malformed_answer", "Stripe did something and we cannot read what"),
    Row("none", "connect", NotSent, "no_connection", "no connection (refused, no route, TLS, time-out while connecting): no byte left"),
    Row("none", "*", Unknown, "no_answer", "the connection broke or timed out after the request may have left"),
)

_NOT_STRIPE = Row("4xx", "no error object", Unknown, "unexpected_answer", "not Stripe's own error: nothing may be concluded from it")

# Raised before a connection stands; a TLS error while connecting is a ConnectError. Every other cause may have come after a byte left.
_CONNECTING = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout, httpcore.UnsupportedProtocol, httpcore.ProxyError)


def translate(error: stripe.StripeError) -> ProcessorError:
    """Translate an error of the SDK by the table. The detail names no secret: it is Stripe's own sentence, shortened."""
    detail_object = error.error
    code = getattr(detail_object, "code", None) or (getattr(detail_object, "type", None) if detail_object else None)
    status = error.http_status
    if status is None:
        key = ("none", "connect" if isinstance(error.__cause__, _CONNECTING) else "*")
    elif 200 <= status < 300:
        key = ("2xx", "*")
    elif status >= 500:
        key = ("5xx", "*")
    else:
        key = (str(status), str(code or "*"))
    row = _row(*key)
    if row.becomes is Refused and detail_object is None:
        row = _NOT_STRIPE  # a proxy's page, not Stripe's judgement
    message = getattr(detail_object, "message", None) or (type(error.__cause__).__name__ if error.__cause__ else type(error).__name__)
    retry_after = (error.headers or {}).get("retry-after", "")
    return row.becomes(row.reason, str(message)[:300], code=code, retry_after=int(retry_after) if retry_after.isdigit() else None)


def _row(status: str, code: str) -> Row:
    exact = next((row for row in TABLE if row.status == status and row.code == code), None)
    general = next((row for row in TABLE if row.status == status and row.code == "*"), None)
    # A status that is in no row is no refusal: nothing may be concluded from it.
    return exact or general or Row(status, code, Unknown, "unexpected_status", "not in the table")


def as_markdown() -> str:
    """The table for the docs."""
    lines = ["| HTTP | code or type | becomes | reason | why |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {r.status} | `{r.code}` | {r.becomes.__name__} | `{r.reason}` | {r.why} |" for r in (*TABLE, _NOT_STRIPE)]
    return "\n".join(lines) + "\n"
