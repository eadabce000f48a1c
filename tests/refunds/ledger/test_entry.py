"""The canonical form of an entry: the same row gives the same bytes for ever, whoever writes them."""

import hashlib
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from refunds.ledger import verifier
from refunds.ledger.entry import EXACT, hash_of, hash_of_json, number, read
from refunds.ledger.merkle import EMPTY_ROOT
from tests.refunds.ledger.logs import NOW, START, row

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-EXACT, EXACT), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)


def test_the_bytes_of_an_entry_are_these_and_stay_these() -> None:
    entry = number(row(5, refund_version=6, data='{"b": 1, "a": "ä"}'), 6, EMPTY_ROOT)
    assert entry.entry == (
        '{"actor":"pr_1","at":"2026-03-01T12:00:05.000005Z","commitments":{"message":"' + "ab" * 32 + '"},"data":{"a":"ä","b":1},'
        '"on_behalf_of":null,"previous":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","refund":"rf_0",'
        '"refund_version":6,"seq":6,"type":"status_changed","v":1}'
    )
    assert entry.hash.hex() == "d1184253b24244349237b74dffdfe06eb992691a9f778f3eb47a2df0f7cd87c8"


def test_field_75_the_time_is_what_the_database_keeps_and_in_utc() -> None:
    elsewhere = START.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert number(row(0, at=elsewhere), 1, EMPTY_ROOT) == number(row(0, at=START), 1, EMPTY_ROOT)
    assert json.loads(number(row(0, at=START + timedelta(microseconds=1)), 1, EMPTY_ROOT).entry)["at"].endswith("12:00:00.000001Z")
    with pytest.raises(ValueError, match="without a zone"):
        number(row(0, at=datetime(2026, 3, 1)), 1, EMPTY_ROOT)  # noqa: DTZ001 - the point


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        (str(EXACT), EXACT),
        (str(EXACT + 1), str(EXACT + 1)),
        (str(-EXACT - 1), str(-EXACT - 1)),
        ("1.0", "1.0"),
        ("1e400", "1e400"),
        ("-0", 0),
    ],
)
def test_numbers_that_not_every_reader_keeps_are_written_as_text(stored: str, kept: Any) -> None:
    assert read(f'{{"n": {stored}}}') == {"n": kept}
    entry = number(row(1, data=f'{{"n": {stored}}}'), 1, EMPTY_ROOT)
    assert verifier.read_entry(entry.entry.encode(), 1, NOW)["data"] == {"n": kept}


@given(VALUES)
def test_both_ways_to_write_canonical_json_agree(value: Any) -> None:
    assert verifier.canonical(value) == rfc8785.dumps(value)
    assert verifier.read_json(rfc8785.dumps(value)) == value


def test_names_are_sorted_by_their_utf_16_units() -> None:
    # RFC 8785, section 3.2.3: the published example, with the characters whose order differs from that of code points.
    value = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7}
    assert list(json.loads(verifier.canonical(value)).values()) == [2, 4, 6, 7, 1, 5, 3]
    assert verifier.canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(TEXT, VALUES, max_size=4), st.integers(1, 2**40))
def test_whatever_a_row_holds_makes_an_entry_that_verifies(data: dict[str, Any], seq: int) -> None:
    entry = number(row(1, data=json.dumps(data)), seq, EMPTY_ROOT)
    assert verifier.read_entry(entry.entry.encode(), seq, NOW)["data"] == data
    assert entry.hash == verifier.leaf_hash(entry.entry.encode())


@given(VALUES)
def test_what_is_stored_beside_its_hash_has_the_hash_of_its_canonical_form(value: Any) -> None:
    assert hash_of(value) == hashlib.sha256(rfc8785.dumps(value)).hexdigest()


@pytest.mark.parametrize(
    ("written", "read_back"),
    [
        ("1e-05", "0.00001"),
        ("0.1", "0.1"),
        ("1e+22", "10000000000000000000000"),
        ("9007199254740993", "9007199254740993"),
        ("1.50", "1.50"),
    ],
)
def test_a_number_has_the_same_hash_before_it_is_stored_and_after(written: str, read_back: str) -> None:
    assert hash_of_json(f'{{"a":{written}}}') == hash_of_json(f'{{"a": {read_back}}}')
