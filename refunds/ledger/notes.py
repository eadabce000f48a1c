"""Checkpoints of the ledger: C2SP signed notes (c2sp.org/signed-note) whose text is a c2sp.org/tlog-checkpoint, signed with Ed25519.

A key is named after the log it signs for, so that keys of one log differ by their id only. While a key is being replaced both sign: whoever still knows the
old one alone and whoever knows only the new one can verify. Further kinds of signatures may stand beside ours; verifiers pass over what they do not know.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from refunds.ledger.origin import check_name

ED25519 = 0x01
"""The signature type of Ed25519 signatures over the note's text."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key of the log ``name``; ``vkey`` is what verifiers are given."""

    name: str
    key_id: bytes
    vkey: str
    private: Ed25519PrivateKey

    @classmethod
    def from_seed(cls, name: str, seed: bytes) -> "SigningKey":
        """The key of a 32-byte seed. Raises ``ValueError`` for a name or a seed that cannot be one."""
        check_name(name)
        private = Ed25519PrivateKey.from_private_bytes(seed)
        public = bytes([ED25519]) + private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        key_id = hashlib.sha256(name.encode() + b"\n" + public).digest()[:4]
        return cls(name, key_id, f"{name}+{key_id.hex()}+{base64.b64encode(public).decode()}", private)

    def line(self, text: str) -> str:
        """The signature line of a note with this text."""
        return f"\u2014 {self.name} {base64.b64encode(self.key_id + self.private.sign(text.encode())).decode()}\n"


def checkpoint_text(origin: str, size: int, root: bytes) -> str:
    """The text that is signed: which log, how many entries, and the root of the tree over them."""
    return f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"


def signed(text: str, keys: Sequence[SigningKey]) -> str:
    """The signed note. Raises ``ValueError`` without a key or for a text that does not end its last line."""
    if not keys or not text.endswith("\n"):
        raise ValueError("a note is lines of text and at least one signature")
    return text + "\n" + "".join(key.line(text) for key in keys)
