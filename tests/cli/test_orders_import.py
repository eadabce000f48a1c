"""`refunds orders import`: how files are read, and every order of them sent whole or reported by its line."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from cli.importing.lines import LONGEST_LINE
from cli.importing.rows import COLUMNS
from tests.cli.conftest import FakeApi, Runner
from tests.cli.files_of_orders import HEAD, Shop, jsonl, order, report, said, write


@pytest.fixture
def shop(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(api)
    monkeypatch.setattr(api, "take", made.take)
    monkeypatch.setattr("time.sleep", lambda _: None)
    return made


TABLE = """order_id,customer_id,placed_at,currency,tax,shipping,payment_id,payment_amount,line_id,line_title,line_quantity,line_amount
1001,c-17,2026-03-01T09:00:00Z,USD,2.40,5.00,pi_1,"1,037.40",shirt,"Shirt, blue",2,30.00
1001,,,,,,pi_2,12.00,desk,"Desk
of oak",1,"1,012.00"
1002,c-18,,EUR,,,ch_3,7.50,,,,
"""

READ = {
    "1001": {
        "customer_id": "c-17",
        "placed_at": "2026-03-01T09:00:00Z",
        "currency": "USD",
        "tax": 240,
        "shipping": 500,
        "payments": [{"id": "pi_1", "currency": "USD", "amount": 103_740}, {"id": "pi_2", "currency": "USD", "amount": 1_200}],
        "lines": [
            {"id": "shirt", "title": "Shirt, blue", "quantity": 2, "amount": 3_000},
            {"id": "desk", "title": "Desk\nof oak", "quantity": 1, "amount": 101_200},
        ],
    },
    "1002": {"customer_id": "c-18", "currency": "EUR", "payments": [{"id": "ch_3", "currency": "EUR", "amount": 750}]},
}


def test_a_table_of_orders_is_read_and_sent(shop: Shop, refunds: Runner) -> None:
    ran = refunds("orders", "import", write("orders.csv", TABLE), "--json")

    assert (ran.code, said(ran)) == (0, {"created": 2, "new_version": 0, "unchanged": 0, "failed": 0})
    assert shop.orders == READ and shop.parts == [["1001", "1002"]]
    assert json.loads(ran.out)["paid"] == {"USD": 104_940, "EUR": 750}
    assert report("orders.csv") == [] and not Path("orders.csv.report.csv.resume").exists()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_samples_in_the_docs_are_read_as_they_say(shop: Shop, refunds: Runner, kind: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "orders.md").read_text()
    (sample,) = re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)

    ran = refunds("orders", "import", write(f"sample.{kind}", sample))

    assert (ran.code, list(shop.orders)) == (0, ["1001", "1002"]), Path(f"sample.{kind}.report.csv").read_text()
    assert [(len(one.get("payments", ())), len(one.get("lines", ()))) for one in shop.orders.values()] == (
        [(2, 2), (1, 0)] if kind == "csv" else [(1, 1), (1, 0)]
    )


def test_the_docs_name_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "orders.md").read_text()

    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `.*?\|", page, re.MULTILINE)))) == set(COLUMNS)


def test_a_repeated_import_changes_nothing(shop: Shop, refunds: Runner) -> None:
    refunds("orders", "import", write("orders.csv", TABLE))

    ran = refunds("orders", "import", "orders.csv")

    assert (ran.code, shop.orders) == (0, READ)
    assert [line.split() for line in ran.out.splitlines()] == [
        ["last", "line", "5"],
        ["created", "0"],
        ["new", "version", "0"],
        ["unchanged", "2"],
        ["paid", "€7.50,", "$1,049.40"],
        ["failed", "0"],
    ]


def test_field_44_amounts_of_a_file_are_read_by_its_locale_and_shown_back_before_they_are_sent(shop: Shop, refunds: Runner) -> None:
    shop.before = lambda number: (503, {"code": "STORE_UNAVAILABLE", "detail": "Away."})

    ran = refunds("orders", "import", write("o.csv", TABLE))

    assert ran.err.splitlines()[0] == (
        "Amounts are read as en_US writes them; line 2, tax: 2.40 is $2.40 (240 USD in the processor's unit)."
    )


@pytest.mark.parametrize("name", ["o.csv", "o.tsv"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_what_spreadsheets_make_of_a_table_reads_the_same(shop: Shop, refunds: Runner, name: str, ends: str, start: bytes) -> None:
    delimiter = "\t" if name.endswith(".tsv") else ","
    rows = list(csv.reader(io.StringIO(TABLE.replace("Desk\nof oak", "Desk of oak"))))
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator=ends).writerows([*rows, [], [""] * len(rows[0])])

    ran = refunds("orders", "import", write(name, start + text.getvalue().encode()))

    assert ran.code == 0, ran.err
    assert {order_id: one["payments"] for order_id, one in shop.orders.items()} == {i: one["payments"] for i, one in READ.items()}


def test_field_44_semicolons_and_decimal_commas(shop: Shop, refunds: Runner) -> None:
    text = 'sep=;\nOrder_ID;customer_id;currency;payment_id;payment_amount\n1;c-1;EUR;pi_1;1.034,45\n2;c-2;EUR;pi_2;"6,95"\n'

    ran = refunds("orders", "import", write("o.csv", text), "--locale", "de_DE")

    assert ran.code == 0, ran.err
    assert [one["payments"][0]["amount"] for one in shop.orders.values()] == [103_445, 695]


def paid(currency: str, amount: str) -> str:
    return f'order_id,customer_id,currency,payment_id,payment_amount\n1,c-1,{currency},pi_1,"{amount}"\n'


@pytest.mark.parametrize(
    ("currency", "amount", "minor"),
    [("JPY", "5,800", 5_800), ("KWD", "18.600", 18_600), ("BHD", "35.200", 35_200), ("ISK", "58", 5_800), ("usd", "$58.00", 5_800)],
)
def test_field_39_and_40_amounts_of_a_file_arrive_in_the_unit_of_their_currency(
    shop: Shop, refunds: Runner, currency: str, amount: str, minor: int
) -> None:
    assert refunds("orders", "import", write("o.csv", paid(currency, amount))).code == 0
    assert shop.orders["1"]["payments"] == [{"id": "pi_1", "currency": currency.upper(), "amount": minor}]


@pytest.mark.parametrize(
    ("currency", "amount", "code"),
    [
        ("JPY", "58.00", "AMOUNT_UNREADABLE"),
        ("KWD", "5.124", "AMOUNT_NOT_SENDABLE"),
        ("USD", "6,95", "AMOUNT_UNREADABLE"),
        ("USD", "2.614", "AMOUNT_UNREADABLE"),
        ("USD", "€25.00", "AMOUNT_UNREADABLE"),
        ("USD", "-5.00", "AMOUNT_UNREADABLE"),
        ("USD", "0.00", "AMOUNT_NOT_POSITIVE"),
    ],
)
def test_field_39_40_and_44_an_amount_of_a_file_that_could_be_read_in_two_ways_is_not_read(
    shop: Shop, refunds: Runner, currency: str, amount: str, code: str
) -> None:
    ran = refunds("orders", "import", write("o.csv", paid(currency, amount)))

    assert (ran.code, shop.parts, report("o.csv")) == (1, [], [(2, "1", code, "payment_amount")])


def test_field_40_a_tax_need_not_be_an_amount_that_can_be_sent(shop: Shop, refunds: Runner) -> None:
    text = "order_id,customer_id,currency,tax,shipping\n1,c-1,KWD,1.181,0\n"

    assert refunds("orders", "import", write("o.csv", text)).code == 0
    assert (shop.orders["1"]["tax"], shop.orders["1"]["shipping"]) == (1_181, 0)


def test_field_34_a_payment_is_read_in_its_own_currency(shop: Shop, refunds: Runner) -> None:
    head = "order_id,customer_id,currency,payment_id,payment_amount,payment_currency\n"
    ran = refunds(
        "orders", "import", write("o.csv", head + '1,c,GBP,pi_1,"96,500.00",inr\n2,c,GBP,pi_2,£10.00,INR\n3,c,GBP,pi_3,10.00,ZZZ\n')
    )

    assert (ran.code, shop.orders["1"]["payments"]) == (1, [{"id": "pi_1", "currency": "INR", "amount": 9_650_000}])
    assert report("o.csv") == [
        (3, "2", "AMOUNT_UNREADABLE", "payment_amount"),
        (4, "3", "UNKNOWN_CURRENCY", "payment_currency"),
    ]


FINE = "9,c-9,USD,pi_9,1.00,,,,\n"


@pytest.mark.parametrize(
    ("rows", "problems"),
    [
        ("1,,USD,,,,,,\n", [(2, "1", "INVALID_FIELD", "customer_id")]),
        ("1,c,,,,,,,\n", [(2, "1", "INVALID_FIELD", "currency")]),
        ("1,c,ZZZ,pi_1,1,,,,\n", [(2, "1", "UNKNOWN_CURRENCY", "currency")]),
        ("1,c,USD,re_1,1,,,,\n", [(2, "1", "PAYMENT_IS_REFUND", "payment_id")]),
        ("1,c,USD,nonsense,1,,,,\n", [(2, "1", "INVALID_FIELD", "payment_id")]),
        ("1,c,USD,pi_1,,,,,\n", [(2, "1", "INVALID_FIELD", "payment_amount")]),
        ("1,c,USD,pi_1,1,,,,\n1,d,,,,,,,\n", [(3, "1", "INVALID_FIELD", "customer_id")]),
        ("1,c,USD,pi_1,1,,,,\n1,,,pi_1,2,,,,\n", [(3, "1", "INVALID_FIELD", "payment_amount")]),
        ("1,c,USD,,,a,1,1.5,\n1,,,,,b,x,2,\n", [(2, "1", "INVALID_FIELD", "line_quantity"), (3, "1", "AMOUNT_UNREADABLE", "line_amount")]),
        ("1,c,USD,,,a,1,1,\n1,,,,,b,1,0,\n", [(3, "1", "INVALID_FIELD", "line_quantity")]),
        ("1,c,USD,,,a,1,1,\n1,,,,,a,1,1,\n", [(2, "1", "INVALID_FIELD", "lines")]),
        ('1,"c\n1",USD,,,,,,\n', [(2, "1", "INVALID_FIELD", "customer_id")]),
        ("1,c\0c,USD,,,,,,\n", [(2, "1", "INVALID_FIELD", "customer_id")]),
        ("1.00234E+11,c,USD,,,,,,\n", [(2, "1.00234E+11", "INVALID_FIELD", "order_id")]),
    ],
    ids=range(14),
)
def test_problems_are_reported_by_line_and_column_and_the_rest_goes_on(
    shop: Shop, refunds: Runner, rows: str, problems: list[tuple[int, str, str, str]]
) -> None:
    ran = refunds("orders", "import", write("o.csv", HEAD + rows + FINE), "--json")

    assert (ran.code, said(ran)["created"], said(ran)["failed"]) == (1, 1, 1)
    assert shop.parts == [["9"]] and report("o.csv") == problems


@pytest.mark.parametrize(
    ("broken", "lines"),
    [
        ("1,c,USD\n", (3, 3)),
        (",c,USD,,,,,,\n", (3, 3)),
        ('1,"c"d,USD,,,,,,\n', (3, 3)),
        ("\xff,c,USD,,,,,,\n", (3, 3)),
        ("x" * (LONGEST_LINE + 10) + "\n", (3, 3)),
    ],
    ids=["too few cells", "no id", "a quote inside", "an id that is no UTF-8", "too long"],
)
def test_a_row_that_may_belong_to_either_neighbour_keeps_both_from_being_half_sent(
    shop: Shop, refunds: Runner, broken: str, lines: tuple[int, int]
) -> None:
    text = HEAD + "1,c,USD,pi_1,1.00,,,,\n" + broken + "2,c,USD,pi_2,1.00,,,,\n2,,,pi_3,1.00,,,,\n" + FINE

    ran = refunds("orders", "import", write("o.csv", text.encode("latin-1")))

    assert (ran.code, shop.parts) == (1, [["9"]])
    assert report("o.csv") == [(lines[0], "1", "INVALID_FIELD", ""), (4, "2", "INVALID_FIELD", "")]


def test_a_quote_that_is_never_closed_loses_nothing_quietly(shop: Shop, refunds: Runner) -> None:
    text = HEAD + FINE + "1,c,USD,pi_1,1.00,,,,\n" + '2,"c,USD,pi_2,1.00,,,,\n' + "3,c,USD,pi_3,1.00,,,,\n" * 3

    ran = refunds("orders", "import", write("o.csv", text))

    assert (ran.code, shop.parts) == (1, [["9"]])
    (row,) = csv.DictReader(io.StringIO(Path("o.csv.report.csv").read_text()))
    assert (row["line"], row["order"]) == ("4", "1") and row["what"].startswith("Lines 4 to 7 cannot be read, because a quote")


def test_a_cell_that_is_no_utf8_is_said_by_its_line(shop: Shop, refunds: Runner) -> None:
    text = HEAD + "1,c,USD,,,a,1.00,1,Caf\xe9\n" + FINE

    ran = refunds("orders", "import", write("o.csv", text.encode("cp1252")))

    assert (ran.code, shop.parts, report("o.csv")) == (1, [["9"]], [(2, "1", "INVALID_FIELD", "line_title")])
    assert "CSV UTF-8" in Path("o.csv.report.csv").read_text()


def test_an_order_that_comes_twice_counts_once(shop: Shop, refunds: Runner) -> None:
    refunds("orders", "import", write("o.csv", HEAD + FINE + "1,c,USD,,,,,,\n" + FINE))
    refunds("orders", "import", write("o.jsonl", jsonl(order(1), order(2), order(1, tax=5))))

    assert shop.parts == [["9", "1"], ["o-1", "o-2"]]
    assert report("o.csv") == [(4, "9", "INVALID_FIELD", "order_id")] and report("o.jsonl") == [(3, "o-1", "INVALID_FIELD", "order_id")]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("o.csv", b"", "empty"),
        ("o.csv", b"\n\n", "empty"),
        ("o.jsonl", b"", "no orders"),
        ("o.csv", HEAD.encode(), "no orders"),
        ("o.csv", b"order_id,customer_id\n", "lacks currency"),
        ("o.csv", b"order_id,customer_id,currency,dicsount\n", "not known are dicsount"),
        ("o.csv", b"order_id,customer_id,currency,tax,tax\n", "twice there are tax"),
        ("o.csv", b"1,2,3\n", "lacks order_id, customer_id, currency"),
        ("o.csv", HEAD.encode("utf-16"), "UTF-16"),
        ("o.csv", b"order_id,customer_id,currency,\xff\n", "not UTF-8"),
        ("o.jsonl", b"[\n{}\n]\n", "refunds orders put"),
        ("o.txt", b"x", "--format"),
    ],
    ids=range(12),
)
def test_a_file_that_is_none_is_said_in_one_line(shop: Shop, refunds: Runner, name: str, content: bytes, says: str) -> None:
    ran = refunds("orders", "import", write(name, content))

    assert (ran.code, shop.parts, ran.out) == (2, [], "") and says in ran.err and ran.err.count("\n") == 1


def test_problems_of_json_lines_are_reported_by_line_and_field(shop: Shop, refunds: Runner) -> None:
    text = jsonl(
        order(1),
        "",
        "not json",
        "[1]",
        '{"order_id": "o-5", "order_id": "o-6"}',
        order(7, tax=1.5),
        order(8, colour="red", customer_id="a\0b"),
        {"customer_id": "c"},
        order(10, payments=[{"id": "pi_1", "amount": "30.00", "currency": "USD"}]),
        order(11, placed_at="2026-03-01 09:00:00"),
        order(12),
    )

    ran = refunds("orders", "import", write("o.jsonl", text), "--json")

    assert (ran.code, said(ran)) == (1, {"created": 2, "new_version": 0, "unchanged": 0, "failed": 8})
    assert shop.parts == [["o-1", "o-12"]]
    assert sorted(report("o.jsonl")) == [
        (3, "", "MALFORMED_JSON", ""),
        (4, "", "MALFORMED_JSON", ""),
        (5, "", "MALFORMED_JSON", ""),
        (6, "o-7", "INVALID_FIELD", "tax"),
        (7, "o-8", "INVALID_FIELD", "customer_id"),
        (7, "o-8", "UNKNOWN_FIELD", "colour"),
        (8, "", "INVALID_FIELD", "order_id"),
        (9, "o-10", "INVALID_FIELD", "payments.0.amount"),
        (10, "o-11", "INVALID_FIELD", "placed_at"),
    ]


@pytest.mark.parametrize(
    "written", ["45352", "45352.375", "1772355600", "20260301", "01.03.2026 09:00", "2026-03-01", "2026-03-01 09:00:00"]
)
def test_a_time_is_never_guessed_from_what_a_spreadsheet_makes_of_it(shop: Shop, refunds: Runner, written: str) -> None:
    text = f"order_id,customer_id,currency,placed_at\n1,c,USD,{written}\n"

    assert refunds("orders", "import", write("o.csv", text)).code == 1
    assert refunds("orders", "import", write("o.jsonl", jsonl(order(1, placed_at=written)))).code == 1
    assert shop.parts == [] and report("o.csv") == [(2, "1", "INVALID_FIELD", "placed_at")]
    assert "2026-03-01T09:00:00Z" in Path("o.csv.report.csv").read_text()


def test_what_the_record_contradicts_is_reported_at_its_line(shop: Shop, refunds: Runner) -> None:
    shop.refuses["1001"] = {"code": "ORDER_CONFLICT", "field": "payments.1.id", "detail": "This payment belongs to another order."}

    ran = refunds("orders", "import", write("o.csv", TABLE))

    assert (ran.code, list(shop.orders), report("o.csv")) == (1, ["1002"], [(3, "1001", "ORDER_CONFLICT", "payment_id")])
    assert "1 problems, line by line: o.csv.report.csv" in ran.err


def test_a_dry_run_sends_and_remembers_nothing(shop: Shop, refunds: Runner) -> None:
    ran = refunds("orders", "import", write("o.csv", TABLE + "3,c,,ZZZ,,,,,,,,\n"), "--dry-run", "--report", "r.csv")

    assert (ran.code, shop.api.calls) == (1, []) and "Nothing was sent (--dry-run)." in ran.err and "€7.50, $1,049.40" in ran.out
    assert sorted(one.name for one in Path().iterdir()) == ["o.csv", "r.csv"] and Path("r.csv").read_text().count("UNKNOWN_CURRENCY") == 1


def test_a_report_holds_no_formula(shop: Shop, refunds: Runner) -> None:
    refunds("orders", "import", write("o.csv", HEAD + "=HYPERLINK(1),c,ZZZ,,,,,,\n"))

    assert next(csv.DictReader(io.StringIO(Path("o.csv.report.csv").read_text())))["order"] == "'=HYPERLINK(1)"


def test_the_report_does_not_overwrite_the_file(shop: Shop, refunds: Runner) -> None:
    ran = refunds("orders", "import", write("o.csv", TABLE), "--report", "./o.csv")

    assert (ran.code, Path("o.csv").read_text()) == (2, TABLE)
