"""The checks that every policy has: payment, coverage, window, ceilings, consent, limits over time. Those for signals of fraud are in ``signals``.

Each takes the policy and the facts and gives one finding, also when all is well. What no setting names is refused or goes to a person; what is not
known goes to a person (promise P11).
"""

from collections.abc import Callable
from datetime import timedelta

from refunds.clock import rfc3339
from refunds.errors import CATALOGUE, Code
from refunds.facts import Facts
from refunds.money import Money, format_money
from refunds.policy.findings import DENY, REVIEW, Case, Finding
from refunds.policy.model import Policy
from refunds.policy.signals import NO_LIMIT, account_age, mismatch, refunds_number, risk_level, share_refunded, velocity
from refunds.processor import DisputeState, PaymentStatus
from refunds.reasons import Reason

Check = Callable[[Policy, Facts], Finding]

UNKNOWN = "unknown"


def _shown(amount: int, facts: Facts) -> str:
    return format_money(Money(amount, facts.request.currency))


def _asked(facts: Facts) -> str:
    """The amount asked for; where nobody could tell it, nothing that looks like one."""
    return _shown(facts.request.amount, facts) if facts.request.amount_is_known else UNKNOWN


def whole_release(facts: Facts) -> bool:
    """Whether this returns no money but releases a whole authorisation, from which nothing was captured."""
    payment = facts.payment
    return payment.status is PaymentStatus.AUTHORISED and facts.request.amount == payment.capturable


def consent_given(facts: Facts) -> bool:
    """Whether the request is the customer's consent by itself: the authenticated customer named exactly this amount, and no model read it."""
    request = facts.request
    return request.customer_authenticated and request.amount_named_by_customer and not request.extracted


_NOTHING_TAKEN = {
    PaymentStatus.PROCESSING: Code.PAYMENT_PROCESSING,
    PaymentStatus.CANCELED: Code.PAYMENT_CANCELED,
    PaymentStatus.INCOMPLETE: Code.PAYMENT_INCOMPLETE,
}


def payment_status(policy: Policy, facts: Facts) -> Finding:
    """Money can only be returned that was taken (field report 28)."""
    status = facts.payment.status
    case = Case(
        "payment_status",
        "The payment was captured, or only authorised and the whole of it is released.",
        f"{status}, {_asked(facts)} asked for",
        "captured; or authorised, as a whole",
    )
    if status is PaymentStatus.CAPTURED or whole_release(facts):
        return case.passed()
    if status in (PaymentStatus.AUTHORISED, PaymentStatus.UNKNOWN):
        return case.review()
    return case.deny(_NOTHING_TAKEN.get(status, Code.PAYMENT_NOT_CAPTURED))


def dispute(policy: Policy, facts: Facts) -> Finding:
    """A refund beside a dispute would pay twice (field report 32)."""
    state = facts.payment.dispute
    case = Case("dispute", "No dispute of the payment is open or lost.", state, "none; a person looks at an inquiry")
    if state is DisputeState.OPEN:
        return case.deny(Code.PAYMENT_DISPUTED)
    if state is DisputeState.LOST:
        return case.deny(Code.ALREADY_RETURNED)
    return case.passed() if state is DisputeState.NONE else case.review()


def refundable(policy: Policy, facts: Facts) -> Finding:
    """Never more than is left of what was captured (promise P2)."""
    amount, remaining = facts.request.amount, facts.payment.remaining
    case = Case(
        "refundable",
        "The amount is above zero and at most what is still refundable.",
        _asked(facts),
        f"at most {_shown(remaining, facts)}",
    )
    if not facts.request.amount_is_known:
        return case.review()  # it is not denied for that: a person states it first
    if amount <= 0:
        # A full refund of nothing is not a wrong amount: everything went back already.
        return case.deny(Code.ALREADY_REFUNDED if facts.request.full and remaining <= 0 else Code.AMOUNT_NOT_POSITIVE)
    if facts.payment.status is PaymentStatus.UNKNOWN:
        return case.review()
    if amount <= remaining:
        return case.passed()
    return case.deny(Code.EXCEEDS_REFUNDABLE if remaining > 0 else Code.ALREADY_REFUNDED)


