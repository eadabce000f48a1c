"""Who does which errand."""

from collections.abc import Awaitable, Callable

from tests.chaos import load
from tests.chaos.book import Book
from tests.chaos.grouping import grouped
from tests.chaos.load import Doing
from tests.chaos.people import GaveUp, People
from tests.chaos.plan import Errand
from tests.chaos.selling import sold, sold_in_parts, sold_on

DOERS: dict[str, Callable[[Doing], Awaitable[None]]] = {
    does.__name__: does
    for does in (
        *(load.automatic, load.duplicated, load.racing, load.parts, load.reviewed, load.refused, load.two_people, load.managed),
        *(load.agreed, load.declined, load.revised, load.withdrawn, load.unanswered, load.left_waiting),
        *(load.pending, load.pending_fails, load.fails_later, load.authorised, load.disputed, load.altered, load.past_us),
        *(sold, sold_in_parts, sold_on, grouped),
    )
}


async def carry_out(errand: Errand, people: People, book: Book, run: str) -> None:
    """Do an errand. Nobody answering for too long is noted as wrong, not raised: the others go on."""
    book.begun += errand.refunds
    try:
        await DOERS[errand.kind](Doing(errand, people, book, run))
    except GaveUp as error:
        book.odd.append(("no_answer", f"errand {errand.number} ({errand.kind}): {error}"))
