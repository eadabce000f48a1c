"""The reader that asks a language model, of whatever provider the settings name, through pydantic-ai.

The model labels; it decides nothing. What leaves the machine is the instructions and the masked text of one message, to the one address that the
settings name, with the key that the settings name; no environment variable of a provider is read for either. One deadline covers everything, there is
one more try for an answer that does not fit the schema and none for anything else, and an answer is cut off at ``model_max_output_bytes``.
"""

import asyncio
import inspect
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx2
from openai import AsyncOpenAI, OpenAIError
from pydantic_ai import Agent, ModelSettings, RunUsage, ToolOutput, UsageLimits
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelHTTPError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UserError,
)
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.providers.openai import OpenAIProvider

from activities.classifiers.base import NO_CONTEXT, Failure, Identity, ReadingContext, unreadable
from activities.classifiers.bounded_http import AnswerTooLarge, BoundedTransport
from activities.classifiers.prompt import INSTRUCTIONS, PROMPT_HASH, ModelAnswer, user_turn
from activities.classifiers.rules import read_reference
from activities.classifiers.verify import checked
from refunds.classification import Classification, Source
from refunds.readers import named
from refunds.settings import Settings

log = logging.getLogger(__name__)

OPENAI_ADDRESS = "https://api.openai.com/v1"
MAX_OUTPUT_TOKENS = 4_096
_REQUESTS = 2
_UNREPORTED = "unreported"
# The library trusts the shape of a body more than a hostile server deserves: of 454 altered or deeply nested answers 32 ended in the errors of the
# second row. Only the library's run is guarded by this list; an error in our own code stays loud.
_LIBRARY_ERRORS = (
    *(AgentRunError, UserError, TimeoutError, AnswerTooLarge, httpx2.HTTPError, OpenAIError, ValueError),
    *(ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError),
)


class ModelClassifier:
    """Reads through a language model. One instance a process; ``aclose`` lets its connections go.

    Made only for a model that may read messages (:func:`activities.classifiers.base.make_classifier`).
    """

    def __init__(self, settings: Settings, *, model: Model | None = None) -> None:
        """``model`` replaces the one that the settings name (the library's test models). Never fails: what is missing is told by every answer."""
        self._timeout = settings.model_timeout_s
        self._reader = named(settings.model or "", settings.model_region)
        self._name = settings.model or ""
        self._price = settings.price_of_model
        self._http: httpx2.AsyncClient | None = None
        self._problem: Failure | None = None
        if model is None:
            model = self._make_model(settings)
        self._agent = None if model is None else _agent(model)
        if self._problem:
            log.warning("the model classifier cannot be used (%s): every text goes to a person", self._problem.value)

    def _make_model(self, settings: Settings) -> Model | None:
        if settings.model_api_key is None or not settings.model_api_key.get_secret_value():
            self._problem = Failure.NO_KEY
            return None
        transport = BoundedTransport(settings.model_max_output_bytes)
        self._http = httpx2.AsyncClient(transport=transport, timeout=self._timeout, trust_env=False, follow_redirects=False)
        try:
            return _model(self._name, settings.model_api_key.get_secret_value(), settings.model_base_url, self._http)
        except (UserError, ValueError, TypeError, ImportError):
            self._problem = Failure.NOT_CONFIGURED
            return None

    async def classify(self, text: str, context: ReadingContext = NO_CONTEXT) -> Classification:
        """Read ``text``. Whatever the model or the network does is answered with a reading or with a fixed word, within ``model_timeout_s``."""
        failure = unreadable(text) or self._problem
        if failure or self._agent is None:
            return self._identity(_UNREPORTED).failed(failure or Failure.NOT_CONFIGURED)
        usage, started = RunUsage(), time.monotonic()
        asked = await self._ask(user_turn(text, keep=read_reference(text)), usage)
        spent = {
            "input_tokens": _count(usage.input_tokens),
            "output_tokens": _count(usage.output_tokens),
            "duration_ms": int((time.monotonic() - started) * 1000),
        }
        if isinstance(asked, Failure):
            return self._priced(self._identity(_UNREPORTED).failed(asked, sent=True, **spent))
        answer, version = asked
        reading = checked(answer.as_reading(), text, context, unknown_fields=answer.has_unknown_fields())
        return self._priced(self._identity(version).answer(reading, **spent))

    async def _ask(self, turn: str, usage: RunUsage) -> tuple[ModelAnswer, str] | Failure:
        """The model's answer and its version, or why there is none."""
        assert self._agent is not None
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._agent.run(turn, usage=usage, usage_limits=UsageLimits(request_limit=_REQUESTS), infer_name=False)
        except _LIBRARY_ERRORS as error:
            return _word(error)
        return result.output, _safe_name(result.response.model_name)

    def _priced(self, classification: Classification) -> Classification:
        """The same with what it cost, where the settings state a price and the provider reported tokens."""
        tokens = classification.input_tokens, classification.output_tokens
        if self._price is None or not any(tokens):
            return classification
        return classification.model_copy(update={"cost_micros": self._price.cost_micros(*tokens), "cost_currency": self._price.currency})

    def _identity(self, version: str) -> Identity:
        return Identity(
            source=Source.MODEL, classifier="model", model=self._name, version=version, prompt_hash=PROMPT_HASH, reader=self._reader
        )

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        if self._http is not None:
            await self._http.aclose()