def currency(policy: Policy, facts: Facts) -> Finding:
    """A currency without ceilings is never automatic, and because its size cannot be judged it goes to the ladder of high impact."""
    code = facts.request.currency
    case = Case("currency", "The currency is the payment's and has ceilings in the policy.", code, ", ".join(sorted(policy.currencies)))
    if facts.payment.currency != code:
        return case.deny(Code.CURRENCY_MISMATCH)
    return case.passed() if code in policy.currencies else case.review(policy.tiers.high_impact.ladder)


def requester(policy: Policy, facts: Facts) -> Finding:
    """Whether this kind of requester is covered."""
    agent = facts.request.agent_id is not None
    setting = policy.requesters.agents if agent else policy.requesters.people_and_services
    kind = "an AI agent" if agent else "a person or service of the merchant"
    case = Case("requester", "The policy covers requests of this kind of requester.", kind, setting)
    return case.by(setting, Code.NOT_COVERED, policy.texts.not_covered)


def _setting(accepted: tuple[str, ...], any_other: str, not_given: str, given: str | None) -> str:
    if given is None:
        return not_given
    return "accept" if given in accepted else any_other


def channel(policy: Policy, facts: Facts) -> Finding:
    """Whether the channel is covered."""
    given = facts.request.channel
    case = Case("channel", "The policy covers the channel.", given or "not given", ", ".join(policy.channels.accepted) or "none")
    setting = _setting(policy.channels.accepted, policy.channels.any_other, policy.channels.not_given, given)
    return case.by(setting, Code.NOT_COVERED, policy.texts.not_covered)


def reason(policy: Policy, facts: Facts) -> Finding:
    """Whether the reason is covered. A reason that a model read satisfies nothing: the stricter of with and without it counts."""
    given = facts.request.reason
    finding = _reason(policy, given)
    if facts.request.extracted and given is not None:
        without = _reason(policy, None)
        finding = max(finding, without, key=lambda f: (f.check.result == REVIEW) + 2 * (f.check.result == DENY))
    return finding


def _reason(policy: Policy, given: Reason | None) -> Finding:
    case = Case("reason", "The policy covers the reason.", given or "not given", ", ".join(policy.reasons.accepted) or "none")
    setting = _setting(policy.reasons.accepted, policy.reasons.any_other, policy.reasons.not_given, given)
    found = case.by(setting, Code.NOT_COVERED, policy.texts.not_covered)
    return found if given is None else found.liftable()


def evidence(policy: Policy, facts: Facts) -> Finding:
    """Evidence that a reason asks for is there before anybody approves: never automatic, because only a person can see whether it is."""
    given = facts.request.reason
    kinds = policy.reasons.evidence.get(given, ()) if given else ()
    case = Case(
        "evidence",
        "The evidence that the reason asks for is there before anybody approves.",
        given or "no reason given",
        ", ".join(kinds) or "none",
    )
    return case.review(signal="evidence", evidence=kinds).liftable() if kinds else case.passed()


def window(policy: Policy, facts: Facts) -> Finding:
    """Whether it was asked for in time: up to and including the instant that lies the window's days of 24 hours after it begins."""
    windows, order, asked = policy.windows, facts.order, facts.request.requested_at
    text = f"It was asked for within the return window, counted from {_BEGINS[windows.start]}."
    days, category = windows.shortest(order.categories)
    held_against = f"{days} days for {category}" if category else f"{days} days"
    begins = order.delivered_at if windows.start == "delivered" else order.placed_at
    if whole_release(facts):
        return Case("window", text, "nothing was captured, so nothing is returned", held_against).passed()
    if begins is None:
        case = Case("window", text, f"{_BEGINS[windows.start]} is not recorded", f"{held_against} from {_BEGINS[windows.start]}")
        return case.by(windows.delivery_unknown, Code.NOT_COVERED, policy.texts.outside_window)
    last = begins + timedelta(days=days)
    case = Case("window", text, f"asked at {rfc3339(asked)}", f"{held_against}: from {rfc3339(begins)} to {rfc3339(last)}")
    if asked < begins:
        return case.review()
    return case.passed() if asked <= last else case.deny(Code.OUTSIDE_WINDOW, policy.texts.outside_window).liftable()


