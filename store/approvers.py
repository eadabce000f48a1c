"""In which right somebody decides on a refund, judged under the refund's lock (:mod:`refunds.approving` has the rules).

What is needed for an approval is read in the one statement that reads the revision, so that asking more of a decision costs no further trip.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.approving import Case, Delegated, Right, Who, Written, check_approval, check_reason, check_role, roles_needed
from refunds.errors import Code, RefundError
from refunds.facts import Review
from refunds.money import Money
from refunds.people import Actor, PrincipalKind, Role
from refunds.status import Status
from store.changes import Change
from store.requirements import APPROVE, REVIEW
from store.sql import Query, Row
from store.tables import principals

_NO_MONEY = ", ".join(f"'{s.value}'" for s in (Status.DENIED, Status.EXPIRED, Status.WITHDRAWN, Status.FAILED, Status.ANSWERED))

_LIVE_ROLES = """
    (SELECT array_agg(DISTINCT held) FROM api_keys k, unnest(k.roles) held
      WHERE k.principal_id = p.id AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :at))
"""
_DELEGATED = f"""
    (SELECT json_agg(json_build_object('id', d.id, 'role', d.role, 'queue', d.queue, 'of', p.id, 'handle', p.handle, 'name', p.name,
                'kind', p.kind, 'ceilings', p.approves_up_to, 'operates', p.operates_classifier, 'roles', {_LIVE_ROLES})
                ORDER BY d.created_at, d.id)
       FROM delegations d JOIN principals p ON p.id = d.delegator_id
      WHERE d.delegate_id = :actor AND d.starts_at <= :at AND d.ends_at > :at AND d.ended_at IS NULL AND p.disabled_at IS NULL) AS delegated
