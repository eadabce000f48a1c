"""What good governance asks to be recorded with every refund: the merchant's facts from the policy, the order's where it states its own."""

from functools import lru_cache

from refunds.facts import Facts, Governance
from refunds.money import Money, format_money
from refunds.policy.model import Policy

REVERSIBILITY = "Until it is sent it can be withdrawn. Once the processor has it, it cannot be taken back."
"""Of a refund and of the release of an authorisation alike."""

NO_CEILING = "none in this currency, so a person decides each"


def governance(policy: Policy, facts: Facts, tier: int, evidence: tuple[str, ...]) -> Governance:
    """What is recorded beside a decision in this tier."""
    stated, order, currency = policy.governance, facts.order, facts.request.currency
    ceilings = policy.currencies.get(currency)
    return Governance(
        system_of_record=stated.system_of_record,
        legal_entity=order.legal_entity or stated.legal_entity,
        customer_type=order.customer_type or stated.customer_type,
        geography=order.geography or stated.geography,
        data_involved=stated.data_involved,
        financial_ceiling=_written(ceilings.largest, currency) if ceilings else NO_CEILING,
        reversible=False,
        reversibility=REVERSIBILITY,
        approval_owner=policy.tiers.at(tier).approval_owner or stated.approval_owner,
        required_evidence=evidence,
    )


@lru_cache(maxsize=1_024)
def _written(amount: int, currency: str) -> str:
    return format_money(Money(amount, currency))
