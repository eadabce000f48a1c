"""Where the API is and with which key it is called: from the environment, or from the local stack's own files.

There is deliberately no option for the key: an argument would show in the process list and stay in the shell's history.
"""

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from cli.problems import Misused, Unreachable

START = "start the local stack with: refunds up"


def home() -> Path:
    """Where the local stack keeps its files: REFUNDS_HOME, or ``.local`` here (as in ``deploy.local.stack``, which is slow to import)."""
    return Path(os.environ.get("REFUNDS_HOME") or ".local").absolute()


@dataclass(frozen=True, slots=True)
class Connection:
    """The API's address without a slash at its end, and the key."""

    url: str
    key: str


def connection() -> Connection:
    """Find both. Raises :class:`Unreachable` without an address and :class:`Misused` without a key, each saying what to set."""
    local = addresses(home()).get("api", "").rstrip("/")
    url = _given_address() or local
    if not url:
        raise Unreachable(f"No local stack runs in {home()}; {START}. {_demo()}Or set REFUNDS_API_URL to the address of another API.")
    return Connection(url, os.environ.get("REFUNDS_API_KEY", "").strip() or _local_key(url, local))


def _demo() -> str:
    """A demo has a home of its own, in which nobody would think to look."""
    demo = home() / "demo"
    return f"A demo runs in {demo}; to use it: export REFUNDS_HOME={shlex.quote(str(demo))}. " if addresses(demo) else ""


def exports(**values: str) -> str:
    """A line for the shell after which ``refunds`` is found in another terminal, and the settings given are set."""
    found = f"{shlex.quote(str(Path(sys.executable).parent))}:$PATH"
    return " ".join(["export", f"PATH={found}", *(f"{name}={shlex.quote(value)}" for name, value in values.items())])


def _given_address() -> str:
    given = os.environ.get("REFUNDS_API_URL", "").strip().rstrip("/")
    if given and not given.startswith(("http://", "https://")):
        raise Misused("REFUNDS_API_URL must start with http:// or https://.")
    return given


def _local_key(url: str, local: str) -> str:
    """The first administrator's key: for the stack it belongs to, and never sent anywhere else."""
    if url != local:
        raise Misused(f"No key for {url}: set REFUNDS_API_KEY. The local stack's own key is used for the local stack only.")
    try:
        return (home() / "admin-key").read_text().strip()
    except FileNotFoundError:
        raise Misused(f"No key: set REFUNDS_API_KEY (the first administrator's is not in {home()}/admin-key any more).") from None


def addresses(where: Path) -> dict[str, str]:
    """The addresses of the stack that runs there, by part; empty when none does."""
    try:
        state = json.loads((where / "stack.json").read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    found = state.get("addresses") if isinstance(state, dict) else None
    return {str(name): str(address) for name, address in found.items()} if isinstance(found, dict) else {}
