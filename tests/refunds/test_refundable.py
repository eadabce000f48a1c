"""What is still refundable: one fold, never negative, each refund counted once."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from refunds.processor import DisputeState, PaymentState, PaymentStatus, ProcessorRefund, RefundState
from refunds.refundable import Claim, refundable

READ_AT = datetime(2026, 9, 10, 12, tzinfo=UTC)


def payment(
    *refunds: ProcessorRefund, captured: int = 10_000, capturable: int = 0, status: PaymentStatus = PaymentStatus.CAPTURED
) -> PaymentState:
    return PaymentState("pi_1", status, "USD", captured, capturable, refunds, DisputeState.NONE, "normal", READ_AT)


def shown(id: str, amount: int, state: RefundState = RefundState.SUCCEEDED, operation: str | None = None) -> ProcessorRefund:
    return ProcessorRefund(id, "pi_1", amount, "USD", state, state.value, operation)


def test_field_15_succeeded_and_pending_are_counted_once() -> None:
    found = refundable(payment(shown("re_1", 4_000), shown("re_2", 3_000, RefundState.PENDING)), [Claim("rf_2", 3_000, "op_2", "re_2")])
    assert (found.returned, found.reserved, found.remaining) == (7_000, 0, 3_000)


def test_field_30_the_base_is_what_was_captured() -> None:
    partly = payment(captured=6_000, capturable=4_000)
    assert refundable(partly, []).remaining == 6_000
    assert refundable(partly, [Claim("rf_1", 6_000)]).remaining == 0


def test_field_34_refunds_made_elsewhere_count_and_are_told_apart() -> None:
    found = refundable(payment(shown("re_x", 2_000), shown("re_1", 500)), [], ours=frozenset({"re_1"}))
    assert (found.external, found.returned, found.remaining) == (2_000, 2_500, 7_500)


def test_a_lost_answer_is_recognised_by_our_operation_and_counts_once() -> None:
    found = refundable(payment(shown("re_1", 2_500, operation="op_1")), [Claim("rf_1", 2_500, "op_1")])
    assert (found.returned, found.reserved, found.external, found.remaining) == (2_500, 0, 0, 7_500)


def test_a_claim_the_list_does_not_show_still_counts() -> None:
    found = refundable(payment(), [Claim("rf_1", 2_500, "op_1", "re_1"), Claim("rf_2", 1_000)])
    assert (found.reserved, found.remaining) == (3_500, 6_500)


def test_failed_and_canceled_refunds_give_their_amount_back_and_unknown_ones_do_not() -> None:
    found = refundable(
        payment(shown("a", 1, RefundState.FAILED), shown("b", 2, RefundState.CANCELED), shown("c", 4, RefundState.UNKNOWN)), []
    )
    assert (found.returned, found.remaining) == (4, 9_996)


def test_an_authorisation_can_release_what_could_be_captured() -> None:
    held = payment(captured=0, capturable=5_000, status=PaymentStatus.AUTHORISED)
    assert refundable(held, []).remaining == 5_000
    assert refundable(held, [Claim("rf_1", 5_000)]).remaining == 0


REFUNDS = st.lists(
    st.builds(
        lambda n, amount, state, operation: shown(f"re_{n}", amount, state, operation),
        st.integers(0, 10**6),
        st.integers(1, 10_000),
        st.sampled_from(list(RefundState)),
        st.none() | st.integers(0, 5).map(lambda n: f"op_{n}"),
    ),
    max_size=8,
    unique_by=lambda r: r.id,
)
CLAIMS = st.lists(
    st.builds(
        lambda n, amount, has: Claim(f"rf_{n}", amount, f"op_{n}" if has else None),
        st.integers(0, 5),
        st.integers(1, 10_000),
        st.booleans(),
    ),
    max_size=6,
    unique_by=lambda c: c.refund,
)


@given(REFUNDS, CLAIMS, st.integers(0, 20_000))
def test_remaining_is_never_negative_nor_above_what_was_captured(
    refunds: list[ProcessorRefund], claims: list[Claim], captured: int
) -> None:
    found = refundable(payment(*refunds, captured=captured), claims)
    assert 0 <= found.remaining <= captured
    assert found.external <= found.returned


@given(REFUNDS, CLAIMS, st.randoms(use_true_random=False))
def test_the_order_of_what_is_known_does_not_matter(refunds: list[ProcessorRefund], claims: list[Claim], random: object) -> None:
    before = refundable(payment(*refunds), claims)
    random.shuffle(refunds)  # pyright: ignore[reportAttributeAccessIssue]
    random.shuffle(claims)  # pyright: ignore[reportAttributeAccessIssue]
    assert refundable(payment(*refunds), claims) == before


@given(REFUNDS, CLAIMS, st.integers(1, 10_000))
def test_one_more_claim_never_leaves_more(refunds: list[ProcessorRefund], claims: list[Claim], amount: int) -> None:
    less = refundable(payment(*refunds), [*claims, Claim("rf_new", amount, "op_new")])
    assert less.remaining <= refundable(payment(*refunds), claims).remaining
