"""An HTTP transport that stops reading an answer when it grows past a limit (field report 72)."""

from collections.abc import AsyncIterator

import httpx2


class AnswerTooLarge(Exception):
    """The server sent more than was allowed, or sent it compressed, where the true size is not known. Not a network error: never tried again."""


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for chunk in self._stream:
            seen += len(chunk)
            if seen > self._limit:
                raise AnswerTooLarge
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Passes requests on and cuts every response body off after ``limit`` bytes by raising :class:`AnswerTooLarge`.

    It asks for uncompressed answers and refuses others, because a small compressed body can unfold to any size.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise AnswerTooLarge
        if not isinstance(response.stream, httpx2.AsyncByteStream):
            raise TypeError("an asynchronous transport gave a synchronous body")
        response.stream = _Counted(response.stream, self._limit)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()