_BEGINS = {"delivered": "delivery", "placed": "the order"}


def lines_amount(policy: Policy, facts: Facts) -> Finding:
    """Named lines and a stated amount say the same, or a person says which of them is meant."""
    request = facts.request
    text, limit = "The amount is what the named lines and shipping come to.", "no lines named"
    if request.lines_amount is None:
        return Case("lines_amount", text, _asked(facts), limit).passed()
    case = Case("lines_amount", text, _shown(request.amount, facts), _shown(request.lines_amount, facts))
    return case.passed() if request.amount == request.lines_amount else case.review(signal="lines_amount")


def lines_captured(policy: Policy, facts: Facts) -> Finding:
    """Where more or less was taken than the order comes to, a part of it is a part of what was taken, and a person looks (field report 46)."""
    payment, order = facts.payment, facts.order
    taken = payment.capturable if payment.status is PaymentStatus.AUTHORISED else payment.captured
    shown = _shown(taken, facts) if payment.currency == facts.request.currency else f"{taken} {payment.currency}"
    text = "What was captured is what the order's lines and shipping come to."
    if facts.request.lines_amount is None or order.total is None or order.currency is None:
        return Case("lines_captured", text, shown, "no lines named").passed()
    case = Case("lines_captured", text, shown, format_money(Money(order.total, order.currency)))
    as_ordered = (taken, payment.currency) == (order.total, order.currency)
    return case.passed() if as_ordered else case.review(signal="lines_captured")


def lines_returned(policy: Policy, facts: Facts) -> Finding:
    """Goods of some categories come back before they are refunded; where it is not said which units are refunded, or what was sent, a person looks."""
    required = policy.returns.require_return_for
    concerned = [line for line in facts.lines if line.category in required]
    known = [line.awaited for line in concerned]
    awaited = sum(units or 0 for units in known)
    observed = f"{awaited} units sent and not come back" + (", others not recorded" if None in known else "")
    case = Case(
        "lines_returned",
        "Goods that must come back first were not sent, or came back.",
        observed if concerned else "none of such goods",
        f"for {', '.join(required)}" if required else "no goods must come back",
    )
    if awaited and all(line.asked is not None for line in concerned):
        found = case.by(policy.returns.not_returned, Code.LINES_NOT_RETURNED, CATALOGUE[Code.LINES_NOT_RETURNED].meaning)
        return found if None in known else found.liftable()
    return case.review(signal="lines_returned") if awaited or None in known else case.passed()


def largest(policy: Policy, facts: Facts) -> Finding:
    """The most that one refund may be."""
    amount, ceilings = facts.request.amount, policy.currencies.get(facts.request.currency)
    limit = f"at most {_shown(ceilings.largest, facts)}" if ceilings else "no ceiling in this currency"
    case = Case("largest", "The amount is at most the largest that the policy allows.", _asked(facts), limit)
    if ceilings is None:
        return case.review(policy.tiers.high_impact.ladder)
    if not facts.request.amount_is_known:
        return case.review()
    return case.passed() if amount <= ceilings.largest else case.deny(Code.POLICY_DENIED, policy.texts.not_covered)


