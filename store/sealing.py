"""Sealing: AES-256-GCM with a random nonce, bound to the place a value stands in, and commitments that show later what a value was.

A sealed value holds its salt, so the salt dies with the key: what is left of it in the ledger is then a number that nobody can try words against.
"""

import hashlib
import hmac
import os
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
SALT_BYTES = 32
_NONCE = 12


class Unreadable(RuntimeError):
    """Something sealed cannot be opened with the keys of this process, or it was tampered with. The text names the place and no value."""


class Opening(NamedTuple):
    """A value and the salt its commitment was made with: who has both can check the commitment in the ledger."""

    value: str
    salt: bytes

    @property
    def commitment(self) -> str:
        """What the ledger says of this value."""
        return commitment(self.salt, self.value)


class SealedValue(NamedTuple):
    """A value as it is stored, and its commitment."""

    sealed: bytes
    commitment: str


def new_key() -> bytes:
    """A key that nobody can guess."""
    return os.urandom(KEY_BYTES)


def seal(key: bytes, plain: bytes, bound_to: str) -> bytes:
    """Encrypt. What is sealed for one place (``bound_to``) opens in no other, so that rows cannot be swapped."""
    nonce = os.urandom(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, plain, bound_to.encode())


def unseal(key: bytes, sealed: bytes, bound_to: str) -> bytes:
    """Decrypt. Raises :class:`Unreadable`."""
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], bound_to.encode())
    except (InvalidTag, ValueError) as error:
        raise Unreadable(f"{bound_to} cannot be decrypted: the key is another (see REFUNDS_TEXT_KEY), or the row was changed") from error


def seal_value(key: bytes, value: str, bound_to: str) -> SealedValue:
    """Seal a value together with a new salt."""
    salt = os.urandom(SALT_BYTES)
    return SealedValue(seal(key, salt + value.encode(), bound_to), commitment(salt, value))


def open_value(key: bytes, sealed: bytes, bound_to: str) -> Opening:
    """Open what :func:`seal_value` sealed. Raises :class:`Unreadable`."""
    plain = unseal(key, sealed, bound_to)
    return Opening(plain[SALT_BYTES:].decode(), plain[:SALT_BYTES])


def commitment(salt: bytes, value: str) -> str:
    """Hex SHA-256 over the salt and the value's UTF-8 bytes."""
    return hashlib.sha256(salt + value.encode()).hexdigest()


def derived(key: bytes, purpose: str) -> bytes:
    """A key for one purpose only (HKDF-SHA256, RFC 5869)."""
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=f"durable-refunds/{purpose}".encode()).derive(key)


def keyed(key: bytes, value: str) -> bytes:
    """HMAC-SHA256: the same for the same value, and no guess can be tried without the key."""
    return hmac.digest(key, value.encode(), "sha256")
