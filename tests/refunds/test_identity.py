"""Whether a database is still the one that was last used."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.identity import Identity, doubt

BEFORE = Identity("7713646914594251344", 1, 16_994, 4_711)


def test_the_same_database_further_on_is_not_doubted() -> None:
    assert doubt(BEFORE, BEFORE, used=True) is None
    assert doubt(BEFORE, replace(BEFORE, ledger=4_712), used=True) is None


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (replace(BEFORE, system="1"), "another PostgreSQL cluster"),
        (replace(BEFORE, timeline=2), "promoted or recovered"),
        (replace(BEFORE, database=17_001), "it is a copy"),
        (replace(BEFORE, ledger=4_710), "entries of the ledger are missing"),
        (replace(BEFORE, ledger=0), "entries of the ledger are missing"),
    ],
)
def test_what_differs_or_went_back_is_doubted_and_named(now: Identity, why: str) -> None:
    assert why in (doubt(BEFORE, now, used=True) or "")


def test_without_a_witness_only_a_database_that_had_one_is_doubted() -> None:
    assert doubt(None, BEFORE, used=False) is None
    assert "nothing proves" in (doubt(None, BEFORE, used=True) or "")


def test_where_the_cluster_may_not_be_asked_the_ledger_alone_decides() -> None:
    silent = Identity("", 0, 0, 4_711)
    assert doubt(BEFORE, silent, used=True) is None
    assert doubt(silent, BEFORE, used=True) is None
    assert doubt(BEFORE, replace(silent, ledger=1), used=True) is not None


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_ledger_is_doubted_exactly_when_it_is_shorter(before: int, now: int) -> None:
    found = doubt(replace(BEFORE, ledger=before), replace(BEFORE, ledger=now), used=True)
    assert (found is not None) == (now < before)
