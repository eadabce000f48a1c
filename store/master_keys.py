"""Master keys: what protects our own keys, kept outside the database. A setting, a file of several, or a key management service; one small interface.

A master key only ever wraps the few rows of ``sealing_keys``. So a service is asked when a process starts and when keys are renewed, and never for a refund.
"""

import base64
import binascii
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import httpx

from refunds.settings import Settings
from store.sealing import KEY_BYTES, Unreadable, keyed, seal, unseal

_TIMEOUT_S = 10


class KeysMissing(RuntimeError):
    """This process holds no master key, or what it was given is none. The text names the setting and the remedy."""


class MasterKeys(Protocol):
    """Wraps and unwraps 32 bytes. Both may take a network call and block; both raise :class:`store.sealing.Unreadable`."""

    @property
    def current(self) -> str:
        """The name of the key that wraps what is new. Names say nothing about a key."""
        ...

    def wrap(self, plain: bytes, bound_to: str) -> bytes:
        """Wrap with the current key."""
        ...

    def unwrap(self, name: str, wrapped: bytes, bound_to: str) -> bytes:
        """Unwrap with the key of that name."""
        ...


class LocalKeys:
    """Master keys that this process holds itself. The last one is current; the others still open what they wrapped."""

    def __init__(self, *keys: bytes) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise KeysMissing(f"a master key has {KEY_BYTES} bytes")
        self._keys = {name_of(key): key for key in keys}
        self.current = name_of(keys[-1])
        self.held = keys

    def wrap(self, plain: bytes, bound_to: str) -> bytes:
        """Wrap with the current key."""
        return seal(self._keys[self.current], plain, bound_to)

    def unwrap(self, name: str, wrapped: bytes, bound_to: str) -> bytes:
        """Unwrap with the key of that name. Raises :class:`Unreadable`, also when it is not held here."""
        if (key := self._keys.get(name)) is None:
            held = ", ".join(self._keys)
            raise Unreadable(
                f"{bound_to} was wrapped with master key {name}, and this process holds {held}: set REFUNDS_TEXT_KEY to that key,"
                " or name a file with both in REFUNDS_TEXT_KEYS_FILE"
            )
        return unseal(key, wrapped, bound_to)


class TransitKeys:
    """A key in a key management service that never leaves it: HTTP ``POST <url>/encrypt/<key>`` and ``<url>/decrypt/<key>``, as HashiCorp Vault's transit
    engine takes them (``plaintext``, ``ciphertext`` and ``associated_data`` in base64, ``X-Vault-Token``).

    Its own key versions are its own affair: a ciphertext says which version made it.
    """

    def __init__(self, url: str, key: str, token: str) -> None:
        self._url, self._key, self._token = url.rstrip("/"), key, token
        self.current = f"kms:{key}"

    def wrap(self, plain: bytes, bound_to: str) -> bytes:
        """Have it encrypted. Raises :class:`Unreadable` when the service does not do it."""
        return self._ask("encrypt", "ciphertext", {"plaintext": _text(plain), "associated_data": _text(bound_to.encode())}).encode()

    def unwrap(self, name: str, wrapped: bytes, bound_to: str) -> bytes:
        """Have it decrypted. Raises :class:`Unreadable` when the service does not do it, and for a key that is not this one."""
        if name != self.current:
            raise Unreadable(f"{bound_to} was wrapped with master key {name}, and this process uses {self.current}")
        answer = self._ask("decrypt", "plaintext", {"ciphertext": wrapped.decode(), "associated_data": _text(bound_to.encode())})
        try:
            return base64.b64decode(answer, validate=True)
        except binascii.Error:
            raise Unreadable(f"the key management service answered no base64 for {bound_to}") from None

    def _ask(self, call: str, wanted: str, body: dict[str, str]) -> str:
        # What was sent and what came back stays out of every error: both may be keys.
        try:
            answer = httpx.post(
                f"{self._url}/{call}/{self._key}", json=body, headers={"X-Vault-Token": self._token}, timeout=_TIMEOUT_S, trust_env=False
            )
        except httpx.HTTPError as error:
            raise Unreadable(
                f"the key management service cannot be reached for {call} ({type(error).__name__}); see REFUNDS_TEXT_KMS_URL"
            ) from None
        if answer.status_code != httpx.codes.OK:
            raise Unreadable(f"the key management service answered {answer.status_code} to {call} with key {self._key}")
        try:
            found = answer.json()["data"][wanted]
        except (ValueError, KeyError, TypeError):
            found = None
        if not isinstance(found, str):
            raise Unreadable(f"the key management service answered {call} without data.{wanted}")
        return found


