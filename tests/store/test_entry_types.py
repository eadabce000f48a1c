"""docs/ledger-entries.md is the list of all entries that the code can make, with their data; every table is record or none, with a reason."""

import re

from store.tables import metadata
from tests.entry_types import ELSEWHERE, MADE_OF_PARTS, ROOT, written
from tests.witness import NO_RECORD, RECORD

PAGE = (ROOT / "docs" / "ledger-entries.md").read_text()
ROWS: dict[str, str] = dict(re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", PAGE, re.MULTILINE))
GIVEN_AS_A_VARIABLE = {
    **dict.fromkeys(("receipt", "adopted"), "store/receipts.py"),
    **dict.fromkeys(("external_refund", "external_refund_changed"), "store/observing.py"),
    "control_refused": "api/routes/controls.py",
    "approving_refused": "api/routes/access.py",
    "policy_refused": "api/routes/policy.py",
    "delegation_refused": "api/routes/delegations.py",
}


def test_the_page_names_every_type_of_entry_and_no_other() -> None:
    parts = {name for names in MADE_OF_PARTS.values() for name in names}

    assert ROWS.keys() == written().keys() | parts | ELSEWHERE.keys() | GIVEN_AS_A_VARIABLE.keys()


def test_the_page_names_the_data_that_is_written_out() -> None:
    missing = {name: sorted(data - set(re.findall(r"`(\w+)`", ROWS[name]))) for name, data in written().items()}

    assert {name: data for name, data in missing.items() if data} == {}


def test_types_that_are_given_as_a_variable_stand_where_they_are_said_to() -> None:
    for name, path in GIVEN_AS_A_VARIABLE.items():
        assert f'"{name}"' in (ROOT / path).read_text(), name


def test_every_table_is_of_the_record_or_has_a_reason_not_to_be() -> None:
    assert RECORD.keys() | NO_RECORD.keys() == {table.name for table in metadata.sorted_tables} | {"alembic_version"}
    assert RECORD.keys() & NO_RECORD.keys() == set()
    for table, ignored in RECORD.items():
        assert set(ignored) <= set(metadata.tables[table].columns.keys()), table
