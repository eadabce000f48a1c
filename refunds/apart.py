"""What of a request's details is personal, taken apart from what refunds are worked out from.

``metadata`` is whatever the caller likes, and a session belongs to one person's conversation: both are sealed, and of the session a keyed fingerprint is left, by
which limits tell sessions apart. How the customer was made sure of and which model an agent says it is are words of the merchant's vocabulary: they stay in the
clear as long as they are plain words, and are sealed when they could be anything else.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from refunds.alike import ALIKE

DETAILS = "details"
"""The kind under which the personal part is kept among the sealed texts."""

_METHOD = re.compile(r"[a-z0-9_.-]{1,40}")
_MODEL = re.compile(r"[A-Za-z0-9_.:/@+-]{1,100}")

Details = Mapping[str, Any]


def apart(details: Details, fingerprint: Callable[[str, str], str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The part of a request's details that stays in the clear, and the personal part, which may be empty.

    ``fingerprint`` is of a kind and a value: the same for the same, and nothing that can be tried without the key.
    """
    clear, personal = dict(details), dict[str, Any]()
    if metadata := clear.pop("metadata", None):
        personal["metadata"] = metadata
    if session := clear.get("agent_session_id"):
        personal["agent_session_id"] = session
        clear["agent_session_id"] = fingerprint("agent session", session)
    if (model := clear.get("agent_model")) and not _MODEL.fullmatch(model):
        personal["agent_model"] = model
        clear["agent_model"] = fingerprint("agent model", model)
    if (sure := clear.get("customer_authentication")) and not _METHOD.fullmatch(sure["method"]):
        personal["method"] = sure["method"]
        clear["customer_authentication"] = {name: value for name, value in sure.items() if name != "method"}
    return clear, personal


def together(clear: Details, personal: Details) -> dict[str, Any]:
    """A request's details as they were sent; without its personal part what is left of them, and no fingerprints in place of words."""
    whole = {name: value for name, value in clear.items() if name not in ("agent_session_id", ALIKE)}
    if re.fullmatch("[0-9a-f]{64}", str(clear.get("agent_model") or "")):
        del whole["agent_model"]
    whole |= {name: value for name, value in personal.items() if name != "method"}
    if "method" in personal:
        whole["customer_authentication"] = {"method": personal["method"], **clear["customer_authentication"]}
    return whole
