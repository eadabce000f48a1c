"""All settings, in one typed class, read from the environment. ``refunds config`` prints them with secrets masked.

Temporal's address, namespace and TLS are not here: they come from Temporal's own standard environment configuration (``TEMPORAL_ADDRESS`` and the rest,
or its TOML file), read strictly.
"""

import base64
import binascii
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from refunds import points
from refunds.ledger.origin import check_name, is_address
from refunds.readers import Allowance, parse_allowances
from refunds.token_prices import TokenPrice, parse_price


class Mode(StrEnum):
    """Which of the processor's worlds this installation belongs to."""

    TEST = "test"
    LIVE = "live"


class ClassifierKind(StrEnum):
    """Which reader is used for free text."""

    RULES = "rules"
    MODEL = "model"


class SettingsError(RuntimeError):
    """The environment does not make valid settings."""


Seconds = Annotated[float, Field(gt=0, le=86_400 * 400)]


class Settings(BaseSettings):
    """Every setting with its default. Each process is given only the secrets its role needs; an absent secret is ``None``."""

    model_config = SettingsConfigDict(extra="ignore", env_prefix="", case_sensitive=False, frozen=True)

    # PostgreSQL: each process has its own login. A role that is absent here is not hosted by the process.
    database_url: SecretStr = SecretStr("postgresql://refunds_api@127.0.0.1:54329/refunds")
    database_url_refunds: SecretStr | None = None
    database_url_classify: SecretStr | None = None
    database_url_payments: SecretStr | None = None
    database_url_ledger: SecretStr | None = None
    database_pool_size: int = Field(default=10, ge=1, le=200)
    database_lock_timeout_ms: int = Field(default=500, ge=50, le=5_000)
    database_statement_timeout_ms: int = Field(default=10_000, ge=100, le=600_000)

    # Stripe (or the sandbox): only the payments role holds the key.
    refunds_mode: Mode = Mode.TEST
    stripe_api_key: SecretStr | None = None
    stripe_api_base: str | None = None
    stripe_api_version: str = "2026-08-26.dahlia"
    stripe_connect_timeout_s: Seconds = 3
    stripe_read_timeout_s: Seconds = 20

    # Events of Stripe, received by the API: the secrets of its endpoints, comma separated, so that old and new ones overlap while they are rotated.
    stripe_webhook_secrets: SecretStr | None = None
    webhook_tolerance_s: int = Field(default=300, ge=1, le=86_400)
    # How they are worked off, by the payments role: waits double from the first to the longest; an event of no payment of ours is given up after so many.
    webhook_every_s: Seconds = 1
    webhook_retry_initial_s: Seconds = 2
    webhook_retry_max_s: Seconds = 6 * 3600
    webhook_unmatched_after: int = Field(default=20, ge=1, le=1_000)
    webhook_unmatched_notice_s: Seconds = 86_400

    # Submitting.
    submit_send_within_s: Seconds = 2
    submit_safe_window_s: Annotated[float, Field(gt=0, lt=86_400)] = 23 * 3600
    submit_max_attempts: int = Field(default=8, ge=1, le=100)
    submit_retry_initial_s: Seconds = 1
    submit_retry_max_s: Seconds = 300
    payment_snapshot_max_age_s: Seconds = 30
    pending_poll_initial_s: Seconds = 30
    pending_poll_max_s: Seconds = 12 * 3600
    pending_give_up_s: Seconds = 45 * 86_400
    held_recheck_s: Seconds = 60
    held_release_per_s: Annotated[float, Field(gt=0, le=1_000)] = 5
    parked_escalate_s: Seconds = 86_400

    # What is personal is encrypted under keys that the master key protects: 32 bytes in base64, or a file of several by number, or a key of a key management
    # service (HTTP, as HashiCorp Vault's transit engine). Held by the API and the classify role, and by the payments role where orders are pulled.
    refunds_text_key: SecretStr | None = None
    refunds_text_keys_file: str | None = None
    refunds_text_kms_url: str | None = None
    refunds_text_kms_key: str = "refunds"
    refunds_text_kms_token: SecretStr | None = None

    # The chained ledger, kept by the ledger role alone: its signing keys (Ed25519 seeds of 32 bytes, base64; several, separated by commas, while one is being
    # replaced), the name of the log, and where copies of its checkpoints go: files, directories (ending in a slash) and webhooks, separated by commas.
    refunds_ledger_key: SecretStr | None = None
    ledger_origin: str = "refunds.local/ledger"
    ledger_copies: str = ""
    ledger_every_s: Seconds = 0.5
    ledger_everywhere_s: Seconds = 120
    ledger_checkpoint_every_s: Seconds = 300
    ledger_copy_timeout_s: Seconds = 10
    # How far behind the chain may be before people are told.
    ledger_behind_s: Seconds = 60
    ledger_behind_rows: int = Field(default=10_000, ge=1)

    # The reader of free text.
    classifier: ClassifierKind = ClassifierKind.RULES
    model: str | None = None
    model_api_key: SecretStr | None = None
    model_base_url: str | None = None
    model_timeout_s: Seconds = 20
    model_max_output_bytes: int = Field(default=65_536, ge=1_024, le=10_000_000)
    # What a million input and a million output tokens cost (0.25/2.00 USD), so that each reading records its cost; without it none is recorded.
    model_price: str | None = None
    # Which models may be given which kinds of data, as provider:model@region=kind,kind;... What is not named is denied. And where MODEL is served from.
    readers_allowed: str = ""
    model_region: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9._-]{0,59}$")

    # Where each erasure is written down outside the database, before it is done: a file (ends with .jsonl), a directory, or a webhook (https://...).
    erasure_list: SecretStr | None = None

    # How long what is personal is kept after a refund is over, in days; 0 keeps it until the customer is forgotten (refunds/retention.py says why so long).
    retention_messages_days: int = Field(default=540, ge=0, le=36_500)
    retention_conversations_days: int = Field(default=180, ge=0, le=36_500)
    retention_readings_days: int = Field(default=180, ge=0, le=36_500)
    retention_notes_days: int = Field(default=1_095, ge=0, le=36_500)
    retention_events_days: int = Field(default=90, ge=0, le=36_500)
    retention_pulls_days: int = Field(default=90, ge=0, le=36_500)
    retention_fingerprints_days: int = Field(default=400, ge=0, le=36_500)
    retention_erasure_marks_days: int = Field(default=30, ge=0, le=36_500)
    retention_every_s: Seconds = 86_400

    # HTTP.
    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8080, ge=0, le=65_535)
    api_max_body_bytes: int = Field(default=1_048_576, ge=1_024)
    api_rate_per_minute: int = Field(default=6_000, ge=1)
    api_quote_wait_s: Seconds = 1
    api_decision_wait_s: Seconds = 5
    temporal_ui_url: str = "http://127.0.0.1:8233"

    # Sweeps.
    sweep_every_s: Seconds = 5
    breakers_every_s: Seconds = 10
    sweep_grace_s: Seconds = 5

    # Reconciliation with the processor: what a run that begins every so often reaches back over. The deep one is how a failure within 45 days of success is seen.
    reconcile_every_s: Seconds = 3600
    reconcile_window_s: Seconds = 2 * 86_400
    reconcile_deep_every_s: Seconds = 86_400
    reconcile_deep_window_s: Seconds = 46 * 86_400
    reconcile_grace_s: Seconds = 60
    witness_every_s: Seconds = 30

    # The merchant's orders as a pull reads them: the names under which the metadata of Stripe's PaymentIntents keeps them.
    orders_pull_order_field: str = Field(default="order_id", min_length=1, max_length=40)
    orders_pull_customer_field: str = Field(default="customer_id", min_length=1, max_length=40)

    # Tests and demonstrations only; live mode refuses it.
    clock_shift_s: float = 0
    crash_points: str = ""
    log_level: str = "INFO"
    log_format: str = Field(default="json", pattern="^(json|console)$")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        key = self.stripe_api_key.get_secret_value() if self.stripe_api_key else ""
        live_key, test_key = key.startswith(("sk_live_", "rk_live_")), key.startswith(("sk_test_", "rk_test_"))
        if self.refunds_mode is Mode.LIVE and test_key:
            raise ValueError("STRIPE_API_KEY is a test key but REFUNDS_MODE is live; use a live key or set REFUNDS_MODE=test")
        if self.refunds_mode is Mode.TEST and live_key:
            raise ValueError("STRIPE_API_KEY is a live key but REFUNDS_MODE is test; use a test key or set REFUNDS_MODE=live")
        if key and not (live_key or test_key):
            raise ValueError("STRIPE_API_KEY must start with sk_test_, rk_test_, sk_live_ or rk_live_")
        if self.refunds_mode is Mode.LIVE and self.clock_shift_s:
            raise ValueError("CLOCK_SHIFT_S must be 0 in live mode: deadlines and limits hang on the clock")
        if self.refunds_mode is Mode.LIVE and self.crash_points:
            raise ValueError("CRASH_POINTS must be empty in live mode: it makes processes die on purpose")
        points.check(self.crash_points)
        if self.refunds_mode is Mode.LIVE and self.stripe_api_base:
            raise ValueError("STRIPE_API_BASE must not be set in live mode: live keys go to Stripe only")
        if self.classifier is ClassifierKind.MODEL and not self.model:
            raise ValueError("CLASSIFIER is model but MODEL is not set; name one, such as openai:gpt-5-mini")
        try:
            parse_allowances(self.readers_allowed)
        except ValueError as error:
            raise ValueError(f"READERS_ALLOWED: {error}") from error
        try:
            _ = self.price_of_model
        except ValueError as error:
            raise ValueError(f"MODEL_PRICE: {error}") from error
        if any(not secret.startswith("whsec_") for secret in self.webhook_secrets):
            raise ValueError("STRIPE_WEBHOOK_SECRETS must be secrets of endpoints, each beginning with whsec_, separated by commas")
        if self.refunds_text_key is not None and len(self._decoded_text_key()) != 32:
            raise ValueError("REFUNDS_TEXT_KEY must be 32 bytes in base64; make one with: openssl rand -base64 32")
        self._check_ledger()
        if self.refunds_text_kms_url is not None and not self.refunds_text_kms_url.startswith(
            ("https://", "http://127.0.0.1", "http://localhost")
        ):
            raise ValueError("REFUNDS_TEXT_KMS_URL must begin with https://: keys go over it")
        return self

    def _check_ledger(self) -> None:
        try:
            check_name(self.ledger_origin)
        except ValueError as error:
            raise ValueError(f"LEDGER_ORIGIN cannot name a log: {error}") from error
        if self.refunds_ledger_key is not None and (not self.ledger_seeds or any(len(seed) != 32 for seed in self.ledger_seeds)):
            raise ValueError("REFUNDS_LEDGER_KEY must be 32 bytes in base64, or several of those; make one with: openssl rand -base64 32")
        targets = self.ledger_targets
        if len(set(targets)) != len(targets) or any(not (target.startswith("/") or is_address(target)) for target in targets):
            raise ValueError("LEDGER_COPIES must be absolute paths (a directory ends in a slash) and http addresses, each once")
        if any("@" in target.partition("://")[2].partition("/")[0] for target in targets):
            raise ValueError("LEDGER_COPIES must hold no passwords: a checkpoint is no secret, and whoever takes it checks its signature")

    @property
    def ledger_targets(self) -> tuple[str, ...]:
        """Where copies of checkpoints go."""
        return tuple(target.strip() for target in self.ledger_copies.split(",") if target.strip())

    @property
    def ledger_seeds(self) -> tuple[bytes, ...]:
        """The seeds of the ledger's signing keys; none in a process that does not hold them."""
        given = self.refunds_ledger_key.get_secret_value() if self.refunds_ledger_key else ""
        try:
            return tuple(base64.b64decode(seed.strip(), validate=True) for seed in given.split(",") if seed.strip())
        except binascii.Error:
            return ()

    def _decoded_text_key(self) -> bytes:
        assert self.refunds_text_key is not None
        try:
            return base64.b64decode(self.refunds_text_key.get_secret_value(), validate=True)
        except binascii.Error:
            return b""

    @property
    def webhook_secrets(self) -> tuple[str, ...]:
        """The secrets of Stripe's webhook endpoints, any of which may have signed an event."""
        given = self.stripe_webhook_secrets.get_secret_value() if self.stripe_webhook_secrets else ""
        return tuple(secret.strip() for secret in given.split(",") if secret.strip())

    @property
    def allowances(self) -> tuple[Allowance, ...]:
        """Which models may be given which kinds of data."""
        return parse_allowances(self.readers_allowed)

    @property
    def price_of_model(self) -> TokenPrice | None:
        """What the model's tokens cost, if anybody stated it."""
        return parse_price(self.model_price) if self.model_price else None

    @property
    def text_key(self) -> bytes:
        """The master key that is given as a setting. Raises ``RuntimeError`` in a process that does not hold it."""
        if self.refunds_text_key is None:
            raise RuntimeError("REFUNDS_TEXT_KEY is not set in this process; only the API and the classify role hold it")
        return self._decoded_text_key()

    @classmethod
    def load(cls) -> Self:
        """Read the environment. Raises :class:`SettingsError`, whose text names each setting and the remedy and shows no value: a value may be a secret."""
        try:
            return cls()
        except ValidationError as error:
            wrong = [
                f"{'.'.join(str(part) for part in problem['loc']).upper() or 'settings'}: {problem['msg'].removeprefix('Value error, ')}"
                for problem in error.errors(include_url=False, include_input=False, include_context=False)
            ]
        raise SettingsError("; ".join(wrong))

    def masked(self) -> dict[str, str]:
        """Every setting as text, secrets masked: what ``refunds config`` prints."""
        return {name: "********" if isinstance(value, SecretStr) else str(value) for name, value in self}
