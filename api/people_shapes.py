"""The shapes of persons, services, agents and their keys."""

from typing import Annotated

from pydantic import AwareDatetime, Field

from api.shapes import Shape, Who
from refunds.people import PrincipalKind, Role


class PersonView(Who):
    """A person, service or agent."""

    kind: PrincipalKind
    created_at: AwareDatetime
    disabled_at: AwareDatetime | None
    owner_id: Annotated[str | None, Field(description="The person an agent acts for.")]
    operates_classifier: bool
    approves_up_to: Annotated[dict[str, int] | None, Field(description="Ceilings of their own by currency; null: none of their own.")]


class PeopleList(Shape):
    """Everybody."""

    people: list[PersonView]


class KeyView(Shape):
    """A key, without what opens anything."""

    id: str
    principal_id: str
    hint: str
    roles: list[Role]
    integration: str
    created_at: AwareDatetime
    expires_at: AwareDatetime | None
    revoked_at: AwareDatetime | None


class KeyMade(KeyView):
    """A new key; ``key`` is shown this once."""

    key: str


class KeyList(Shape):
    """All keys."""

    keys: list[KeyView]