"""
_CASE = Query(
    text(
        f"""
    SELECT v.*, q.handle AS requester_handle, q.name AS requester_name, q.kind AS requester_kind,
           o.id AS owner_id, o.handle AS owner_handle, o.name AS owner_name, w.handle AS author_handle, w.name AS author_name,
           (SELECT json_agg(json_build_object('id', p.id, 'handle', p.handle, 'name', p.name))
              FROM decisions d JOIN principals p ON p.id IN (d.principal_id, d.on_behalf_of)
             WHERE d.refund_id = v.refund_id AND d.revision = v.revision AND d.kind = '{REVIEW}' AND d.verdict = '{APPROVE}') AS approved,
           (SELECT array_agg(DISTINCT e.kind) FROM evidence e JOIN principals g ON g.id = e.given_by
             WHERE e.refund_id = v.refund_id AND g.kind <> '{PrincipalKind.AGENT.value}') AS given,
           (SELECT sum(s.amount) FROM refunds s WHERE s.group_id = CAST(:group_id AS text) AND s.currency = v.currency
               AND s.status NOT IN ({_NO_MONEY}))::bigint AS of_group,
           (SELECT json_agg(json_build_object('id', p.id, 'handle', p.handle, 'name', p.name, 'kind', p.kind,
                       'amount', e.amount, 'payment', e.payment_id, 'terms', e.terms) ORDER BY e.revision DESC)
              FROM revisions e JOIN principals p ON p.id = e.author_id
             WHERE e.refund_id = v.refund_id AND e.revision < v.revision AND e.author_id <> v.author_id) AS by_others,
           (SELECT json_build_object('roles', {_LIVE_ROLES}, 'ceilings', p.approves_up_to, 'operates', p.operates_classifier)
              FROM principals p WHERE p.id = :actor AND p.disabled_at IS NULL) AS decider,
           {_DELEGATED}
      FROM revisions v
      JOIN principals q ON q.id = :requester
      LEFT JOIN principals o ON o.id = q.owner_id
      JOIN principals w ON w.id = v.author_id
     WHERE v.refund_id = :refund AND v.revision = :number
    """
    )
)
_RIGHTS = Query(text(f"SELECT {_DELEGATED}"))
_LIVE = Query(text(f"SELECT p.*, {_LIVE_ROLES} AS roles FROM principals p WHERE p.id = :person"))


async def right_to_approve(
    connection: AsyncConnection, change: Change, actor: Actor, *, on_behalf_of: str | None, reason: str
) -> tuple[Right, Row]:
    """The right in which a person approves the present terms of a refund in review, and its revision.

    Their own right is looked at first, then what was delegated to them, oldest first; with ``on_behalf_of`` (a handle or id) only that person's. What they may
    is read under the refund's lock: a key that was revoked while the call waited for it approves nothing. Raises ``DELEGATION_INVALID`` and what
    :mod:`refunds.approving` raises.
    """
    review = Review.from_plain(change["review"])
    row = await read_case(connection, change, actor.principal_id)
    case, actor = case_of(change, row), _as_they_are_now(actor, row["decider"])
    needed = roles_needed(review, change["rung"], change["queue"])
    if not actor.has(Role.REVIEWER):  # in whoever's right: a stand-in needs a key of their own
        raise RefundError(
            Code.ROLE_TOO_LOW, f"No key of {actor.handle} carries the role {Role.REVIEWER} any more.", role=Role.REVIEWER.value
        )

    def allowed(right: Right) -> None:
        check_role(right, needed, change["queue"])
        check_approval(case, review, right)
        check_reason(review, reason)

    return _first_allowed(_rights(actor, row["delegated"], on_behalf_of), allowed), row


async def right_to_deny(connection: AsyncConnection, change: Change, actor: Actor, *, on_behalf_of: str | None, reason: str) -> Right:
    """The right in which a person denies. No ceiling and no part in it keeps anybody with the role from saying no. Raises as :func:`right_to_approve`."""
    review = Review.from_plain(change["review"])
    needed = roles_needed(review, change["rung"], change["queue"])

    def allowed(right: Right) -> None:
        check_role(right, needed, change["queue"])
        check_reason(review, reason)

    try:
        return _first_allowed(_rights(actor, [], on_behalf_of), allowed)
    except RefundError:
        delegated = await _RIGHTS.value(connection, actor=actor.principal_id, at=change.at)
        return _first_allowed(_rights(actor, delegated, on_behalf_of), allowed)


def _as_they_are_now(actor: Actor, stored: Mapping[str, Any] | None) -> Actor:
    """Whoever calls, with those of the roles of their call that a key of theirs still carries, and what they may approve now; without any when disabled."""
    if stored is None:
        return replace(actor, roles=frozenset[Role]())
    held = frozenset(Role(role) for role in stored["roles"] or ())
    return replace(actor, roles=actor.roles & held, ceilings=stored["ceilings"], operates_classifier=stored["operates"])


def _rights(actor: Actor, delegated: list[Mapping[str, Any]] | None, on_behalf_of: str | None) -> list[Right]:
    others = [Right(actor, _delegated(one)) for one in delegated or ()]
    if on_behalf_of is None:
        return [Right(actor), *others]
    wanted = on_behalf_of.casefold()
    named = [r for r in others if r.delegated and wanted in (r.delegated.of.principal_id, r.delegated.of.handle.casefold())]
    if not named:
        raise RefundError(Code.DELEGATION_INVALID, f"Nothing that {on_behalf_of[:80]!r} delegated to {actor.handle} is in force now.")
    return named


def _first_allowed(rights: list[Right], allowed: Any) -> Right:
    """The first right that suffices. Raises what keeps them back in their own, or, where that is only the role, in the last that was delegated."""
    refusals: list[RefundError] = []
    for right in rights:
        try:
            allowed(right)
        except RefundError as refusal:
            refusals.append(refusal)
        else:
            return right
    first = refusals[0]
    raise refusals[-1] if first.code in (Code.ROLE_TOO_LOW, Code.SPECIALIST_REQUIRED) else first


def _delegated(stored: Mapping[str, Any]) -> Delegated:
    of = Actor(
        stored["of"],
        stored["handle"],
        stored["name"],
        PrincipalKind(stored["kind"]),
        frozenset(Role(role) for role in stored["roles"] or ()),
        ceilings=stored["ceilings"],
        operates_classifier=stored["operates"],
    )
    return Delegated(stored["id"], of, Role(stored["role"]), stored["queue"])


async def read_case(connection: AsyncConnection, change: Change, actor: str) -> Row:
    """The present revision with everything that says who may approve it. ``actor`` is whose delegations are read."""
    return await _CASE.one(
        connection,
        refund=change.id,
        number=change["revision"],
        requester=change["requester_id"],
        group_id=change["group_id"],
        actor=actor,
        at=change.at,
    )


def case_of(change: Change, row: Row) -> Case:
    """What :func:`read_case` found, for the rules."""
    at_stake = max(row["amount"], row["of_group"] or 0)
    return Case(
        requester=Who(change["requester_id"], row["requester_handle"], row["requester_name"], PrincipalKind(row["requester_kind"])),
        requested_by=change["requested_by"],
        owner=Who(row["owner_id"], row["owner_handle"], row["owner_name"]) if row["owner_id"] else None,
        author=_author(row),
        approved=tuple(Who(one["id"], one["handle"], one["name"]) for one in row["approved"] or ()),
        was_read=change["has_text"],
        at_stake=Money(at_stake, row["currency"]),
        given=frozenset(row["given"] or ()),
    )


def _author(row: Row) -> Who | None:
    """Who wrote the present terms, where these ask for more than the last ones that another person wrote, under however many accounts (0006)."""
    author = Who(row["author_id"], row["author_handle"], row["author_name"])
    others = row["by_others"] or ()
    if row["loosened"] or not others:
        return author if row["loosened"] else None
    another = next((one for one in others if not _is_also(author, one)), None)
    now = _written(row["amount"], row["payment_id"], row["terms"])
    looser = another is None or now.is_looser_than(_written(another["amount"], another["payment"], another["terms"]))
    return author if looser else None


def _is_also(author: Who, other: Mapping[str, Any]) -> bool:
    kind = PrincipalKind(other["kind"])
    return kind is PrincipalKind.PERSON and author.is_also(Actor(other["id"], other["handle"], other["name"], kind))


def _written(amount: int, payment: str | None, terms: Mapping[str, Any] | None) -> Written:
    wish = terms or {}
    return Written(amount, payment, bool(wish.get("reverse_transfer")), bool(wish.get("refund_application_fee")))


async def live(connection: AsyncConnection, person: str, at: datetime) -> Actor:
    """A person by id, with the roles that keys of their own carry now; none when they are disabled. The person must be there."""
    row = await _LIVE.one(connection, person=person, at=at)
    return Actor(
        row["id"],
        row["handle"],
        row["name"],
        PrincipalKind(row["kind"]),
        frozenset(Role(role) for role in row["roles"] or ()) if row["disabled_at"] is None else frozenset(),
        ceilings=row["approves_up_to"],
        operates_classifier=row["operates_classifier"],
    )


async def find_person(connection: AsyncConnection, name: str, *, field: str) -> str:
    """The id of the person with this handle or id. Raises ``INVALID_FIELD`` naming ``field`` for anybody else: a service, an agent, somebody disabled."""
    query = select(principals.c.id).where(
        (principals.c.id == name) | (text("lower(handle) = lower(:named)").bindparams(named=name)),
        principals.c.kind == PrincipalKind.PERSON.value,
        principals.c.disabled_at.is_(None),
    )
    found = (await connection.execute(query)).scalar()
    if found is None:
        raise RefundError(Code.INVALID_FIELD, f"There is no person {name[:80]!r} here.", field=field)
    return found
