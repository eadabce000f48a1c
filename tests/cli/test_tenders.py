"""Manual tenders in files of orders: what no processor can return is said with its own column, and checked as the API checks it."""

import pytest

from tests.cli.conftest import FakeApi, Runner
from tests.cli.files_of_orders import Shop, jsonl, order, report, write

HEAD = "order_id,customer_id,currency,payment_id,payment_amount,payment_tender\n"


@pytest.fixture
def shop(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Shop:
    known = Shop(api)
    monkeypatch.setattr(api, "take", known.take)
    return known


GIFT = {"processor": "manual", "tender": "gift_card", "id": "gc-1", "amount": 2_000, "currency": "USD"}


def test_field_48_a_table_tells_the_gift_card_from_the_card(shop: Shop, refunds: Runner) -> None:
    ran = refunds("orders", "import", write("orders.csv", HEAD + "1,c-1,USD,pi_1,70.00,\n1,,,gc-1,20.00,gift_card\n"))
    assert ran.code == 0, ran.err
    assert shop.orders["1"]["payments"] == [{"id": "pi_1", "currency": "USD", "amount": 7_000}, GIFT]


def test_a_line_of_json_takes_the_fields_of_the_api(shop: Shop, refunds: Runner) -> None:
    assert refunds("orders", "import", write("orders.jsonl", jsonl(order(1, payments=[GIFT])))).code == 0
    assert shop.orders["o-1"]["payments"] == [GIFT]


def test_what_is_no_tender_is_a_problem_of_its_column(shop: Shop, refunds: Runner) -> None:
    ran = refunds("orders", "import", write("orders.csv", HEAD + "1,c-1,USD,gc-1,20.00,shells\n2,c-2,USD,pi_2,20.00,cash\n"))
    assert (ran.code, shop.orders) == (1, {})
    assert report("orders.csv")[0] == (2, "1", "INVALID_FIELD", "payment_tender")
    assert [(line, name) for line, name, *_ in report("orders.csv")] == [(2, "1"), (3, "2")]
