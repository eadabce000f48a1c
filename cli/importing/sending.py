"""Sending a part of the orders: again while the API is busy or away, since a part may be sent as often as one likes."""

import json
import time
from collections.abc import Callable
from typing import Any

from cli.client import Api
from cli.problems import Refused, Unreachable
from refunds.errors import Code

MOST_ORDERS = 200
"""Orders in a part: answered in well under a second."""
MOST_BYTES = 400_000
"""Far below the API's default of one megabyte."""
PAUSES_S = (0.5, 1, 2, 4, 8)
LONGEST_PAUSE_S = 30

Numbered = tuple[str, dict[str, Any]]
"""An order and its id."""


class Sender:
    """Sends parts through the API. The first call is not repeated: an API that was never there is said at once."""

    def __init__(self, api: Api, say: Callable[[str], None]) -> None:
        self._api = api
        self._say = say
        self._reached = False

    def send(self, orders: list[Numbered]) -> list[dict[str, Any]]:
        """What became of each order, in the same sequence.

        Raises :class:`Refused` or :class:`Unreachable`, when it stays so for a while; then the part may or may not be stored, and may be sent again.
        """
        body = {"orders": [{"order_id": order_id, "order": order} for order_id, order in orders]}
        for pause in (*PAUSES_S, None):
            try:
                answer = self._api.post("/v1/orders/import", body)
                self._reached = True
                return _outcomes(answer, len(orders))
            except (Refused, Unreachable) as error:
                if isinstance(error, Refused):
                    if error.code == Code.BODY_TOO_LARGE:
                        return self._in_halves(orders, error)
                    if error.body.get("retryable") is not True:
                        raise
                if pause is None or not self._reached:
                    raise
                asked = error.body.get("retry_after", 0) if isinstance(error, Refused) else 0
                self._say(f"{error.line} Trying again.")
                time.sleep(min(LONGEST_PAUSE_S, max(pause, asked if isinstance(asked, int) else 0)))
        raise AssertionError("the last try returns or raises")

    def _in_halves(self, orders: list[Numbered], error: Refused) -> list[dict[str, Any]]:
        if len(orders) > 1:
            middle = len(orders) // 2
            return self.send(orders[:middle]) + self.send(orders[middle:])
        found = {"field": "", "code": error.code, "detail": str(error.body.get("detail", ""))}
        return [{"outcome": "refused", "errors": [found]}]


def _outcomes(answer: Any, expected: int) -> list[dict[str, Any]]:
    found = answer.get("orders") if isinstance(answer, dict) else None
    if not isinstance(found, list) or len(found) != expected or not all(isinstance(one, dict) and "outcome" in one for one in found):
        raise Unreachable("The answer is not that of an import; is REFUNDS_API_URL the address of a refunds API of this version?")
    return found


def size_of(order: Numbered) -> int:
    """About how many bytes an order takes on its way."""
    return len(json.dumps(order[1], ensure_ascii=False).encode("utf-8", "replace")) + len(order[0]) + 40
