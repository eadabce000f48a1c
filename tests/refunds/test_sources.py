"""Where fields come from: each is whose it is, and stays so until somebody gives another."""

from typing import Any

import pytest

from refunds import sources
from refunds.classification import Source
from refunds.errors import Code, RefundError
from refunds.requests import RefundRequest, RevisionRequest
from refunds.sources import named_by, quoted

REQUEST = {
    "order_id": "order-1",
    "customer_id": "customer-1",
    "amount": 3_000,
    "currency": "USD",
    "reason": "product_issue",
    "channel": "email",
    "customer_authentication": {"method": "password", "at": "2026-06-01T11:59:00Z"},
}


def asked(asker: Source, **more: object) -> dict[str, str]:
    request = RefundRequest.model_validate(REQUEST | more)
    return sources.asked(request, asker, request.sources)


def test_what_the_customer_asks_for_is_the_customer_s_and_what_is_found_is_of_record() -> None:
    assert asked(Source.CUSTOMER) == {
        **dict.fromkeys(("order_id", "amount", "currency", "reason", "customer_authentication"), "customer"),
        **dict.fromkeys(("customer", "payment", "channel"), "system_of_record"),
    }


def test_an_agent_s_words_are_the_agent_s_also_of_the_channel() -> None:
    said = asked(Source.AGENT, agent_model="m", agent_reasoning="because", conversation_context="hello")

    assert {said[name] for name in ("amount", "channel", "agent_model", "agent_reasoning", "conversation_context")} == {"agent"}


def test_an_order_that_nobody_named_is_of_record() -> None:
    assert asked(Source.PERSON, order_id=None, payment_id="pi_1")["order_id"] == "system_of_record"


def test_a_caller_can_say_that_a_document_or_somebody_else_told() -> None:
    said = asked(Source.PERSON, sources={"amount": "verified_document", "reason": "third_party"})

    assert (said["amount"], said["reason"], said["currency"]) == ("verified_document", "third_party", "person")


@pytest.mark.parametrize("stated", [{"lines": "customer"}, {"amount": "model"}, {"amount": "processor"}, {"customer_id": "customer"}])
def test_nobody_states_a_source_of_what_is_not_given_or_one_that_is_ours_to_tell(stated: dict[str, str]) -> None:
    with pytest.raises((RefundError, ValueError)):
        asked(Source.PERSON, sources=stated)


def test_a_revision_states_no_source_of_what_it_does_not_give() -> None:
    with pytest.raises(RefundError) as refused:
        RevisionRequest.model_validate({"reason": "other", "sources": {"amount": "customer"}})

    assert (refused.value.code, refused.value.field) == (Code.INVALID_FIELD, "sources.amount")


BEFORE = {"amount": "customer", "reason": "customer", "payment": "system_of_record", "currency": "customer"}
QUOTE: dict[str, Any] = {"named": (), "stated": {}, "read": (), "by_lines": False, "full": False, "by_hand": False}


def after(before: dict[str, str], changed: dict[str, Any]) -> dict[str, str]:
    """The sources of a quote that is like any other but for what is changed about it."""
    return quoted(before, **(QUOTE | changed))


def test_terms_that_are_quoted_again_keep_their_sources() -> None:
    assert after(BEFORE, {}) == BEFORE | {"destination": "processor"}


def test_a_revision_changes_the_source_of_what_it_names_and_of_nothing_else() -> None:
    assert after(BEFORE, {"named": ("reason",)}) == BEFORE | {"reason": "person", "destination": "processor"}


def test_what_a_person_took_from_a_document_is_the_document_s() -> None:
    found = after(BEFORE, {"named": ("amount",), "stated": {"amount": "verified_document"}})

    assert found["amount"] == "verified_document"


@pytest.mark.parametrize(
    ("how", "amount"), [({"by_lines": True}, "system_of_record"), ({"full": True}, "processor"), ({"read": ("amount",)}, "model")]
)
def test_an_amount_that_nobody_gave_comes_from_what_told_it(how: dict[str, Any], amount: str) -> None:
    assert after(BEFORE, how)["amount"] == amount


def test_a_currency_that_nobody_gave_is_the_processor_s_and_a_payment_by_hand_is_known_to_the_merchant() -> None:
    assert after({}, {}) == {"currency": "processor", "destination": "processor"}
    assert after({}, {"by_hand": True})["destination"] == "system_of_record"


def test_a_revision_names_what_it_gives_also_a_no() -> None:
    body = {"terms_hash": "x", "payment": None, "amount": 5, "full": False, "reason": None, "currency": "USD", "reverse_transfer": False}

    assert named_by(body) == ["amount", "currency", "reverse_transfer"]
