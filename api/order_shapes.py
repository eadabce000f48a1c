"""The shapes of orders, and of what became of an import of them."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from api.shapes import Shape
from refunds.errors import Code
from refunds.orders import Tender


class OrderedPayment(Shape):
    """A payment of an order."""

    id: str
    payment_id: str
    currency: str
    processor: Literal["stripe", "manual"]
    tender: Annotated[Tender | None, Field(description="Of a manual payment: what a person gives back.")]


class OrderView(Shape):
    """An order as it is recorded."""

    order_id: str
    id: str
    version: int
    updated_at: AwareDatetime
    order: dict[str, Any]
    payments: list[OrderedPayment]


class ProblemOfOrder(Shape):
    """One thing that is wrong with an order."""

    field: Annotated[str, Field(description="Within the order.", examples=["payments.0.amount"])]
    code: Code
    detail: str


class ImportedView(Shape):
    """What became of one order of an import. With `refused` nothing of it is stored, and nothing of the others is undone."""

    order_id: Annotated[str | None, Field(description="Null when it cannot be read.")]
    outcome: Literal["created", "new_version", "unchanged", "refused"]
    version: int | None
    code: Code | None
    field: str | None
    detail: str | None
    remedy: str | None
    errors: list[ProblemOfOrder]


class ImportView(Shape):
    """What became of the orders, in the order in which they were sent, and how many of each."""

    created: int
    new_version: int
    unchanged: int
    refused: int
    orders: list[ImportedView]
