"""How one sandbox is set up."""

from dataclasses import dataclass
from pathlib import Path

from deploy.sandbox.idempotency import KEEP_SECONDS


@dataclass(frozen=True, slots=True)
class Options:
    """`key_seconds` is the age at which idempotency keys are forgotten, `account` who the keys belong to, `webhook_lanes` how many deliveries are under way."""

    data: Path
    webhook_url: str | None = None
    webhook_secret: str = ""
    key_seconds: int = KEEP_SECONDS
    account: str | None = None
    webhook_lanes: int = 1
