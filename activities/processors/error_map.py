"""What every error of the SDK and of HTTP means, as one table: did money move, or may it have?

Definite refusals are named; everything that is not named is unknown. Sources: https://docs.stripe.com/api/errors, https://docs.stripe.com/error-codes,
https://docs.stripe.com/api/idempotent_requests, https://docs.stripe.com/error-low-level, and what Stripe's test mode was recorded to answer
(2026-09, API version 2026-08-26.dahlia).
"""

import re
from dataclasses import dataclass

import httpcore
import stripe

from refunds.processor import NotSent, ProcessorError, Refused, Unknown

RATE_LIMITED = "rate_limited"
KEY_REFUSED, PERMISSION = "key_refused", "permission"
"""The two reasons that are no accident of one call: until a person has changed the key or its permissions, no call will succeed."""
SHAPE = "unexpected_shape"
"""The reason of an answer whose JSON is not what was asked for."""
OTHER_MODE = "other_mode"
"""The reason of an id that Stripe knows in test mode where the key is live, or the other way round."""
OTHER_WORLD = "answer_of_other_mode"
"""The reason of an answer that says of itself that it is of the test side in live mode, or the other way round."""
LONGEST_WAIT_S = 3_600
"""No answer makes us wait longer than this, whatever it asks for: a field of a header must not stop a refund for a year."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: which answers it covers, what they are, the fixed reason, and why."""

    status: str
    code: str
    becomes: type[Refused] | type[NotSent] | type[Unknown]
    reason: str
    why: str


_KEY = "the key, not the refund, is what is wrong; the request was not carried out"
_BUSY = "the object was busy; Stripe does not say whether the request had begun"
_UNREADABLE = "Stripe did something and we cannot read what"
_NOT_STRIPE = Row("4xx", "no error object", Unknown, "unexpected_answer", "not Stripe's own error: nothing may be concluded from it")
_NO_JUDGEMENT = Row(
    "4xx", "another type", Unknown, "unexpected_type", "only `invalid_request_error` and `card_error` are judgements of a request"
)
_JUDGEMENTS = ("invalid_request_error", "card_error")

