"""The interface of every reader of free text, and what all of them guarantee.

``classify`` answers with a :class:`~refunds.classification.Classification` whatever happens: a reader that times out, is refused, babbles or floods
gives ``reading=None`` and one of the fixed words of :class:`Failure`, and then a person reads the request. The words are fixed so that no part of the
customer's text or of a provider's answer can travel in them into logs, payloads or the ledger (promise P9). Only cancellation leaves ``classify`` as
an exception; an error in our own code does too, on purpose, because it is a bug and must be loud.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from refunds.classification import Classification, Reading, Source
from refunds.logs import logger
from refunds.readers import IN_PROCESS, DataKind, Reader, denied, may_read, named
from refunds.settings import ClassifierKind, Settings

_log = logger(__name__)
_EFFECT = "every request with text goes to a person"
_REMEDY = "if your agreement with the provider covers it, set MODEL_REGION=<region> and READERS_ALLOWED=<provider>:<model>@<region>=message"

MAX_TEXT_CHARS = 32_000
"""The longest text a reader takes, in characters. A longer one is not cut, because what is cut off might say the opposite: a person reads it."""


class Failure(StrEnum):
    """Why there is no reading. Complete: nothing else is ever put in ``Classification.failure``."""

    NO_TEXT = "no_text"
    TEXT_TOO_LONG = "text_too_long"
    NOT_ALLOWED = "model_not_allowed"
    NO_KEY = "no_model_key"
    NOT_CONFIGURED = "model_not_configured"
    TIMED_OUT = "model_timed_out"
    UNREACHABLE = "model_unreachable"
    KEY_REFUSED = "model_key_refused"
    RATE_LIMITED = "model_rate_limited"
    HTTP_ERROR = "model_http_error"
    ANSWER_TOO_LARGE = "model_answer_too_large"
    MALFORMED = "model_answer_malformed"
    REFUSED = "model_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingContext:
    """What a reader may know beside the text: as little as reading needs. No customer, no order, no payment, no history.

    ``currency`` is the ISO code of the order's currency when the order is known; it only decides what an ambiguous sign such as ``$`` stands for.
    """

    currency: str | None = None


NO_CONTEXT = ReadingContext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who reads, as it is recorded with every answer. ``prompt_hash`` is the SHA-256 of the exact instructions or rules, in hexadecimal."""

    source: Source
    classifier: str
    model: str
    version: str
    prompt_hash: str
    reader: Reader

    def answer(self, reading: Reading, *, input_tokens: int = 0, output_tokens: int = 0, duration_ms: int = 0) -> Classification:
        """A reading with this provenance: of the message, which is all that a reader is given."""
        return self._classification(reading, None, True, input_tokens, output_tokens, duration_ms)

    def failed(
        self, failure: Failure, *, sent: bool = False, input_tokens: int = 0, output_tokens: int = 0, duration_ms: int = 0
    ) -> Classification:
        """No reading, and the fixed word that says why; ``sent`` when the reader was given the message all the same."""
        return self._classification(None, failure.value, sent, input_tokens, output_tokens, duration_ms)

    def _classification(
        self, reading: Reading | None, failure: str | None, sent: bool, input_tokens: int, output_tokens: int, duration_ms: int
    ) -> Classification:
        return Classification(
            reading=reading,
            failure=failure,
            source=self.source,
            classifier=self.classifier,
            model=self.model,
            version=self.version,
            prompt_hash=self.prompt_hash,
            provider=self.reader.provider,
            region=self.reader.region,
            sent=[DataKind.MESSAGE.value] if sent else [],
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            duration_ms=duration_ms,
        )


class Classifier(Protocol):
    """A reader of free text. One instance serves a whole process and may be called concurrently."""

    async def classify(self, text: str, context: ReadingContext = NO_CONTEXT) -> Classification:
        """Read ``text`` and answer with a reading, or with a failure and no reading. Reading has no side effect: calling it again is safe."""
        ...

    async def aclose(self) -> None:
        """Let go of connections. Safe to call twice."""
        ...


class NotAllowed:
    """Stands for a model that the settings do not allow to read messages: it is given none, and a person reads the request instead."""

    def __init__(self, name: str, reader: Reader) -> None:
        self._identity = Identity(source=Source.MODEL, classifier="model", model=name, version="unreported", prompt_hash="", reader=reader)

    async def classify(self, text: str, context: ReadingContext = NO_CONTEXT) -> Classification:
        """The same answer to every text, which is not looked at."""
        return self._identity.failed(Failure.NOT_ALLOWED)

    async def aclose(self) -> None:
        """Nothing to let go of."""


def unreadable(text: str) -> Failure | None:
    """Why no reader is even tried on this text, or ``None``."""
    if not text.strip():
        return Failure.NO_TEXT
    return Failure.TEXT_TOO_LONG if len(text) > MAX_TEXT_CHARS else None


def sha256(text: str) -> str:
    """The hexadecimal SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def make_classifier(settings: Settings) -> Classifier:
    """The reader that the settings name. Never fails: a model that cannot be used (not allowed, no key, unknown name) answers every text with a failure.

    Says in the log what the reader may be given and what is denied to it.
    """
    by_model = settings.classifier is ClassifierKind.MODEL
    name = settings.model or ""
    reader, allowances = named(name, settings.model_region) if by_model else IN_PROCESS, settings.allowances
    kept_back = [kind.value for kind in denied(reader, allowances)]
    _log.info(
        "reader", reader=str(reader), may_read=sorted(may_read(reader, allowances)), denied=kept_back, is_sent=[DataKind.MESSAGE.value]
    )
    if not by_model:
        from activities.classifiers.rules import RuleClassifier

        return RuleClassifier()
    if DataKind.MESSAGE.value in kept_back:
        _log.warning("reader_denied", reader=str(reader), denied=DataKind.MESSAGE.value, effect=_EFFECT, remedy=_REMEDY)
        return NotAllowed(name, reader)
    # Imported here, because the model library takes a second and tens of megabytes that an installation without a model need not pay.
    from activities.classifiers.model import ModelClassifier

    return ModelClassifier(settings)
