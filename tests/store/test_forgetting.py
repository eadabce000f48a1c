"""A customer can be forgotten, and what has had its time can go, and the record still verifies, from the same checkpoint as before (promises P8, P9)."""

from refunds.erasure import Because, Erasure
from refunds.ids import Prefix, new_id
from refunds.retention import Kept
from store import forgetting
from store.retention import Retention
from tests.store.chained import Chained
from tests.store.test_verifying import verified
from tests.store.world import World


async def test_the_record_verifies_after_forgetting_and_after_retention(world: World) -> None:
    await world.ready()
    refunds = [await world.accept(world.request(message="words", agent_reasoning="more"), key=f"key-{n}") for n in range(2)]
    for refund_id in refunds:
        await world.withdraw(refund_id)
    chained = Chained(world.database, world.clock)
    await chained.numbered()
    await chained.signed()
    kept, before = await chained.note(), world.rows("SELECT * FROM ledger ORDER BY id")
    customer = world.row(refunds[0])["customer_id"]
    world.clock.advance(days=1_000)

    every_day = world.settings.model_copy(update={f"retention_{kind}_days": 1 for kind in Kept})
    removed = await Retention(world.api, every_day).run()
    erasure = Erasure(new_id(Prefix.ERASURE), customer, world.clock.now(), world.ann.principal_id, Because.CUSTOMER_ASKED)
    async with world.api.begin() as connection:
        done = await forgetting.forget(connection, world.clock, erasure, actor=world.ann.principal_id, mark=None)
    await chained.numbered()
    await chained.signed()

    assert removed.removed[Kept.MESSAGES] == 4 and done is not None and done.removed["keys"] == 1
    after = world.rows("SELECT * FROM ledger ORDER BY id")
    assert after[: len(before)] == before, "nothing of the record was touched"
    assert verified(chained, kept).entries == len(after)
    assert [row["type"] for row in after][-1] == "customer_forgotten"
    await chained.close()
