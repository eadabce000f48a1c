"""API keys: any test secret key is accepted, a restricted key must be registered through the control API."""

import base64
import binascii
from typing import Any

from deploy.sandbox.accounts import DEFAULT_ACCOUNT
from deploy.sandbox.errors import StripeError
from deploy.sandbox.state import State

_NEEDS = {"none": 0, "read": 1, "write": 2}
_LIVE = ("sk_live_", "rk_live_")
_RAK = {"refunds": "charge", "charges": "charge", "payment_intents": "payment_intent", "disputes": "dispute"}
"""Stripe's names of permissions; charges and refunds share one."""


def _unauthorised(message: str, code: str | None = None) -> StripeError:
    return StripeError(401, message, code=code, stored=False)


def masked(key: str) -> str:
    start = key[:8] if key[:8] in ("sk_test_", "rk_test_", "sk_live_", "rk_live_") else key[:2]
    rest = key[len(start) :]
    return start + "*" * max(len(rest) - 4, 0) + rest[-4:]


def presented(authorization: str) -> str | None:
    """The key in an Authorization header, as Bearer or as the user name of Basic."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip() or None
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode().partition(":")[0] or None
        except (binascii.Error, UnicodeDecodeError):
            return None
    return None


def is_live(authorization: str | None) -> bool:
    """Whether a call is made with a live key: it sees the objects of live mode, and those only."""
    return ((presented(authorization) if authorization else None) or "").startswith(_LIVE)


class ApiKeys:
    """Decides who may call what. What the control API registered is kept on disk."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._registered: dict[str, dict[str, Any]] = state.setting("api_keys", {})

    def register(self, key: str, permissions: dict[str, str] | None, revoked: bool) -> None:
        """Restricts or revokes a key; `permissions` None means all. Raises ValueError for an unknown level."""
        for level in (permissions or {}).values():
            if level not in _NEEDS:
                raise ValueError("a permission is none, read or write")
        self._registered[key] = {"permissions": permissions, "revoked": revoked}
        self._state.set_setting("api_keys", self._registered)

    def forget(self) -> None:
        self._registered = {}

    def check(self, authorization: str | None, resource: str, method: str) -> None:
        """Who is not refused may call. Raises 401 for a missing, unknown or revoked key and 403 for a restricted one without the permission."""
        key = presented(authorization) if authorization else None
        if key is None:
            raise _unauthorised(
                "You did not provide an API key. You need to provide your API key in the Authorization header, using Bearer "
                "auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY'). See https://stripe.com/docs/api#authentication for "
                "details, or we can help at https://support.stripe.com/."
            )
        known = self._registered.get(key)
        if known is None:
            if key.startswith("sk_test_") and len(key) > len("sk_test_"):
                return
            raise _unauthorised(f"Invalid API Key provided: {masked(key)}")
        if known["revoked"]:
            raise _unauthorised(f"Expired API Key provided: {masked(key)}", "api_key_expired")
        if known["permissions"] is None:
            return
        need = "read" if method == "GET" else "write"
        if _NEEDS[known["permissions"].get(resource, "none")] < _NEEDS[need]:
            account = self._state.setting("account", DEFAULT_ACCOUNT)
            permission = f"rak_{_RAK.get(resource, resource.removesuffix('s'))}_{need}"
            raise StripeError(
                403,
                f"The provided key '{masked(key)}' does not have the required permissions for this endpoint on account "
                f"'{account}'. Having the '{permission}' permission would allow this request to continue.",
                stored=False,
            )