TABLE: tuple[Row, ...] = (
    Row("400", "charge_already_refunded", Refused, "already_refunded", "nothing is left of the payment; nothing moved by this request"),
    Row("400", "charge_disputed", Refused, "disputed", "the payment was charged back; nothing moved"),
    Row("400", "refund_disputed_payment", Refused, "disputed", "the payment is disputed; nothing moved"),
    Row("400", "resource_missing", Refused, "not_found", "the payment is not known to this account and mode"),
    Row(
        "400",
        "charge_not_refundable",
        Refused,
        "not_refundable",
        "the way it was paid takes no refunds through the processor; nothing moved",
    ),
    Row(
        "400",
        "balance_insufficient",
        Refused,
        "insufficient_funds",
        "the account that would pay has too little; nothing moved by this request",
    ),
    Row("400", "idempotency_error", Unknown, "idempotency_conflict", "Stripe knows the key with other content: an earlier attempt exists"),
    Row("400", "*", Refused, "refused", "the request was judged and refused (too large an amount has no code of its own); nothing moved"),
    Row("401", "*", NotSent, KEY_REFUSED, "the key was not accepted; the request was not looked at"),
    Row("402", "*", Refused, "refused", "the refund was judged and declined"),
    Row("403", "*", NotSent, PERMISSION, "the key may not do this; the request was not carried out"),
    Row("404", "resource_missing", Refused, "not_found", "the payment is not known to this account and mode"),
    Row(
        "403",
        "account_invalid",
        NotSent,
        "account_refused",
        "the key may not act for that connected account, or there is none; not carried out",
    ),
    Row("409", "*", Unknown, "key_in_use", "an earlier request with the same key is still being carried out"),
    Row("424", "*", Unknown, "dependency_failed", "something that Stripe depends on failed; how far it had come is not said"),
    Row("429", "*", NotSent, RATE_LIMITED, "turned away before it was carried out"),
    Row("4xx", "lock_timeout", Unknown, "lock_timeout", _BUSY),
    Row("4xx", "api_key_expired", NotSent, KEY_REFUSED, _KEY),
    Row("4xx", "platform_api_key_expired", NotSent, KEY_REFUSED, _KEY),
    Row("4xx", "secret_key_required", NotSent, KEY_REFUSED, _KEY),
    Row("4xx", "api_error", Unknown, "server_error", "a failure inside Stripe, whatever its status"),
    _NOT_STRIPE,
    _NO_JUDGEMENT,
    Row("4xx", "*", Unknown, "unexpected_status", "no other refusal is known, so this one is not believed to be one"),
    Row("5xx", "*", Unknown, "server_error", "a failure inside Stripe is indeterminate and is stored under the key"),
    Row("3xx", "*", Unknown, "redirected", "Stripe redirects nobody: something in between answered; it is not followed"),
    Row("2xx", "not JSON", Unknown, "malformed_answer", _UNREADABLE),
    Row("2xx", "another shape", Unknown, SHAPE, _UNREADABLE),
    Row(
        "none",
        "connect",
        NotSent,
        "no_connection",
        "no connection (refused, no such name, no route, TLS, time-out while connecting): no byte left",
    ),
    Row(
        "none",
        "*",
        Unknown,
        "no_answer",
        "the connection broke, was reset or timed out after the request may have left, or the answer was cut off",
    ),
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A refusal that Stripe gives no code of its own: what its sentence contains, the closer reason, and where the sentence was seen."""

    says: str
    reason: str
    seen: str


SENTENCES: tuple[Sentence, ...] = (
    Sentence("a similar object exists in", OTHER_MODE, "woocommerce/woocommerce-gateway-stripe#1066, stripe/stripe-node#149"),
    Sentence("is too old to be refunded", "too_old", "woocommerce/woocommerce-gateway-stripe#4778"),
    Sentence("does not have an associated transfer", "no_transfer", "public reports of refunds with `reverse_transfer` on a plain charge"),
    Sentence("but it has no application fee", "no_application_fee", "alfio-event/alf.io#739"),
    Sentence(
        "greater than unrefunded amount", "amount_too_large", "recorded 2026-09 for a charge; active_merchant's remote tests for a fee"
    ),
    Sentence("greater than unreversed amount", "amount_too_large", "no public report found; the sandbox's wording"),
)
"""Only looked at once a row has said ``Refused``: a sentence names a refusal more closely and never makes one, so that a changed wording costs a word and no money."""

_ROWS = {(row.status, row.code): row for row in TABLE}

# Raised before a connection stands; a TLS error while connecting is a ConnectError. Every other cause may have come after a byte left.
_CONNECTING = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout, httpcore.UnsupportedProtocol, httpcore.ProxyError)
_WORD = re.compile(r"[A-Za-z0-9_.]{1,80}")
_SECONDS = re.compile(r"[0-9]{1,9}")


def translate(error: stripe.StripeError) -> ProcessorError:
    """Translate an error of the SDK by the table. The detail names no secret: it is Stripe's own sentence, shortened."""
    spoken = error.error
    code, kind = _word(spoken, "code"), _word(spoken, "type")
    row = _row(error, code, kind)
    message = str(getattr(spoken, "message", None) or type(error.__cause__ or error).__name__)
    return row.becomes(_reason(row, message), message[:300], code=code or kind, retry_after=_wait(error))


def _reason(row: Row, message: str) -> str:
    closer = (sentence.reason for sentence in SENTENCES if row.becomes is Refused and sentence.says in message)
    return next(closer, row.reason)


def _row(error: stripe.StripeError, code: str | None, kind: str | None) -> Row:
    status = error.http_status
    if status is None:
        return _ROWS["none", "connect" if isinstance(error.__cause__, _CONNECTING) else "*"]
    family = f"{status // 100}xx"
    if family == "2xx":
        return _ROWS["2xx", "not JSON"]
    if family == "4xx" and kind is None:
        # The page of something in between. Also a 401 or 403 of this kind says nothing of the key, and a 429 nothing of the request.
        return _NOT_STRIPE
    named = [(status_or_family, word) for status_or_family in (str(status), family) for word in (code, kind) if word]
    wanted = [*named, (str(status), "*"), (family, "*")]
    row = next((_ROWS[key] for key in wanted if key in _ROWS), _ROWS["4xx", "*"])
    return _NO_JUDGEMENT if row.becomes is Refused and kind not in _JUDGEMENTS else row


def _word(spoken: object, name: str) -> str | None:
    """A code or type of the error object, when it is a word; what is not is not passed on to anybody's columns."""
    value = getattr(spoken, name, None)
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _wait(error: stripe.StripeError) -> int | None:
    asked = (error.headers or {}).get("retry-after", "")
    return min(int(asked), LONGEST_WAIT_S) if _SECONDS.fullmatch(asked) else None


def as_markdown() -> str:
    """The table for the docs."""
    lines = ["| HTTP | code or type | becomes | reason | why |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {r.status} | `{r.code}` | {r.becomes.__name__} | `{r.reason}` | {r.why} |" for r in TABLE]
    return "\n".join(lines) + "\n"


def sentences_as_markdown() -> str:
    """The second table for the docs."""
    lines = ["| the sentence contains | reason | seen |", "| --- | --- | --- |"]
    lines += [f"| {s.says} | `{s.reason}` | {s.seen} |" for s in SENTENCES]
    return "\n".join(lines) + "\n"
