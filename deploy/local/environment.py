"""Which settings each program of the stack gets: what it needs, and of the secrets only its own.

Nothing is inherited as a whole. A setting reaches a program because it is in the person's environment (or in the
stack's overrides) and listed for the program here.
"""

import base64
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_args

from pydantic import SecretStr

from deploy.local.processes import write_text
from refunds.settings import Settings

RUNTIME = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
# Temporal's own configuration (address, namespace, TLS, API key) is read by every program that is its client.
TEMPORAL_PREFIX = "TEMPORAL_"

# A migration seals what was stored in the clear before it; the other programs of the owner need no master key.
MASTER_KEYS = ("REFUNDS_TEXT_KEY", "REFUNDS_TEXT_KMS_TOKEN")
API_SECRETS = ("DATABASE_URL", "REFUNDS_TEXT_KEY", "REFUNDS_TEXT_KMS_TOKEN", "STRIPE_WEBHOOK_SECRETS", "ERASURE_LIST")
WORKER_SECRETS = (
    "DATABASE_URL",
    "DATABASE_URL_REFUNDS",
    "DATABASE_URL_CLASSIFY",
    "DATABASE_URL_PAYMENTS",
    "DATABASE_URL_LEDGER",
    "STRIPE_API_KEY",
    "MODEL_API_KEY",
    "REFUNDS_TEXT_KEY",
    "REFUNDS_TEXT_KMS_TOKEN",
    "REFUNDS_LEDGER_KEY",
)


def _is_secret(annotation: object) -> bool:
    return annotation is SecretStr or any(_is_secret(part) for part in get_args(annotation))


PLAIN_SETTINGS = tuple(name.upper() for name, field in Settings.model_fields.items() if not _is_secret(field.annotation))


def runtime(source: Mapping[str, str]) -> dict[str, str]:
    """What a program needs to run at all; no settings, no secrets."""
    return {"PYTHONUNBUFFERED": "1", **_pick(source, RUNTIME)}


def program(source: Mapping[str, str], secret_names: Iterable[str]) -> dict[str, str]:
    """The environment of a program of ours: every plain setting, Temporal's configuration, and the named secrets."""
    temporal = {name: value for name, value in source.items() if name.startswith(TEMPORAL_PREFIX)}
    return {**runtime(source), **_pick(source, (*PROXIES, *PLAIN_SETTINGS, *secret_names)), **temporal}


def text_key(home: Path) -> str:
    """The key that customer text is encrypted under: made once, kept readable for its owner only. Losing it loses the text."""
    file = home / "text-key"
    if not file.exists():
        write_text(file, base64.b64encode(secrets.token_bytes(32)).decode())
    return file.read_text().strip()


def ledger_key(home: Path) -> str:
    """The key that checkpoints of the ledger are signed with: made once, kept readable for its owner only. Who has it can sign another history."""
    file = home / "ledger-key"
    if not file.exists():
        write_text(file, base64.b64encode(secrets.token_bytes(32)).decode())
    return file.read_text().strip()


def checkpoints(home: Path) -> Path:
    """Where copies of the ledger's checkpoints go. On the same machine they show how it is done, and prove less than a copy elsewhere would."""
    directory = home / "checkpoints"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def webhook_secret(home: Path) -> str:
    """What the sandbox signs its events with and the API verifies them by: made once for this stack, readable for its owner only."""
    file = home / "webhook-secret"
    if not file.exists():
        write_text(file, f"whsec_{secrets.token_urlsafe(32)}")
    return file.read_text().strip()


def _pick(source: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: source[name] for name in names if name in source}
