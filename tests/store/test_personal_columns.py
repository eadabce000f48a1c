"""Every table is accounted for in docs/personal-data.md, and no new column that could hold words gets in without somebody having thought of it."""

import re

from sqlalchemy import LargeBinary, Text
from sqlalchemy.dialects.postgresql import JSONB

from store.tables import metadata
from tests.conftest import ROOT

# Columns of words or of anything, beside ids and enumerations of ours. A new one belongs here once docs/personal-data.md says why it is no personal datum.
WORDS = frozenset(
    [
        "attempts.detail",
        "attempts.reason",
        "breakers.closed_reason",
        "breakers.figures",
        "breakers.reason",
        "classifications.body",
        "controls.reason",
        "controls.stop_reason",
        "decisions.person",
        "discrepancies.evidence",
        "discrepancies.note",
        "erasures.reason",
        "erasures.reference",
        "events.facts",
        "events.last_error",
        "exchange_rates.source",
        "halts.lifted_reason",
        "halts.reason",
        "instructions.body",
        "instructions.detail",
        "leg_attempts.detail",
        "leg_attempts.reason",
        "ledger.data",
        "ledger_entries.entry",
        "ledger_checkpoints.note",
        "ledger_exports.last_error",
        "legs.detail",
        "legs.request",
        "limit_warnings.subject",
        "operations.request",
        "order_pulls.last_error",
        "order_versions.body",
        "orders.body",
        "outbox.body",
        "outbox.last_error",
        "payment_snapshots.body",
        "policy_versions.note",
        "policy_versions.source",
        "principals.approves_up_to",
        "principals.handle",
        "principals.name",
        "processor_refunds.failure_reason",
        "pulled_payments.detail",
        "reconciliations.last_error",
        "refund_groups.allocation",
        "refund_groups.breakdown",
        "refund_groups.details",
        "refund_groups.requested_by",
        "refunds.channel",
        "refunds.detail",
        "refunds.details",
        "refunds.legs_detail",
        "refunds.requested_by",
        "refunds.review",
        "refunds.sources",
        "revisions.changes",
        "revisions.decision",
        "revisions.facts",
        "revisions.terms",
        "ledger.commitments",
        "ledger_checkpoints.keys",
        "refunds.reason",
        "revisions.sources",
        "breakers.name",
        "limit_warnings.name",
    ]
)
_WORDY = re.compile(
    r"(note|reason|detail|error|name|handle|subject|source|reference|person|requested_by|channel|title|message|text|email|phone|address|entry)$"
)


def rows() -> list[str]:
    page = (ROOT / "docs/personal-data.md").read_text()
    section = page[page.index("## What is kept where") : page.index("## Masking")]
    return [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]


def test_every_table_is_in_the_page_once() -> None:
    named = re.findall(r"`(\w+)`", " ".join(rows()))

    assert sorted(named) == sorted(metadata.tables)


def test_every_column_that_could_hold_words_was_thought_of() -> None:
    found = {
        f"{table.name}.{column.name}"
        for table in metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, JSONB) or (isinstance(column.type, Text) and _WORDY.search(column.name))
    }

    assert found == WORDS


def test_what_is_sealed_is_bytes_and_can_be_taken_away() -> None:
    for table in metadata.tables.values():
        for column in table.columns:
            if column.name.endswith(("_sealed", "_lookup")):
                assert isinstance(column.type, LargeBinary), column
                assert column.nullable, column
