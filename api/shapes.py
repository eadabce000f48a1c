"""What the shapes of all answers are made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from refunds.errors import Code
from refunds.people import PrincipalKind


class Shape(BaseModel):
    """An answer has exactly these members."""

    model_config = ConfigDict(extra="forbid")


class Amounts(Shape):
    """An amount in the unit Stripe's API takes, and as people read it."""

    amount: int | None
    currency: str | None
    amount_text: Annotated[str | None, Field(examples=["$30.00", "¥5,800"])]


class Who(Shape):
    """A person, service or agent."""

    id: str
    handle: str
    name: str


class Requester(Who):
    """Whose key asked."""

    kind: PrincipalKind


class CodeInWords(Shape):
    """Why it stands where it stands: a code of the catalogue, what it means, and what can be done."""

    code: Code | None
    meaning: str | None
    remedy: str | None
