"""Idempotency keys as Stripe keeps them: the first result, success or failure, replayed for 24 hours and then forgotten."""

from dataclasses import dataclass

from deploy.sandbox.errors import StripeError
from deploy.sandbox.state import State

KEEP_SECONDS = 24 * 3600
LONGEST_KEY = 255
_FORGET_EVERY = 256


@dataclass(frozen=True, slots=True)
class Kept:
    """A result under a key: status, JSON text, and the request that it first answered."""

    status: int
    body: str
    request_id: str


class Keys:
    """Finds and keeps results. `find` and `keep` belong in the transaction of the work that they guard."""

    def __init__(self, state: State, keep_seconds: int = KEEP_SECONDS) -> None:
        self._state = state
        self._keep_ms = keep_seconds * 1000
        self._until_forgetting = 0

    def find(self, key: str, method: str, path: str, params: str) -> Kept | None:
        """The kept result, of the account that is acted for. Raises 400 `idempotency_error` for another endpoint or other parameters under the same key."""
        if len(key) > LONGEST_KEY:
            message = f"Idempotency keys can be at most {LONGEST_KEY} characters long; yours has {len(key)}."
            raise StripeError(400, message, error_type="idempotency_error", stored=False)
        row = self._state.db.execute(
            "SELECT created_ms, method, path, params, status, body, request_id FROM idempotency WHERE key = ?", (self.stored_as(key),)
        ).fetchone()
        if row is None or row[0] < self._state.clock.now_ms() - self._keep_ms:
            return None
        if (row[1], row[2]) != (method, path):
            raise _misused(f"for the same endpoint they were first used for ('{row[2]}')", key)
        if row[3] != params:
            raise _misused("with the same parameters they were first used with", key)
        return Kept(row[4], row[5], row[6])

    def stored_as(self, key: str) -> str:
        """Keys of different accounts and modes never meet; no header has a line break in it."""
        return f"{self._state.scope}\n{key}" if self._state.scope else key

    def keep(self, key: str, method: str, path: str, params: str, result: Kept) -> None:
        now = self._state.clock.now_ms()
        self._state.db.execute(
            "INSERT OR REPLACE INTO idempotency VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self.stored_as(key), now, method, path, params, result.status, result.body, result.request_id),
        )
        self._until_forgetting -= 1
        if self._until_forgetting < 0:
            self._until_forgetting = _FORGET_EVERY
            self._state.db.execute("DELETE FROM idempotency WHERE created_ms < ?", (now - self._keep_ms,))


def _misused(rule: str, key: str) -> StripeError:
    return StripeError(
        400,
        f"Keys for idempotent requests can only be used {rule}. Try using a key other than '{key}' if you meant to execute "
        "a different request.",
        error_type="idempotency_error",
        stored=False,
    )
