"""Which readers may be given what: nothing that is not named."""

import pytest

from refunds.readers import IN_PROCESS, DataKind, Reader, denied, may_read, named, parse_allowances

EU = "openai:gpt-5-mini@eu=message"


@pytest.mark.parametrize(
    ("setting", "model", "region", "may"),
    [
        ("", "openai:gpt-5-mini", "eu", set()),
        (EU, "openai:gpt-5-mini", "eu", {"message"}),
        (EU, "openai:gpt-5-mini", "us", set()),
        (EU, "openai:gpt-5-mini", None, set()),
        (EU, "openai:gpt-5", "eu", set()),
        (EU, "openai-responses:gpt-5-mini", "eu", set()),
        (f"{EU}; openai:*@eu=conversation", "openai:gpt-5-mini", "eu", {"message", "conversation"}),
        ("ollama:*@local=message, notes", "ollama:llama3:8b", "local", {"message", "notes"}),
        ("google-vertex:claude@20250101@europe-west1=order_lines", "google-vertex:claude@20250101", "europe-west1", {"order_lines"}),
    ],
)
def test_a_reader_may_read_what_is_named_for_it_and_nothing_else(setting: str, model: str, region: str | None, may: set[str]) -> None:
    reader, allowances = named(model, region), parse_allowances(setting)

    assert may_read(reader, allowances) == {DataKind(kind) for kind in may}
    assert {*may_read(reader, allowances), *denied(reader, allowances)} == set(DataKind)


def test_our_own_rules_read_the_message_and_nothing_else() -> None:
    assert may_read(IN_PROCESS, ()) == {DataKind.MESSAGE}
    assert may_read(Reader("rules", "patterns", "eu"), ()) == set(), "nobody else is called so and reads for it"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("openai:gpt-5-mini=message", "provider:model@region"),
        ("gpt-5-mini@eu=message", "provider:model@region"),
        ("openai:gpt-5-mini@eu", "provider:model@region"),
        ("openai:gpt-5-mini@EU!=message", "provider:model@region"),
        ("*:*@eu=message", "never a provider"),
        ("openai:gpt-*@eu=message", "a part of a name"),
        ("openai:gpt-5-mini@eu=messages", "no kind of data; there are message,"),
        ("openai:gpt-5-mini@eu=", "no kind of data"),
        (f"{EU};openai", "provider:model@region"),
    ],
)
def test_what_cannot_be_read_says_what_is_wrong(setting: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("*", "\\*")):
        parse_allowances(setting)
