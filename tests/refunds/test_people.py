"""Who is meant: names are compared as people write them, because rules about people are worth nothing if a blank defeats them."""

import pytest

from refunds.people import Actor, PrincipalKind, readable_name

RITA = Actor("pr_1", "rita", "Rita of the tests", PrincipalKind.PERSON)


@pytest.mark.parametrize(
    "written",
    [
        *("rita", "RITA", " rita ", "rita\u200b", "ｒｉｔａ", "Rita  of the  tests", "@rita", "rita@tests.example", "pr_1", "PR_1"),
        *(
            "Rita.",
            '"rita"',
            "(Rita)",
            "rita,",
            "- rita -",
            "Rita, of the tests.",
            "rita of  the – tests",
            "@rita!",
            "<rita@tests.example>",
            "rita.of.the.tests",
            "Rita_of-the_tests@tests.example",
        ),
        *(
            "rit\u0430",
            "r\u0456t\u0430",
            "rit\u03b1",
            "R\u0399TA",
            "r\u0131ta",
            "rita\u0301",
            "rít\u00e0",
            "RİTA",
            "r\u0336ita",
            "\u202erita",
        ),
        *("𝓻𝓲𝓽𝓪", "ⓡⓘⓣⓐ", "rita\u3164", "rita\ufe0f", "r\u00adita", "r\u034fita", "rita\U000e0061"),
    ],
)
def test_a_person_is_recognised_however_she_is_written(written: str) -> None:
    assert RITA.is_named(written)


@pytest.mark.parametrize("written", ["ravi", "", " ", "@", ".", "rit", "ritas", "rit.a", "ritaof the tests", "of the tests"])
def test_others_are_not(written: str) -> None:
    assert not RITA.is_named(written)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("rita", "rita"),
        ("ｒｉｔａ", "rita"),
        ("e\u0301lise", "\u00e9lise"),
        ("Nguyễn Văn Ước", "Nguyễn Văn Ước"),
        ("Ёлкина Анна", "Ёлкина Анна"),
        ("Γιάννης", "Γιάννης"),
        ("דָּוִד", "דָּוִד"),
        ("山田 太郎 (Taro)", "山田 太郎 (Taro)"),
        ("ヤマダ・たろう", "ヤマダ・たろう"),
        ("김 Rita", "김 Rita"),
        ("अनीता", "अनीता"),
        ("sam@shop.example +2", "sam@shop.example +2"),
        ("Zoë O’Neill-Łuk", "Zoë O’Neill-Łuk"),
        ("ışıl", "ışıl"),
    ],
)
def test_a_name_is_kept_as_people_write_it(written: str, kept: str) -> None:
    assert readable_name(written) == kept


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("rit\u0430", "cyrillic, latin"),
        ("rit\u03b1", "greek, latin"),
        ("rita \u0418\u0432\u0430\u043d", "cyrillic, latin"),
        ("rit\u13aa", "cherokee, latin"),
        ("山田\u0430", "cjk, cyrillic"),
        ("rita\u200b", "U+200B"),
        ("\u202eatir", "U+202E"),
        ("\u2067rita", "U+2067"),
        ("rita\u00ad", "U+00AD"),
        ("rita\ufeff", "U+FEFF"),
        ("rita\ufe0f", "U+FE0F"),
        ("rita\u3164", "U+1160"),
        ("rita\u2800", "U+2800"),
        ("rita\U000e0061", "U+E0061"),
        ("rita\u0085", "U+0085"),
        ("rita\u2028", "U+2028"),
        ("rita\ue000", "U+E000"),
        ("\u0301rita", "U+0301"),
        ("rita \u0301", "U+0301"),
        ("r\u0336\u0337\u0338ita", "U+0338"),
        ("\ufdfa" * 20, "200"),
    ],
)
def test_a_name_that_can_be_read_as_another_is_refused(written: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("+", r"\+")) as refused:
        readable_name(written)

    assert "rita" not in str(refused.value)
