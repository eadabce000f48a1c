"""The files of a period: what a spreadsheet gets is data and never a formula, and what is in a line reads back exactly."""

import csv
import hashlib
import io
import json
from datetime import UTC, datetime

import pytest

from refunds.period import File, csv_line, json_line, manifest, manifest_hash, plain

AT = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize("text", ['=HYPERLINK("http://x")', "+1+1", "-2+3", "@SUM(A1)", "\tx", "\r=1", "\n=1"])
def test_field_55_a_text_that_a_spreadsheet_would_run_is_shown_as_text(text: str) -> None:
    [[cell]] = list(csv.reader(io.StringIO(csv_line([text]), newline="")))

    assert cell == "'" + text


def test_numbers_stay_numbers_and_what_is_not_there_is_empty() -> None:
    assert (
        csv_line([-5, None, True, "a,b", 'say "x"', {"b": 1, "a": "ü"}])
        == '"-5","","true","a,b","say ""x""","{""a"": ""ü"", ""b"": 1}"\r\n'
    )


def test_a_line_of_json_is_canonical_and_exact() -> None:
    record = plain({"b": 2**60, "a": AT, "c": {"d": [AT, 1.5]}})

    assert (
        json_line(record)
        == '{"a":"2026-03-01T12:00:00.000005Z","b":"1152921504606846976","c":{"d":["2026-03-01T12:00:00.000005Z","1.5"]}}\n'
    )
    assert json.loads(json_line(record)) == record


def test_a_file_s_hash_is_of_its_bytes_and_headers_are_no_records() -> None:
    file = File("x.csv")
    file.add("a\r\n", record=False)
    file.add("ü\r\n")

    assert file.said() == {"sha256": hashlib.sha256("a\r\nü\r\n".encode()).hexdigest(), "records": 1}


def test_a_manifest_with_anything_else_in_it_has_another_hash() -> None:
    one = manifest(AT, AT, AT, "pr_1", {"a.csv": {"sha256": "x", "records": 1}})

    assert manifest_hash(one) != manifest_hash(one | {"by": "pr_2"})
