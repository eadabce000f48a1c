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
from refunds.settings import ClassifierKind, Settings

MAX_TEXT_CHARS = 32_000
"""The longest text a reader takes, in characters. A longer one is not cut, because what is cut off might say the opposite: a person reads it."""


class Failure(StrEnum):
    """Why there is no reading. Complete: nothing else is ever put in ``Classification.failure``."""

    NO_TEXT = "no_text"
    TEXT_TOO_LONG = "text_too_long"
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

    def answer(self, reading: Reading, *, input_tokens: int = 0, output_tokens: int = 0, duration_ms: int = 0) -> Classification:
        """A reading with this provenance."""
        return self._classification(reading, None, input_tokens, output_tokens, duration_ms)

    def failed(self, failure: Failure, *, input_tokens: int = 0, output_tokens: int = 0, duration_ms: int = 0) -> Classification:
        """No reading, and the fixed word that says why."""
        return self._classification(None, failure.value, input_tokens, output_tokens, duration_ms)

    def _classification(
        self, reading: Reading | None, failure: str | None, input_tokens: int, output_tokens: int, duration_ms: int
    ) -> Classification:
        return Classification(
            reading=reading,
            failure=failure,
            source=self.source,
            classifier=self.classifier,
            model=self.model,
            version=self.version,
            prompt_hash=self.prompt_hash,
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


def unreadable(text: str) -> Failure | None:
    """Why no reader is even tried on this text, or ``None``."""
    if not text.strip():
        return Failure.NO_TEXT
    return Failure.TEXT_TOO_LONG if len(text) > MAX_TEXT_CHARS else None


def sha256(text: str) -> str:
    """The hexadecimal SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def make_classifier(settings: Settings) -> Classifier:
    """The reader that the settings name. Never fails: a model that cannot be used (no key, unknown name) answers every text with a failure."""
    # Imported here, because the model library takes a second and tens of megabytes that an installation without a model need not pay.
    if settings.classifier is ClassifierKind.MODEL:
        from activities.classifiers.model import ModelClassifier

        return ModelClassifier(settings)
    from activities.classifiers.rules import RuleClassifier

    return RuleClassifier()