def _agent(model: Model) -> Agent[None, ModelAnswer]:
    agent = Agent(
        model,
        deps_type=type(None),
        output_type=ToolOutput(ModelAnswer, name="label"),
        instructions=INSTRUCTIONS,
        retries={"tools": 0, "output": _REQUESTS - 1},
        model_settings=_settings_for(model),
    )
    agent.instrument = False  # even where somebody instruments all agents: a trace would carry the customer's words
    return agent


def _settings_for(model: Model) -> ModelSettings:
    chosen = ModelSettings(max_tokens=MAX_OUTPUT_TOKENS)
    # There is one deadline and one count of tries, ours, so the clients' own retries are off. An OpenAI client has that from `_provider`: told again
    # here, the library would copy the client, and the copy takes an organisation and a project from the environment.
    if not isinstance(getattr(model, "client", None), AsyncOpenAI):
        chosen["max_retries"] = 0
    # Models that reason take no temperature; the library warns about it on each call.
    if not model.profile.get("openai_supports_reasoning", False):
        chosen["temperature"] = 0.0
    if isinstance(model, OpenAIResponsesModel):
        return OpenAIResponsesModelSettings(**chosen, openai_store=False)  # that API keeps requests for 30 days unless told not to
    return chosen


def _model(name: str, key: str, base_url: str | None, http: httpx2.AsyncClient) -> Model:
    """The model of that name, with key and address from the settings alone. Raises what the library raises for an unusable name."""
    kind, _, rest = name.partition(":")
    # Chat Completions for plain "openai": what every OpenAI-compatible server speaks, and it keeps nothing unless it is asked to.
    name = f"openai-chat:{rest}" if kind == "openai" else name
    return infer_model(name, lambda kind: _provider(kind, key, base_url, http))


def _provider(kind: str, key: str, base_url: str | None, http: httpx2.AsyncClient) -> Provider[Any]:
    cls = infer_provider_class(kind)
    accepted = inspect.signature(cls.__init__).parameters
    address = next((name for name in ("base_url", "api_base", "azure_endpoint") if name in accepted), None)
    if cls is OpenAIProvider:
        base_url = base_url or OPENAI_ADDRESS
    if (address is None) != (base_url is None) or not {"api_key", "http_client"} <= set(accepted):
        # Left out, the address would come from that provider's environment variable: the text would go where the settings do not say.
        raise ValueError("this provider cannot be given exactly this key, this bounded client and this address")
    given: dict[str, Any] = {"api_key": key, "http_client": http} | ({address: base_url} if address else {})
    provider = cls(**given)
    if isinstance(provider.client, AsyncOpenAI):
        provider.client.max_retries = 0
        provider.client.organization = provider.client.project = None  # it took them from OPENAI_ORG_ID and OPENAI_PROJECT_ID
    return provider


def _count(tokens: int) -> int:
    """Tokens as the provider counts them, within what a database column holds: the number comes from outside."""
    return max(0, min(tokens, 2**31 - 1))


def _safe_name(name: str | None) -> str:
    """The model's name as the provider reports it, if it looks like a name: it comes from outside."""
    return name if name and re.fullmatch(r"[\w./:@-]{1,100}", name, re.ASCII) else _UNREPORTED


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _word(error: Exception) -> Failure:
    """The fixed word for an error. Nothing of its message is kept: it may quote the text or the answer."""
    if any(isinstance(link, AnswerTooLarge) for link in _chain(error)):
        return Failure.ANSWER_TOO_LARGE
    if type(error) is ModelAPIError and any(isinstance(link, httpx2.HTTPStatusError) for link in _chain(error)):
        return Failure.HTTP_ERROR  # a redirect, which is never followed: the text goes to the configured address only
    match error:
        case ModelTimeoutError() | ModelRequestTimeout() | TimeoutError():
            return Failure.TIMED_OUT
        case ModelAuthenticationError():
            return Failure.KEY_REFUSED
        case ModelRateLimitError():
            return Failure.RATE_LIMITED
        case ModelConnectionError() | httpx2.HTTPError():
            return Failure.UNREACHABLE
        case ModelHTTPError():
            return Failure.HTTP_ERROR
        case ContentFilterError():
            return Failure.REFUSED
        case UserError():
            return Failure.NOT_CONFIGURED
        case _:  # no usable answer, in one of the many ways that the library and its parsers say it
            return Failure.MALFORMED
