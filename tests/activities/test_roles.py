"""The steps of each role with that role's own login, and what a login may not do (least privilege by process)."""

from collections.abc import AsyncIterator

import psycopg
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.classifiers import make_classifier
from activities.classify import Classify
from activities.prepare import Prepare
from activities.read_payment import PaymentReader
from refunds.messages import StepInput
from store import snapshots
from store.classifying import Classifying
from store.db import connect
from store.snapshots import WrongAccount
from store.texts import Texts
from tests.activities.shop import Shop
from tests.conftest import FreshDatabase

WORDS = "My kettle arrived broken, please send back $30.00. Yours, Ann Example of 7 Hidden Lane"


@pytest.fixture
async def reading(shop: Shop, module_database: FreshDatabase) -> AsyncIterator[Classify]:
    """The step of the classify role, over its own login."""
    database = connect(module_database.url("refunds_classify"), shop.clock, shop.settings, name="test-classify")
    classifier = make_classifier(shop.settings)
    yield Classify(Classifying(database, Texts(shop.clock)), classifier)
    await classifier.aclose()
    await database.close()


async def test_a_process_that_hosts_no_payments_says_what_it_needs(shop: Shop, reading: Classify) -> None:
    """Refunds asks for the text to be read, then for the payment, then it can quote: three roles, each with its own login."""
    intent = await shop.paid()
    refund_id = await shop.received(intent, message=WORDS)
    alone = Prepare(shop.steps, None)

    first = await ActivityEnvironment().run(alone.prepare, StepInput(refund_id))
    assert (first.status, first.needs) == ("received", "classify")
    await ActivityEnvironment().run(reading.classify, StepInput(refund_id))
    second = await ActivityEnvironment().run(alone.prepare, StepInput(refund_id))
    assert (second.status, second.needs) == ("received", "read_payment")
    reader = PaymentReader(shop.payments, shop.processor, shop.clock)
    await ActivityEnvironment().run(reader.read_payment, StepInput(refund_id, message=second.payment))
    third = await ActivityEnvironment().run(alone.prepare, StepInput(refund_id))

    assert (third.needs, third.revision, third.amount) == ("", 1, 3_000)
    assert (await shop.row(refund_id))["run_seen_at"] is not None
    again = await ActivityEnvironment().run(alone.prepare, StepInput(refund_id))
    assert (again.status, again.version) == (third.status, third.version)


async def test_a_text_is_read_once(shop: Shop, reading: Classify) -> None:
    refund_id = await shop.received(await shop.paid(), message=WORDS)

    for _ in range(2):
        await ActivityEnvironment().run(reading.classify, StepInput(refund_id))

    assert (await shop.entries(refund_id)).count("classified") == 1
    [kept] = await shop.query("SELECT body::text AS body FROM classifications WHERE refund_id = :r", r=refund_id)
    assert [word for word in ("kettle", "Ann", "Hidden", "Lane") if word in kept["body"]] == []


async def test_a_payment_nobody_knows_is_denied_by_name(shop: Shop) -> None:
    refund_id = await shop.received("pi_never_seen")
    await shop.prepared(refund_id)

    assert await shop.ended(refund_id) == ("denied", "PAYMENT_MISSING")


async def test_a_processor_that_cannot_be_asked_leaves_the_request_waiting(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.received(intent)
    await shop.fault("refund.list", {"kind": "status", "status": 503}, times=2)

    found = await shop.prepared(refund_id)
    assert (found.status, found.needs) == ("received", "read_payment")
    reader = PaymentReader(shop.payments, shop.processor, shop.clock)
    with pytest.raises(ApplicationError) as caught:
        await ActivityEnvironment().run(reader.read_payment, StepInput(refund_id, message=found.payment))

    assert caught.value.type == "NotSent"
    assert (await shop.prepared(refund_id)).status == "approved"


async def test_field_30_more_than_was_captured_is_refused_and_the_captured_part_is_paid(shop: Shop) -> None:
    intent = await shop.paid(10_000, captured=6_000)
    too_much = await shop.received(intent, 7_000)
    await shop.prepared(too_much)
    assert await shop.ended(too_much) == ("denied", "EXCEEDS_REFUNDABLE")

    refund_id = await shop.approved(intent, 6_000)
    assert (await shop.submit(refund_id)).status == "succeeded"
    one_more = await shop.received(intent, 1)
    await shop.prepared(one_more)

    assert await shop.ended(one_more) == ("denied", "ALREADY_REFUNDED")
    assert [refund["amount"] for refund in (await shop.truth(intent))["refunds"]] == [6_000]


FORBIDDEN = [
    ("refunds_api", "UPDATE decisions SET verdict = 'approve'"),
    ("refunds_api", "INSERT INTO operations SELECT * FROM operations"),
    ("refunds_api", "UPDATE attempts SET outcome = 'not_sent'"),
    ("refunds_api", "INSERT INTO revisions SELECT * FROM revisions"),
    ("refunds_worker", "INSERT INTO attempts SELECT * FROM attempts"),
    ("refunds_worker", "SELECT * FROM texts"),
    ("refunds_worker", "UPDATE revisions SET terms = '{}'"),
    ("refunds_worker", "UPDATE controls SET stopped = false"),
    ("refunds_classify", "SELECT * FROM decisions"),
    ("refunds_classify", "UPDATE refunds SET status = 'approved'"),
    ("refunds_classify", "UPDATE refunds SET amount = 1"),
    ("refunds_payments", "SELECT * FROM texts"),
    ("refunds_payments", "INSERT INTO decisions SELECT * FROM decisions"),
    ("refunds_payments", "UPDATE revisions SET terms = '{}'"),
    ("refunds_payments", "UPDATE controls SET stopped = false"),
    ("refunds_payments", "UPDATE operations SET request = '{}'"),
    *((login, "UPDATE ledger SET data = '{}'") for login in ("refunds_api", "refunds_worker", "refunds_classify", "refunds_payments")),
    *((login, "DELETE FROM ledger") for login in ("refunds_api", "refunds_worker", "refunds_classify", "refunds_payments")),
    *((login, "DELETE FROM consumed_decisions") for login in ("refunds_api", "refunds_worker", "refunds_payments")),
]


@pytest.mark.parametrize(("login", "statement"), FORBIDDEN)
def test_what_a_login_may_not_do(module_database: FreshDatabase, login: str, statement: str) -> None:
    with module_database.connect(login) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)


@pytest.mark.parametrize(("account", "mode"), [("acct_other", "test"), (None, "live")])
async def test_a_database_of_another_account_or_mode_is_refused(shop: Shop, account: str | None, mode: str) -> None:
    ours = await shop.processor.account()
    database = shop.payments.database
    with pytest.raises(WrongAccount, match=ours):
        async with database.begin() as connection:
            await snapshots.bind(connection, processor="stripe", account=account or ours, mode=mode, at=shop.clock.now())
