"""Who may do what. Rules about people compare *persons*: every key belongs to a person, a service or an agent, and only persons decide."""

import unicodedata
from dataclasses import dataclass, field
from enum import StrEnum


class PrincipalKind(StrEnum):
    """Whom a key belongs to."""

    PERSON = "person"
    SERVICE = "service"
    AGENT = "agent"


class Role(StrEnum):
    """What a key may be used for. Roles do not imply each other, except that a manager may do what a reviewer may."""

    REQUESTER = "requester"
    INTEGRATOR = "integrator"
    REVIEWER = "reviewer"
    MANAGER = "manager"
    FRAUD = "fraud"
    SETTLER = "settler"
    OPERATOR = "operator"
    AUDITOR = "auditor"


PERSONS_ONLY = frozenset({Role.REVIEWER, Role.MANAGER, Role.FRAUD, Role.SETTLER})
"""Roles a service or an agent can never hold: they judge, and only a person can be held to a judgement."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who is calling: the principal, its handle (how ``requested_by`` names a person) and name, the kind, its roles, and the integration its
    idempotency keys belong to (it survives the rotation of keys)."""

    principal_id: str
    handle: str
    name: str
    kind: PrincipalKind
    roles: frozenset[Role] = field(default_factory=frozenset[Role])
    integration: str = ""

    def has(self, *wanted: Role) -> bool:
        """Tell whether one of the wanted roles is held; a manager also counts as a reviewer."""
        held = self.roles | {Role.REVIEWER} if Role.MANAGER in self.roles else self.roles
        return any(role in held for role in wanted)

    def is_named(self, text: str) -> bool:
        """Tell whether a name somebody wrote, such as ``requested_by``, means this principal: by id, handle or name, however it is spelt.

        Compared without regard to case, width, doubled blanks, invisible characters, a leading ``@`` and a mail domain: rather one colleague too many
        asked than one who approves a wish of their own. Letters of another alphabet that only look alike are not recognised.
        """
        wanted = _spellings(text)
        return any(wanted & _spellings(own) for own in (self.principal_id, self.handle, self.name))


def _spellings(text: str) -> set[str]:
    visible = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    plain = " ".join(visible.split()).casefold().lstrip("@").strip()
    return {plain, plain.partition("@")[0].strip()} - {""}
