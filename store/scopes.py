"""What may be stopped, scope by scope: everything (``store/controls.py``), what agents ask for, one agent, or one processor (``store/halts.py``).

An operator stops a scope alone, and another person resumes it (promise P4). What the orchestrator itself halted needs one person.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.approving import Who
from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.people import Actor, PrincipalKind
from store import breakers, controls, halts, restoring
from store.changes import enter
from store.halts import AGENT, AGENTS, EVERYTHING, PROCESSOR
from store.sql import Row
from store.tables import halts as halts_table
from store.tables import principals, processor_binding


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an operator asks of a scope. ``None`` leaves as it is whether it is stopped, or the mode, which is everything's alone."""

    scope: str
    stopped: bool | None
    mode: str | None
    reason: str


async def named(connection: AsyncConnection, text: str) -> str:
    """The scope that a text names, in its one spelling: an agent is named by its handle or its principal's id, in whatever case.

    Raises ``INVALID_FIELD`` for what is no scope, an agent that nobody has made, what is no agent, and a processor this database is not bound to.
    """
    if text in (EVERYTHING, AGENTS):
        return text
    if text.startswith(PROCESSOR):
        known = list((await connection.execute(select(processor_binding.c.processor).order_by(processor_binding.c.processor))).scalars())
        if text.removeprefix(PROCESSOR) in known:
            return text
        raise _no_scope(f"This database is bound to {'no processor yet' if not known else ', '.join(known)}, not to {text[10:]!r}.")
    if not text.startswith(AGENT):
        raise _no_scope(f"There is no scope {text!r}: it is everything, agents, agent:<id or handle>, or processor:<name>.")
    who = text.removeprefix(AGENT)
    meant = (principals.c.id == who) | (func.lower(principals.c.handle) == func.lower(who))
    row = (await connection.execute(select(principals.c.handle, principals.c.kind).where(meant).limit(1))).one_or_none()
    if row is None:
        raise _no_scope(f"There is no agent {who!r}. GET /v1/people lists all; the scope agents stops every one of them.")
    if row.kind != PrincipalKind.AGENT:
        raise _no_scope(f"{who!r} is no agent but of kind {row.kind}. Stop everything instead, or revoke its keys.")
    return AGENT + row.handle


def _no_scope(why: str) -> RefundError:
    return RefundError(Code.INVALID_FIELD, why, field="scope")


async def states(connection: AsyncConnection) -> list[dict[str, Any]]:
    """The state of every scope as the API shows it, with who changed it: everything, each processor this database is bound to, and what else is halted."""
    bound = list((await connection.execute(select(processor_binding.c.processor).order_by(processor_binding.c.processor))).scalars())
    scopes = [PROCESSOR + processor for processor in bound]
    halted = select(halts_table.c.scope).where(halts_table.c.lifted_at.is_(None)).distinct().order_by(halts_table.c.scope)
    scopes += [scope for scope in (await connection.execute(halted)).scalars() if scope not in (EVERYTHING, *scopes)]
    return [await _state(connection, scope) for scope in (EVERYTHING, *scopes)]


async def change(connection: AsyncConnection, clock: Clock, wanted: Wanted, actor: Actor) -> dict[str, Any]:
    """Stop or resume a scope and return its state. Committing the transaction is the moment of the stop.

    What is so already stays as it is, and whose it was. Raises ``INVALID_FIELD`` for a scope that is none, ``PERSON_REQUIRED`` when a service or an agent
    resumes, ``RESUME_NEEDS_ANOTHER_PERSON`` when who stopped it does, under whatever account, and ``RECONCILIATION_REQUIRED`` while a halt must not be lifted.
    """
    scope = await named(connection, wanted.scope)
    await controls.lock_exclusively(connection)
    now, by = clock.now(), actor.principal_id
    if wanted.stopped is None:
        stays = (await controls.read(connection)).stopped
        await controls.change(connection, clock, stopped=stays, mode=wanted.mode, reason=wanted.reason, actor=by)
        return await _state(connection, scope)
    if wanted.stopped:
        if scope == EVERYTHING:
            repeated = (await controls.read(connection)).stopped
            await controls.change(connection, clock, stopped=True, mode=wanted.mode, reason=wanted.reason, actor=by)
        else:
            repeated = not await halts.open_scope(
                connection, now, scope=scope, code=Code.HALTED_BY_OPERATOR, reason=wanted.reason, actor=by
            )
        if repeated:
            await enter(connection, "stop_repeated", now, actor=by, scope=scope, reason=wanted.reason)
        return await _state(connection, scope)
    await _check_resume(connection, scope, actor)
    await breakers.close_all(connection, now, scope=scope, actor=actor, reason=wanted.reason)
    await halts.lift_scope(connection, now, scope=scope, reason=wanted.reason, actor=by)
    if scope == EVERYTHING:
        await controls.change(connection, clock, stopped=False, mode=wanted.mode, reason=wanted.reason, actor=by)
    return await _state(connection, scope)


