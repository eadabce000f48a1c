"""Who is meant: names are compared as people write them, because rules about people are worth nothing if a blank defeats them."""

import pytest

from refunds.people import Actor, PrincipalKind

RITA = Actor("pr_1", "rita", "Rita of the tests", PrincipalKind.PERSON)


@pytest.mark.parametrize(
    "written",
    ["rita", "RITA", " rita ", "rita\u200b", "ｒｉｔａ", "Rita  of the  tests", "@rita", "rita@tests.example", "pr_1", "PR_1"],
)
def test_a_person_is_recognised_however_she_is_written(written: str) -> None:
    assert RITA.is_named(written)


@pytest.mark.parametrize("written", ["ravi", "", " ", "@", "rit", "ritas", "of the tests"])
def test_others_are_not(written: str) -> None:
    assert not RITA.is_named(written)
