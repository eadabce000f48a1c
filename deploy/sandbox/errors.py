"""Error answers in Stripe's shape.

Texts marked *recorded* were recorded against Stripe test mode 2026-09, API version 2026-08-26.dahlia. The others follow
Stripe's published documentation and public issue threads; docs/sandbox.md lists which is which.
"""

from typing import Any


class StripeError(Exception):
    """An answer that is not 200.

    `stored` tells whether the answer is kept under the idempotency key: Stripe keeps what happened once an endpoint began
    to execute, and does not keep failed validation, authentication, conflicts and rate limits.
    `missing` is the id that is not known; one that is known in the other mode is said to be (`in_other_mode`).
    `keep_work` tells that what the endpoint wrote before it raised is true (a declined payment leaves a failed charge).
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        error_type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        stored: bool = True,
        keep_work: bool = False,
        extra: dict[str, Any] | None = None,
        missing: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.error_type = error_type
        self.code = code
        self.param = param
        self.stored = stored
        self.keep_work = keep_work
        self.extra = extra or {}
        self.missing = missing

    def in_other_mode(self, *, live: bool) -> None:
        """Adds what Stripe says of an id that it knows in the other mode; `live` is the mode of the key (woocommerce/woocommerce-gateway-stripe#1066)."""
        known, used = ("test", "live") if live else ("live", "test")
        self.message += f"; a similar object exists in {known} mode, but a {used} mode key was used to make this request."

    def body(self, log_url: str | None) -> dict[str, Any]:
        """The JSON object. Absent fields are absent, not null; `doc_url` is there exactly when `code` is (recorded)."""
        error: dict[str, Any] = {}
        if self.code is not None:
            error["code"] = self.code
            error["doc_url"] = "https://stripe.com/docs/error-codes/" + self.code.replace("_", "-")
        error["message"] = self.message
        if self.param is not None:
            error["param"] = self.param
        error.update(self.extra)
        if log_url is not None:
            error["request_log_url"] = log_url
        error["type"] = self.error_type
        return {"error": error}


def invalid(message: str, *, code: str | None = None, param: str | None = None) -> StripeError:
    """A parameter that fails validation: 400, not kept under the key."""
    return StripeError(400, message, code=code, param=param, stored=False)


def unknown_parameters(names: list[str]) -> StripeError:
    """Recorded for one name; Stripe's documentation shows the plural."""
    label = "parameter" if len(names) == 1 else "parameters"
    return invalid(f"Received unknown {label}: {', '.join(names)}", code="parameter_unknown", param=names[0])


def missing_parameter(name: str) -> StripeError:
    return invalid(f"Missing required param: {name}.", code="parameter_missing", param=name)


def no_such(noun: str, object_id: str, *, param: str, status: int = 404) -> StripeError:
    """Recorded: a missing object in the path is 404, a missing list cursor is 400."""
    message = f"No such {noun}: '{object_id}'"
    return StripeError(status, message, code="resource_missing", param=param, stored=status == 404, missing=object_id)


def no_access(key: str, account: str) -> StripeError:
    """A `Stripe-Account` that this key may not act for, or that is not there: Stripe does not say which (public threads)."""
    return StripeError(
        403,
        f"The provided key '{key}' does not have access to account '{account}' (or that account does not exist). Application access may have been revoked.",
        code="account_invalid",
        stored=False,
    )


def unrecognized_url(method: str, path: str) -> StripeError:
    return StripeError(
        404,
        f"Unrecognized request URL ({method}: {path}). Please see https://stripe.com/docs or we can help at https://support.stripe.com/.",
        stored=False,
    )


def key_in_use(key: str) -> StripeError:
    return StripeError(
        409,
        "There is currently another in-progress request using this Idempotent Key (that probably means you submitted "
        f"twice, and the other request is still going through): {key}. Please try again later.",
        error_type="idempotency_error",
        code="idempotency_key_in_use",
        stored=False,
    )


def rate_limited(*, lock_timeout: bool) -> StripeError:
    if lock_timeout:
        return StripeError(
            429,
            "This object cannot be accessed right now because another API request or Stripe process is currently "
            "accessing it. If you see this error intermittently, retry the request. If you see this error frequently and "
            "are making multiple concurrent requests to a single object, make your requests serially or at a lower rate. "
            "For more details, see https://stripe.com/docs/rate-limits#object-lock-timeouts.",
            code="lock_timeout",
            stored=False,
        )
    return StripeError(
        429,
        "Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits.",
        code="rate_limit",
        stored=False,
    )


def internal_error() -> StripeError:
    return StripeError(
        500,
        "An unknown error occurred. If the problem persists, please contact support at https://support.stripe.com/.",
        error_type="api_error",
    )