async def _check_resume(connection: AsyncConnection, scope: str, actor: Actor) -> None:
    """Raise why this actor may not resume a scope now. What is not stopped may be resumed by anybody who may stop it: nothing changes."""
    in_force = await halts.all_in_force(connection, scope)
    # Whoever only said that the database was restored stopped nothing that they now judge: the reconciliation does.
    stoppers = {halt["opened_by"] if halt["code"] == Code.HALTED_BY_OPERATOR else None for halt in in_force}
    if scope == EVERYTHING and (control := await controls.read(connection)).stopped:
        stoppers.add(control.stopped_by)
    if not stoppers:
        return
    if actor.kind is not PrincipalKind.PERSON:
        raise RefundError(Code.PERSON_REQUIRED, "Only a person may resume, never a service or an agent.", scope=scope)
    if any(who.is_also(actor) for who in await _persons(connection, stoppers)):
        raise RefundError(
            Code.RESUME_NEEDS_ANOTHER_PERSON, f"You stopped {scope} yourself; another operator has to resume it.", scope=scope
        )
    for halt in in_force:
        await restoring.check_lift(connection, halt)


async def _persons(connection: AsyncConnection, ids: set[str | None]) -> list[Who]:
    """Who the principals are, by every name they have: a second account of whoever stopped is no second person."""
    query = select(principals.c.id, principals.c.handle, principals.c.name, principals.c.kind).where(
        principals.c.id.in_(sorted(filter(None, ids)))
    )
    return [Who(id=row.id, handle=row.handle, name=row.name, kind=PrincipalKind(row.kind)) for row in await connection.execute(query)]


async def _state(connection: AsyncConnection, scope: str) -> dict[str, Any]:
    """The state of a scope: what is in force of it, or else who changed it last."""
    in_force = await halts.all_in_force(connection, scope)
    shown = await _everything(connection) if scope == EVERYTHING else await _by_halts(connection, scope, in_force)
    for who in ("changed_by", "stopped_by"):
        shown[f"{who}_handle"] = await _handle(connection, shown[who])
    listed = [
        {name: halt[name] for name in ("id", "code", "reason", "opened_by", "opened_at")}
        | {"opened_by_handle": await _handle(connection, halt["opened_by"])}
        for halt in in_force
    ]
    return {"scope": scope, "halts": listed} | shown | {"stopped": shown["stopped"] or bool(in_force)}


async def _everything(connection: AsyncConnection) -> dict[str, Any]:
    return controls.as_plain(await controls.read(connection)) | {"code": None}


async def _by_halts(connection: AsyncConnection, scope: str, in_force: list[dict[str, Any]]) -> dict[str, Any]:
    stopped = next(iter(in_force), None)
    shown: dict[str, Any] = {"stopped": stopped is not None, "mode": None, "code": stopped["code"] if stopped else None}
    if stopped is not None:
        by, at, reason = stopped["opened_by"], stopped["opened_at"], stopped["reason"]
        return shown | _changed(by, at, reason) | {"stopped_by": by, "stopped_at": at, "stop_reason": reason}
    shown |= {"stopped_by": None, "stopped_at": None, "stop_reason": None}
    newest = select(halts_table).where(halts_table.c.scope == scope).order_by(halts_table.c.lifted_at.desc()).limit(1)
    last: Row | None = (await connection.execute(newest)).mappings().first()
    if last is None:
        return shown | _changed(None, None, "never halted")
    return shown | _changed(last["lifted_by"], last["lifted_at"], last["lifted_reason"])


def _changed(by: str | None, at: Any, reason: str | None) -> dict[str, Any]:
    return {"changed_by": by, "changed_at": at, "reason": reason}


async def _handle(connection: AsyncConnection, principal_id: str | None) -> str | None:
    return (await connection.execute(select(principals.c.handle).where(principals.c.id == principal_id))).scalar_one_or_none()
