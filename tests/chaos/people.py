"""Everybody who takes part, over HTTP: calls that are repeated until they are answered, as every client of an API that may die has to."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx

from deploy.local.parts import SANDBOX_KEY
from tests.chaos.book import Book
from tests.chaos.stand import Stand

POLICY = Path(__file__).with_name("policy.yaml")
CALL_S = 15.0
LONGEST_PAUSE_S = 1.0
REPEATABLE = frozenset({429, 502, 503, 504})
LIFT = {"scope": "processor:stripe", "state": "running"}
REVIEWERS = ("rita", "ravi", "mona")


def staff(clients: int) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Everybody with their roles; each client is a support system of its own."""
    shops = {f"shop-{number}": ("service", ("requester", "integrator")) for number in range(clients)}
    return shops | {
        "rita": ("person", ("reviewer",)),
        "ravi": ("person", ("reviewer",)),
        "mona": ("person", ("manager",)),
        "sven": ("person", ("settler",)),
        "sara": ("person", ("settler",)),
        "olga": ("person", ("operator",)),
        "anna": ("person", ("auditor",)),
    }


class GaveUp(RuntimeError):
    """Nobody answered for longer than any fault lasts."""


class Refusal(RuntimeError):
    """The processor says no to what somebody does there past the product."""


class People:
    """Keys, and two ways to call: the product's API and the sandbox's own address."""

    def __init__(self, stand: Stand, book: Book, *, patience_s: float) -> None:
        self.stand = stand
        self.book = book
        self.keys = {"administrator": stand.stack.admin_key}
        self._patience_s = patience_s
        limits = httpx.Limits(max_connections=128, max_keepalive_connections=64)
        self._http = httpx.AsyncClient(timeout=CALL_S, trust_env=False, limits=limits)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def hire(self, clients: int) -> None:
        """Make everybody and publish the policy, over the API, before anything goes wrong."""
        for handle, (kind, roles) in staff(clients).items():
            person = await self.call("administrator", "POST", "/v1/people", {"kind": kind, "handle": handle, "name": handle.title()})
            made = await self.call("administrator", "POST", "/v1/keys", {"principal_id": person.json()["id"], "roles": list(roles)})
            self.keys[handle] = made.json()["key"]
        body = {"source": POLICY.read_text(), "note": "chaos"}
        published = await self.call("administrator", "POST", "/v1/policy/versions", body)
        if published.status_code not in (200, 201):  # 200: an answer was lost, and it had been published
            raise RuntimeError(f"the policy was answered {published.status_code}: {published.text[:300]}")

    async def call(self, who: str, method: str, path: str, body: Any = None, *, key: str = "") -> httpx.Response:
        """One call, repeated until it is answered by something else than "come back later". Raises :class:`GaveUp`."""
        headers = {"Authorization": f"Bearer {self.keys[who]}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        content = None if body is None else json.dumps(body).encode()
        until, pause = time.monotonic() + self._patience_s, 0.1
        while True:
            answer = await self._once(method, self.stand.url("api") + path, headers, content)
            if answer is not None and answer.status_code >= 500 and answer.status_code not in REPEATABLE:
                self.book.odd.append(("internal_error", f"{method} {path} was answered {answer.status_code}: {answer.text[:300]}"))
            elif answer is not None and answer.status_code not in REPEATABLE:
                self.book.answers[f"{method} {answer.status_code}"] += 1
                return answer
            self.book.repeated["no answer" if answer is None else str(answer.status_code)] += 1
            if time.monotonic() > until:
                raise GaveUp(f"{method} {path}: no answer for {self._patience_s:.0f} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _once(self, method: str, url: str, headers: dict[str, str], content: bytes | None) -> httpx.Response | None:
        try:
            return await self._http.request(method, url, headers=headers, content=content)
        except httpx.TransportError:
            return None

    async def view(self, refund: str) -> dict[str, Any] | None:
        """A refund as the auditor sees it; ``None`` when there is none."""
        answer = await self.call("anna", "GET", f"/v1/refunds/{refund}")
        if answer.status_code == 404:
            return None
        if answer.status_code != 200:
            raise RuntimeError(f"{refund} was answered {answer.status_code}: {answer.text[:300]}")
        return answer.json()

    async def control(self, method: str, path: str, body: Any = None, *, accept: Iterable[int] = (200,), **query: str) -> Any:
        """The sandbox's own address, repeated until it answers. ``None`` for a refusal that is not in ``accept``."""
        until = time.monotonic() + self._patience_s
        while True:
            try:
                url = f"{self.stand.url('sandbox')}/_sandbox{path}"
                answer = await self._http.request(method, url, json=body, params=query)
            except httpx.TransportError:
                if time.monotonic() > until:
                    raise GaveUp(f"the sandbox: {method} {path}: no answer for {self._patience_s:.0f} s") from None
                await asyncio.sleep(0.2)
                continue
            return answer.json() if answer.status_code in accept else None

    async def dashboard(self, path: str, form: dict[str, Any], *, key: str) -> dict[str, Any]:
        """Something that somebody makes at the processor past the product, with the merchant's own key, repeated until it is there. Raises
        :class:`Refusal`."""
        until, answer = time.monotonic() + self._patience_s, None
        headers = {"Authorization": f"Bearer {SANDBOX_KEY}", "Idempotency-Key": key}
        while time.monotonic() < until:
            try:
                answer = await self._http.post(self.stand.url("sandbox") + path, data=form, headers=headers)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code == 200:
                with contextlib.suppress(ValueError):
                    return answer.json()
                # It was cut off on the way, by a fault that was meant for the product: the key finds it again.
            if answer is not None and answer.status_code in (400, 404):
                raise Refusal(f"{path} was answered {answer.status_code}: {answer.text[:300]}")
            await asyncio.sleep(0.2)
        raise GaveUp(f"the sandbox: POST {path}: {'no answer' if answer is None else answer.status_code} for {self._patience_s:.0f} s")

    async def truth(self, intent: str) -> dict[str, Any]:
        """What the sandbox received and did about a payment."""
        return await self.control("GET", "/truth", payment_intent=intent)
