"""What the tests of the domain share: facts in which all is well, and how hypothesis runs."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from refunds.facts import BaseFacts, CustomerFacts, Facts, OrderFacts, PaymentFacts, ReadingFacts, RequestFacts
from refunds.policy import sample_policy
from refunds.policy.limits import assumed
from refunds.processor import DisputeState, PaymentStatus
from refunds.reasons import Reason

# A busy machine is no fault of the code: no deadline, and slow generation is not an error.
settings.register_profile("domain", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("domain")

NOW = datetime(2026, 9, 10, 12, tzinfo=UTC)

GOOD = Facts(
    at=NOW,
    request=RequestFacts(
        amount=3_000,
        currency="USD",
        full=False,
        reason=Reason.CUSTOMER_REQUEST,
        channel="chat",
        agent_id=None,
        requested_at=NOW,
        amount_named_by_customer=True,
        customer_authenticated=True,
    ),
    order=OrderFacts(version=1, placed_at=NOW - timedelta(days=9), delivered_at=NOW - timedelta(days=5)),
    payment=PaymentFacts(
        status=PaymentStatus.CAPTURED,
        currency="USD",
        captured=100_000,
        capturable=0,
        remaining=100_000,
        dispute=DisputeState.NONE,
        risk_level="normal",
        refunds_made=0,
    ),
    customer=CustomerFacts(account_age_days=400, orders=6, refunds=1, share_refunded_percent=16, amount_today=0, refunds_week=0),
    base=BaseFacts(currency="USD", amount=3_000, amount_today=0),
)

Build = Callable[..., Facts]


@pytest.fixture(scope="session")
def facts() -> Build:
    """Facts in which all is well, with parts replaced: ``facts(request={"amount": 5}, reading=...)``."""

    def build(reading: ReadingFacts | None = None, **parts: dict[str, Any]) -> Facts:
        changed = {name: replace(getattr(GOOD, name), **values) for name, values in parts.items()}
        return assumed(sample_policy(), replace(GOOD, reading=reading, **changed))

    return build
