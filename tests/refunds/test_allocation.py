"""Lines by largest remainder: whatever the order, the currency, the capture and the sequence of partial refunds, it ends at exactly zero."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.allocation import Breakdown, Earlier, Units, break_down, of_units, shares, spread, weigh
from refunds.errors import Code, RefundError
from refunds.money import CURRENCIES, requested
from refunds.orders import Order

ORDER: dict[str, Any] = {"customer_id": "c1", "currency": "USD"}


def order(*lines: dict[str, Any], **more: Any) -> Order:
    named = [{"id": str(at + 1)} | line for at, line in enumerate(lines)]
    return Order.model_validate(ORDER | {"lines": named} | more)


def everything(of: Order) -> Units:
    return Units({line.id: line.quantity for line in of.lines}, shipping=True)


def refused(of: Order, captured: int, units: Units, earlier: Earlier | None = None) -> Code:
    with pytest.raises(RefundError) as raised:
        break_down(of, captured, "USD", units, earlier or Earlier())
    return raised.value.code


# --- spreading ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "weights", "step", "parts"),
    [
        (1, [1, 1, 1], 1, [1, 0, 0]),
        (100, [1, 1, 1], 1, [34, 33, 33]),
        (101, [1, 1, 1], 1, [34, 34, 33]),
        (100, [1, 2], 1, [33, 67]),
        (10, [0, 3, 0], 1, [0, 10, 0]),
        (0, [0, 0], 1, [0, 0]),
        (0, [], 1, []),
        (500, [1, 1, 1], 100, [200, 200, 100]),
        (10, [1, 1], 10, [10, 0]),
    ],
)
def test_a_total_is_spread_by_largest_remainder_and_the_first_wins_a_tie(
    total: int, weights: list[int], step: int, parts: list[int]
) -> None:
    assert spread(total, weights, step=step) == parts


@pytest.mark.parametrize(
    ("total", "weights", "step"), [(-1, [1], 1), (1, [-1, 2], 1), (1, [], 1), (1, [0, 0], 1), (150, [1], 100), (1, [1], 0)]
)
def test_what_cannot_be_spread_exactly_is_an_error(total: int, weights: list[int], step: int) -> None:
    with pytest.raises(ValueError, match=r"never below zero|has a weight"):
        spread(total, weights, step=step)


@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**11), min_size=1, max_size=12).filter(any), st.sampled_from([1, 10, 100]))
def test_a_spread_is_exact_and_never_a_step_away_from_its_fraction(steps: int, weights: list[int], step: int) -> None:
    parts = spread(steps * step, weights, step=step)
    assert sum(parts) == steps * step
    for part, weight in zip(parts, weights, strict=True):
        assert part % step == 0
        assert abs(part * sum(weights) - steps * step * weight) < step * sum(weights)
        assert weight or not part


@given(st.integers(0, 10**7), st.integers(1, 40), st.sampled_from([1, 10, 100]), st.data())
def test_units_in_any_grouping_come_to_the_same(steps: int, units: int, step: int, data: st.DataObject) -> None:
    amount = steps * step
    once = [of_units(amount, units, taken, step=step) for taken in range(units + 1)]
    assert (once[0], once[-1]) == (0, amount)
    assert once == sorted(once)
    assert once[-1] == sum(spread(amount, [1] * units, step=step))
    first = data.draw(st.integers(0, units - 1))
    then = data.draw(st.integers(0, units - first))
    assert once[first] + of_units(amount - once[first], units - first, then, step=step) == once[first + then]


# --- what an order comes to --------------------------------------------------------------------------------------------------------------


def test_tax_and_discount_of_the_order_include_the_lines_own_and_the_rest_is_spread() -> None:
    of = order({"amount": 6_000, "tax": 600, "discount": 1_000}, {"amount": 5_000}, tax=1_500, shipping=1_000, discount=2_000)
    lines, shipping = weigh(of)
    # 1000 of the discount is over 5000 and 5000; 900 of the tax over the line that states none (4500 net) and the shipping (1000).
    assert [(s.amount, s.tax, s.discount) for s in lines] == [(4_500 + 600, 600, 1_500), (4_500 + 736, 736, 500)]
    assert (shipping.amount, shipping.tax, shipping.discount) == (1_164, 164, 0)
    assert sum(s.amount for s in (*lines, shipping)) == 6_000 + 5_000 + 1_000 - 2_000 + 1_500


def test_tax_beyond_lines_that_state_theirs_is_the_shippings() -> None:
    lines, shipping = weigh(order({"amount": 5_000, "tax": 1_000}, {"amount": 0, "tax": 0}, tax=1_100, shipping=500))
    assert [s.amount for s in lines] == [6_000, 0]
    assert (shipping.amount, shipping.tax) == (600, 100)


def test_a_discount_above_all_goods_comes_off_the_shipping() -> None:
    lines, shipping = weigh(order({"amount": 1_000}, shipping=500, discount=1_200))
    assert (lines[0].amount, lines[0].discount) == (0, 1_000)
    assert (shipping.amount, shipping.discount) == (300, 200)


def test_tax_without_any_net_amount_is_spread_evenly() -> None:
    lines, shipping = weigh(order({"amount": 0}, {"amount": 0}, tax=2))
    assert [s.amount for s in (*lines, shipping)] == [1, 1, 0]


# --- partial refunds ---------------------------------------------------------------------------------------------------------------------


def test_field_46_tax_and_shipping_are_part_of_what_was_captured() -> None:
    of = order({"amount": 6_000, "tax": 1_200}, {"amount": 4_000, "tax": 800}, tax=2_100, shipping=500)
    whole = break_down(of, 12_600, "USD", everything(of), Earlier())
    assert (whole.amount, whole.order_total, whole.captured_as_ordered) == (12_600, 12_600, True)
    assert [(line.id, line.amount, line.tax) for line in whole.lines] == [("1", 7_200, 1_200), ("2", 4_800, 800)]
    assert whole.shipping is not None
    assert (whole.shipping.amount, whole.shipping.tax) == (600, 100)


def test_field_46_a_capture_that_is_not_the_orders_total_is_never_exceeded() -> None:
    thirds = order({"amount": 33}, {"amount": 33}, {"amount": 34}, tax=1)
    earlier, amounts = [], []
    for line in ("1", "2", "3"):
        found = break_down(thirds, 100, "USD", Units({line: 1}), Earlier.of(earlier))
        earlier.append(asdict(found))
        amounts.append(found.amount)
    assert amounts == [33, 33, 34]
    assert not found.captured_as_ordered


def test_one_minor_unit_over_three_lines_goes_to_the_first() -> None:
    of = order({"amount": 500}, {"amount": 500}, {"amount": 500})
    assert break_down(of, 1, "USD", Units({"1": 1}), Earlier()).amount == 1
    assert refused(of, 1, Units({"2": 1})) is Code.LINES_COME_TO_NOTHING
    assert break_down(of, 1, "USD", everything(of), Earlier()).amount == 1


def test_a_free_line_comes_to_nothing_and_an_order_without_prices_tells_nothing() -> None:
    assert refused(order({"amount": 0}, {"amount": 5}), 5, Units({"1": 1})) is Code.LINES_COME_TO_NOTHING
    assert refused(order({"amount": 0}), 5, Units({"1": 1})) is Code.LINES_NOT_PRICED
    assert refused(order(), 5, Units(shipping=True)) is Code.LINES_NOT_PRICED
    assert refused(order({"amount": 5}), 5, Units(shipping=True)) is Code.LINES_COME_TO_NOTHING


def test_lines_that_are_not_there_or_not_left_are_refused_by_name() -> None:
    of = order({"amount": 900, "quantity": 3}, shipping=100)
    before = Earlier.of([asdict(break_down(of, 1_000, "USD", Units({"1": 2}, shipping=True), Earlier()))])
    assert refused(of, 1_000, Units({"9": 1})) is Code.LINE_NOT_FOUND
    assert refused(of, 1_000, Units({"1": 4})) is Code.LINE_NOT_LEFT
    assert refused(of, 1_000, Units({"1": 2}), before) is Code.LINE_NOT_LEFT
    assert refused(of, 1_000, Units({"1": 1}, shipping=True), before) is Code.LINE_NOT_LEFT
    assert break_down(of, 1_000, "USD", Units({"1": 1}), before).amount == 300


def test_a_refusal_names_a_line_by_its_place_and_never_by_its_id() -> None:
    secret = Order.model_validate(ORDER | {"lines": [{"id": "anna's ring", "amount": 5}]})
    for units, sentence in (
        (Units({"bens": 1}), "The order has no line with the id in lines.0."),
        (Units({"anna's ring": 2}), "Of the line in lines.0, 1 of 1 units are left to refund; 2 are asked for."),
    ):
        with pytest.raises(RefundError) as raised:
            break_down(secret, 5, "USD", units, Earlier())
        assert raised.value.detail == sentence


def test_field_15_units_on_their_way_back_are_counted_once_each() -> None:
    of = order({"amount": 1_000, "quantity": 3})
    earlier: list[dict[str, Any]] = []
    amounts: list[int] = []
    for _ in range(3):
        found = break_down(of, 1_000, "USD", Units({"1": 1}), Earlier.of(earlier))
        earlier.append(asdict(found))
        amounts.append(found.amount)
    assert amounts == [334, 333, 333]
    assert refused(of, 1_000, Units({"1": 1}), Earlier.of(earlier)) is Code.LINE_NOT_LEFT


def test_field_48_what_a_gift_card_paid_is_not_in_the_cards_lines() -> None:
    of = order({"amount": 6_000}, {"amount": 4_000})
    found = break_down(of, 7_000, "USD", Units({"1": 1}), Earlier())
    assert (found.amount, found.order_total, found.captured_as_ordered) == (4_200, 10_000, False)


@pytest.mark.parametrize(("code", "step", "captured"), [("ISK", 100, 1_000_00), ("UGX", 100, 500), ("KWD", 10, 10_010), ("JPY", 1, 1_000)])
def test_every_part_can_be_sent_in_its_currency(code: str, step: int, captured: int) -> None:
    of = order({"amount": 333, "quantity": 3}, {"amount": 667}, shipping=7)
    found = break_down(of, captured, code, everything(of), Earlier())
    assert found.amount == captured
    assert found.shipping is not None
    assert all(part.amount % step == 0 and part.tax % step == 0 for part in (*found.lines, found.shipping))


def test_what_a_capture_has_beyond_whole_steps_is_left_out() -> None:
    of = order({"amount": 100})
    assert break_down(of, 10_050, "ISK", Units({"1": 1}), Earlier()).amount == 10_000


def test_a_later_capture_and_another_version_of_the_order_still_end_at_what_was_captured() -> None:
    of = order({"amount": 6_000, "quantity": 2}, {"amount": 4_000})
    first = break_down(of, 5_000, "USD", Units({"1": 1}), Earlier())
    assert first.amount == 1_500
    changed = order({"amount": 4_000, "quantity": 2}, {"amount": 6_000})
    rest = break_down(changed, 10_000, "USD", Units({"1": 1, "2": 1}), Earlier.of([asdict(first)]))
    assert rest.amount == 10_000 - 1_500
    gone = order({"amount": 1_000, "quantity": 2}, {"amount": 9_000})
    # More went back for the line than it has now: nothing more comes off it, and never less than nothing.
    assert refused(gone, 10_000, Units({"1": 1}), Earlier.of([asdict(first)])) is Code.LINES_COME_TO_NOTHING


@pytest.mark.parametrize(
    ("captured", "parts", "one_by_one", "grouped"),
    [
        (7_999, [5_943, 1_510, 0, 546], [1_981, 2_056, 1_981, 1_981], [3_962, 2_527, 1_510]),
        (5_000, [3_715, 944, 0, 341], [1_239, 1_285, 1_238, 1_238], [2_477, 1_579, 944]),
    ],
)
def test_the_example_of_the_decision(captured: int, parts: list[int], one_by_one: list[int], grouped: list[int]) -> None:
    shirts = {"id": "shirt", "quantity": 3, "amount": 6_000}
    of = order(shirts, {"amount": 1_500, "tax": 150}, {"amount": 299, "discount": 299}, tax=700, shipping=500, discount=1_000)
    of_lines, of_shipping = shares(of, captured, "USD")
    assert [part.amount for part in (*of_lines, of_shipping)] == parts
    a_shirt, mug = Units({"shirt": 1}), {"2": 1}
    for sequence, amounts in (
        ([a_shirt, Units(mug, shipping=True), a_shirt, a_shirt], one_by_one),
        ([Units({"shirt": 2}), Units({"shirt": 1}, shipping=True), Units(mug)], grouped),
    ):
        earlier: list[dict[str, Any]] = []
        for units in sequence:
            earlier.append(asdict(break_down(of, captured, "USD", units, Earlier.of(earlier))))
        assert [one["amount"] for one in earlier] == amounts
        assert sum(amounts) == captured


# --- any order, any sequence -------------------------------------------------------------------------------------------------------------


@st.composite
def some_orders(draw: st.DrawFn) -> Order:
    amounts = st.one_of(st.just(0), st.integers(0, 30), st.integers(0, 1_000_000))
    lines: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 5))):
        amount = draw(amounts)
        line = {"amount": amount, "quantity": draw(st.integers(1, 5)), "discount": draw(st.integers(0, amount))}
        lines.append(line | ({"tax": draw(amounts)} if draw(st.booleans()) else {}))
    shipping = draw(amounts)
    own = sum(line["discount"] for line in lines)
    priced = sum(line["amount"] for line in lines) + shipping
    tax = sum(line.get("tax", 0) for line in lines)
    more = {
        "discount": draw(st.one_of(st.just(0), st.integers(own, priced))),
        "tax": draw(st.one_of(st.just(0), st.integers(tax, tax + 100_000))),
    }
    return order(*lines, shipping=shipping, **more)


priced_orders = some_orders().filter(lambda of: sum(part.amount for part in (*weigh(of)[0], weigh(of)[1])) > 0)
currencies = st.sampled_from(["USD", "JPY", "ISK", "UGX", "KWD"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Order, str, int]:
    of, code = draw(priced_orders), draw(currencies)
    lines, shipping = weigh(of)
    total = sum(part.amount for part in (*lines, shipping))
    captured = draw(st.one_of(st.just(total), st.integers(1, 30), st.integers(1, 3_000_000)))
    step = CURRENCIES[code].multiple
    return of, code, max(step, captured - captured % step)


def pieces(of: Order, data: st.DataObject) -> Iterator[Units]:
    """Everything of an order, one piece after the other, cut and shuffled as the test likes."""
    left = {line.id: line.quantity for line in of.lines}
    shipping = True
    while left or shipping:
        chosen = data.draw(st.sets(st.sampled_from(sorted(left)), max_size=2)) if left else set[str]()
        units = {line_id: data.draw(st.integers(1, left[line_id])) for line_id in sorted(chosen)}
        with_shipping = shipping and data.draw(st.booleans())
        if not units and not with_shipping:
            continue
        left = {line_id: n - units.get(line_id, 0) for line_id, n in left.items() if n > units.get(line_id, 0)}
        shipping = shipping and not with_shipping
        yield Units(units, with_shipping)


def taken(of: Order, captured: int, code: str, units: Units, earlier: list[Breakdown]) -> Breakdown | None:
    """What the units come to, or ``None`` for units that nothing fell to."""
    try:
        return break_down(of, captured, code, units, Earlier.of(asdict(one) for one in earlier))
    except RefundError as error:
        assert error.code is Code.LINES_COME_TO_NOTHING
        return None


@given(cases(), st.data())
def test_field_46_any_sequence_of_partial_refunds_ends_at_exactly_what_was_captured(
    case: tuple[Order, str, int], data: st.DataObject
) -> None:
    of, code, captured = case
    left, earlier = captured, list[Breakdown]()
    of_lines, of_shipping = shares(of, captured, code)
    for units in pieces(of, data):
        found = taken(of, captured, code, units, earlier)
        if found is None:  # nothing fell to them, so nothing is lost by leaving them out
            continue
        assert requested(found.amount, code).amount == found.amount <= left
        parts = [*found.lines, *([found.shipping] if found.shipping else [])]
        assert sum(part.amount for part in parts) == found.amount
        assert all(0 <= part.tax <= part.amount and part.discount >= 0 for part in parts)
        assert all(line.left >= 0 for line in found.lines)
        left -= found.amount
        earlier.append(found)
    assert left == 0
    sums = Earlier.of(asdict(one) for one in earlier)
    for line, share in zip(of.lines, of_lines, strict=True):
        assert sums.lines[line.id].amount == share.amount if line.id in sums.lines else share.amount == 0
        if sums.units(line.id) == line.quantity:
            assert (sums.lines[line.id].tax, sums.lines[line.id].discount) == (share.tax, share.discount)
    assert sums.shipping.amount == of_shipping.amount


@given(cases())
def test_all_at_once_is_exactly_what_was_captured_and_as_ordered_when_that_was_taken(case: tuple[Order, str, int]) -> None:
    of, code, captured = case
    found = break_down(of, captured, code, everything(of), Earlier())
    assert found.amount == captured
    if code == "USD" and captured == found.order_total:
        assert found.captured_as_ordered
        lines, shipping = weigh(of)
        assert [line.amount for line in found.lines] == [part.amount for part in lines]
        assert found.shipping == shipping


@given(cases(), st.data())
def test_more_units_never_come_to_less(case: tuple[Order, str, int], data: st.DataObject) -> None:
    of, code, captured = case
    line = data.draw(st.sampled_from(of.lines))
    amounts = [found.amount if (found := taken(of, captured, code, Units({line.id: n}), [])) else 0 for n in range(1, line.quantity + 1)]
    assert amounts == sorted(amounts)


@given(cases(), st.data())
def test_the_sequence_of_earlier_refunds_does_not_matter(case: tuple[Order, str, int], data: st.DataObject) -> None:
    of, code, captured = case
    earlier: list[Breakdown] = []
    for units in pieces(of, data):
        if (found := taken(of, captured, code, units, earlier)) is not None:
            earlier.append(found)
    shuffled = data.draw(st.permutations(earlier))
    assert Earlier.of(asdict(one) for one in earlier) == Earlier.of(asdict(one) for one in shuffled)
