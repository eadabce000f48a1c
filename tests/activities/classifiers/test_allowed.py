"""A model is sent what the settings allow, by name of provider, model and region; otherwise nothing, and a person reads (promises P9, P11)."""

import structlog

from activities.classifiers import Failure, NotAllowed, make_classifier
from activities.classifiers.rules import RuleClassifier
from refunds.settings import ClassifierKind, Settings

TEXT = "Please refund $30 for order ORD-1001"
MODEL = {"classifier": ClassifierKind.MODEL, "model": "openai:gpt-5-mini", "model_api_key": "key"}


async def test_a_model_that_is_not_named_is_sent_nothing_and_says_so() -> None:
    with structlog.testing.capture_logs() as logs:
        reader = make_classifier(Settings(**MODEL, model_region="us", readers_allowed="openai:gpt-5-mini@eu=message"))

    answer = await reader.classify(TEXT)

    assert isinstance(reader, NotAllowed)
    assert (answer.reading, answer.failure, answer.sent) == (None, Failure.NOT_ALLOWED, [])
    assert (answer.provider, answer.model, answer.region) == ("openai", "openai:gpt-5-mini", "us")
    [said] = [entry for entry in logs if entry["event"] == "reader_denied"]
    assert (said["reader"], said["denied"]) == ("openai:gpt-5-mini@us", "message")
    assert "READERS_ALLOWED" in said["remedy"]


async def test_being_allowed_another_kind_is_not_being_allowed_the_message() -> None:
    reader = make_classifier(Settings(**MODEL, model_region="eu", readers_allowed="openai:gpt-5-mini@eu=conversation"))

    assert (await reader.classify(TEXT)).failure == Failure.NOT_ALLOWED


async def test_the_rules_need_no_permission_and_say_what_they_read() -> None:
    with structlog.testing.capture_logs() as logs:
        reader = make_classifier(Settings())

    answer = await reader.classify(TEXT)

    assert isinstance(reader, RuleClassifier)
    assert (answer.provider, answer.region, answer.sent) == ("rules", "in_process", ["message"])
    [said] = [entry for entry in logs if entry["event"] == "reader"]
    assert (said["may_read"], said["denied"]) == (["message"], ["conversation", "agent_reasoning", "notes", "order_lines"])


async def test_what_a_model_was_sent_is_recorded_by_name_also_when_it_failed(model_server, reader, script) -> None:
    model_server.play(script.http(500, b"no"))
    failed = await reader().classify(TEXT)
    empty = await reader().classify(" ")

    assert (failed.failure, failed.sent) == (Failure.HTTP_ERROR, ["message"])
    assert (empty.failure, empty.sent) == (Failure.NO_TEXT, [])
    assert len(model_server.calls) == 1
