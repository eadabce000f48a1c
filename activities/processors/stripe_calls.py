"""One call of Stripe through its SDK, and what becomes of its errors: what reading and acting are made of."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, cast
from urllib.parse import quote

import stripe

from activities.processors import answers
from activities.processors.error_map import OTHER_WORLD, SHAPE, translate
from activities.processors.transport import Transport, sending_before
from refunds import points
from refunds.clock import Clock
from refunds.processor import NotSent, Unknown
from refunds.settings import Mode, Settings

PAGE = 100
MISSHAPEN = (AttributeError, KeyError, TypeError, ValueError, OverflowError)
"""What reading an answer of another shape raises, here and inside the SDK: a bug of the other side, which tells nothing about the money."""


class StripeCalls:
    """Gets, posts, and lists read to the last page. The SDK's ``raw_request_async`` gives plain JSON, which ``answers.py`` reads strictly."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        if settings.stripe_api_key is None:
            raise RuntimeError("STRIPE_API_KEY is not set; only the payments role holds it")
        self._clock = clock
        self._live = settings.refunds_mode is Mode.LIVE
        self._transport = Transport(settings)
        self._client = stripe.StripeClient(
            settings.stripe_api_key.get_secret_value(),
            stripe_version=settings.stripe_api_version,
            base_addresses={"api": settings.stripe_api_base} if settings.stripe_api_base else {},
            http_client=self._transport,
            max_network_retries=0,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close_async()

    async def _get(self, path: str, **params: Any) -> object:
        found = (await self._client.raw_request_async("get", path, **params)).data
        if self._of_other_mode(found):
            raise NotSent(OTHER_WORLD, f"GET {path} was answered from the {'test' if self._live else 'live'} side")
        return found

    async def _get_exactly(self, path: str, **params: Any) -> object:
        """The same, with every number that has a fraction as it was written: a rate never becomes a float."""
        return json.loads((await self._client.raw_request_async("get", path, **params)).body, parse_float=Decimal)

    async def _post(self, call: str, path: str, idempotency_key: str, params: dict[str, Any]) -> object:
        async with points.around(call):
            made = (await self._client.raw_request_async("post", path, **params, idempotency_key=idempotency_key)).data
            if self._of_other_mode(made):
                raise Unknown(OTHER_WORLD, f"{call} was answered from the {'test' if self._live else 'live'} side")
            return made

    def _of_other_mode(self, answer: object) -> bool:
        """Whether an answer, or an object in a list of them, says of itself that it is of the other side than ours: test objects move no money, live ones do."""
        if not isinstance(answer, dict):
            return False
        found = cast(dict[str, Any], answer)
        listed = found.get("data")
        objects = [found, *(cast(list[Any], listed) if isinstance(listed, list) else [])]
        said = [cast(dict[str, Any], one).get("livemode") for one in objects if isinstance(one, dict)]
        return (not self._live) in [side for side in said if isinstance(side, bool)]

    async def _every(self, kind: str, path: str, **scope: str) -> list[answers.Json]:
        """All objects of a list, to the last page."""
        found: list[answers.Json] = []
        seen: set[str] = set()
        after: dict[str, str] = {}
        while True:
            objects, more = answers.page(await self._get(path, **scope, limit=PAGE, **after), kind)
            found += objects
            if not more:
                return found
            last = answers.text(objects[-1], "id")
            if last in seen:
                raise ValueError("a list that does not end")
            seen.add(last)
            after = {"starting_after": last}


@contextmanager
def sending(send_before: float) -> Iterator[None]:
    """Translate every error of a call that can move money; what cannot be read afterwards is unknown, never a refusal."""
    try:
        with sending_before(send_before):
            yield
    except stripe.StripeError as error:
        raise translate(error) from error
    except MISSHAPEN as error:
        raise Unknown(SHAPE, f"the answer cannot be read ({type(error).__name__})") from error


@contextmanager
def reading(said: list[str] | None = None) -> Iterator[None]:
    """Translate every error of a call that only reads: it moves nothing, so whatever went wrong it may simply be tried again.

    Leaves the block quietly, past its end, when Stripe itself says that it does not know the object; ``said`` then holds the reason.
    """
    try:
        yield
    except stripe.StripeError as error:
        found = translate(error)
        if error.http_status == 404 and found.code == "resource_missing":
            if said is not None:
                said.append(found.reason)
            return
        raise NotSent(found.reason, found.detail, code=found.code, retry_after=found.retry_after) from error
    except MISSHAPEN as error:
        raise NotSent(SHAPE, f"the answer cannot be read ({type(error).__name__})") from error


async def ended(*calls: asyncio.Future[Any]) -> None:
    """Wait until calls that were made side by side have ended, each well or not, so that none is left behind with a connection when another one fails."""
    await asyncio.gather(*calls, return_exceptions=True)


def by_charge(processor_payment: str) -> bool:
    """Whether a payment is named by its charge, not by a PaymentIntent."""
    return processor_payment.startswith(("ch_", "py_"))


def segment(found: str) -> str:
    """An id as one segment of a path, whatever it contains."""
    return quote(found, safe="")
