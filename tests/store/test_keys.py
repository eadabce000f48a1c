"""Where keys come from, what opens with which, and changing over to another master key while everything goes on."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from sqlalchemy import text

from refunds.errors import Code, RefundError
from refunds.settings import Settings
from store import grants, identifiers, master_keys, orders, rotation, vault, views
from store.changes import enter
from store.db import Database, connect
from store.master_keys import KeysMissing, LocalKeys, TransitKeys, name_of
from store.sealing import Unreadable, commitment, keyed, new_key, open_value, seal, seal_value, unseal
from store.texts import Texts
from tests.store import transit
from tests.store.transit import TOKEN, Service
from tests.store.world import TEXT_KEY, World

OLD, NEW = TEXT_KEY, b"n" * 32


def encoded(key: bytes) -> SecretStr:
    return SecretStr(base64.b64encode(key).decode())


def key_file(at: Path, *keys: bytes) -> str:
    file = at / "keys.json"
    file.write_text(json.dumps({str(number): base64.b64encode(key).decode() for number, key in enumerate(keys, 1)}))
    file.chmod(0o600)
    return str(file)


@pytest.fixture
def service() -> Iterator[Service]:
    with transit.serving() as running:
        yield running


# --- sealing -----------------------------------------------------------------------------------------------------------------------------


def test_what_is_sealed_opens_only_in_its_place_with_its_key_and_unchanged() -> None:
    key, sealed = new_key(), b""
    sealed = seal(key, b"words", "texts/rf_1/message")

    assert unseal(key, sealed, "texts/rf_1/message") == b"words"
    changed = bytes([sealed[0] ^ 1]) + sealed[1:]
    for wrong in (
        (new_key(), sealed, "texts/rf_1/message"),
        (key, sealed, "texts/rf_2/message"),
        (key, changed, "texts/rf_1/message"),
        (key, b"", "x"),
    ):
        with pytest.raises(Unreadable):
            unseal(*wrong)


def test_the_same_value_is_never_sealed_or_committed_to_alike() -> None:
    key = new_key()
    one, other = seal_value(key, "same", "p"), seal_value(key, "same", "p")

    assert len({one.sealed, other.sealed, one.commitment, other.commitment}) == 4
    opening = open_value(key, one.sealed, "p")
    assert (opening.value, opening.commitment) == ("same", one.commitment)
    assert one.commitment == commitment(opening.salt, "same") != commitment(opening.salt, "other")


# --- master keys -------------------------------------------------------------------------------------------------------------------------


def test_a_file_holds_several_by_number_and_the_highest_is_current(tmp_path: Path) -> None:
    keys = master_keys.of(Settings(refunds_text_keys_file=key_file(tmp_path, OLD, NEW)))
    assert keys is not None

    assert keys.current == name_of(NEW)
    assert keys.unwrap(name_of(OLD), LocalKeys(OLD).wrap(b"k" * 32, "p"), "p") == b"k" * 32
    assert keys.unwrap(keys.current, keys.wrap(b"k" * 32, "p"), "p") == b"k" * 32


def test_a_file_beside_the_setting_is_current_and_the_setting_still_opens(tmp_path: Path) -> None:
    keys = master_keys.of(Settings(refunds_text_key=encoded(OLD), refunds_text_keys_file=key_file(tmp_path, NEW)))
    assert keys is not None

    assert (keys.current, keys.unwrap(name_of(OLD), LocalKeys(OLD).wrap(b"k" * 32, "p"), "p")) == (name_of(NEW), b"k" * 32)


def test_a_process_without_any_has_none() -> None:
    assert master_keys.of(Settings()) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is not JSON"),
        ("[]", "an object of numbered keys"),
        ("{}", "an object of numbered keys"),
        ('{"one": "AAAA"}', "no numbered key"),
        ('{"1": "!!"}', "no numbered key"),
        ('{"1": 5}', "no numbered key"),
        ('{"1": "AAAA"}', "key 1 must be 32 bytes"),
        (json.dumps(dict.fromkeys(("1", "01"), base64.b64encode(NEW).decode())), "key 1 twice"),
    ],
)
def test_a_file_that_is_none_is_told_and_never_shown(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(content)
    file.chmod(0o640)
    with pytest.raises(KeysMissing, match="REFUNDS_TEXT_KEYS_FILE") as told:
        master_keys.of(Settings(refunds_text_keys_file=str(file)))
    assert why in str(told.value) and "AAAA" not in str(told.value)
    with pytest.raises(KeysMissing, match="cannot be read: No such file"):
        master_keys.of(Settings(refunds_text_keys_file=str(tmp_path / "none")))


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o777])
def test_a_file_that_is_open_to_everybody_is_not_used(tmp_path: Path, mode: int) -> None:
    file = Path(key_file(tmp_path, NEW))
    file.chmod(mode)
    with pytest.raises(KeysMissing, match=r"open to every user of this machine.*chmod o-rwx"):
        master_keys.of(Settings(refunds_text_keys_file=str(file)))


def test_a_key_that_is_not_held_is_named_with_the_remedy() -> None:
    with pytest.raises(Unreadable, match=f"{name_of(OLD)}, and this process holds {name_of(NEW)}.*REFUNDS_TEXT_KEYS_FILE"):
        LocalKeys(NEW).unwrap(name_of(OLD), LocalKeys(OLD).wrap(b"k" * 32, "p"), "p")


# --- a key management service ------------------------------------------------------------------------------------------------------------


def test_the_service_wraps_and_unwraps_and_old_versions_still_open(service: Service) -> None:
    keys = TransitKeys(service.url, "refunds", TOKEN)
    wrapped = keys.wrap(b"k" * 32, "p")
    service.rotate()

    assert wrapped.startswith(b"vault:v1:") and b"k" * 32 not in wrapped
    assert keys.unwrap(keys.current, wrapped, "p") == b"k" * 32
    assert keys.wrap(b"k" * 32, "p").startswith(b"vault:v2:")
    assert service.asked == [f"/v1/transit/{call}/refunds" for call in ("encrypt", "decrypt", "encrypt")]
    with pytest.raises(Unreadable, match="answered 400 to decrypt"):
        keys.unwrap(keys.current, wrapped, "another place")


def test_what_the_service_does_not_do_is_told_without_a_key(service: Service) -> None:
    wrong_token, keys = TransitKeys(service.url, "refunds", "no token"), TransitKeys(service.url, "refunds", TOKEN)
    with pytest.raises(Unreadable, match="answered 403 to encrypt"):
        wrong_token.wrap(b"k" * 32, "p")
    for answer, why in (
        (b"no json", "without data.ciphertext"),
        (b'{"data": []}', "without data.ciphertext"),
        (b"{}", "without data.ciphertext"),
    ):
        service.answer = answer
        with pytest.raises(Unreadable, match=why):
            keys.wrap(b"k" * 32, "p")
    service.answer = b'{"data": {"plaintext": "!"}}'
    with pytest.raises(Unreadable, match="no base64"):
        keys.unwrap(keys.current, b"vault:v1:x", "p")
    with pytest.raises(Unreadable, match="cannot be reached for encrypt \\(ConnectError\\)"):
        TransitKeys("http://127.0.0.1:1", "refunds", TOKEN).wrap(b"k" * 32, "p")


def test_the_service_needs_its_token_and_an_encrypted_way() -> None:
    with pytest.raises(KeysMissing, match="REFUNDS_TEXT_KMS_TOKEN"):
        master_keys.of(Settings(refunds_text_kms_url="https://vault.example"))
    with pytest.raises(ValidationError, match="REFUNDS_TEXT_KMS_URL must begin with https"):
        Settings(refunds_text_kms_url="http://vault.example")


# --- on PostgreSQL -----------------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(world: World, login: str = grants.API, **changed: Any) -> AsyncIterator[Database]:
    """Another process, with other settings."""
    pool = connect(world.database.url(login), world.clock, world.settings.model_copy(update=changed), name="other")
    try:
        yield pool
    finally:
        await pool.close()


async def seen(database: Database, refund: str) -> dict[str, str]:
    async with database.begin() as connection:
        return await Texts(database.clock).read(connection, refund)


async def shopped(world: World, customers: int) -> list[str]:
    """So many customers with an order and a refund each; returns the refunds."""
    refunds: list[str] = []
    for number in range(customers):
        await world.order(f"order-{number}", f"customer-{number}")
        refunds.append(
            await world.accept(world.request(order_id=f"order-{number}", customer_id=f"customer-{number}", message=f"words {number}"))
        )
    return refunds


async def test_the_wrong_master_key_opens_nothing_and_stops_the_start(world: World) -> None:
    await world.order()
    async with opened(world, refunds_text_key=encoded(NEW)) as other:
        with pytest.raises(Unreadable, match=f"wrapped with master key {name_of(OLD)}"):
            await other.check_revision()


async def test_processes_that_begin_at_once_have_the_same_keys(world: World) -> None:
    world.execute("DELETE FROM sealing_keys")
    pools = [connect(world.database.url(grants.API), world.clock, world.settings, name=f"p{n}") for n in range(4)]
    await asyncio.gather(*(pool.check_revision() for pool in pools))

    looked_up = {pool.vault.keys.lookup("customer", "c") for pool in pools if pool.vault}

    assert (len(looked_up), world.count("sealing_keys")) == (1, 2)
    await asyncio.gather(*(pool.close() for pool in pools))


async def test_two_processes_that_make_one_customer_at_once_make_one_key(world: World) -> None:
    async with opened(world) as other:

        async def put(database: Database, number: int) -> str:
            async with database.begin() as connection:
                made = await identifiers.put_customer(connection, "somebody", since=None, at=world.clock.now())
                await enter(connection, "customer_recorded", world.clock.now(), actor="test")
                assert made.key is not None
                return f"{made.id} {made.key.hex()}"

        made = await asyncio.gather(*(put(database, n) for n, database in enumerate([world.api, other] * 4)))

    assert (len(set(made)), world.count("customers"), world.count("customer_keys")) == (1, 1, 1)


async def test_identifiers_stand_nowhere_in_the_clear_and_are_found_and_shown(world: World) -> None:
    await world.order("order-Ä 1", "customer Ü", lines=[{"id": "l1", "title": "A kettle for Ann", "amount": 10_000}])

    stored = "".join(str(world.rows(f"SELECT t::text FROM {table} t")) for table in ("customers", "orders", "order_versions", "ledger"))
    assert [word for word in ("order-Ä", "customer Ü", "kettle", b"order-".hex()) if word in stored] == []
    async with world.api.begin() as connection:
        row, _ = await orders.get_order(connection, "order-Ä 1")
        assert (row["external_ref"], row["body"]["customer_id"], row["body"]["lines"][0]["title"]) == (
            "order-Ä 1",
            "customer Ü",
            "A kettle for Ann",
        )
        assert await orders.find_customer(connection, "customer Ü") == row["customer_id"]
        assert await orders.find_customer(connection, "customer ü") is None
        with pytest.raises(RefundError) as unknown:
            await orders.get_order(connection, "nobody's")
    assert unknown.value.code is Code.ORDER_NOT_FOUND


async def test_the_entry_of_an_order_commits_to_its_id_and_its_customers(world: World) -> None:
    await world.order()
    await world.order("order-2")

    first, second = [one["commitments"] for one in world.rows("SELECT commitments FROM ledger WHERE type = 'order_recorded' ORDER BY id")]
    assert (set(first), set(second)) == ({"order", "customer"}, {"order"})
    [row] = world.rows("SELECT id, customer_id, ref_sealed FROM orders WHERE id = (SELECT min(id) FROM orders)")
    async with world.api.begin() as connection:
        owner = await identifiers.customer(connection, row["customer_id"])
        opening = identifiers.order_opening(owner.key, row["id"], row["ref_sealed"])
    assert opening is not None
    assert opening.commitment in (first["order"], second["order"])


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE orders SET ref_sealed = (SELECT ref_sealed FROM orders o WHERE o.id <> orders.id)",
        "UPDATE customers SET ref_sealed = (SELECT ref_sealed FROM orders LIMIT 1)",
        "UPDATE orders SET ref_sealed = set_byte(ref_sealed, 20, get_byte(ref_sealed, 20) # 1)",
        "UPDATE customer_keys SET wrapped = set_byte(wrapped, 20, get_byte(wrapped, 20) # 1)",
    ],
)
async def test_sealed_ids_that_were_swapped_or_changed_are_not_shown(world: World, change: str) -> None:
    await world.order("order-1")
    await world.order("order-2")
    await world.accept()
    world.execute(change)

    with pytest.raises(Unreadable, match="cannot be decrypted"):
        async with world.api.begin() as connection:
            await views.page(connection, views.Filters(), limit=5, now=world.clock.now())


async def test_bodies_and_keys_are_kept_as_fingerprints_that_nobody_can_try(world: World) -> None:
    await world.order()
    request = world.request()
    refund = await world.accept(request, key="order-1 again")

    row = world.row(refund)
    assert request.body_hash() not in str(row) and "order-1 again" not in str(row)
    assert row["body_hash"] == keyed(_purpose(world, "body"), request.body_hash()).hex()
    assert await world.accept(request, key="order-1 again") == refund
    with pytest.raises(RefundError) as reused:
        await world.accept(world.request(amount=1_000), key="order-1 again")
    assert reused.value.code is Code.IDEMPOTENCY_KEY_REUSED


def _purpose(world: World, purpose: str) -> bytes:
    assert world.api.vault is not None
    return world.api.vault.keys._for(purpose)  # pyright: ignore[reportPrivateUsage]


async def test_a_login_without_the_right_has_no_keys_and_goes_on(world: World) -> None:
    await world.order()
    async with opened(world, grants.WORKER) as worker:
        await worker.check_revision()
        async with worker.begin() as connection:
            with pytest.raises(KeysMissing, match="login may not read sealing_keys"):
                vault.keys_of(connection)
    async with opened(world, refunds_text_key=None) as without:
        await without.check_revision()
        async with without.begin() as connection:
            with pytest.raises(KeysMissing, match="set REFUNDS_TEXT_KEY"):
                await orders.find_customer(connection, "customer-1")


# --- rotation ----------------------------------------------------------------------------------------------------------------------------


async def step(database: Database, *, anew: bool = False, limit: int = 500) -> rotation.Stepped:
    async with database.begin() as connection:
        return await rotation.step(connection, database.clock, actor="test", anew=anew, limit=limit)


async def standing(database: Database) -> rotation.Standing:
    async with database.begin() as connection:
        return await rotation.standing(connection)


async def test_a_rotation_that_is_killed_half_way_goes_on_and_everything_is_readable_meanwhile(world: World, tmp_path: Path) -> None:
    refunds = await shopped(world, 5)
    async with opened(world, refunds_text_key=None, refunds_text_keys_file=key_file(tmp_path, OLD, NEW)) as both:
        began = await step(both, anew=True, limit=2)
        assert (began.began, began.rewrapped, began.done, began.number) == (True, 2, False, 2)
        assert (await standing(both)).left == 3
        # Whoever holds both keys reads everything, half way; nothing more is under the old master key.
        assert [await seen(both, refund) for refund in refunds] == [{"message": f"words {n}"} for n in range(5)]
        assert (await standing(both)).under_other_masters == 0
        with pytest.raises(RuntimeError, match="killed"):
            async with both.begin() as connection:
                await rotation.step(connection, both.clock, actor="test", anew=True, limit=2)
                raise RuntimeError("killed")
        assert (await standing(both)).left == 3

        steps = [await step(both, limit=2), await step(both, limit=2)]
        assert [(one.began, one.rewrapped, one.done) for one in steps] == [(False, 2, False), (False, 1, True)]
        # A new customer gets the new key, and the same customer is found by the same look-up.
        async with both.begin() as connection:
            assert await orders.find_customer(connection, "customer-3") is not None
            await identifiers.put_customer(connection, "later", since=None, at=world.clock.now())
            await enter(connection, "customer_recorded", world.clock.now(), actor="test")
        assert (await standing(both)).left == 0
    # From now on the new key alone is enough, and the old one alone opens nothing.
    async with opened(world, refunds_text_key=encoded(NEW)) as new:
        assert [await seen(new, refund) for refund in refunds] == [{"message": f"words {n}"} for n in range(5)]
    async with opened(world) as old:
        with pytest.raises(Unreadable):
            await old.check_revision()
    types = [
        row["type"]
        for row in world.rows("SELECT type FROM ledger WHERE type IN ('master_key_rotated', 'customer_keys_rewrapped') ORDER BY id")
    ]
    assert types == ["master_key_rotated", *["customer_keys_rewrapped"] * 3]


async def test_another_master_key_is_changed_over_to_although_an_older_rotation_left_something(world: World, tmp_path: Path) -> None:
    refunds = await shopped(world, 3)
    await step(world.api, anew=True, limit=1)
    async with opened(world, refunds_text_key=None, refunds_text_keys_file=key_file(tmp_path, OLD, NEW)) as both:
        stepped = await step(both, anew=True)

        assert (stepped.began, stepped.number, stepped.rewrapped, stepped.done) == (True, 3, 3, True)
        assert ((await standing(both)).left, (await standing(both)).under_other_masters) == (0, 0)
    async with opened(world, refunds_text_key=encoded(NEW)) as new:
        assert [await seen(new, refund) for refund in refunds] == [{"message": f"words {n}"} for n in range(3)]


async def test_a_key_that_somebody_else_holds_is_left_and_that_is_said(world: World) -> None:
    await shopped(world, 2)
    async with world.api.begin() as forgetting:
        await forgetting.execute(text("SELECT 1 FROM customer_keys ORDER BY customer_id LIMIT 1 FOR UPDATE"))
        held = await step(world.api, anew=True)

    assert (held.rewrapped, held.done) == (1, False)
    assert ((await step(world.api)).done, (await standing(world.api)).left) == (True, 0)


async def test_a_step_without_a_rotation_changes_nothing(world: World) -> None:
    await shopped(world, 1)
    before = world.rows("SELECT * FROM customer_keys"), world.rows("SELECT * FROM sealing_keys"), world.count("ledger")

    assert await step(world.api) == rotation.Stepped(name_of(OLD), 1, began=False, rewrapped=0, done=True)

    assert before == (world.rows("SELECT * FROM customer_keys"), world.rows("SELECT * FROM sealing_keys"), world.count("ledger"))


async def test_a_process_that_knows_only_the_old_wrapping_key_finds_the_new_one(world: World) -> None:
    refunds = await shopped(world, 2)
    async with opened(world) as other:
        assert await seen(other, refunds[0]) == {"message": "words 0"}
        await step(world.api, anew=True)
        assert await seen(other, refunds[0]) == {"message": "words 0"}
        assert other.vault is not None
        assert other.vault.keys.newest == 2


async def test_two_that_rotate_at_once_wrap_each_key_once(world: World) -> None:
    await shopped(world, 6)
    await step(world.api, anew=True, limit=1)

    steps = await asyncio.gather(*(step(world.api, limit=2) for _ in range(4)))

    assert (sum(one.rewrapped for one in steps), {one.number for one in steps}) == (5, {2})
    assert world.rows("SELECT DISTINCT wrapping FROM customer_keys") == [{"wrapping": 2}]


async def test_changing_over_to_a_service_and_asking_it_for_no_customer(world: World, service: Service) -> None:
    refunds = await shopped(world, 3)
    kms = {"refunds_text_kms_url": service.url, "refunds_text_kms_token": SecretStr(TOKEN)}
    async with opened(world, **kms) as both:
        assert (await step(both, anew=True)).master == "kms:refunds"
    async with opened(world, refunds_text_key=None, **kms) as alone:
        await alone.check_revision()
        asked = len(service.asked)
        assert [await seen(alone, refund) for refund in refunds] == [{"message": f"words {n}"} for n in range(3)]
        assert len(service.asked) == asked
    service.status = 503
    async with opened(world, refunds_text_key=None, **kms) as down:
        with pytest.raises(Unreadable, match="answered 503 to decrypt"):
            await down.check_revision()
