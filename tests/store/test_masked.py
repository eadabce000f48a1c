"""What customers type and nobody may keep is masked before it is stored: in every text, and in what the ledger and a model get to see of it."""

from store import notes
from tests.store.world import World

CARD = "4242 4242 4242 4242"


async def kept(world: World, refund: str) -> dict[str, str]:
    async with world.api.begin() as connection:
        return await world.texts.read(connection, refund)


async def test_every_text_of_a_request_is_masked_and_the_entry_says_how_much_of_what(world: World) -> None:
    await world.order()
    words = {
        "message": f"I paid with {CARD}, cvc 123",
        "agent_reasoning": "password: hunter2",
        "conversation_context": "DE89370400440532013000",
    }

    refund = await world.accept(world.request(**words, metadata={"note": f"card {CARD}", "password": "rosebud"}))

    texts = await kept(world, refund)
    assert texts["message"] == "I paid with [card number removed], cvc [security code removed]"
    assert (texts["agent_reasoning"], texts["conversation"]) == ("password: [password removed]", "[bank account removed]")
    assert "4242" not in texts["details"] and "rosebud" not in texts["details"] and "card [card number removed]" in texts["details"]
    [entry] = world.ledger(refund)
    assert entry["data"]["masked"] == {
        "message": {"card": 1, "cvc": 1},
        "agent_reasoning": {"password": 1},
        "conversation": {"iban": 1},
        "details": {"card": 1, "password": 1},
    }
    assert set(entry["commitments"]) == {"message", "agent_reasoning", "conversation", "details"}


async def test_the_model_is_shown_the_masked_message(world: World) -> None:
    await world.order()
    refund = await world.accept(world.request(message=f"refund {CARD} please"))

    assert (await world.classifying.unread(refund)) == ("refund [card number removed] please", "USD")


async def test_a_note_is_masked_and_committed_to_once(world: World) -> None:
    await world.order()
    refund = await world.accept()
    given = {"refund_id": refund, "actor": world.ann.principal_id, "about": "dec_1", "note": f"  they sent {CARD}  "}

    for _ in range(2):
        async with world.api.begin() as connection:
            await notes.keep(connection, world.texts, **given)

    assert await kept(world, refund) == {"note:dec_1": "they sent [card number removed]"}
    [entry] = [one for one in world.ledger(refund) if one["type"] == "note_kept"]
    assert entry["data"] == {"about": "dec_1", "masked": {"note:dec_1": {"card": 1}}}
    async with world.api.begin() as connection:
        opening = (await world.texts.openings(connection, refund))["note:dec_1"]
    assert entry["commitments"] == {"note:dec_1": opening.commitment}


async def test_a_blank_note_leaves_nothing(world: World) -> None:
    await world.order()
    refund = await world.accept()
    async with world.api.begin() as connection:
        await notes.keep(connection, world.texts, refund_id=refund, actor="x", about="dec_1", note="  ")

    assert (world.count("texts"), len(world.ledger(refund))) == (0, 1)


async def test_the_same_request_with_the_card_again_is_the_same_refund(world: World) -> None:
    await world.order()
    request = world.request(message=f"I paid with {CARD}")

    assert await world.accept(request, key="k") == await world.accept(request, key="k")
    assert world.count("refunds") == 1
