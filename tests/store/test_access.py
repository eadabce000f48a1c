"""What each login may do and not more, keys and people, controls, policies, encrypted text."""

import asyncio
import base64
from datetime import timedelta

import psycopg
import pytest
from pydantic import SecretStr

from refunds.errors import Code, RefundError
from refunds.people import PERSONS_ONLY, PrincipalKind, Role
from refunds.policy import PolicyError, sample_policy_text
from refunds.settings import Mode
from store import bootstrap, controls, grants, policies, principals, snapshots
from store.db import connect
from store.tables import metadata
from store.texts import Unreadable
from tests.conftest import FreshDatabase
from tests.store.world import START, FixedClock, World

LOGINS = sorted(grants.GRANTS)


@pytest.fixture(scope="module")
def migrated(module_database: FreshDatabase) -> World:
    """One database for all the statements that must be refused: none of them changes anything."""
    return World(module_database, FixedClock())


@pytest.mark.parametrize("login", LOGINS)
def test_a_login_may_do_exactly_what_is_granted(migrated: World, login: str) -> None:
    held = {
        (row["table_name"], row["privilege_type"])
        for row in migrated.rows("SELECT table_name, privilege_type FROM information_schema.role_table_grants WHERE grantee = %s", login)
    }
    columns = {
        (row["table_name"], row["privilege_type"], row["column_name"])
        for row in migrated.rows(
            "SELECT table_name, privilege_type, column_name FROM information_schema.column_privileges WHERE grantee = %s", login
        )
        if (row["table_name"], row["privilege_type"]) not in held
    }

    granted, by_column = {("alembic_version", "SELECT")}, set()
    for table, rights in grants.GRANTS[login].items():
        for right in rights:
            what, of_columns, names = right.partition(" (")
            if of_columns:
                by_column |= {(table, what, column.strip()) for column in names.removesuffix(")").split(",")}
            else:
                granted.add((table, right))
    assert held == granted
    assert columns == by_column