def ceiling(policy: Policy, facts: Facts) -> Finding:
    """Who must decide, by size."""
    amount, ceilings = facts.request.amount, policy.currencies.get(facts.request.currency)
    text = "The amount is small enough to go without a person."
    if ceilings is None:
        return Case("ceiling", text, _asked(facts), "no ceiling in this currency").review(policy.tiers.high_impact.ladder)
    low, high = _shown(ceilings.consent_only_up_to, facts), _shown(ceilings.manager_above, facts)
    limit = f"up to {low} without a person, above {high} a manager"
    if ceilings.two_people_above is not None:
        limit += f", above {_shown(ceilings.two_people_above, facts)} two people"
    case = Case("ceiling", text, _asked(facts), limit)
    if not facts.request.amount_is_known:
        return case.review()
    if amount <= ceilings.consent_only_up_to:
        return case.passed()
    tiers = policy.tiers
    people = 2 if ceilings.two_people_above is not None and amount > ceilings.two_people_above else 1
    return case.review((tiers.high_impact if amount > ceilings.manager_above else tiers.reviewed).ladder, people=people)


def customer_authentication(policy: Policy, facts: Facts) -> Finding:
    """A customer nobody made sure of is looked at by a person (field report 62)."""
    sure = facts.request.customer_authenticated
    case = Case("customer_authentication", "The caller made sure who the customer is.", "yes" if sure else "not stated", "yes")
    return case.passed() if sure else case.review()


def consent(policy: Policy, facts: Facts) -> Finding:
    """The customer agrees to the exact terms. What a model read out of a text has to be agreed to whatever the policy says (promise P10)."""
    request, given = facts.request, consent_given(facts)
    if request.extracted:
        observed = "the request was read out of free text"
    else:
        observed = "the customer named exactly this amount" if given else "the customer has not named this amount"
    required = policy.consent.required or request.extracted
    case = Case("consent", "The customer agrees to the exact terms.", observed, "required" if required else "not required")
    return case.consent() if required and not given else case.passed()


def _day(facts: Facts, used: int, amount: int | None, code: str) -> str:
    """What a customer gets in a day with this refund, and without it."""
    before = f"{format_money(Money(used, code))} before"
    if amount is None or not facts.request.amount_is_known:
        return f"{UNKNOWN} with this one, {before}"
    return f"{format_money(Money(used + amount, code))} with this one, {before}"


def customer_day(policy: Policy, facts: Facts) -> Finding:
    """What one customer gets in a day in this currency without a person, across agents and channels. A release returns no money and is not counted."""
    text = f"What the customer gets in a day ({policy.customer_limits.zone}) in this currency without a person is within the limit."
    request, used = facts.request, facts.customer.amount_today
    ceilings, observed = policy.currencies.get(request.currency), _day(facts, used, request.amount, request.currency)
    if ceilings is None:
        return Case("customer_day", text, observed, "no limit in this currency").review(policy.tiers.high_impact.ladder)
    limit = f"{_shown(ceilings.per_customer_per_day, facts)} a day"
    if whole_release(facts):
        return Case("customer_day", text, "a release is not counted", limit).passed()
    case = Case("customer_day", text, observed, limit)
    if not request.amount_is_known:
        return case.review()
    return _within(policy, case, used + request.amount <= ceilings.per_customer_per_day)


def _within(policy: Policy, case: Case, is_within: bool) -> Finding:
    return case.passed() if is_within else case.by(policy.customer_limits.when_exceeded, Code.LIMIT_EXCEEDED, policy.texts.limits)


def exchange_rate(policy: Policy, facts: Facts) -> Finding:
    """Whether it is known what the refund counts as in the base currency. It is never converted, and never denied because a rate is missing."""
    base, code, worth = policy.base, facts.request.currency, facts.base
    text = "What the amount counts as in the policy's base currency is known."
    if base is None or base == code:
        why = "the policy names no base_currency" if base is None else f"{code} is the base currency"
        return Case("exchange_rate", text, why, "no rate needed").passed()
    days = policy.rates_at_most_days_old
    limit = f"a rate at most {days} days old; to add one: refunds rates set {code} RATE --base {base} --source WHERE"
    if worth.currency != base or worth.rate is None or worth.rate_at is None:
        return Case("exchange_rate", text, f"no rate of {code} in {base} is recorded", limit).review()
    case = Case("exchange_rate", text, f"1 {code} = {worth.rate} {base} since {rfc3339(worth.rate_at)} ({worth.rate_id})", limit)
    return case.passed() if facts.at - worth.rate_at <= timedelta(days=days) else case.review()


