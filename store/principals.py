"""People, services and agents, and their keys. A key is shown once and stored as a hash."""

import hashlib
import secrets
from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import bindparam, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.approving import Who
from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.people import PERSONS_ONLY, Actor, PrincipalKind, Role
from store.changes import enter
from store.sql import Query, Row
from store.tables import api_keys, principals


def key_hash(key: str) -> bytes:
    """The stored form of a key. Keys hold 256 random bits, so one round of SHA-256 is enough; looking up by it compares nothing secret."""
    return hashlib.sha256(key.encode()).digest()


_HOLDER = Query(
    select(api_keys.c.roles, api_keys.c.integration, api_keys.c.expires_at, principals)
    .join(principals, principals.c.id == api_keys.c.principal_id)
    .where(api_keys.c.hash == bindparam("hash"), api_keys.c.revoked_at.is_(None), principals.c.disabled_at.is_(None))
)


async def authenticate(connection: AsyncConnection, key: str, now: datetime) -> Actor:
    """Return whose key it is. Raises ``UNAUTHENTICATED`` for one that is unknown, expired, revoked, or of a disabled principal."""
    row = await _HOLDER.first(connection, hash=key_hash(key))
    if row is None or (row["expires_at"] is not None and row["expires_at"] <= now):
        raise RefundError(Code.UNAUTHENTICATED)
    return Actor(
        principal_id=row["id"],
        handle=row["handle"],
        name=row["name"],
        kind=PrincipalKind(row["kind"]),
        roles=frozenset(Role(role) for role in row["roles"]),
        integration=row["integration"],
        ceilings=row["approves_up_to"],
        operates_classifier=row["operates_classifier"],
    )


async def create_principal(connection: AsyncConnection, clock: Clock, *, kind: PrincipalKind, handle: str, name: str, actor: str) -> Row:
    """Create a person, service or agent. The handle is unique without regard to case; raises ``INVALID_FIELD`` when it is taken."""
    made = insert(principals).values(id=new_id(Prefix.PRINCIPAL), kind=kind.value, handle=handle, name=name, created_at=clock.now())
    row = (await connection.execute(made.on_conflict_do_nothing().returning(principals))).mappings().one_or_none()
    if row is None:
        raise RefundError(Code.INVALID_FIELD, f"The handle {handle!r} is taken.", field="handle")
    await enter(connection, "principal_created", clock.now(), actor=actor, principal=row["id"], kind=kind.value)
    return row


async def set_approving(
    connection: AsyncConnection,
    clock: Clock,
    *,
    principal_id: str,
    actor: Actor,
    approves_up_to: Mapping[str, int] | None,
    operates_classifier: bool,
    owner_id: str | None,
) -> Row:
    """Say what a person may approve at the most (by currency, in its API unit; ``None``: no ceiling of their own) and whether they operate the reader of free
    text, or for which person an agent acts. All of it is said anew each time; it counts from the next decision on.

    Nobody says it of themselves, nor takes an agent from themselves, whose requests they could approve then: raises ``SELF_APPROVAL`` for that,
    ``NOT_FOUND``, and ``INVALID_FIELD`` for what is not of this kind of principal.
    """
    row = (await connection.execute(select(principals).where(principals.c.id == principal_id).with_for_update())).mappings().one_or_none()
    if row is None:
        raise RefundError(Code.NOT_FOUND, "There is no such person, service or agent.")
    if Who(row["id"], row["handle"], row["name"], PrincipalKind(row["kind"])).is_also(actor):
        raise RefundError(Code.SELF_APPROVAL, "Another operator says what you may approve.")
    if row["owner_id"] is not None and row["owner_id"] != owner_id and await _is_also(connection, row["owner_id"], actor):
        raise RefundError(Code.SELF_APPROVAL, "Another operator says that this agent no longer acts for you.")
    if row["kind"] != PrincipalKind.PERSON and (approves_up_to is not None or operates_classifier):
        raise RefundError(
            Code.INVALID_FIELD,
            f"Only a person approves, and this one is of kind {row['kind']}.",
            field="approves_up_to" if approves_up_to is not None else "operates_classifier",
        )
    if row["kind"] != PrincipalKind.AGENT and owner_id is not None:
        raise RefundError(Code.INVALID_FIELD, "Only an agent acts for a person.", field="owner")
    values = {"approves_up_to": dict(approves_up_to) if approves_up_to is not None else None}
    values |= {"operates_classifier": operates_classifier, "owner_id": owner_id}
    if any(row[name] != value for name, value in values.items()):
        changing = update(principals).where(principals.c.id == principal_id).values(values).returning(principals)
        row = (await connection.execute(changing)).mappings().one()
        said = {name: value for name, value in values.items() if value}
        await enter(connection, "approving_set", clock.now(), actor=actor.principal_id, principal=principal_id, said=said)
    return row


