"""What operators write about discrepancies. It may name anybody, and a discrepancy need not be any customer's: masked, and sealed under a key of the process.

Forgetting a customer takes out the remarks on their payments, because no key of theirs dies with them.
"""

import base64
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.masking import mask
from store.sealing import open_value, seal_value
from store.vault import Keys, keys_of

_SEALED = "sealed:"


class Remark(NamedTuple):
    """A remark as it is kept, its commitment, and what was masked in it."""

    kept: str
    commitment: str
    masked: dict[str, int]


def seal_remark(connection: AsyncConnection, discrepancy: str, words: str) -> Remark:
    """Mask and seal what somebody wrote. What the orchestrator adds to it later stands in lines of its own, in the clear."""
    return sealed_remark(keys_of(connection), discrepancy, words)


def sealed_remark(keys: Keys, discrepancy: str, words: str) -> Remark:
    """The same with keys at hand."""
    found = mask(words)
    sealed = seal_value(keys.staging(), found.text, _place(discrepancy))
    return Remark(_SEALED + base64.b64encode(sealed.sealed).decode(), sealed.commitment, found.counts)


def open_remark(connection: AsyncConnection, discrepancy: str, kept: str | None) -> str | None:
    """A remark as it was written, with the lines of the orchestrator. Raises :class:`store.sealing.Unreadable`."""
    return None if kept is None else "\n".join(_line(connection, discrepancy, line) for line in kept.split("\n"))


def _line(connection: AsyncConnection, discrepancy: str, line: str) -> str:
    if not line.startswith(_SEALED):
        return line
    return open_value(keys_of(connection).staging(), base64.b64decode(line.removeprefix(_SEALED)), _place(discrepancy)).value


def _place(discrepancy: str) -> str:
    return f"discrepancies/{discrepancy}/note"
