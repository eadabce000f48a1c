"""What is never paid is refused by name, wherever it can be asked for."""

from typing import Any

import pytest

from refunds.errors import Code, RefundError
from refunds.requests import GroupRequest, RefundRequest, RevisionRequest, Ticket
from refunds.scope import CREDITS, GOODWILL, PAYOUTS, asked_for

ASKED: dict[str, Any] = {"customer_id": "c", "order_id": "o", "full": True}


def refused(model: Any, body: dict[str, Any]) -> RefundError:
    with pytest.raises(RefundError) as raised:
        model.model_validate(body)
    assert raised.value.code is Code.OUT_OF_SCOPE
    return raised.value


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *[("payout", PAYOUTS), (" Pay-Out ", PAYOUTS), ("iban", PAYOUTS), ("bank account", PAYOUTS)],
        *[("store credit", CREDITS), ("gift_card", CREDITS), ("VOUCHER", CREDITS), ("goodwill", GOODWILL), ("compensation", GOODWILL)],
        *[("product_issue", None), ("other", None), ("", None), (None, None), (5, None), (["payout"], None)],
    ],
)
def test_a_name_says_which_of_the_three_it_asks_for(name: object, kind: str | None) -> None:
    assert asked_for(name) == kind


@pytest.mark.parametrize("model", [RefundRequest, GroupRequest])
def test_as_a_reason(model: Any) -> None:
    error = refused(model, ASKED | {"reason": "store_credit"})
    assert (error.field, error.ids) == ("reason", {"asked": "credits"})
    assert error.detail == "This asks for credit for future purchases, which is never paid here."
    assert refused(RevisionRequest, {"reason": "goodwill"}).ids == {"asked": "goodwill"}


@pytest.mark.parametrize("field", ["payout", "bank_account", "iban", "store_credit", "goodwill_payment"])
def test_as_a_field(field: str) -> None:
    for model, body in (
        (RefundRequest, ASKED),
        (GroupRequest, ASKED),
        (RevisionRequest, {"full": True}),
        (Ticket, {"customer_id": "c", "message": "m"}),
    ):
        assert refused(model, body | {field: True}).field == field


def test_metadata_asks_for_nothing() -> None:
    """It is kept as the merchant's own and never acted on."""
    request = RefundRequest.model_validate(ASKED | {"metadata": {"payout": "yes"}})
    assert request.metadata == {"payout": "yes"}