def customer_day_all(policy: Policy, facts: Facts) -> Finding:
    """What one customer gets in a day in all currencies together: a refund in another currency escapes no limit (field report 36).

    Each counts as what was recorded when it was quoted. What cannot be counted is no zero: a person looks, whatever ``when_exceeded`` says.
    """
    base, request, worth = policy.base, facts.request, facts.base
    text = (
        f"What the customer gets in a day ({policy.customer_limits.zone}) in all currencies together without a person is within the limit."
    )
    ceilings = policy.currencies.get(base or "")
    if base is None or ceilings is None:
        case = Case("customer_day_all", text, _uncounted(worth.not_counted) or "one currency", "one currency a day without a base_currency")
        return case.review() if worth.not_counted and not whole_release(facts) else case.passed()
    limit = f"{format_money(Money(ceilings.per_customer_per_day, base))} a day"
    if whole_release(facts):
        return Case("customer_day_all", text, "a release is not counted", limit).passed()
    amount = request.amount if request.currency == base else worth.amount
    if worth.currency != base or worth.amount_today is None:
        return Case("customer_day_all", text, UNKNOWN, limit).review()
    parts = [_day(facts, worth.amount_today, amount, base), _uncounted(worth.not_counted)]
    case = Case("customer_day_all", text, "; ".join(part for part in parts if part), limit)
    if amount is None or worth.not_counted or not request.amount_is_known:
        return case.review()
    return _within(policy, case, worth.amount_today + amount <= ceilings.per_customer_per_day)


def _uncounted(currencies: tuple[str, ...]) -> str:
    return f"also in {', '.join(currencies)}, of which no worth is recorded" if currencies else ""


def customer_week(policy: Policy, facts: Facts) -> Finding:
    """How many refunds one customer gets in seven days without a person."""
    text = "The customer's refunds in seven days without a person are within the limit."
    limit, total = policy.customer_limits.refunds_per_week, facts.customer.refunds_week + 1
    if whole_release(facts):
        return Case("customer_week", text, "a release is not counted", f"{limit} in seven days").passed()
    case = Case("customer_week", text, f"{total} with this one", f"{limit} in seven days")
    return case.passed() if total <= limit else case.by(policy.customer_limits.when_exceeded, Code.LIMIT_EXCEEDED, policy.texts.limits)


def payment_refunds(policy: Policy, facts: Facts) -> Finding:
    """How many refunds one payment has without a person."""
    limit, total = policy.payments.refunds_per_payment, facts.payment.refunds_made + 1
    case = Case(
        "payment_refunds",
        "The payment's refunds without a person are within the limit.",
        f"{total} with this one",
        NO_LIMIT if limit is None else f"{limit} of one payment",
    )
    if limit is None or total <= limit or whole_release(facts):
        return case.passed()
    return case.by(policy.payments.when_exceeded, Code.LIMIT_EXCEEDED, policy.texts.limits)


def duplicate(policy: Policy, facts: Facts) -> Finding:
    """What looks like the same request again is looked at with both shown."""
    other = facts.request.possible_duplicate_of
    case = Case("duplicate", "It does not look like another request again.", f"like {other}" if other else "none found", "none")
    return case.review(signal=f"possible_duplicate:{other}") if other else case.passed()


CHECKS: tuple[Check, ...] = (
    payment_status,
    dispute,
    refundable,
    currency,
    requester,
    channel,
    reason,
    evidence,
    window,
    lines_amount,
    lines_captured,
    lines_returned,
    largest,
    ceiling,
    customer_authentication,
    consent,
    customer_day,
    exchange_rate,
    customer_day_all,
    customer_week,
    payment_refunds,
    duplicate,
    risk_level,
    account_age,
    share_refunded,
    refunds_number,
    velocity,
    mismatch,
)
"""In the order in which they are made: when several refuse, the first gives the code."""
