"""Signals of fraud, as facts held against the policy: the processor's risk, the age of the account, share and number of earlier refunds, how fast it is asked,
and whether customer and payment fit. Each sends the refund to a person, whatever its size; none ever denies by itself.
"""

from refunds.facts import Facts
from refunds.policy.findings import Case, Finding
from refunds.policy.model import Policy

NO_LIMIT = "not limited by this policy"


def risk_level(policy: Policy, facts: Facts) -> Finding:
    """The processor's own judgement of the payment."""
    level, accepted = facts.payment.risk_level, policy.fraud.risk_levels_accepted
    case = Case("risk_level", "The processor sees no raised risk.", level or "not given", ", ".join(accepted) or "none")
    return case.passed() if level in accepted else case.review(policy.fraud.ladder, signal=f"risk_level:{level or 'unknown'}")


def account_age(policy: Policy, facts: Facts) -> Finding:
    """A young account is looked at."""
    age, limit = facts.customer.account_age_days, policy.fraud.account_younger_than_days
    case = Case(
        "account_age", "The customer's account is old enough.", "not known" if age is None else f"{age} days", f"at least {limit} days"
    )
    if age is None:
        return case.review(policy.fraud.ladder, signal="account_age:unknown")
    return case.passed() if age >= limit else case.review(policy.fraud.ladder, signal=f"account_age:{age}")


def share_refunded(policy: Policy, facts: Facts) -> Finding:
    """A customer most of whose orders come back is looked at."""
    share, orders = facts.customer.share_refunded_percent, facts.customer.orders
    limit, least = policy.fraud.share_refunded_above_percent, policy.fraud.share_counts_from_orders
    observed = f"{'not known' if share is None else f'{share} percent'} of {orders} orders"
    case = Case("share_refunded", "The share refunded is ordinary.", observed, f"at most {limit} percent, counted from {least} orders")
    if orders < least or (share is not None and share <= limit):
        return case.passed()
    return case.review(policy.fraud.ladder, signal=f"share_refunded:{'unknown' if share is None else share}")


def refunds_number(policy: Policy, facts: Facts) -> Finding:
    """A customer with many earlier refunds is looked at."""
    limit, number = policy.fraud.refunds_above, facts.customer.refunds
    case = Case(
        "refunds_number", "The number of earlier refunds is ordinary.", str(number), NO_LIMIT if limit is None else f"at most {limit}"
    )
    return case.passed() if limit is None or number <= limit else case.review(policy.fraud.ladder, signal=f"refunds_number:{number}")


def velocity(policy: Policy, facts: Facts) -> Finding:
    """A customer who asks again and again is looked at; a request that was denied was asked, too."""
    hour, day = facts.customer.requests_hour + 1, facts.customer.requests_day + 1
    limits = (policy.fraud.requests_per_hour_above, policy.fraud.requests_per_day_above)
    named = [f"{most} {words}" for most, words in zip(limits, ("in 60 minutes", "in 24 hours"), strict=True) if most is not None]
    case = Case(
        "velocity",
        "The customer does not ask more often than is ordinary.",
        f"{hour} in 60 minutes, {day} in 24 hours, with this one",
        f"at most {' and '.join(named)}" if named else NO_LIMIT,
    )
    within = all(most is None or asked <= most for most, asked in zip(limits, (hour, day), strict=True))
    return case.passed() if within else case.review(policy.fraud.ladder, signal=f"velocity:{hour}/{day}")


def mismatch(policy: Policy, facts: Facts) -> Finding:
    """Customer and payment fit, as far as anybody knows; what is not known is no mismatch. Only what the policy names is looked at."""
    payment, looked_at = facts.payment, policy.fraud.mismatches
    seen = {
        "customer": (payment.customer_matches, "another customer at the processor"),
        "country": (payment.country_matches, "a card of another country"),
        "checks": (None if not payment.failed_checks else False, f"failed checks: {', '.join(payment.failed_checks)}"),
    }
    found = [name for name in looked_at if seen[name][0] is False]
    case = Case(
        "mismatch",
        "Customer and payment fit.",
        "; ".join(seen[name][1] for name in found) or "none known",
        f"none of: {', '.join(looked_at)}" if looked_at else NO_LIMIT,
    )
    return case.review(policy.fraud.ladder, signal=f"mismatch:{','.join(found)}") if found else case.passed()
