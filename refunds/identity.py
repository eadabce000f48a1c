"""Whether a database is still the one that was last used: a restored, promoted or copied one may have forgotten refunds that were paid."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """What a database says of itself. ``system``, ``timeline`` and ``database`` are PostgreSQL's own (the cluster, its history, the database in it; empty or 0
    where they may not be read); ``ledger`` is the highest entry of our ledger, which only grows."""

    system: str
    timeline: int
    database: int
    ledger: int


def doubt(before: Identity | None, now: Identity, *, used: bool) -> str | None:
    """Why the database may have forgotten something since ``before``, or ``None``.

    ``used`` tells, where nothing is known of before, whether the database itself remembers that something must be.
    """
    if before is None:
        return "what was kept outside about this database is gone, so nothing proves that it is complete" if used else None
    if now.system and before.system and now.system != before.system:
        return f"it is on another PostgreSQL cluster ({now.system}, before {before.system})"
    if now.timeline and before.timeline and now.timeline != before.timeline:
        return f"its cluster was promoted or recovered (timeline {now.timeline}, before {before.timeline})"
    if now.database and before.database and now.database != before.database:
        return f"it is a copy (database {now.database}, before {before.database})"
    if now.ledger < before.ledger:
        return f"entries of the ledger are missing (the last is {now.ledger}, before {before.ledger})"
    return None