@pytest.mark.parametrize("login", LOGINS)
def test_nobody_deletes_anything_but_what_is_personal(migrated: World, login: str) -> None:
    personal = {grants.API: {"customer_keys", "texts"}, grants.WORKER: {"texts"}}.get(login, set[str]())
    for table in set(metadata.tables) - personal:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            migrated.execute(f"DELETE FROM {table}", login=login)


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET data = '{}'",
        "UPDATE policy_versions SET source = ''",
        "UPDATE decisions SET verdict = 'approve'",
        "UPDATE api_keys SET hash = ''",
        "UPDATE operations SET request = '{}'",
        "UPDATE revisions SET terms = NULL",
        "UPDATE processor_binding SET account = 'acct_2'",
        "UPDATE instructions SET body = '{}'",
        "UPDATE texts SET sealed = ''",
        "TRUNCATE ledger",
        "CREATE TABLE mine (id int)",
    ],
)
def test_nobody_but_the_owner_changes_what_is_written_once(migrated: World, login: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        migrated.execute(statement, login=login)


@pytest.mark.parametrize(
    ("login", "statement"),
    [
        (grants.PAYMENTS, "INSERT INTO decisions (id) VALUES ('dec')"),
        (grants.PAYMENTS, "SELECT 1 FROM texts"),
        (grants.PAYMENTS, "UPDATE customers SET account_created_at = NULL"),
        (grants.PAYMENTS, "UPDATE customer_keys SET wrapping = 2"),
        (grants.PAYMENTS, "UPDATE sealing_keys SET master = ''"),
        (grants.PAYMENTS, "SELECT 1 FROM api_keys"),
        (grants.PAYMENTS, "UPDATE controls SET stopped = false"),
        (grants.CLASSIFY, "SELECT 1 FROM operations"),
        (grants.CLASSIFY, "SELECT 1 FROM decisions"),
        (grants.CLASSIFY, "INSERT INTO decisions (id) VALUES ('dec')"),
        (grants.CLASSIFY, "UPDATE refunds SET status = 'approved'"),
        (grants.CLASSIFY, "SELECT 1 FROM payments"),
        (grants.WORKER, "SELECT sealed FROM texts"),
        (grants.WORKER, "SELECT 1 FROM customer_keys"),
        (grants.WORKER, "SELECT 1 FROM sealing_keys"),
        (grants.WORKER, "INSERT INTO operations (id) VALUES ('op')"),
        (grants.WORKER, "INSERT INTO attempts (id) VALUES ('att')"),
        (grants.WORKER, "UPDATE controls SET stopped = false"),
        (grants.WORKER, "SELECT 1 FROM api_keys"),
        (grants.API, "INSERT INTO operations (id) VALUES ('op')"),
        (grants.API, "INSERT INTO attempts (id) VALUES ('att')"),
        (grants.API, "INSERT INTO revisions (refund_id) VALUES ('rf')"),
        (grants.API, "INSERT INTO consumed_decisions (decision_id) VALUES ('dec')"),
        (grants.API, "INSERT INTO payment_snapshots (payment_id) VALUES ('pay')"),
    ],
)
def test_a_process_cannot_do_another_one_s_work(migrated: World, login: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        migrated.execute(statement, login=login)


# --- people and keys ---------------------------------------------------------------------------------------------------------------------


async def make_key(world: World, kind: PrincipalKind = PrincipalKind.PERSON, *roles: Role, **more: object) -> tuple[str, str]:
    async with world.api.begin() as connection:
        owner = await principals.create_principal(connection, world.clock, kind=kind, handle="kim", name="Kim", actor="test")
        values = {"integration": None, "expires_at": None} | more
        row, key = await principals.create_key(
            connection,
            world.clock,
            principal_id=owner["id"],
            roles=roles,
            actor="test",
            **values,  # pyright: ignore[reportArgumentType]
        )
    return row["id"], key


async def who(world: World, key: str) -> str:
    async with world.api.begin() as connection:
        return (await principals.authenticate(connection, key, world.clock.now())).handle


@pytest.mark.parametrize("role", sorted(PERSONS_ONLY))
@pytest.mark.parametrize("kind", [PrincipalKind.SERVICE, PrincipalKind.AGENT])
async def test_roles_that_judge_are_for_persons(world: World, kind: PrincipalKind, role: Role) -> None:
    before = world.count("api_keys")
    with pytest.raises(RefundError) as refusal:
        await make_key(world, kind, role, Role.REQUESTER)

    assert (refusal.value.code, refusal.value.field) == (Code.INVALID_FIELD, "roles")
    assert world.count("api_keys") == before


async def test_a_key_is_stored_as_a_hash_only(world: World) -> None:
    _, key = await make_key(world)

    assert key not in str(world.rows("SELECT * FROM api_keys")) + str(world.rows("SELECT * FROM ledger"))
    assert await who(world, key) == "kim"


async def test_a_revoked_key_is_no_key_at_once(world: World) -> None:
    key_id, key = await make_key(world)
    async with world.api.begin() as connection:
        await principals.revoke_key(connection, world.clock, key_id=key_id, actor="test")
        await principals.revoke_key(connection, world.clock, key_id=key_id, actor="test")

    with pytest.raises(RefundError) as refusal:
        await who(world, key)

    assert refusal.value.code is Code.UNAUTHENTICATED
    assert len(world.rows("SELECT * FROM ledger WHERE type = 'key_revoked'")) == 1


async def test_a_key_expires_at_an_exact_instant(world: World) -> None:
    _, key = await make_key(world, expires_at=START + timedelta(hours=1))

    world.clock.at = START + timedelta(hours=1) - timedelta(microseconds=1)
    assert await who(world, key) == "kim"
    world.clock.at = START + timedelta(hours=1)
    with pytest.raises(RefundError):
        await who(world, key)


async def test_the_key_of_somebody_disabled_is_no_key(world: World) -> None:
    _, key = await make_key(world)
    world.execute("UPDATE principals SET disabled_at = now() WHERE handle = 'kim'")

    with pytest.raises(RefundError):
        await who(world, key)


@pytest.mark.parametrize("handle", ["ann", "ANN", "Ann"])
async def test_a_handle_is_one_person_s_whatever_its_case(world: World, handle: str) -> None:
    with pytest.raises(RefundError) as refusal:
        await world.actor(handle, PrincipalKind.PERSON, Role.REVIEWER)

    assert (refusal.value.code, refusal.value.field) == (Code.INVALID_FIELD, "handle")


async def test_the_first_administrator_is_made_once_and_cannot_decide(world: World) -> None:
    assert await bootstrap.bootstrap(world._pool("refunds_owner")) is None  # pyright: ignore[reportPrivateUsage]

    assert len(world.rows("SELECT 1 FROM principals WHERE handle = 'administrator'")) == 1
    assert PERSONS_ONLY.isdisjoint(bootstrap.ADMINISTRATOR_ROLES)


# --- controls and policies ---------------------------------------------------------------------------------------------------------------


async def stop(world: World, *, stopped: bool = True, mode: str = "live") -> controls.Control:
    async with world.api.begin() as connection:
        return await controls.change(connection, world.clock, stopped=stopped, mode=mode, reason="a test", actor="pr_op")


async def test_a_stop_is_recorded_and_holds_what_is_approved(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=2_000)

    control = await stop(world)
    seen = await world.kept(refund)

    assert (control.stopped, control.reason, control.changed_by) == (True, "a test", "pr_op")
    assert (seen.status, seen.code, world.count("attempts"), world.count("operations")) == ("held", Code.EMERGENCY_STOP, 0, 0)
    assert (await world.steps.resume_held(refund)).status == "held"
    await stop(world, stopped=False)
    assert (await world.steps.resume_held(refund)).status == "approved"
    assert [e["data"]["stopped"] for e in world.rows("SELECT data FROM ledger WHERE type = 'control_changed' ORDER BY id")] == [True, False]


async def test_a_stop_waits_for_an_attempt_that_is_being_opened_and_lists_it(world: World) -> None:
    payment = await world.ready(captured=100_000)
    quoted = [await world.quoted(amount=amount) for amount in (1_000, 1_100, 1_200)]
    seen = [await world.submitting.standing(refund) for refund, _ in quoted]
    state = await world.read(payment, captured=100_000)

    ended = await asyncio.gather(*(world.submitting.open_attempt(s, state) for s in seen), stop(world), return_exceptions=True)
    opened = sum(1 for e in ended[:3] if isinstance(e, tuple))
    async with world.api.begin() as connection:
        listed = await controls.open_attempts(connection)

    assert (len(listed), world.count("attempts")) == (opened, opened)


async def test_draft_mode_decides_and_never_sends(world: World) -> None:
    await world.ready()
    await stop(world, stopped=False, mode="draft")

    refund, seen = await world.quoted(amount=2_000)

    assert seen.status == "drafted"
    await stop(world, stopped=False, mode="live")
    assert (await world.steps.prepare(refund)).status == "drafted"
    assert (await world.kept(refund)).status == "drafted"


async def test_a_policy_comes_into_force_at_its_date_and_not_before(world: World) -> None:
    async def in_force() -> int:
        async with world.api.begin() as connection:
            return (await policies.in_force(connection, world.clock.now())).version

    async with world.api.begin() as connection:
        await policies.publish(
            connection,
            world.clock,
            source=sample_policy_text().replace("refunds_per_week: 3", "refunds_per_week: 2"),
            effective_from=START + timedelta(days=1),
            author_id=None,
            note="",
        )
    assert await in_force() == 1
    world.clock.at = START + timedelta(days=1)
    assert await in_force() == 2


async def test_a_policy_with_a_mistake_is_not_published(world: World) -> None:
    with pytest.raises(PolicyError):
        await world.policy(sample_policy_text().replace("consent_only_up_to: 100.00", "consent_only_up_to: 1.5.0", 1))

    assert world.count("policy_versions") == 1


async def test_a_database_belongs_to_one_account_and_mode(world: World) -> None:
    async def bind(account: str, mode: Mode) -> None:
        async with world.payments.begin() as connection:
            await snapshots.bind(connection, processor="stripe", account=account, mode=mode, at=START)

    await bind("acct_1", Mode.TEST)
    for account, mode in (("acct_2", Mode.TEST), ("acct_1", Mode.LIVE)):
        with pytest.raises(snapshots.WrongAccount):
            await bind(account, mode)


# --- encrypted text ----------------------------------------------------------------------------------------------------------------------


async def read(world: World, refund: str) -> dict[str, str]:
    async with world.api.begin() as connection:
        return await world.texts.read(connection, refund)


async def two_texts(world: World) -> tuple[str, str]:
    await world.order()
    return await world.accept(world.request(message="first words")), await world.accept(world.request(message="other words"))


async def test_text_is_sealed_and_bound_to_its_row(world: World) -> None:
    first, other = await two_texts(world)
    assert b"words" not in b"".join(bytes(r["sealed"]) for r in world.rows("SELECT sealed FROM texts"))

    world.execute("UPDATE texts SET sealed = (SELECT sealed FROM texts WHERE refund_id = %s) WHERE refund_id = %s", other, first)

    with pytest.raises(Unreadable):
        await read(world, first)
    assert await read(world, other) == {"message": "other words"}


async def test_text_is_bound_to_its_kind_and_customer(world: World) -> None:
    first, _ = await two_texts(world)
    await world.order("order-2", "customer-2")
    theirs = await world.accept(world.request(order_id="order-2", customer_id="customer-2", message="their words"))

    world.execute("UPDATE texts SET kind = 'agent_reasoning' WHERE refund_id = %s", first)
    with pytest.raises(Unreadable):
        await read(world, first)
    world.execute("UPDATE texts SET customer_id = (SELECT customer_id FROM refunds WHERE id = %s) WHERE refund_id = %s", first, theirs)
    with pytest.raises(Unreadable):
        await read(world, theirs)


async def test_the_wrong_wrapping_key_opens_nothing(world: World) -> None:
    first, _ = await two_texts(world)

    other = world.settings.model_copy(update={"refunds_text_key": SecretStr(base64.b64encode(bytes(32)).decode())})
    pool = connect(world.database.url(grants.API), world.clock, other, name="other-key")
    with pytest.raises(Unreadable, match="set REFUNDS_TEXT_KEY to that key"):
        async with pool.begin() as connection:
            await world.texts.read(connection, first)
    await pool.close()


async def test_a_changed_byte_is_noticed(world: World) -> None:
    first, _ = await two_texts(world)
    world.execute("UPDATE texts SET sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1) WHERE refund_id = %s", first)

    with pytest.raises(Unreadable):
        await read(world, first)


async def test_each_customer_has_a_key_of_their_own(world: World) -> None:
    await two_texts(world)
    await world.order("order-2", "customer-2")
    await asyncio.gather(
        *(world.accept(world.request(order_id="order-2", customer_id="customer-2", message=f"words {n}")) for n in range(5))
    )

    assert (world.count("customer_keys"), world.count("texts")) == (2, 7)