class Several:
    """The first is current; the others only open what they wrapped: for moving from one kind of master key to another."""

    def __init__(self, first: MasterKeys, *others: MasterKeys) -> None:
        self._first, self._others = first, others
        self.current = first.current

    def wrap(self, plain: bytes, bound_to: str) -> bytes:
        """Wrap with the first."""
        return self._first.wrap(plain, bound_to)

    def unwrap(self, name: str, wrapped: bytes, bound_to: str) -> bytes:
        """Unwrap with whichever is of that kind. Raises :class:`Unreadable`."""
        of_kind = [one for one in (self._first, *self._others) if one.current.partition(":")[0] == name.partition(":")[0]]
        return (of_kind[0] if of_kind else self._first).unwrap(name, wrapped, bound_to)


def of(settings: Settings) -> MasterKeys | None:
    """The master keys of this process: a service if one is named, else a file, else the setting; ``None`` for a process that holds none.

    Raises :class:`KeysMissing` when a file or service is named and cannot be used.
    """
    local = _local(settings)
    if settings.refunds_text_kms_url is None:
        return local
    if settings.refunds_text_kms_token is None:
        raise KeysMissing("REFUNDS_TEXT_KMS_URL is set but REFUNDS_TEXT_KMS_TOKEN is not: give the token that may encrypt and decrypt")
    service = TransitKeys(settings.refunds_text_kms_url, settings.refunds_text_kms_key, settings.refunds_text_kms_token.get_secret_value())
    return Several(service, local) if local else service


def local_keys(settings: Settings) -> LocalKeys | None:
    """Only the keys that this process holds itself."""
    return _local(settings)


def name_of(key: bytes) -> str:
    """What a local key is called: the same in every process that holds it, however it got there."""
    return f"local:{keyed(key, 'name of a master key')[:8].hex()}"


def _local(settings: Settings) -> LocalKeys | None:
    held = [] if settings.refunds_text_key is None else [settings.text_key]
    if settings.refunds_text_keys_file is not None:
        read = _read(Path(settings.refunds_text_keys_file))
        held = [key for key in held if key not in read] + read
    return LocalKeys(*held) if held else None


def _read(file: Path) -> list[bytes]:
    """The keys of a file ``{"1": "<base64>", "2": ...}`` by their numbers: the highest is current. One that everybody on the machine can read is none."""
    try:
        open_to_others = file.stat().st_mode & stat.S_IRWXO
        content = json.loads(file.read_text())
    except OSError as error:
        raise KeysMissing(f"REFUNDS_TEXT_KEYS_FILE cannot be read: {error.strerror}") from None
    except ValueError:
        raise KeysMissing("REFUNDS_TEXT_KEYS_FILE is not JSON") from None
    if open_to_others:
        raise KeysMissing(
            "REFUNDS_TEXT_KEYS_FILE is open to every user of this machine: take their rights away (chmod o-rwx; in Kubernetes defaultMode: 0440),"
            " and change the keys if others may have read them"
        )
    if not isinstance(content, Mapping) or not content:
        raise KeysMissing('REFUNDS_TEXT_KEYS_FILE must be an object of numbered keys, such as {"1": "<32 bytes in base64>"}')
    found: dict[int, bytes] = {}
    for number, value in content.items():
        before = len(found)
        try:
            found[int(number)] = base64.b64decode(value, validate=True)
        except (ValueError, TypeError):
            raise KeysMissing(f"REFUNDS_TEXT_KEYS_FILE: the entry {str(number)[:20]!r} is no numbered key of 32 bytes in base64") from None
        if len(found) == before:
            raise KeysMissing(f"REFUNDS_TEXT_KEYS_FILE names key {int(number)} twice")
        if len(found[int(number)]) != KEY_BYTES:
            raise KeysMissing(
                f"REFUNDS_TEXT_KEYS_FILE: key {int(number)} must be 32 bytes in base64; make one with: openssl rand -base64 32"
            )
    return [found[number] for number in sorted(found)]


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