async def _is_also(connection: AsyncConnection, principal_id: str, actor: Actor) -> bool:
    query = select(principals.c.id, principals.c.handle, principals.c.name).where(principals.c.id == principal_id)
    return Who(*(await connection.execute(query)).one()).is_also(actor)


async def list_principals(connection: AsyncConnection) -> list[Row]:
    """Everybody, oldest first."""
    return list((await connection.execute(select(principals).order_by(principals.c.created_at, principals.c.id))).mappings())


async def create_key(
    connection: AsyncConnection,
    clock: Clock,
    *,
    principal_id: str,
    roles: Collection[Role],
    integration: str | None,
    expires_at: datetime | None,
    actor: str,
) -> tuple[Row, str]:
    """Create a key and return its row and the key itself, which is shown this once.

    Raises ``INVALID_FIELD`` for an unknown principal, and for roles that only persons may hold.
    """
    owner = (await connection.execute(select(principals).where(principals.c.id == principal_id))).mappings().one_or_none()
    if owner is None:
        raise RefundError(Code.INVALID_FIELD, f"There is no principal {principal_id!r}.", field="principal_id")
    judging = sorted(role.value for role in PERSONS_ONLY.intersection(roles))
    if judging and owner["kind"] != PrincipalKind.PERSON:
        raise RefundError(
            Code.INVALID_FIELD, f"Only a person can be {', '.join(judging)}; this one is of kind {owner['kind']}.", field="roles"
        )
    key = f"rfk_{secrets.token_urlsafe(32)}"
    row = (
        (
            await connection.execute(
                insert(api_keys)
                .values(
                    id=new_id(Prefix.KEY),
                    principal_id=principal_id,
                    hash=key_hash(key),
                    hint=key[:8],
                    roles=sorted(role.value for role in set(roles)),
                    integration=integration or principal_id,
                    created_at=clock.now(),
                    expires_at=expires_at,
                )
                .returning(api_keys)
            )
        )
        .mappings()
        .one()
    )
    await enter(connection, "key_created", clock.now(), actor=actor, key=row["id"], principal=principal_id, roles=row["roles"])
    return row, key


async def list_keys(connection: AsyncConnection) -> list[Row]:
    """All keys without their hashes, oldest first."""
    columns = [c for c in api_keys.c if c.name != "hash"]
    return list((await connection.execute(select(*columns).order_by(api_keys.c.created_at, api_keys.c.id))).mappings())


async def revoke_key(connection: AsyncConnection, clock: Clock, *, key_id: str, actor: str) -> None:
    """Revoke a key at once; revoking it again changes nothing. Raises ``NOT_FOUND``."""
    row = (await connection.execute(select(api_keys.c.revoked_at).where(api_keys.c.id == key_id).with_for_update())).one_or_none()
    if row is None:
        raise RefundError(Code.NOT_FOUND, f"There is no key {key_id!r}.")
    if row.revoked_at is None:
        await connection.execute(update(api_keys).where(api_keys.c.id == key_id).values(revoked_at=clock.now()))
        await enter(connection, "key_revoked", clock.now(), actor=actor, key=key_id)
