"""The shapes of calls about a customer: forgetting, going through the list of erasures, and retention."""

from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints

from api.schemas import Shape
from refunds.erasure import MOST_CHARACTERS, Because, is_reference
from refunds.orders import CleanText, Strict
from refunds.retention import Kept
from store.forgetting import Forgotten


def _of_a_case(text: str) -> str:
    if not is_reference(text):
        raise ValueError("write the number of a case: up to 60 letters, digits and # / _ . : -, without blanks; it stays in the ledger")
    return text


class ErasureRequest(Strict):
    """Why a customer is forgotten. Fixed words and a case number: the ledger keeps them for ever, so nothing here may name the person."""

    reason: Because
    reference: Annotated[CleanText, AfterValidator(_of_a_case)] | None = None


Line = Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARACTERS)]
Count = Annotated[int, Field(strict=True, ge=0, le=10**9)]


class ReplayRequest(Strict):
    """Lines of the list, as they were written. The last part says that the list is ``complete``, and what its earlier parts came to."""

    lines: Annotated[list[Line], Field(max_length=500)] = []
    first_line: Annotated[int, Field(strict=True, ge=1, le=10**9)] = 1
    complete: Annotated[bool, Field(strict=True)] = False
    lines_before: Count = 0
    forgotten_before: Count = 0
    absent_before: Count = 0


class ErasureView(Shape):
    """That a customer is forgotten."""

    id: Annotated[str, Field(description="The erasure, as the list outside the database and the ledger name it.")]
    customer: Annotated[str, Field(description="Our own id of the customer, under which what has to stay is kept.")]
    forgotten_at: AwareDatetime
    removed: Annotated[dict[str, int], Field(description="How much this call took away; zeros when it had gone before.")]
    listed: Annotated[bool, Field(description="Whether it is written down outside the database (`ERASURE_LIST`).")]


class ReplayView(Shape):
    """What became of the lines."""

    id: Annotated[str | None, Field(description="The record that the whole list was gone through; only with `complete`.")]
    lines: int
    forgotten: Annotated[int, Field(description="Customers who were known again, and are forgotten now.")]
    absent: Annotated[int, Field(description="Customers this database does not know.")]


def erasure_view(done: Forgotten, *, listed: bool) -> dict[str, Any]:
    """An erasure as it is answered."""
    return {"id": done.erasure, "customer": done.customer, "forgotten_at": done.at, "removed": done.removed, "listed": listed}


class WhoIsMeant(Shape):
    """The customer an export is about."""

    customer_id: str
    our_id: str
    account_created_at: AwareDatetime | None
    first_recorded_at: AwareDatetime


class CustomerExport(Shape):
    """Everything that is held of one customer."""

    format: str
    version: int
    exported_at: AwareDatetime
    summary: Annotated[list[str], Field(description="The same in sentences that anybody can read.")]
    customer: WhoIsMeant
    counts: dict[str, int]
    orders: Annotated[list[dict[str, Any]], Field(description="With every version, their payments, and what the processor said of these.")]
    groups: list[dict[str, Any]]
    refunds: Annotated[list[dict[str, Any]], Field(description="With their texts, decisions (by role, not by name), and ledger entries.")]


class RetentionKind(Shape):
    """One kind of data and its period."""

    kind: Kept
    days: Annotated[int, Field(description="After how many days it is taken away; 0 keeps it until the customer is forgotten.")]
    what: str
    reason: str
    due: Annotated[int | None, Field(description="How much has had its time by now; null when it has no period.")]


class RetentionView(Shape):
    """The periods."""

    kinds: list[RetentionKind]


class RetentionRun(Strict):
    """Whether only to count."""

    dry_run: Annotated[bool, Field(strict=True)] = False


class RetentionDone(Shape):
    """What a run took away, or would."""

    id: str | None
    dry_run: bool
    removed: Annotated[dict[str, int], Field(description="By kind.")]
    more: Annotated[bool, Field(description="Whether there is more than one run takes; repeat.")]
